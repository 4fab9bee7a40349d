"""The daemon as a process: messages to systemd, signals, and the socket that asks for a cycle."""

from __future__ import annotations

import os
import pwd
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from slurmsched.errors import ConfigError


class Notifier:
    """Sends the state of the daemon to systemd (Type=notify); does nothing if NOTIFY_SOCKET is not set.

    Source: sd_notify(3); an address that begins with "@" is in the abstract namespace.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(environ.get("WATCHDOG_USEC", "0")) / 1e6 if mine else 0.0  # 0: no watchdog

    def ready(self, status: str = "") -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            try:
                link.sendto("\n".join(lines).encode(), self._address)
            except OSError:
                return  # the manager is gone or busy; the daemon goes on


# Signals as flags.


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class Signals:
    """SIGTERM, SIGINT and SIGHUP as flags, and a sleep that they end.

    A handler only sets a flag. It may run between any two instructions of the main thread, so it must take no lock. A
    sleep ends because the interpreter writes to a pipe at each signal (signal.set_wakeup_fd).
    """

    def __init__(self) -> None:
        self.stop = self.reload = False
        self._pipe: tuple[int, int] | None = None

    def listen(self) -> None:
        """Install the handlers. Only in the main thread."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_stop)
        signal.signal(signal.SIGHUP, self.on_reload)

    def close(self) -> None:
        """Close the pipe. Handlers stay, so that a late signal does not kill a daemon that is closing."""
        if self._pipe is not None:
            signal.set_wakeup_fd(-1)
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    def sleep(self, at_most_s: float, *others: _HasFileno) -> bool:
        """Sleep this long [s], or until a signal has come since the last sleep. Returns whether `others` have input.

        others: files whose input ends the sleep too.
        """
        pipe = [self._pipe[0]] if self._pipe else []
        found = select.select([*pipe, *(other.fileno() for other in others)], [], [], at_most_s)[0]
        if pipe and pipe[0] in found:
            os.read(pipe[0], 4096)
        return any(one not in pipe for one in found)

    def on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    def on_reload(self, number: int, frame: FrameType | None) -> None:
        self.reload = True


# Wake-ups from Slurm's scripts.

LONGEST = 256  # most bytes of a datagram; its content is ignored
AT_ONCE = 1000  # most datagrams read at a time, so that a flood does not block the daemon
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid; unix(7)


class WakeupSocket:
    """A socket for Slurm's scripts (`[daemon] socket`, plugin/event_hook). A datagram asks for a cycle.

    root, this process's own user and `users` may send. Raises ConfigError if the socket cannot be made or a user is
    unknown.
    """

    def __init__(self, path: Path, users: Sequence[str]) -> None:
        self._path = path
        senders = [_known_user(name) for name in users]
        self._uids = {0, os.geteuid(), *(sender.pw_uid for sender in senders)}
        others = [sender for sender in senders if sender.pw_uid not in (0, os.geteuid())]
        self._socket = _bound(path, {sender.pw_gid for sender in others})

    def fileno(self) -> int:
        return self._socket.fileno()

    def called(self) -> bool:
        """Whether an allowed sender has sent something since the last call; empties the socket."""
        found = False
        for _ in range(AT_ONCE):
            try:
                _, ancillary, _, _ = self._socket.recvmsg(LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                break
            found |= any(_sender(piece) in self._uids for *_, piece in ancillary)
        return found

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _bound(path: Path, gids: set[int]) -> socket.socket:
    """The socket. It replaces one that a dead daemon left; this process holds the daemons' lock.

    gids: groups of the allowed senders besides root and our own user."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        link.bind(os.fspath(path))
        _narrow(path, gids)
    except OSError as error:
        link.close()
        said = f"{path}: {error.strerror or error}; it needs a folder that the daemon's user may write"
        raise ConfigError(said, key="daemon.socket") from error
    return link


def _narrow(path: Path, gids: set[int]) -> None:
    """Limit sending to one group if it has all allowed senders and we may give it the socket.

    Otherwise everybody may send; the credentials decide whose datagrams count."""
    mode = 0o666
    if len(gids) < 2:
        with suppress(OSError):  # not of that group, and without CAP_CHOWN
            os.chown(path, -1, *(gids or {-1}))
            mode = 0o660
    path.chmod(mode)


def _sender(credentials: bytes) -> int:
    """Uid of the sender, from the kernel; -1 if unknown."""
    return int(_CREDENTIALS.unpack(credentials)[1]) if len(credentials) == _CREDENTIALS.size else -1


def _known_user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"there is no user {name!r}", key="daemon.users") from None
