from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from slurmsched import __version__
from slurmsched.config_file import digest, parse_config
from slurmsched.daemon import loop as loop_module
from slurmsched.daemon.loop import LONGEST_BACKOFF_S, Loop
from slurmsched.errors import ConfigError, LedgerError, NotLeadingError, SlurmUnreachableError
from slurmsched.model import Receipt


@dataclass
class World:
    """What the loop sees. script: what each cycle does (an error is raised, a callable called); then it stops."""

    config: Any
    script: list[Any]
    told: list[str] = field(default_factory=list)
    published: list[Any] = field(default_factory=list)
    loop: Any = None
    watchdog_s: float = 0.0
    said: str = ""

    def load(self) -> Any:
        if isinstance(self.config, Exception):
            raise self.config
        return self.config

    @contextmanager
    def assembled(self, config, *, apply, read_only=False, indices=False):
        self.told.append(f"open {'apply' if apply else 'dry-run'} {config.cycle.interval_s:g}")
        try:
            yield loop_module.CycleParts(None, None, None)
        finally:
            self.told.append(f"close {config.cycle.interval_s:g}")

    def run_cycle(self, *_):
        self.told.append("cycle")
        step = self.script.pop(0)
        if not self.script:
            self.loop.signals.on_stop(signal.SIGTERM, None)
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
        self.said = status


def _config(tmp_path, **cycle):
    return parse_config({"cycle": {"interval_s": 0.01, "stop_file": str(tmp_path / "stop"), **cycle}})


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Builds a loop on a scripted world."""

    def build(*script, forced=None, config=None):
        made = World(config or _config(tmp_path), list(script))
        monkeypatch.setattr(loop_module, "open_cycle_parts", made.assembled)
        monkeypatch.setattr(loop_module, "run_cycle", made.run_cycle)
        made.loop = Loop(made.load, made, forced, made.published.append)
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
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told == [
        "open dry-run 0.01", "ready", "cycle", "reloading", "open dry-run 0.02", "close 0.01", "ready", "cycle",
        "stopping", "close 0.02",
    ]  # fmt: skip


@pytest.mark.parametrize("error", [ConfigError("unknown key", key="scop"), RecursionError("a bug in a plug-in")])
def test_reload__of_a_bad_configuration_keeps_the_old_one(world, error):
    """A mistake in the file, or whatever else goes wrong, is logged; the daemon goes on as before."""
    made = world(None, None)

    def reload():
        made.config = error
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told == [
        "open dry-run 0.01", "ready", "cycle", "reloading", "ready", "cycle", "stopping", "close 0.01"
    ]  # fmt: skip


def test_loop__publishes_what_it_does_from_its_start_on(world, tmp_path):
    """A new configuration that is refused changes nothing but what is said of it; the next one counts."""
    made = world(None, None, None)
    better = parse_config({"cycle": {"interval_s": 0.02}, "mode": "apply"})

    def reload(config):
        made.config = config
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [lambda: reload(ConfigError("unknown key", key="scop")), lambda: reload(better), None]
    first = made.published[0]
    made.loop.run()
    assert (first.mode, first.config, first.version) == ("dry-run", digest(_config(tmp_path)), __version__)
    assert made.published[1:-1] == [replace(first, refused="scop: unknown key")]
    assert (made.published[-1].mode, made.published[-1].config, made.published[-1].refused) == (
        "apply", digest(better), ""
    )  # fmt: skip


@pytest.mark.parametrize("error", [ConfigError("nothing there", key="metrics"), ZeroDivisionError("a bug")])
def test_reload__closes_what_it_opened_where_metrics_or_pages_fail(world, tmp_path, monkeypatch, error):
    """Whatever was raised: no ledger stays open beside the old one."""
    made = world(None, None)

    def refused(*_, **__):
        raise error

    def reload():
        made.config = _config(tmp_path, interval_s=0.02)
        monkeypatch.setattr(made.loop._watch, "adopt", refused)
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told[3:7] == ["reloading", "open dry-run 0.02", "close 0.02", "ready"]
    assert made.loop._config.cycle.interval_s == 0.01


@pytest.mark.parametrize("error", [LedgerError("the database is away"), ZeroDivisionError("a bug in a plug-in")])
def test_reload__goes_on_where_the_old_parts_do_not_close(world, tmp_path, capsys, error):
    """A leader that cannot give its lease back, say: told once, and the new configuration is in force."""
    made = world(None, None)

    def refused():
        raise error

    def reload():
        made.loop._stack.callback(refused)
        made.config = _config(tmp_path, interval_s=0.02)
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert made.told[3:] == [
        "reloading", "open dry-run 0.02", "close 0.01", "ready", "cycle", "stopping", "close 0.02"
    ]  # fmt: skip
    assert capsys.readouterr().err.count("config.not_closed") == 1


def test_run__goes_on_where_the_textfile_cannot_be_written(world, tmp_path):
    """Nor unlinked, as on a read-only mount; cycles that fail meanwhile included."""
    (tmp_path / "file").touch()
    tree = _config(tmp_path)
    metrics = tree.metrics.model_copy(update={"textfile": str(tmp_path / "file" / "out.prom")})
    made = world(None, SlurmUnreachableError("away"), None, config=tree.model_copy(update={"metrics": metrics}))
    made.loop.run()
    assert made.told.count("cycle") == 3


@pytest.mark.parametrize("name", ["url", "journal", "lock"])
def test_reload__of_another_ledger_is_refused(world, tmp_path, capsys, name):
    """The daemon holds the old one's lock: only a restart may change where ledger, journal and lock are."""
    made = world(None, None)

    def reload():
        ledger = {name: f"sqlite:///{tmp_path}/other" if name == "url" else str(tmp_path / "other")}
        made.config = parse_config({"cycle": {"interval_s": 0.02}, "ledger": ledger})
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    logs = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert "open dry-run 0.02" not in made.told
    assert [entry["error"] for entry in logs if entry["event"] == "config.refused"] == [
        f"ledger.{name}: changed, which a reload cannot do: restart the daemon"
    ]


