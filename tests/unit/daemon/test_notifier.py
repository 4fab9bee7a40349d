from __future__ import annotations

import socket

import pytest

from slurmsched.daemon.service import Notifier


@pytest.fixture
def manager(tmp_path):
    """A socket that stands for systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(str(tmp_path / "notify"))
        link.settimeout(5)
        yield link


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda n: n.ready("up"), "READY=1\nSTATUS=up"), (lambda n: n.watchdog(), "WATCHDOG=1"),
     (lambda n: n.stopping(), "STOPPING=1"), (lambda n: n.status("busy"), "STATUS=busy")],
)  # fmt: skip
def test_notifier__says_what_sd_notify_defines(manager, call, expected):
    """One datagram a message, NAME=value lines."""
    call(Notifier({"NOTIFY_SOCKET": manager.getsockname()}))
    assert manager.recv(1000).decode() == expected


def test_reloading__carries_the_monotonic_clock(manager):
    """systemd matches RELOADING=1 with the time it was sent."""
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).reloading()
    first, second = manager.recv(1000).decode().splitlines()
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_notifier__speaks_to_abstract_sockets():
    """An address that begins with @ has no file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind("\0slurmsched-test-notify")
        link.settimeout(5)
        Notifier({"NOTIFY_SOCKET": "@slurmsched-test-notify"}).watchdog()
        assert link.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_notifier__without_a_manager_goes_on(environ):
    """In a terminal, or with the manager gone: nothing is raised, and no sign of life is due."""
    notifier = Notifier(environ)
    notifier.ready("up")
    assert notifier.watchdog_s == 0


def test_notifier__outside_systemd_opens_no_socket(monkeypatch):
    """Without NOTIFY_SOCKET there is nobody to write to."""
    made = []
    monkeypatch.setattr(socket, "socket", lambda *arguments: made.append(arguments))
    Notifier({}).ready("up")
    assert made == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, 0.0), ({"WATCHDOG_USEC": "30000000"}, 30.0), ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0)],
)
def test_watchdog_s__is_for_this_process_only(environ, expected):
    """WATCHDOG_PID names whom the watchdog waits for."""
    assert Notifier(environ).watchdog_s == expected
