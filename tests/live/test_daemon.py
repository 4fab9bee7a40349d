"""The daemon on a real Slurm: keeps the order, survives slurmctld's death, takes a new configuration, ends cleanly."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise

import orjson
import pytest

from tests.live.lab import Installed, column, nices, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]


@pytest.fixture
def daemon(site: Installed) -> Iterator[subprocess.Popen[str]]:
    """slurmsched daemon --apply, a cycle every second, shortest expected service first."""
    site.configure(policy='{ name = "srsf" }', cycle__interval_s="1.0", log__format='"json"')
    process = site.start("daemon", "--apply")
    yield process
    process.kill()
    process.communicate()


def wrong_order(partition: str = "phantom") -> list[int]:
    """Three waiting jobs, longest first; their ids from the one that must start first."""
    return [submit("alice", 1, f"--partition={partition}", f"--time={limit}") for limit in (50, 40, 30)][::-1]


def in_order(jobs: list[int]) -> bool:
    now = nices()
    return all(now[first] < now[then] for first, then in pairwise(jobs))


def ended(process: subprocess.Popen[str]) -> list[dict]:
    """The log lines of a daemon that SIGTERM ended well."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    return [orjson.loads(line) for line in log.splitlines()]


def test_daemon__orders_new_jobs_and_ends_on_sigterm(site, daemon):
    """Jobs that arrive get their place at the next cycle; SIGTERM ends it with code 0, and Slurm goes on."""
    until((site.folder / "ledger.db").exists, "the first cycle")
    jobs = wrong_order()
    until(lambda: in_order(jobs), "the daemon orders them")
    assert site("status").out.startswith("mode     dry-run in the configuration, apply at work;")
    events = [line["event"] for line in ended(daemon)]
    assert (events[0], events[-1]) == ("daemon.started", "daemon.stopped")
    alone = submit("bob", 1, script="sleep 1")
    until(lambda: alone not in column("%T", "PENDING"), "Slurm starts jobs without the daemon")
    assert in_order(jobs)


def test_daemon__outlives_slurmctld(site, daemon):
    """While slurmctld is away cycles fail with one line each; afterwards the daemon works on."""
    jobs = wrong_order()
    until(lambda: in_order(jobs), "the daemon orders them")
    run("labctl", "stop", "slurmctld")
    time.sleep(15)  # Slurm's commands try for ten seconds
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")
    late = submit("carol", 1, "--partition=phantom", "--time=1")
    until(lambda: nices()[late] < min(nices()[job] for job in jobs), "it orders the late one too")
    events = [line["event"] for line in ended(daemon)]
    assert "cycle.failed" in events


def test_daemon__sighup_takes_a_good_configuration_and_refuses_a_bad_one(site, daemon):
    """A wrong file is told, and the old configuration stays; a right one counts from the next cycle."""
    jobs = wrong_order()
    until(lambda: in_order(jobs), "the daemon orders them")
    good = site.file.read_text()
    site.file.write_text(good + 'mood = "good"\n')
    daemon.send_signal(signal.SIGHUP)
    more = wrong_order()
    until(lambda: in_order(more), "it works on with the old configuration")
    site.file.write_text(good)
    work = site("status", "--json").json()["work"]
    assert (work["mode"], work["same_config"]) == ("apply", True)  # by its option; the file says dry-run
    assert "mood" in work["refused"]
    site.configure(policy='{ name = "fifo" }')
    daemon.send_signal(signal.SIGHUP)
    until(lambda: in_order(sorted([*jobs, *more])), "first come, first served now")
    events = [line["event"] for line in ended(daemon)]
    assert "config.refused" in events
    assert "config.reloaded" in events


def test_daemon__kill_9_leaves_only_known_values(site, daemon):
    """Nothing that the journal does not know, and undo gives all back."""
    wrong_order()
    until(lambda: any(nices().values()), "it writes")
    daemon.kill()
    daemon.wait()
    known = site.journalled()
    assert all(nice == 0 or nice in known[job] for job, nice in nices().items())
    site("undo", "--apply", "--yes")
    assert not any(nices().values())