@pytest.mark.parametrize(("took_s", "expected"), [(0.001, 0.01), (0.0095, 0.01045), (5.0, 5.5)])
def test_next_s__leaves_a_rest_after_a_long_cycle(world, took_s, expected):
    """At least a tenth of the cycle's length, else the interval from begin to begin."""
    assert world(None).loop.next_s(100.0, 100.0 + took_s) == pytest.approx(100.0 + expected, abs=1e-9)


@pytest.mark.parametrize(("forced", "held"), [("apply", True), ("dry-run", False)])
def test_stop_file__is_told_and_cycles_go_on(world, tmp_path, forced, held):
    """While the file is there a daemon goes on reading and remembering; one that would write says that it may not."""
    made = world(None, forced=forced)
    (tmp_path / "stop").touch()
    made.loop._cycle()
    assert made.told.count("cycle") == 1
    assert ("paused by" in made.said) == held


def test_signals__reach_the_loop(world):
    """SIGTERM in the middle of a cycle ends the loop after it, SIGHUP asks for a reload."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    made = world(lambda: os.kill(os.getpid(), signal.SIGTERM), None)
    try:
        made.loop.signals.listen()
        made.loop.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert made.told == ["open dry-run 0.01", "ready", "cycle", "stopping", "close 0.01"]


class Follower:
    """Stands by for b."""

    standby = "b leads, term 2"

    def __call__(self) -> bool:
        return False

    def look_s(self) -> float:
        return 7.0


def test_cycle__stands_by_while_another_leads(world, monkeypatch):
    """It reads and plans, so that taking over is known to work, and runs no cycle; it says so."""
    made = world(None)
    looked: list[str] = []
    monkeypatch.setattr(made.loop, "_parts", SimpleNamespace(look=lambda: (looked.append("look"), None), planner=None))
    monkeypatch.setattr(made.loop, "_leading", Follower())
    made.loop._cycle()
    assert (looked, made.said, made.told.count("cycle")) == (["look"], "stands by: b leads, term 2", 0)
    assert made.loop._look_s == 7.0


def test_cycle__lost_in_the_middle_is_no_failure(world):
    """Another took over: nothing to back off for."""
    made = world(NotLeadingError("a may not write: b leads"), None)
    made.loop._cycle()
    assert (made.loop._failures, made.loop._look_s) == (0, loop_module.LEAST_LOOK_S)


def test_reload__cannot_change_the_lease(world, tmp_path):
    """Who leads is settled at the start."""
    made = world(None)
    old = made.loop._config
    new = old.model_copy(update={"leader": old.leader.model_copy(update={"lease_s": 99.0})})
    with pytest.raises(ConfigError, match="restart the daemon"):
        loop_module._see_held(old, new)


def _waking(tmp_path, interval_s=600):
    return parse_config({"cycle": {"interval_s": interval_s, "stop_file": str(tmp_path / "stop")},
                         "daemon": {"socket": str(tmp_path / "events"), "users": ["root"]}})  # fmt: skip


def _call(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.sendto(b"job ended", str(path))


def test_call__brings_the_next_cycle_forward(world, tmp_path):
    """Ten minutes between cycles, and one within seconds of the call; then the socket is gone."""
    made = world(None, None, config=_waking(tmp_path))
    made.script = [lambda: _call(tmp_path / "events"), None]
    begun_s = time.monotonic()
    made.loop.run()
    assert made.told.count("cycle") == 2
    assert made.loop._config.daemon.wake_s <= time.monotonic() - begun_s < 60
    assert not (tmp_path / "events").exists()


def test_call__of_somebody_who_does_not_count_is_looked_for_once_in_wake_s(world, tmp_path, monkeypatch):
    """A local user who floods the socket keeps no processor busy; who counts is heard all the same."""
    made = world(None, config=_waking(tmp_path))
    drains = []

    def called():
        drains.append(time.monotonic())
        return len(drains) == 3

    monkeypatch.setattr(made.loop._wakers, "called", called)  # it takes nothing off: there is always more
    _call(tmp_path / "events")
    begun_s = time.monotonic()
    made.loop._wait_until(begun_s + 60.0, begun_s)
    assert len(drains) == 3
    assert drains[2] - drains[0] >= 2 * made.loop._config.daemon.wake_s
    assert time.monotonic() - begun_s < 30
    made.loop._wakers.close()


def test_call__does_not_hurry_cycles_that_fail(world, tmp_path):
    """Back-off stays; a cycle that follows its own rest does too."""
    made = world(None, config=_waking(tmp_path))
    assert made.loop.woken_s(0.0, 0.5) == 1.0
    assert made.loop.woken_s(0.0, 100.0) == 110.0
    made.loop._failures = 1
    assert made.loop.woken_s(0.0, 0.5) == inf


def test_reload__does_not_move_the_socket(world, tmp_path):
    """The old configuration stays."""
    made = world(None, None, config=_waking(tmp_path, 0.01))

    def reload():
        made.config = _config(tmp_path)
        made.loop.signals.on_reload(signal.SIGHUP, None)

    made.script = [reload, None]
    made.loop.run()
    assert sum(line.startswith("open") for line in made.told) == 1
