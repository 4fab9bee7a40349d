"""Folders and owners, for messages about files that cannot be used."""

from __future__ import annotations

import os
import pwd
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slurmsched.errors import RightsError


def standing_folder(path: Path) -> Path:
    """The nearest folder above path that exists: where something can be made, or cannot."""
    return next(parent for parent in path.absolute().parents if os.path.exists(parent))  # noqa: PTH110 - never raises


def owner(path: Path) -> str:
    """Name of the user that owns path, which exists; the number of one without a name."""
    number = path.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def dropped(path: Path) -> None:
    """Remove a draft, if it is there. Raises nothing: where nothing can be written, nothing can be removed either."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def see_not_root(path: Path) -> None:
    """See that what is made at path can be written by who works there. Raises RightsError for root in a folder of
    somebody else, whose next cycle could not open root's new files."""
    folder = standing_folder(path)
    if os.geteuid() == 0 and folder.stat().st_uid != 0:
        who = owner(folder)
        raise RightsError(f"root would make files in {folder} that {who}, who owns it, cannot write; "
                          f"run it as {who}: runuser -u {who} -- slurmsched ...")  # fmt: skip


def draft_of(path: Path) -> Path:
    """Where to write what then takes this file's place: beside it, by a name that nobody can know before."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")


def create(path: Path, mode: int = 0o666) -> BinaryIO:
    """A new file, open for writing. Raises OSError where there is one of that name, a link too."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, mode), "wb")
