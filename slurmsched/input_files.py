"""Reads input files of any compression, row by row: text, CSV and JSON arrays. Counts what it skips."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from slurmsched.errors import InputError
from slurmsched.plain_text import pluralize

HEAD_BYTES = 1 << 16
ZSTD_BYTES = 1 << 10  # unpacked at once: of them may come 32 MiB
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes; gzip and zstd, recognised by their first bytes, are unpacked on the way.

    Raises InputError if the file cannot be opened, or is zstd and the package for it is missing.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic.startswith(GZIP):
            return cast(IO[bytes], gzip.open(path, "rb"))
        return _open_zstd(path) if magic == ZSTD else path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from error


def _open_zstd(path: Path) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        needs = "is zstd-compressed and needs the package zstandard: pip install 'slurmsched[traces]'"
        raise InputError(needs, source=str(path)) from None
    return io.BufferedReader(_Zstd(path.open("rb"), zstandard.ZstdDecompressor), 1 << 20)


class _Zstd(io.RawIOBase):
    """Unpacks all frames of a file. The package's own reader takes a torn end for a good one.

    Raises EOFError where the file ends within a frame.
    """

    def __init__(self, packed: IO[bytes], decompressor: Callable[[], Any]) -> None:
        self._packed, self._new = packed, decompressor
        self._frame: Any = None
        self._left, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self._ready and self._more():
            self._ready = memoryview(self._frame.decompress(self._left))
            self._left = b""
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        size = min(len(room), len(self._ready))
        room[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _more(self) -> bool:
        """Whether there is packed content to go on with."""
        self._left = self._left or self._packed.read(ZSTD_BYTES)
        if self._left and self._frame is None:
            self._frame = self._new().decompressobj()
        elif not self._left and self._frame is not None:
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        return bool(self._left)

    def close(self) -> None:
        self._packed.close()
        super().close()


@dataclass(frozen=True)
class FileHead:
    """What a loader may look at to tell its kind: name and first bytes, unpacked."""

    path: Path
    start: bytes

    @cached_property
    def lines(self) -> list[str]:
        """The first lines; the last may be cut."""
        return self.start.decode("utf-8-sig", "replace").splitlines() or [""]

    def columns(self, delimiter: str = ",") -> frozenset[str]:
        """Names in the first line, as a header's."""
        return frozenset(column_names(next(csv.reader(self.lines[:1], delimiter=delimiter), [])))


@dataclass
class InputFile:
    """One file while it is read.

    strict: the first row that cannot be read raises InputError; else such rows are counted.
    origin_s: Unix time of submit_s = 0, NaN until the loader sets it.
    utc_offset_s: what to add for the wall clock of the site.
    rejected: rows that cannot be read.
    dropped: reason -> jobs left out, though well formed.
    beside: reason -> jobs that are in no figure, but that the slurmctld model replays.
    passed_over: lines without a delimiter that belong to the text before them or are torn rows, nobody can tell.
    remarks: what is odd about jobs that were read -> how many.
    said: other lines of the file, such as errors of sacct.
    """

    path: Path
    strict: bool = False
    origin_s: float = math.nan
    utc_offset_s: float = 0.0
    rejected: int = 0
    first_rejected: str = ""
    dropped: Counter[str] = field(default_factory=Counter)
    beside: Counter[str] = field(default_factory=Counter)
    passed_over: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    @cached_property
    def head(self) -> FileHead:
        """The first bytes. Raises InputError if the file cannot be read."""
        with self.guarded(), open_bytes(self.path) as file:
            return FileHead(self.path, file.read(HEAD_BYTES))

    @contextmanager
    def text(self) -> Iterator[IO[str]]:
        """The file as text; bytes that are not UTF-8 become U+FFFD. Raises InputError where it is broken."""
        with self.guarded(), open_bytes(self.path) as file:
            yield io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns what reading a broken file raises into InputError."""
        try:
            yield
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise InputError(f"cannot be read: {error}", source=str(self.path)) from error
        except Exception as error:
            if type(error).__name__ == "ZstdError":
                raise InputError(f"cannot be read: {error}", source=str(self.path)) from error
            raise

    def reject(self, line: int, reason: str) -> None:
        """Count a row that cannot be read. Raises InputError if strict."""
        if self.strict:
            raise InputError(reason, source=str(self.path), line=line)
        self.first_rejected = self.first_rejected or f"line {line}: {reason}"
        self.rejected += 1

    def fail(self, reason: str, line: int = 0) -> InputError:
        """The error that stops reading."""
        return InputError(reason, source=str(self.path), line=line)

    def warnings(self) -> tuple[str, ...]:
        """What was left out, for people."""
        texts = [
            f"{pluralize(jobs, 'job')} left out: {reason}" for reason, jobs in sorted(self.dropped.items()) if jobs
        ]
        texts += [
            f"{pluralize(jobs, 'job')} in no figure: {reason}; --model slurm replays them beside the others"
            for reason, jobs in sorted(self.beside.items())
        ]
        if self.rejected:
            texts.insert(0, f"{pluralize(self.rejected, 'row')} cannot be read, the first in {self.first_rejected}")
        if self.passed_over:
            texts.append(
                f"lines without a delimiter passed over, of the text before them or torn rows: {self.passed_over:,}"
            )
        texts += [f"{pluralize(jobs, 'job')} {remark}" for remark, jobs in sorted(self.remarks.items())]
        return tuple(f"{self.path}: {text}" for text in (*texts, *self.said))


def column_names(header: Iterable[str]) -> list[str]:
    """Names of columns as they are looked up."""
    return [name.strip() for name in header]


# CSV.

TORN = "a quote in it is not closed; it would take the rows behind it into one field"
OPEN_AT_END = "unexpected end of data"  # as csv says it


class _CsvLines:
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


def csv_rows(source: InputFile, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Number of its last line and fields of each row.

    A single row is rejected in two cases. Its quoted text runs on to the end of the file. Or it runs over lines that
    are rows by their delimiters, up to a quote of another row. The file was torn there, or a quote was not doubled.
    Raises InputError for what csv cannot read, and if strict for such a row.
    """
    with source.text() as file:
        lines, width, more = _CsvLines(file), 0, True
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


