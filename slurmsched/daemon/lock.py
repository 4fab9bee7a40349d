"""One slurmsched at a time on a cluster: daemon, tick and undo hold the same lock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

from slurmsched import __version__
from slurmsched.config import Config, digest
from slurmsched.errors import LedgerError, LockedError
from slurmsched.paths import owner, see_not_root, standing_folder


@dataclass(frozen=True, slots=True)
class AtWork:
    """What the holder of the lock does. mode: "apply" or "dry-run", whatever decided it. config: its digest.

    since_s: since when it does so [Unix s]. refused: why its last reload changed nothing, "" = it did.
    """

    mode: str
    config: str
    version: str
    since_s: float
    refused: str = ""


def work_of(config: Config, *, apply: bool, refused: str = "") -> AtWork:
    """What a process does from now on that works by this configuration. apply: whether it writes."""
    return AtWork("apply" if apply else "dry-run", digest(config), __version__, time.time(), refused)


@contextmanager
def exclusive(path: Path, *, signed: bool = True) -> Iterator[Callable[[AtWork], None]]:
    """Hold the lock for the body, which is given what publishes what it does. The kernel frees the lock however the
    process ends, so a file left over is harmless. signed: False = a full disk on which nobody can sign is no hindrance.

    Raises LockedError naming the holder, LedgerError if the file cannot be made, RightsError for root in a folder of
    somebody else.
    """
    see_not_root(path)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LedgerError(f"{path}: the lock cannot be opened: {error.strerror}; {_advice(path, error)}") from error
    try:
        _take(fd, path)
        try:
            _sign(fd)
        except OSError as error:
            if not signed:
                yield lambda _: None
                return
            raise LedgerError(f"{path}: the lock cannot be signed: {error.strerror}; {_advice(path, error)}") from error
        yield partial(_publish, fd)
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def holder(path: Path) -> str:
    """Who holds the lock, in words; "" if nobody does. Raises LedgerError if it cannot be read."""
    return _text(path).partition("\n")[0]


def at_work(path: Path) -> AtWork | None:
    """What the holder of the lock says that it does; None if nobody holds it, or it says nothing. Raises LedgerError if
    it cannot be read."""
    try:
        told = json.loads(_text(path).partition("\n")[2])
        return AtWork(**{spec.name: told[spec.name] for spec in fields(AtWork)})
    except (ValueError, TypeError, KeyError):
        return None


def _text(path: Path) -> str:
    """What the holder has written; "" if nobody holds it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise LedgerError(f"{path}: the lock cannot be read: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _signed(fd)
    else:
        return ""
    finally:
        os.close(fd)


def _take(fd: int, path: Path) -> None:
    for pause_s in (0.05, 0.1, 0.0):  # `holder` of another process takes it for a moment
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(pause_s)
    who, held_s = _signed(fd), time.time() - os.fstat(fd).st_mtime  # who takes it signs it
    who = who.partition("\n")[0]
    raise LockedError(f"{path}: held by {who}; let it end, or stop it first", holder=who, held_s=held_s)


def _sign(fd: int) -> None:
    command = " ".join(" ".join(sys.argv).split())[:1000]
    text = f"pid {os.getpid()} on {socket.gethostname()}: {command}\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(errors="replace"), 0)


def _publish(fd: int, work: AtWork) -> None:
    """Write it behind the signature. What cannot be written is left: it is for people. The lock keeps its age."""
    signature = _signed(fd).partition("\n")[0]
    stat = os.fstat(fd)
    with suppress(OSError):
        text = f"{signature}\n{json.dumps(asdict(work))}\n".encode()
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
        os.utime(fd, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _signed(fd: int) -> str:
    return os.pread(fd, 4000, 0).decode(errors="replace").strip() or "a process that has not signed yet"


def _advice(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space"
    if error.errno == errno.EROFS:
        return "mount it so that it can be written"
    if not isinstance(error, PermissionError):
        return "see ledger.lock"
    folder = standing_folder(path)
    return f"run it as {owner(folder)}, who owns {folder}, or see ledger.lock"
