"""Datagrams from Slurm's scripts that ask for a cycle now: `[daemon] socket`, plugin/event_hook."""

from __future__ import annotations

import os
import pwd
import socket
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slurmsched.errors import ConfigError

LONGEST = 256  # bytes of a datagram; what it says is of no matter
AT_ONCE = 1000  # datagrams taken off the socket at a time, so that a flood does not hold the daemon
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid; unix(7)


class Wakers:
    """A socket to which root, this process's own user and `users` may send. Any of their datagrams asks for a cycle.

    Raises ConfigError where the socket cannot be made or a user is unknown.
    """

    def __init__(self, path: Path, users: Sequence[str]) -> None:
        self._path = path
        senders = [_user(name) for name in users]
        self._uids = {0, os.geteuid(), *(sender.pw_uid for sender in senders)}
        others = [sender for sender in senders if sender.pw_uid not in (0, os.geteuid())]
        self._socket = _bound(path, {sender.pw_gid for sender in others})

    def fileno(self) -> int:
        return self._socket.fileno()

    def called(self) -> bool:
        """Whether somebody who may has called since the last time; empties the socket."""
        found = False
        for _ in range(AT_ONCE):
            try:
                _, told, _, _ = self._socket.recvmsg(LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                break
            found |= any(_sender(piece) in self._uids for *_, piece in told)
        return found

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _bound(path: Path, gids: set[int]) -> socket.socket:
    """The socket, in place of one that a dead daemon left: whoever makes it holds the daemons' lock. gids: groups of
    those who may send, besides root and our own user."""
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
    """Let only those send who need to, where one group has them all and we may give it the socket. Else everybody
    may: whose datagrams count is told by their credentials."""
    mode = 0o666
    if len(gids) < 2:
        with suppress(OSError):  # not of that group, and without CAP_CHOWN
            os.chown(path, -1, *(gids or {-1}))
            mode = 0o660
    path.chmod(mode)


def _sender(credentials: bytes) -> int:
    """Uid of who sent it, as the kernel says; -1 if it says nothing."""
    return int(_CREDENTIALS.unpack(credentials)[1]) if len(credentials) == _CREDENTIALS.size else -1


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"there is no user {name!r}", key="daemon.users") from None
