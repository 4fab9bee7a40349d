"""CSV tables row by row; a quote that is never closed costs its own row, not those behind it."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slurmsched.replay.loaders.source import Source, names

TORN = "a quote in it is not closed; it would take the rows behind it into one field"
OPEN_AT_END = "unexpected end of data"  # as csv says it


class _Lines:
    """Lines for csv.reader. number: of the last one read. record: those of the row that is read."""

    def __init__(self, file: Iterable[str]) -> None:
        self._file = iter(file)
        self._again = deque[str]()
        self.record: list[str] = []
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while self._again:
            yield self._kept(self._again.popleft())
        for line in self._file:
            yield self._kept(line)

    def _kept(self, line: str) -> str:
        self.record.append(line)
        return line

    def done(self) -> int:
        """The record is read; the number of its last line."""
        self.number += len(self.record)
        self.record.clear()
        return self.number

    def back(self) -> int:
        """Give all lines of the record but its first to be read once more; that one's number."""
        self._again.extendleft(reversed(self.record[1:]))
        del self.record[1:]
        return self.done()


def csv_rows(source: Source, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Number of its last line and fields of each row.

    A row is rejected alone whose quoted text runs on to the end of the file, or over lines that are rows themselves, by
    their delimiters, to a quote of another row: a file was torn there, or a quote of a name was not doubled.
    Raises InputError for what csv cannot read, and if strict for such a row.
    """
    with source.text() as file:
        lines, width, more = _Lines(file), 0, True
        while more:
            more = False
            try:
                for fields in csv.reader(lines, delimiter=delimiter):
                    if (len(lines.record) > 1 or lines.record[0].count('"') % 2) and (
                        more := _is_torn(lines.record, delimiter, width)
                    ):
                        break
                    width = width or len(fields)
                    yield lines.done(), fields
            except csv.Error:  # a field that is too long
                if len(lines.record) < 2:
                    raise
                more = True
            if more:
                source.reject(lines.back(), TORN)


def _is_torn(record: Sequence[str], delimiter: str, width: int) -> bool:
    """Whether these lines are no one row. width: fields of the first row, 0 = this is it."""
    try:
        (fields,) = csv.reader(record, delimiter=delimiter, strict=True)
    except csv.Error as error:
        if OPEN_AT_END in str(error):
            return True
    else:
        if len(fields) == width:
            return False
    return width > 1 and any(line.count(delimiter) >= width - 1 for line in record[1:])


def csv_records(source: Source, columns: tuple[str, ...], delimiter: str = ",") -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and row by column name of a CSV file with a header; None where a row ends before a column.

    Raises InputError if the header lacks one of `columns`, and as csv_rows does.
    """
    rows = csv_rows(source, delimiter)
    header = names(next(rows, (0, []))[1])
    if missing := [name for name in columns if name not in header]:
        raise source.fail(f"has no column {', '.join(missing)}; needed are {', '.join(columns)}", line=1)
    nothing = [None] * len(header)
    for line, fields in rows:
        if fields:
            yield line, dict(zip(header, [*fields, *nothing[len(fields) :]], strict=False))
