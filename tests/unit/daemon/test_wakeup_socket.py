"""Who may wake the daemon, and that the script which does it never waits and never fails."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmsched.daemon.service import AT_ONCE, WakeupSocket
from slurmsched.errors import ConfigError

HOOK = Path(__file__).parents[3] / "plugin" / "event_hook" / "slurmsched-event"


@pytest.fixture
def wakers(tmp_path: Path) -> Iterator[WakeupSocket]:
    made = WakeupSocket(tmp_path / "events", ["root"])
    yield made
    made.close()


def send(path: Path, *texts: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        for text in texts:
            link.sendto(text, str(path))


def hook(path: Path) -> subprocess.CompletedProcess[str]:
    env = {"SLURMSCHED_SOCKET": str(path), "SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld"}
    return subprocess.run([HOOK], env=env, capture_output=True, text=True, timeout=30, check=False)


def test_called__once_for_all_that_came(wakers: WakeupSocket, tmp_path: Path) -> None:
    """Several jobs end: one cycle; then silence."""
    assert not wakers.called()
    send(tmp_path / "events", b"epilog 1", b"", b"x" * 10_000)
    assert wakers.called()
    assert not wakers.called()


def test_called__not_for_anybody(wakers: WakeupSocket, tmp_path: Path) -> None:
    """The kernel tells who sent it; of a user who is not named it counts for nothing."""
    wakers._uids = {os.geteuid() + 1}
    send(tmp_path / "events", b"me")
    assert not wakers.called()


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Users that there are: (uid, gid) by their place in the list."""
    known = [(os.geteuid(), 7), (101, 201), (102, 201), (103, 203)]
    monkeypatch.setattr(
        "pwd.getpwnam", lambda name: SimpleNamespace(**dict(zip(("pw_uid", "pw_gid"), known[int(name)], strict=True)))
    )
    return known


@pytest.mark.parametrize(
    ("names", "mode", "group"),
    [([], "660", -1), (["0"], "660", -1), (["1"], "660", 201), (["0", "1", "2"], "660", 201),
     (["1", "3"], "666", None)],
)  # fmt: skip
def test_socket__is_for_those_who_may_where_one_group_has_them(
    users: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], mode: str,
    group: int | None,
) -> None:  # fmt: skip
    """Root and our own user need no group; several groups leave it open to all, whose datagrams do not count."""
    given: list[int] = []
    monkeypatch.setattr(os, "chown", lambda _, uid, gid: given.append(gid))
    made = WakeupSocket(tmp_path / "events", names)
    assert (_mode(tmp_path / "events"), given) == (mode, [] if group is None else [group])
    made.close()


def test_socket__is_for_all_where_the_group_cannot_be_given(
    users: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's user is not in SlurmUser's group: the hook must get through."""

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)
    made = WakeupSocket(tmp_path / "events", ["1"])
    assert _mode(tmp_path / "events") == "666"
    made.close()


def test_wakers__take_the_place_of_a_dead_daemons_socket_only(tmp_path: Path) -> None:
    """A socket left over is replaced; a file of another kind is not touched."""
    first = WakeupSocket(tmp_path / "events", [])
    WakeupSocket(tmp_path / "events", []).close()
    first._socket.close()
    assert not (tmp_path / "events").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"daemon\.socket"):
        WakeupSocket(tmp_path / "file", [])
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(ConfigError, match=r"no user 'nobody-of-that-name'"):
        WakeupSocket(tmp_path / "events", ["nobody-of-that-name"])


def test_hook__wakes(wakers: WakeupSocket, tmp_path: Path) -> None:
    """Slurm's script sends one datagram."""
    done = hook(tmp_path / "events")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert wakers.called()


def test_hook__never_fails_nor_waits(wakers: WakeupSocket, tmp_path: Path) -> None:
    """No socket there, no socket at all, or one whose reader does not read."""
    assert hook(tmp_path / "nothing").returncode == 0
    (tmp_path / "file").touch()
    assert hook(tmp_path / "file").returncode == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.setblocking(False)
        with pytest.raises(BlockingIOError):
            for _ in range(AT_ONCE):
                link.sendto(b"more", str(tmp_path / "events"))
    begun_s = time.monotonic()
    done = hook(tmp_path / "events")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun_s < 20
