"""Nodes kept for a gang on a real Slurm: it starts in time, others use the nodes until then, and nothing is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from ClusterShell.NodeSet import NodeSet

from tests.live.lab import Installed, column, run, sacct, submit, until
from tests.live.more_nodes import more_nodes
from tests.live.operations import around, clean, cut_tick, reservations, ticks

pytestmark = pytest.mark.live

LIMIT_S, KILL_WAIT_S = 120.0, 5.0
KEPT = ("n1", "n2")
PASS_S = 5.0  # Slurm looks at its whole queue so often (sched_interval)


@pytest.fixture
def site(site: Installed) -> Installed:
    """Gang reservations for jobs of two nodes; small times, small gains."""
    keys = {"reserve": "true", "least_gpus": "16", "least_gain_s": "5"}
    site.configure(**{f"gangs__{key}": value for key, value in keys.items()})
    return site


def small(node: str, minutes: int, runs_s: int, gpus: int = 1, user: str = "alice") -> int:
    where = (f"-w{node}",) if node else ()
    return submit(user, gpus, *where, f"--time={minutes}", script=f"sleep {runs_s}")


@pytest.fixture
def busy(site: Installed) -> list[int]:
    """n1 and n2 full of jobs of two minutes that really end within 35 s, n3 and n4 taken for ten."""
    far = [small(node, 10, 500, gpus=8) for node in ("n3", "n4")]
    near = [small(node, 2, 5 + 10 * part, gpus=2) for node in KEPT for part in range(4)]
    until(lambda: {*far, *near} <= set(column("%A", "RUNNING")), "all run")
    return near


def test_promise__gang_before_endless_small_jobs(site, busy):
    """The published case, small: it starts within the longest remaining time and a cycle, short jobs run on its nodes
    until then, and those that would still run keep off."""
    begun_s = time.monotonic()
    gang = submit("bob", 16, "--time=5", script="sleep 20")
    until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")
    site.tick()
    (shown,) = reservations()
    assert " Nodes=n[1-2] " in shown
    assert "PURGE_COMP=00:30:00" in shown  # where nobody is left to delete it
    assert column("%v", "PENDING")[gang] in ("", "(null)", "N/A")  # it may still start elsewhere
    told = site("plan", "--json").json()["operations"]
    assert [(operation["purpose"], operation["job_id"], len(operation["waits"])) for operation in told] == [
        ("reserve", gang, 2)
    ]
    long, short = set[int](), set[int]()
    while gang not in column("%A", "RUNNING"):
        assert time.monotonic() - begun_s < LIMIT_S + KILL_WAIT_S + 40, "the gang did not start in time"
        short.add(small("", 1, 3))
        long.add(small("", 10, 500))
        site.tick()
    places = column("%N", "RUNNING", "COMPLETED")
    assert places[gang] == "n[1-2]"
    assert [job for job in short if places.get(job) in KEPT]
    assert not [job for job in long if places.get(job) in KEPT]
    until(lambda: site.tick() and clean(), "nothing is left")
    assert gang in column("%A", "RUNNING")  # it lives on without its reservation


def cycles_s(log: Path) -> list[float]:
    """When each cycle of a daemon ended, by its log [Unix s]."""
    lines = map(orjson.loads, log.read_bytes().splitlines())
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"] == "cycle.done"]


@contextmanager
def gate(path: Path) -> Iterator[Callable[[], None]]:
    """Jobs that open this path stand before it, at no cost, until the call that is given; afterwards nobody does."""
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o644)
    with ExitStack() as stack:
        stack.callback(path.unlink)

        def opened() -> None:
            stack.callback(os.close, os.open(path, os.O_WRONLY))

        yield opened


def test_promise__the_published_case_in_full(site):
    """8 x 8 GPUs busy with one-GPU jobs of one limit that end at spread times, a gang of four nodes at the head, and
    one-GPU jobs that never stop coming; an hour is two minutes here, which begin when the gang reservation stands. By
    the daemon's own cycles the gang starts within the longest remaining time and a cycle, and no later than a cycle
    after the last job has left its nodes; short jobs run there until then, and none that would still run."""
    site.configure(gangs__least_gpus="32", scope__partitions='["wide"]', cycle__interval_s="5.0", log__format='"json"')
    where = ("--partition=wide",)
    with more_nodes(8, "wide"), gate(Path("/tmp/slurmsched-gate")) as opened:
        spread = "sleep $((8 + SLURM_ARRAY_TASK_ID * 29 % 64 / 2))"
        array = submit("alice", 1, *where, "--array=0-63", "--time=15", script=f": </tmp/slurmsched-gate; {spread}")
        until(lambda: len(column("%A", "RUNNING")) == 64, "all GPUs are busy")
        busy = set(column("%A", "RUNNING"))
        gang = submit("bob", 32, *where, "--time=5", script="sleep 300")
        until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")
        daemon = site.begin("daemon", "--apply", log="daemon.log")
        long, short = set[int](), set[int]()
        seen: list[tuple[float, set[str]]] = []  # when it was looked, and the nodes that somebody was on
        try:
            until(reservations, "the gang has its promise")
            began_s = sorted(int(job[0]) for job in sacct("Start", busy))
            limit_s = LIMIT_S + 60 * ((time.time() - began_s[0]) // 60 + 1)  # of at least two minutes from now
            run("scontrol", "update", f"jobid={array}", f"timelimit={limit_s // 60:.0f}")
            opened()
            while gang not in column("%A", "RUNNING"):
                seen.append((time.time(), set(column("%N", "RUNNING", "COMPLETING").values())))
                short.add(submit("carol", 1, *where, "--time=1", script="sleep 6"))
                long.add(submit("dave", 1, *where, "--time=20", script="sleep 500"))
                time.sleep(0.3)
                assert len(seen) < 1_000, "it does not start"
            places = column("%N", "RUNNING", "COMPLETED")
            kept = set(NodeSet(places[gang]))
            until(clean, "nothing is left")
        finally:
            os.killpg(daemon.pid, signal.SIGTERM)
            assert daemon.wait(timeout=60) == 0
        ((start_s,),) = (map(int, job) for job in sacct("Start", {gang}))
        cycle_s = max(after - before for before, after in pairwise(cycles_s(site.folder / "daemon.log")))
        most_s = 2 * cycle_s + PASS_S  # one that looked right before, the one that lets it in, and Slurm's own look
        assert start_s - began_s[-1] <= limit_s + KILL_WAIT_S + most_s
        taken = max(at for at, (_, nodes) in enumerate(seen) if nodes & kept)
        assert start_s - seen[min(taken + 1, len(seen) - 1)][0] <= most_s
        assert (len(kept), bool([job for job in short if places.get(job) in kept])) == (4, True)
        assert not [job for job in long if places.get(job) in kept]


def test_promise__gang_held_or_cancelled_gives_the_nodes_back(site):
    """The reservation goes with the next cycle; released, the gang gets another."""
    jobs = [small(node, 10, 500) for node in ("n1", "n2", "n3", "n4")]
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all run")
    gang = submit("bob", 16, "--time=5")
    until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")
    site.tick()
    assert len(reservations()) == 1
    run("scontrol", "hold", str(gang))
    until(lambda: site.tick() and clean(), "the held gang keeps nothing")
    run("scontrol", "release", str(gang))
    until(lambda: site.tick() and reservations(), "the released gang gets its promise")
    run("scancel", str(gang))
    until(lambda: site.tick() and clean(), "the cancelled gang keeps nothing")


def test_promise__whole_nodes_are_told_on_both_versions(site):
    """--exclusive: two GPUs a node would do, but the gang waits for whole nodes."""
    for node in ("n1", "n2", "n3", "n4"):
        small(node, 10, 500)
    until(lambda: len(column("%A", "RUNNING")) == 4, "all run")
    site.configure(gangs__least_gpus="2")
    gang = submit("bob", 16, "--time=5", "--exclusive", "--gpus-per-node=1")
    until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")
    steps = site("plan", "--json").json()["steps"]
    assert [(step["step"], step["job_id"], step["whole"]) for step in steps] == [("reserve", gang, True)]


@pytest.mark.newest
def test_promise__killed_at_every_step_ends_clean(site):
    """kill -9 right before and right after each write: the held gang's reservation is taken back, the released one's is
    kept (moved when a limit falls, joined when its nodes are free), and no reservation and no bound job is left."""
    far = [small(node, 40, 2_000, gpus=8) for node in ("n3", "n4")]
    near = [small(node, 20, 1_000, gpus=8) for node in KEPT]
    until(lambda: {*far, *near} <= set(column("%A", "RUNNING")), "all run")
    gang = submit("bob", 16, "--time=60", script="sleep 500")  # too long to run before its reservation
    until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")

    def dies(*kinds: str) -> None:
        points = around(*kinds)
        until(lambda: (cut_tick(site, points), not points)[1], f"it died around {kinds}")

    dies("reserve")
    run("scontrol", "hold", str(gang))
    dies("unreserve")
    ticks(site, clean, "the held gang keeps nothing")
    assert column("%v", "PENDING")[gang] in ("", "(null)", "N/A")
    run("scontrol", "release", str(gang))
    dies("reserve")
    assert len(reservations()) == 1
    for job in near:
        run("scontrol", "update", f"jobid={job}", "timelimit=15")
    dies("move")
    run("scancel", *map(str, near))
    dies("move", "join")
    until(lambda: gang in column("%A", "RUNNING"), "the gang reservation is kept")
    assert column("%N", "RUNNING")[gang] == "n[1-2]"
    dies("leave", "unreserve")
    ticks(site, clean, "nothing is left")
    assert gang in column("%A", "RUNNING")