def csv_records(
    source: InputFile, columns: tuple[str, ...], delimiter: str = ","
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and row by column name of a CSV file with a header; None where a row ends before a column.

    Raises InputError if the header lacks one of `columns`, and as csv_rows does.
    """
    rows = csv_rows(source, delimiter)
    header = column_names(next(rows, (0, []))[1])
    if missing := [name for name in columns if name not in header]:
        raise source.fail(f"has no column {', '.join(missing)}; needed are {', '.join(columns)}", line=1)
    nothing = [None] * len(header)
    for line, fields in rows:
        if fields:
            yield line, dict(zip(header, [*fields, *nothing[len(fields) :]], strict=False))


# JSON.

JSON_CHUNK = 1 << 18  # characters read at once
LARGEST_RECORD = 1 << 26  # characters of one element: more means that the file is broken
BLANKS = " \t\r\n"


def json_records(source: InputFile) -> Iterator[tuple[int, Any]]:
    """Line and value of each element of the file's array. Raises InputError where it is no JSON array."""
    with source.text() as file:
        yield from _JsonText(file, source, "is no JSON array of jobs").elements()


def json_members(source: InputFile, listed: str, noise: re.Pattern[str]) -> Iterator[tuple[int, str, Any]]:
    """Line, name and value of each member of the file's object; of the list `listed` each element with that name.

    A file that is this list alone is read as well. noise: lines before the object, which are yielded as named "".
    Raises InputError where it is no JSON object, or `listed` is no list.
    """
    with source.text() as file:
        text = _JsonText(file, source, "is no JSON object with a list of jobs")
        while text.next() and (said := text.line(noise)):
            yield 0, "", said
        if text.next() == "[":
            yield from ((line, listed, value) for line, value in text.elements())
            return
        text.take("{")
        while (mark := text.next(",")) != "}":
            if mark != '"':
                raise text.broken("a name is missing")
            line, name = text.value()
            text.take(":")
            if name != listed:
                line, value = text.value()
                yield line, str(name), value
            elif text.next() == "[":
                yield from ((line, listed, value) for line, value in text.elements())
            else:
                raise text.broken(f"{listed!r} is no list")


class _JsonText:
    """Text of JSON that is read little by little."""

    def __init__(self, file: IO[str], source: InputFile, wrong: str) -> None:
        self._file, self._source, self._wrong = file, source, wrong
        self._text, self._at, self._line, self._chunk = "", 0, 1, JSON_CHUNK
        self._decoder = json.JSONDecoder()

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Line and value of each element of the array that begins here."""
        self.take("[")
        while self.next(",") != "]":
            yield self.value()
        self.take("]")

    def value(self) -> tuple[int, Any]:
        """The value that begins here, and its line."""
        self.next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > LARGEST_RECORD or not self._more():
                    raise self.broken(str(error)) from None
                continue
            if end == len(self._text) and isinstance(value, int | float):  # its digits may go on
                end -= self._at
                if self._more():
                    continue
            self._chunk = JSON_CHUNK
            line = self._line + self._text.count("\n", 0, self._at)
            self._at = end
            return line, value

    def line(self, pattern: re.Pattern[str]) -> str:
        """The line that begins here if it is of this pattern; it is passed over."""
        rest, end, _ = self._text[self._at :].partition("\n")
        if not pattern.fullmatch(rest.rstrip("\r")):
            return ""
        self._at += len(rest) + len(end)
        return rest

    def next(self, passed: str = "") -> str:
        """The next character but blanks and those passed, "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in BLANKS + passed:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, mark: str) -> None:
        """Pass over a mark. Raises InputError if another character stands there."""
        if self.next() != mark:
            raise self.broken(f"expecting {mark!r}")
        self._at += 1

    def broken(self, why: str) -> InputError:
        """The error that stops reading."""
        line = self._line + self._text.count("\n", 0, self._at)
        return self._source.fail(f"{self._wrong}: {why}", line=line)

    def _more(self) -> bool:
        """Read on; more at once each time that a value is longer than what was read."""
        more = self._file.read(self._chunk)
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + more, 0
        self._chunk *= 2
        return bool(more)
