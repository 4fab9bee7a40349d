"""One slurmsched at a time on a cluster: daemon, tick and undo hold the same lock."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmsched.errors import LedgerError, LockedError
from slurmsched.paths import owner, see_not_root, standing_folder


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock for the body. The kernel frees it however the process ends, so a file left over is harmless.

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
            raise LedgerError(f"{path}: the lock cannot be signed: {error.strerror}; {_advice(path, error)}") from error
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def holder(path: Path) -> str:
    """Who holds the lock, in words; "" if nobody does. Raises LedgerError if it cannot be read."""
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
    raise LockedError(f"{path}: held by {who}; let it end, or stop it first", holder=who, held_s=held_s)


def _sign(fd: int) -> None:
    text = f"pid {os.getpid()} on {socket.gethostname()}: {' '.join(sys.argv)}\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(errors="replace"), 0)


def _signed(fd: int) -> str:
    return os.pread(fd, 1000, 0).decode(errors="replace").strip() or "a process that has not signed yet"


def _advice(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space"
    if error.errno == errno.EROFS:
        return "mount it so that it can be written"
    if not isinstance(error, PermissionError):
        return "see ledger.lock"
    folder = standing_folder(path)
    return f"run it as {owner(folder)}, who owns {folder}, or see ledger.lock"
