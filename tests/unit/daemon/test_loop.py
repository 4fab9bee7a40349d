from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from slurmsched.config import parse_config
from slurmsched.daemon import loop as loop_module
from slurmsched.daemon.loop import LONGEST_BACKOFF_S, Loop
from slurmsched.errors import ConfigError, SlurmUnreachableError
from slurmsched.model import Receipt


@dataclass
class World:
    """What the loop sees. script: what each cycle does (an error is raised, a callable called); then it stops."""

    config: Any
    script: list[Any]
    told: list[str] = field(default_factory=list)
    loop: Any = None
    watchdog_s: float = 0.0

    def load(self) -> Any:
        if isinstance(self.config, Exception):
            raise self.config
        return self.config

    @contextmanager
    def assembled(self, config, *, apply, read_only=False):
        self.told.append(f"open {'apply' if apply else 'dry-run'} {config.cycle.interval_s:g}")
        yield loop_module.Parts(None, None, None)
        self.told.append(f"close {config.cycle.interval_s:g}")

    def run_cycle(self, *_):
        self.told.append("cycle")
        step = self.script.pop(0)
        if not self.script:
            self.loop._on_stop(signal.SIGTERM, None)
        if isinstance(step, Exception):
            raise step
        if step:
            step()
        return Receipt()

    def ready(self, status=""):
        self.told.append("ready")

    def stopping(self):
        self.told.append("stopping")

    def reloading(self):
        self.told.append("reloading")

    def watchdog(self):
        pass

    def status(self, status):
        pass


def _config(tmp_path, **cycle):
    return parse_config({"cycle": {"interval_s": 0.01, "stop_file": str(tmp_path / "stop"), **cycle}})


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Builds a loop on a scripted world."""

    def build(*script, forced=None):
        made = World(_config(tmp_path), list(script))
        monkeypatch.setattr(loop_module, "assembled", made.assembled)
        monkeypatch.setattr(loop_module, "run_cycle", made.run_cycle)
        made.loop = Loop(made.load, made, forced)
        return made

    return build


def test_run__cycles_until_told_to_stop(world):
    """Ready after opening, cycles, then the parts are closed."""
    made = world(None, None)
    made.loop.run()
    assert made.told == ["open dry-run 0.01", "ready", "cycle", "cycle", "stopping", "close 0.01"]


@pytest.mark.parametrize(("forced", "expected"), [(None, "dry-run"), ("apply", "apply"), ("dry-run", "dry-run")])
def test_mode__may_be_forced(world, forced, expected):
    """--apply and --dry-run win over the configuration."""
    assert world(None, forced=forced).told == [f"open {expected} 0.01"]


def test_run__survives_failures_of_every_kind(world):
    """Slurm away or a bug in a policy: the next cycle is tried all the same."""
    made = world(SlurmUnreachableError("away"), ZeroDivisionError("a bug"), None)
    made.loop.run()
    assert made.told.count("cycle") == 3


def test_pause__doubles_with_each_failure_up_to_a_limit(world):
    """Failures in a row back off; a success starts over."""
    made = world(None)
    pauses = []
    for failures in (0, 1, 2, 3, 40):
        made.loop._failures = failures
        pauses.append(made.loop.pause_s())
    assert pauses == [0.01, 0.02, 0.04, 0.08, LONGEST_BACKOFF_S]


def test_success__ends_the_backoff(world):
    """One cycle that works brings the usual interval back."""
    made = world(SlurmUnreachableError("away"), None)
    made.loop.run()
    assert made.loop.pause_s() == 0.01


def test_reload__opens_the_new_parts_and_then_closes_the_old(world, tmp_path):
    """SIGHUP: the new configuration is in force from the next cycle on."""
    made = world(None, None)

    def reload():
        made.config = _config(tmp_path, interval_s=0.02)
        made.loop._on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told == [
        "open dry-run 0.01", "ready", "cycle", "reloading", "open dry-run 0.02", "close 0.01", "ready", "cycle",
        "stopping", "close 0.02",
    ]  # fmt: skip


def test_reload__of_a_bad_configuration_keeps_the_old_one(world):
    """A mistake in the file is logged; the daemon goes on as before."""
    made = world(None, None)

    def reload():
        made.config = ConfigError("unknown key", key="scop")
        made.loop._on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told == [
        "open dry-run 0.01", "ready", "cycle", "reloading", "ready", "cycle", "stopping", "close 0.01"
    ]  # fmt: skip


@pytest.mark.parametrize(("forced", "cycles"), [("apply", 0), ("dry-run", 1)])
def test_stop_file__skips_cycles_that_would_write(world, tmp_path, forced, cycles):
    """While the file is there a daemon that applies does nothing; one in dry-run goes on."""
    made = world(None, forced=forced)
    (tmp_path / "stop").touch()
    made.loop._cycle()
    assert made.told.count("cycle") == cycles


def test_signals__reach_the_loop(world):
    """SIGTERM in the middle of a cycle ends the loop after it, SIGHUP asks for a reload."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    made = world(lambda: os.kill(os.getpid(), signal.SIGTERM), None)
    try:
        made.loop.listen()
        made.loop.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert made.told == ["open dry-run 0.01", "ready", "cycle", "stopping", "close 0.01"]
