"""Signals set flags and end a sleep, whatever the main thread is doing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from slurmsched.daemon.service import Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    made = Signals()
    made.listen()
    yield made
    made.close()
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, (True, False)), (signal.SIGINT, (True, False)), (signal.SIGHUP, (False, True))],
)
def test_signals__ask_to_stop_or_to_reload(signals, number, expected):
    """TERM and INT stop, HUP reloads."""
    os.kill(os.getpid(), number)
    assert (signals.stop, signals.reload) == expected


def test_sleep__ends_at_a_signal(signals):
    """During the sleep, and also one that came before it."""
    begun_s = time.monotonic()
    os.kill(os.getpid(), signal.SIGHUP)
    signals.sleep(30)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    signals.sleep(30)
    timer.join()
    assert signals.stop
    assert time.monotonic() - begun_s < 10


def test_sleep__lasts_its_time(signals):
    """Without a signal nothing ends it early; one signal ends one sleep."""
    os.kill(os.getpid(), signal.SIGHUP)
    signals.sleep(30)
    begun_s = time.monotonic()
    signals.sleep(0.05)
    assert time.monotonic() - begun_s >= 0.05


def test_sleep__says_whether_another_ended_it(signals):
    """Something to read there; not a signal, nor the time."""
    other, caller = socket.socketpair()
    with other, caller:
        assert not signals.sleep(0.01, other)
        os.kill(os.getpid(), signal.SIGHUP)
        assert not signals.sleep(30, other)
        caller.send(b"x")
        assert signals.sleep(30, other)


# A signal at every step of the sleeping main thread, 300 times: a handler that takes a lock which the interrupted
# code holds would never return.
STORM = """if True:
    import os, signal, threading, time
    from slurmsched.daemon.service import Signals
    signals = Signals()
    signals.listen()
    def storm():
        for _ in range(300):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=storm).start()
    while not signals.stop:
        signals.sleep(0.0005)
    print("ended", signals.reload)"""


def test_signals__never_lock_up():
    """Handlers take no lock."""
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "ended True\n"
