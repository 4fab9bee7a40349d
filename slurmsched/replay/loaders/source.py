"""The file a loader reads: opened whatever its compression, with an account of what was left out."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from slurmsched.errors import InputError
from slurmsched.words import some

HEAD_BYTES = 1 << 16
ZSTD_BYTES = 1 << 10  # unpacked at once: of them may come 32 MiB
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes; gzip and zstd, told by their first bytes, are unpacked on the way.

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
class Head:
    """What a loader may look at to tell its kind: name and first bytes, unpacked."""

    path: Path
    start: bytes

    @cached_property
    def lines(self) -> list[str]:
        """The first lines; the last may be cut."""
        return self.start.decode("utf-8-sig", "replace").splitlines() or [""]

    def columns(self, delimiter: str = ",") -> frozenset[str]:
        """Names in the first line, as a header's."""
        return frozenset(names(next(csv.reader(self.lines[:1], delimiter=delimiter), [])))


@dataclass
class Source:
    """One file while it is read.

    strict: the first row that cannot be read raises InputError; else such rows are counted.
    origin_s: Unix time of submit_s = 0, NaN while the loader has not told one. utc_offset_s: what to add for the
    wall clock of the site. rejected: rows that cannot be read. dropped: reason -> jobs left out, though well formed.
    passed_over: lines without a delimiter that belong to the text before them or are torn rows, nobody can tell.
    remarks: what is odd about jobs that were read -> how many. said: other lines of the file, such as errors of sacct.
    """

    path: Path
    strict: bool = False
    origin_s: float = math.nan
    utc_offset_s: float = 0.0
    rejected: int = 0
    first_rejected: str = ""
    dropped: Counter[str] = field(default_factory=Counter)
    passed_over: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    @cached_property
    def head(self) -> Head:
        """The first bytes. Raises InputError if the file cannot be read."""
        with self.guarded(), open_bytes(self.path) as file:
            return Head(self.path, file.read(HEAD_BYTES))

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
        texts = [f"{some(jobs, 'job')} left out: {reason}" for reason, jobs in sorted(self.dropped.items()) if jobs]
        if self.rejected:
            texts.insert(0, f"{some(self.rejected, 'row')} cannot be read, the first in {self.first_rejected}")
        if self.passed_over:
            texts.append(
                f"lines without a delimiter passed over, of the text before them or torn rows: {self.passed_over:,}"
            )
        texts += [f"{some(jobs, 'job')} {remark}" for remark, jobs in sorted(self.remarks.items())]
        return tuple(f"{self.path}: {text}" for text in (*texts, *self.said))


def names(header: Iterable[str]) -> list[str]:
    """Names of columns as they are looked up."""
    return [name.strip() for name in header]
