"""The lock that daemon, tick and undo hold: only one slurmsched works on a cluster at a time."""

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
from slurmsched.config import Config
from slurmsched.config_file import digest
from slurmsched.errors import LedgerError, LockedError
from slurmsched.paths import owner, refuse_root, standing_folder


@dataclass(frozen=True, slots=True)
class LockHolder:
    """What the holder of the lock does.

    mode: "apply" or "dry-run".
    config: digest of its configuration.
    version: its version.
    since_s: since when [Unix s].
    refused: why its last reload failed, "" = it did not.
    """

    mode: str
    config: str
    version: str
    since_s: float
    refused: str = ""


def work_of_config(config: Config, *, apply: bool, refused: str = "") -> LockHolder:
    """What a process with this configuration does from now on. apply: whether it writes."""
    return LockHolder("apply" if apply else "dry-run", digest(config), __version__, time.time(), refused)


@contextmanager
def exclusive_lock(path: Path, *, signed: bool = True) -> Iterator[Callable[[LockHolder], None]]:
    """Hold the lock for the body. The body gets a function that publishes what the process does.

    The kernel frees the lock however the process ends, so an old file is harmless.

    signed: False = go on if the file cannot be written, as on a full disk.
    Raises LockedError with the holder, LedgerError if the file cannot be made, and RightsError for root in a folder of
    another user.
    """
    refuse_root(path)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LedgerError(f"{path}: the lock cannot be opened: {error.strerror}; {_advice(path, error)}") from error
    try:
        _take_lock(fd, path)
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
    """The holder of the lock, as text; "" without one. Raises LedgerError if the file cannot be read."""
    return _holder_text(path).partition("\n")[0]


def lock_holder_work(path: Path) -> LockHolder | None:
    """What the holder of the lock published; None without a holder, or if it published nothing.

    Raises LedgerError if the file cannot be read."""
    try:
        published = json.loads(_holder_text(path).partition("\n")[2])
        return LockHolder(**{spec.name: published[spec.name] for spec in fields(LockHolder)})
    except (ValueError, TypeError, KeyError):
        return None


def _holder_text(path: Path) -> str:
    """The text of the holder; "" without one."""
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


def _take_lock(fd: int, path: Path) -> None:
    for pause_s in (0.05, 0.1, 0.0):  # `holder` of another process locks it for a moment
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(pause_s)
    who, held_s = _signed(fd), time.time() - os.fstat(fd).st_mtime  # the holder writes the file
    who = who.partition("\n")[0]
    raise LockedError(f"{path}: held by {who}; let it end, or stop it first", holder=who, held_s=held_s)


def _sign(fd: int) -> None:
    command = " ".join(" ".join(sys.argv).split())[:1000]
    text = f"pid {os.getpid()} on {socket.gethostname()}: {command}\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(errors="replace"), 0)


def _publish(fd: int, work: LockHolder) -> None:
    """Write it behind the signature, if possible. The time of the file stays, since it is the age of the lock."""
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
