"""Folders and owners, for messages about files that cannot be used."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


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
