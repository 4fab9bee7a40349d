"""What a sweep has finished: a file of JSON lines that only grows, so that a sweep can be taken up again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from slurmsched.errors import InputError, LockedError

KEY = "key"
Row = Mapping[str, Any]


class Results:
    """rows: key -> row, in the order of their finishing."""

    def __init__(self, file: BinaryIO, rows: dict[str, Row]) -> None:
        self._file, self.rows = file, rows

    def add(self, row: Row) -> None:
        """Keep a row, on disk when this returns. Raises InputError if it cannot be written."""
        try:
            self._file.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=self._file.name) from error
        self.rows[row[KEY]] = row


@contextmanager
def open_results(path: Path) -> Iterator[Results]:
    """The file, made if there is none, held by this process for the body.

    A last line that was cut off, by a full disk or a power failure, is dropped: that point runs again. Raises
    InputError for a file that is something else or cannot be written, LockedError while another sweep has it.
    """
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"{path}: another sweep writes here; name another file with --results") from None
        yield Results(file, _read(file, path))


def _read(file: BinaryIO, path: Path) -> dict[str, Row]:
    """Rows by key; the file ends after the last whole line then."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    rows = [_row(line, path, number) for number, line in enumerate(content[:whole].splitlines(), 1)]
    if whole < len(content):
        file.truncate(whole)
    return {row[KEY]: row for row in rows}


def _row(line: bytes, path: Path, number: int) -> Row:
    try:
        row = orjson.loads(line)
        if isinstance(row, dict) and isinstance(row.get(KEY), str):
            return row
    except orjson.JSONDecodeError:
        pass
    raise InputError("is no row of a sweep; name another file with --results", source=str(path), line=number)
