"""Files that slurmsched writes: checks of their folders and owners, and that no two are the same."""

from __future__ import annotations

import os
import pwd
import secrets
from contextlib import suppress
from itertools import combinations
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from slurmsched.errors import RightsError

if TYPE_CHECKING:
    from slurmsched.config import Config


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


def refuse_root(path: Path) -> None:
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


# Files named in the configuration

SIGNALS_SUFFIX = ".signals.jsonl"  # db/signal_log.py
JOURNAL_SUFFIXES = (".operations.jsonl", SIGNALS_SUFFIX)  # of files beside the journal; the first: db/operation_log.py


def absolute_path(path: Path) -> Path:
    """The path itself. Raises ValueError for a relative one: daemon, cron and `undo` start in other folders."""
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def ledger_url(url: str) -> str:
    """The URL itself. Raises ValueError for a SQLite file by a relative path."""
    sqlite, path = _sqlite(url)
    if sqlite and path not in ("", "/", "/:memory:") and not path.startswith("//"):
        raise ValueError("a SQLite file needs an absolute path, after four slashes: sqlite:////PATH")
    return url


def check_distinct_files(config: Config) -> None:
    """Raises ValueError naming two keys that name one file: a lock is emptied at each end, a journal is cut down."""
    for (one, path), (other, another) in combinations(_written(config), 2):
        if realpath(path) == realpath(another):
            raise ValueError(f"{one} and {other} are the same file, {path}")


def _written(config: Config) -> list[tuple[str, Path]]:
    """What names it, and the file."""
    journal = config.ledger.journal
    found = [
        ("ledger.lock", config.ledger.lock),
        ("ledger.journal", journal),
        ("cycle.stop_file", config.cycle.stop_file),
    ]
    found += [(f"the {end[1:]} of ledger.journal", journal.with_name(journal.stem + end)) for end in JOURNAL_SUFFIXES]
    found += [("the past.npz beside ledger.journal", journal.with_name("past.npz"))]
    sqlite, path = _sqlite(config.ledger.url)
    if sqlite and path.startswith("//"):
        found.append(("ledger.url", Path(path[1:])))
    if config.ledger.password_file:
        found.append(("ledger.password_file", config.ledger.password_file))
    if config.daemon.socket:
        found.append(("daemon.socket", config.daemon.socket))
    if config.metrics.textfile:
        found.append(("metrics.textfile", Path(config.metrics.textfile)))
    if config.measured_use.profiles:
        found.append(("measured_use.profiles", Path(config.measured_use.profiles)))
    return found


def _sqlite(url: str) -> tuple[bool, str]:
    """Whether the URL is SQLite's, and what stands behind its two slashes, without the options."""
    scheme, _, rest = url.partition("://")
    return scheme.partition("+")[0] == "sqlite", rest.partition("?")[0]
