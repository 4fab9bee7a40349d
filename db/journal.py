"""The journal: every lever value slurmsched ever meant to write, on disk before Slurm hears of it.

One JSON object a line. An "intend" line is synced to disk before its action is sent; an "outcome" line
follows the answer. With the database lost, `undo` still knows every job that was touched, and its base.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Outcome, SetLever

log = get_logger()


class LeverKey(NamedTuple):
    """One lever of one job, as the snapshot saw the job."""

    job_id: int
    submit_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class LeverRecord:
    """What the journal knows of one lever of one job.

    kind: "nice" or "site_factor". base: the value that undo restores. values: every value ever
    intended. last: the latest of them. submit_s: the latest submit time it was seen under.
    """

    job_id: int
    submit_s: float
    kind: str
    base: int
    values: frozenset[int]
    last: int


class Journal:
    """Append-only file of intentions and outcomes. One writer at a time: hold the lock.

    path: made with its folder at the first write. clock: Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    @property
    def size(self) -> int:
        """Bytes of the file, 0 if there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def intend(self, cycle: str, actions: Sequence[SetLever]) -> None:
        """Put the actions on disk, synced. Raises LedgerError; then none of them may be sent.

        A job without a submit time could not be told from another under its id: nobody should plan for it.
        """
        now_s = self._clock()
        unknown = [action.job_id for action in actions if not isfinite(action.submit_s)]
        if unknown:
            raise LedgerError(f"{self.path}: job {unknown[0]} has no submit time to be known by; nothing was sent")
        self._append((_intention(now_s, cycle, action) for action in actions), sync=True)

    def outcome(self, cycle: str, outcomes: Iterable[Outcome]) -> None:
        """Note what became of actions. Not synced: an intention without outcome counts as sent. Raises LedgerError."""
        now_s = self._clock()
        self._append((_outcome(now_s, cycle, outcome) for outcome in outcomes), sync=False)

    def levers(self, *, lenient: bool = False) -> dict[LeverKey, LeverRecord]:
        """Every lever ever intended. lenient: skip bad lines with a warning (undo), else raise LedgerError."""
        records: dict[LeverKey, LeverRecord] = {}
        for line in self.lines(lenient=lenient):
            if line["event"] == "intend":
                key = LeverKey(line["job_id"], line["submit_s"], line["kind"])
                records[key] = _joined(records.get(key), key, line)
        return records

    def compact(self, live_job_ids: Collection[int] | None = None) -> int:
        """Drop the lines of jobs that left the queue (None: of no job); how many. The file is replaced as a whole or
        not at all.

        Lines that cannot be read are moved to `<name>.bad` beside it, with one warning. Raises LedgerError.
        """
        live = None if live_job_ids is None else frozenset(live_job_ids)
        dropped, bad = 0, list[bytes]()

        def kept() -> Iterator[bytes]:
            nonlocal dropped
            for _, raw, line in self._read():
                if line is None:
                    bad.append(raw)
                elif live is None or line["job_id"] in live:
                    yield raw.rstrip(b"\n") + b"\n"
                else:
                    dropped += 1
            self._set_aside(bad)  # before the new file takes the place of the one that has them

        try:
            if self.path.exists():
                _replace(self.path, kept())
        except OSError as error:
            raise self._failed("rewritten", error) from error
        return dropped

    def _set_aside(self, bad: Sequence[bytes]) -> None:
        if not bad:
            return
        path = self.path.with_name(f"{self.path.name}.bad")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640), "wb") as file:
            _own_like(file.fileno(), self.path.stat())
            file.writelines(bad)
            file.flush()
            os.fsync(file.fileno())
        log.warning("journal.lines_set_aside", path=str(path), lines=len(bad))

    def lines(self, *, lenient: bool = False) -> Iterator[dict[str, Any]]:
        """The objects of the file, oldest first; a torn last line is left out. Raises as `levers`."""
        for number, _, line in self._read():
            if line is not None:
                yield line
            elif lenient:
                log.warning("journal.line_skipped", path=str(self.path), line=number)
            else:
                raise LedgerError(f"{self.path}:{number}: not a line of the journal; repair or remove that line")

    def _read(self) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
        """Number, text and object of each line; None for one that cannot be read."""
        try:
            with self.path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    line = _parsed(raw)
                    if line is not None or raw.endswith(b"\n"):  # else: the end of a write that a crash cut, never sent
                        yield number, raw, line
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("read", error) from error

    def _append(self, texts: Iterable[bytes], *, sync: bool) -> None:
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
            raise self._failed("written", error) from error

    def _failed(self, verb: str, error: OSError) -> LedgerError:
        return LedgerError(
            f"{self.path}: the journal cannot be {verb}: {error.strerror}; nothing more is sent to Slurm until it can"
        )


def by_job(levers: Mapping[LeverKey, LeverRecord], kind: str) -> dict[int, LeverRecord]:
    """The records of one lever by job id, those of all submit times of an id in one.

    A requeue moves the submit time and keeps the lever, so an id seen under two submit times is the same
    job, unless ids have wrapped around: then its lever holds none of `values`, which is the sign to leave
    it alone. base and last are of the latest submit time.
    """
    joined: dict[int, LeverRecord] = {}
    for record in sorted((r for r in levers.values() if r.kind == kind), key=lambda r: r.submit_s):
        before = joined.get(record.job_id)
        joined[record.job_id] = replace(record, values=record.values | before.values) if before else record
    return joined


def _joined(before: LeverRecord | None, key: LeverKey, line: Mapping[str, Any]) -> LeverRecord:
    values = (before.values if before else frozenset()) | {line["new"]}
    return LeverRecord(key.job_id, key.submit_s, key.kind, line["base"], values, line["new"])


def _intention(now_s: float, cycle: str, action: SetLever) -> bytes:
    line = {"event": "intend", "time_s": now_s, "cycle": cycle, "kind": action.kind, "job_id": action.job_id}
    line |= {"submit_s": action.submit_s, "old": action.old, "new": action.new, "base": action.base}
    return _text(line | {"reason": action.reason})


def _outcome(now_s: float, cycle: str, outcome: Outcome) -> bytes:
    action = outcome.action
    line = {"event": "outcome", "time_s": now_s, "cycle": cycle, "kind": action.kind, "job_id": action.job_id}
    return _text(line | {"submit_s": action.submit_s, "status": outcome.status, "message": outcome.message})


def _text(line: Mapping[str, Any]) -> bytes:
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


_NEEDED: dict[str, dict[str, Any]] = {
    "intend": {"job_id": int, "submit_s": (int, float), "kind": str, "new": int, "base": int},
    "outcome": {"job_id": int},
}


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    needed = _NEEDED.get(line.get("event", "")) if isinstance(line, dict) else None
    if needed is None or not all(isinstance(line.get(name), kind) for name, kind in needed.items()):
        return None
    return line


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
