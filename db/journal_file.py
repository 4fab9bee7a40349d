"""Files of JSON objects, a line each: appended whole or not at all, replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger
from slurmsched.paths import owner, standing_folder
from slurmsched.plain_text import replace_surrogates

if TYPE_CHECKING:
    from slurmsched.db.leader_lease import SharedLines


log = get_logger()


class LineFile:
    """One such file. One writer at a time: hold the lock.

    path: made with its folder at the first append.
    sound: whether an object is one of this file's.
    """

    def __init__(self, path: Path, sound: Callable[[dict[str, Any]], bool]) -> None:
        self.path = path
        self._sound = sound

    @property
    def size(self) -> int:
        """Bytes of the file, 0 if there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self, skip: tuple[bytes, ...] = ()) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
        """Number, text and object of each line; None for one that cannot be read. skip: how lines begin that are left
        out."""
        try:
            with self.path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    if raw.startswith(skip):
                        continue
                    line = self._parsed(raw)
                    if line is not None or raw.endswith(b"\n"):  # else: the end of a write that a crash cut, never sent
                        yield number, raw, line
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.failed("read", error) from error

    def append(self, texts: Iterable[bytes], *, sync: bool) -> None:
        """Add lines. sync: they are on disk when this returns. Raises LedgerError; then none was added."""
        blob = b"".join(texts)
        if not blob:
            return
        try:
            new = not self.path.exists()
            self.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            try:
                _append_whole(fd, blob, sync=sync)
            finally:
                os.close(fd)
            if new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise self.failed("written", error) from error

    def replace(self, texts: Iterable[bytes]) -> None:
        """Give the file this content in one step, with the owner and mode it had. Raises LedgerError."""
        try:
            if self.path.exists():
                _replace(self.path, texts)
        except OSError as error:
            raise self.failed("rewritten", error) from error

    def set_aside(self, bad: Sequence[bytes]) -> None:
        """Move lines that cannot be read to `<name>.bad` beside it, with one warning. Raises OSError."""
        if not bad:
            return
        path = self.path.with_name(f"{self.path.name}.bad")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640), "wb") as file:
            _own_like(file.fileno(), self.path.stat())
            file.writelines(bad)
            file.flush()
            os.fsync(file.fileno())
        log.warning("journal.lines_set_aside", path=str(path), lines=len(bad))

    def failed(self, verb: str, error: OSError) -> LedgerError:
        """The error with the operating system's message."""
        then = "nothing more is sent to Slurm until it can"
        if isinstance(error, PermissionError):
            folder = standing_folder(self.path)
            then = f"run it as {owner(folder)}, who owns {folder}, or see ledger.journal"
        return LedgerError(f"{self.path}: the journal cannot be {verb}: {error.strerror}; {then}")

    def _parsed(self, raw: bytes) -> dict[str, Any] | None:
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None
        return line if isinstance(line, dict) and self._sound(line) else None


def as_line(values: dict[str, Any]) -> bytes:
    """One object as a line of such a file."""
    try:
        return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half a character
        return orjson.dumps(replace_surrogates(values), option=orjson.OPT_APPEND_NEWLINE)


def _append_whole(fd: int, blob: bytes, *, sync: bool) -> None:
    """Append all of blob or nothing: a torn end of an earlier crash goes first, our own at an error."""
    size = _whole_size(fd)
    os.ftruncate(fd, size)
    try:
        view = memoryview(blob)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    except OSError:
        os.ftruncate(fd, size)
        raise


def _whole_size(fd: int, step: int = 65_536) -> int:
    """Bytes up to and with the last newline."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - step)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _replace(path: Path, texts: Iterable[bytes]) -> None:
    """Give path this content in one step, with the owner and mode it had."""
    stat = path.stat()
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            _own_like(fd, stat)
            file.writelines(texts)
            file.flush()
            os.fsync(fd)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _own_like(fd: int, stat: os.stat_result) -> None:
    """Give a file the mode of another and, where that is allowed, its owner."""
    os.fchmod(fd, stat.st_mode & 0o7777)
    if os.geteuid() == 0:
        os.fchown(fd, stat.st_uid, stat.st_gid)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Lines of the journal.

T = TypeVar("T")


class JournalFile(LineFile):
    """One such file.

    path, sound: as in LineFile.
    shared: the database in its place, None if this host is the only one.
    lenient: for undo, which needs only what can be read. A line that cannot be read or written is skipped with a
    warning. The file of this host is read before the shared lines: these may have been switched on while something was
    under way.
    """

    def __init__(
        self, path: Path, sound: Callable[[dict[str, Any]], bool], shared: SharedLines | None, *, lenient: bool = False
    ) -> None:
        super().__init__(path, sound)
        self._shared, self.lenient = shared, lenient
        self._newer: set[str] = set()

    @property
    def store(self) -> LineFile | SharedLines:
        """The store of the lines."""
        return self._shared or self

    def objects(self, what: str, skip: tuple[bytes, ...] = ()) -> Iterator[dict[str, Any]]:
        """The object of each line, oldest first. what: they are lines of, for people. skip: how lines begin that are
        passed over unread.

        Raises LedgerError for a line that cannot be read.
        """
        bad = 0
        for where, number, line in self._numbered(skip):
            if line is None and not self.lenient:
                raise LedgerError(f"{where}:{number}: not a line of the {what}; repair or remove that line")
            bad += line is None
            if line is not None:
                yield line
        if bad:
            log.warning("record.lines_skipped", of=what, path=str(self.path), lines=bad)

    def put(self, lines: Iterable[bytes]) -> None:
        """Add lines, synced. Raises LedgerError; then none was added."""
        try:
            if self._shared is None:
                self.append(lines, sync=True)
            else:
                self._shared.append(lines)
        except LedgerError as error:
            if not self.lenient:
                raise
            log.warning("record.not_written", error=str(error))

    def line(self, values: dict[str, Any]) -> bytes:
        """One object as a line, with the term it is written under where hosts share them."""
        return as_line(values | ({"term": self._shared.term} if self._shared else {}))

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Put these lines in place of all; not where some of them could not be read. Raises LedgerError."""
        if not self.lenient:
            self.store.replace(lines)

    def made(self, kind: type[T], values: Mapping[str, Any]) -> T:
        """One of this kind. Fields of a newer slurmsched are left out, with a warning once."""
        known = {spec.name for spec in fields(kind)}  # type: ignore[arg-type]
        if newer := values.keys() - known - self._newer:
            self._newer |= newer
            log.warning("record.newer_fields", path=str(self.path), left_out=sorted(newer))
        return kind(**{name: value for name, value in values.items() if name in known})

    def _numbered(self, skip: tuple[bytes, ...]) -> Iterator[tuple[object, int, dict[str, Any] | None]]:
        if self._shared is None or self.lenient:
            yield from ((self.path, number, line) for number, _, line in self.read(skip))
        if self._shared is None:
            return
        try:
            texts = list(self._shared.read())
        except LedgerError as error:
            if not self.lenient:
                raise
            log.warning("record.others_unknown", error=str(error))
            return
        yield from (
            ("shared_lines", number, self._parsed(text))
            for number, text in enumerate(texts, 1)
            if not text.startswith(skip)
        )
