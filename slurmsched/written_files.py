"""The files that a configuration names to be written: no two may be the same one."""

from __future__ import annotations

from itertools import combinations
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmsched.config import Config

BESIDE = (".acts.jsonl", ".pins.jsonl", ".deferrals.jsonl")  # of the journal: db/acts.py, db/pins.py, db/deferrals.py


def absolute(path: Path) -> Path:
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


def see_distinct(config: Config) -> None:
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
    found += [(f"the {end[1:]} of ledger.journal", journal.with_name(journal.stem + end)) for end in BESIDE]
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
    return found


def _sqlite(url: str) -> tuple[bool, str]:
    """Whether the URL is SQLite's, and what stands behind its two slashes, without the options."""
    scheme, _, rest = url.partition("://")
    return scheme.partition("+")[0] == "sqlite", rest.partition("?")[0]
