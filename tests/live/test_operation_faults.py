"""Trouble of every kind while a preemption is under way: nobody is moved twice, and nothing is left of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.lab import PYTHON, Installed, becoming, column, kill_slurmctld, run, saved, submit, until
from tests.live.operations import (
    clean,
    featured,
    four_running,
    grace_s,
    journal,
    node_of,
    reservations,
    restarts,
    signalled,
    switched_on,
    ticks,
)

pytestmark = [pytest.mark.live, pytest.mark.newest]

# Runs `slurmsched tick` with a wall clock that is so many seconds off, from the edge of the process on.
OFF = """
import sys, time
off_s = float(sys.argv.pop(1))
true_time = time.time
time.time = lambda: true_time() + off_s
from slurmsched.cli.main import main
sys.argv[0] = "slurmsched"
sys.exit(main())
"""
LONG = "slurmsched: preempt=yes ckpt=USR2@8"


@pytest.fixture
def site(site: Installed) -> Installed:
    """The shortest first, preemption on."""
    switched_on(site)
    site.configure(policy='{ name = "srsf" }')
    return site


@pytest.fixture
def warned(site: Installed) -> tuple[int, int]:
    """A victim that has its grace, and the job that will get its node."""
    four_running(LONG)
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    ticks(site, signalled, "a victim is warned")
    return signalled()[0], urgent


def runs(job: int) -> bool:
    return job in column("%A", "RUNNING")


def ends_well(site: Installed, victim: int, urgent: int) -> None:
    """The urgent job runs, its victim was moved once, and nothing is left."""
    ticks(site, lambda: runs(urgent), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert restarts(victim) == 1


def reconfigured(_: Installed, __: int) -> None:
    run("scontrol", "reconfigure")
    run("labctl", "wait-ready")


def without_slurmdbd(_: Installed, __: int) -> None:
    run("labctl", "stop", "slurmdbd")


def killed_slurmctld(_: Installed, __: int) -> None:
    """As after a crash: it comes back with the state it saved last."""
    run("scontrol", "reconfigure")  # makes it save all it knows; without any usage file it would not start again
    run("labctl", "wait-ready")
    kill_slurmctld()
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")


def draining(_: Installed, victim: int) -> None:
    """The node takes no new job: undone before the end of the grace, it costs nothing."""
    node = node_of(victim)
    run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    run("scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.parametrize(
    "trouble", [reconfigured, without_slurmdbd, killed_slurmctld, draining], ids=lambda f: f.__name__
)
def test_trouble__passes_and_the_operation_goes_on(site, warned, trouble: Callable):
    """What comes and goes in the middle changes nothing of the outcome."""
    trouble(site, warned[0])
    try:
        ends_well(site, *warned)
    finally:
        run("labctl", "start", "slurmdbd")


def at(site: Installed, off_s: float) -> None:
    """A cycle by a clock that is so far off."""
    tree = ("--config", str(site.file), "tick", "--apply")
    run(*becoming(site.user), PYTHON, "-c", OFF, str(off_s), *tree)


def test_clock__of_slurmsched_alone_goes_back_in_the_grace(site, warned):
    """Its wall clock is an hour behind while a victim saves itself, and set right again after it was requeued: the
    victim has its eight seconds and not an hour more, is asked once and moved once."""
    victim, urgent = warned
    until(lambda: (at(site, -3600.0), restarts(victim))[1], "the victim is requeued")
    assert grace_s(site, victim) > 7.9  # of eight
    ends_well(site, victim, urgent)
    assert signalled() == [victim]


def test_victim__cancelled_in_its_grace(site, warned):
    """Its node is free, so nobody else leaves."""
    victim, urgent = warned
    run("scancel", str(victim))
    ticks(site, lambda: runs(urgent), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert (len(signalled()), max(map(restarts, column("%A", "RUNNING")))) == (1, 0)


def test_victim__ends_by_itself_in_its_grace(site, warned):
    """A job that ends well is not run again."""
    victim, urgent = warned
    run("scancel", "--batch", "-s", "TERM", str(victim))  # its script ends with exit 0
    ticks(site, lambda: runs(urgent), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert column("%T", "all")[victim] == "COMPLETED"
    assert restarts(victim) == 0


def test_node__goes_down_in_the_grace(site, warned):
    """The urgent job cannot have it: the operation ends, and it gets another node or waits without one."""
    victim, urgent = warned
    node = node_of(victim)
    run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    site.configure(operations__start_timeout_s="3")
    ticks(site, lambda: clean() and (runs(urgent) or len(signalled()) == 1), "nothing is left")
    run("scontrol", "update", f"nodename={node}", "state=resume", check=False)  # its slurmd may have done so
    ticks(site, lambda: runs(urgent), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert max(restarts(job) for job in column("%A", "RUNNING", "PENDING")) <= 2  # its node and an operation, one each


def test_node__drained_in_the_grace_costs_nobody_anything(site, warned):
    """The urgent job could not start there: the victim goes on, and another node's job makes room."""
    victim, urgent = warned
    node = node_of(victim)
    run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    ticks(site, lambda: runs(urgent), "the urgent job runs", limit_s=240)
    ticks(site, clean, "nothing is left")
    assert (node_of(victim), restarts(victim), len(signalled())) == (node, 0, 2)
    assert sum(map(restarts, column("%A", "RUNNING", "PENDING"))) == 1


def reason(job: int) -> str:
    return column("%r", "PENDING").get(job, "")


def test_node__loses_in_the_grace_what_the_job_asks_for(site):
    """Slurm would not start the job there any more (BadConstraints): the operation is taken back, the victim goes on,
    nobody else is asked; with the feature back, a new operation gives the job its node."""
    victim, *_ = four_running("slurmsched: preempt=yes ckpt=USR2@300")
    urgent = submit("bob", 8, "--time=10", "-w n1", "--constraint=nvlink", script="sleep 300")
    ticks(site, signalled, "a victim is warned")
    try:
        featured("n1", "a100")
        until(lambda: reason(urgent) == "BadConstraints", "Slurm has seen that the node does not fit")
        site.tick()
        assert "waits for something else than GPUs (BadConstraints)" in [
            line["operation"]["note"].removeprefix("its job ") for line in journal(site)
        ]
        ticks(site, clean, "the operation is taken back")
        until(lambda: reason(urgent) == "BadConstraints", "it does not start elsewhere either")
        site.tick()
        assert (clean(), signalled(), restarts(victim)) == (True, [victim], 0)
        site.configure(preemption__grace_s="1")
    finally:
        featured("n1", "a100,nvlink")
    ticks(site, lambda: runs(urgent), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert restarts(victim) == 1


@pytest.mark.parametrize("end", ["undo", "tick"])
def test_operations_file_lost__what_is_ours_is_found_by_its_name(site, warned, end):
    """No job stays bound and no reservation stays, though nobody knows the operation any more; the victim stays as it
    is."""
    victim, urgent = warned
    site.journal.with_name("journal.operations.jsonl").unlink()
    assert len(reservations()) == 1
    if end == "undo":
        site("undo", "--apply", "--yes")
        assert clean()
    else:
        until(lambda: (site.tick(), clean())[1] or len(signalled()) > 1, "the orphan is taken back")
        ticks(site, lambda: runs(urgent) and clean(), "a new operation ends well")
    assert restarts(victim) <= 1


@contextmanager
def daemon(site: Installed) -> Iterator[None]:
    """The daemon at work, a cycle a second."""
    site.configure(cycle__interval_s="1.0")
    process = site.begin("daemon", "--apply", log="daemon.log")
    try:
        yield
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=240) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def rights(level: str) -> None:
    """Of the user that the daemon runs as, from now on."""
    run("sacctmgr", "-i", "modify", "user", "slurmsched", "set", f"adminlevel={level}")
    shown = ("scontrol", "show", "assoc_mgr", "flags=users", "users=slurmsched")
    until(lambda: f"AdminLevel={level}" in run(*shown).out, "slurmctld knows it")


def test_rights__lost_in_the_grace_and_given_again(site):
    """Slurm refuses the requeue: the victim goes on and the operation stays on record, and the daemon tries nothing
    more. With the rights again the daemon ends it, and a new one gives the urgent job its node."""
    site.configure(lever__admin_comment="false")  # else its refusal comes first
    jobs, stop = four_running("slurmsched: preempt=yes ckpt=USR2@15"), site.folder / "stop"
    with daemon(site):
        urgent = submit("bob", 8, "--time=10", script="sleep 300")
        until(signalled, "a victim is warned")
        stop.touch()  # nothing is sent until the rights are gone, however long that takes
        try:
            rights("None")
            stop.unlink()
            until(lambda: journal(site)[-1]["operation"]["stage"] == "reversing", "the requeue is refused")
            assert "ermission denied" in journal(site)[-1]["operation"]["note"]
            assert (len(reservations()), sum(map(restarts, jobs))) == (1, 0)
            until(lambda: "needs Operator" in (site.folder / "daemon.log").read_text(), "nothing more is tried")
        finally:
            rights("Operator")
        until(lambda: runs(urgent) and clean(), "a new operation ends well")
    assert sum(map(restarts, jobs)) == 1


def controllers() -> list[str]:
    """Hosts whose slurmctld answers."""
    lines = run("scontrol", "ping", check=False).out.splitlines()
    return [line.split(" at ")[1].split()[0] for line in lines if line.endswith("is UP")]


def test_backup_slurmctld__takes_over_and_gives_back_while_operations_are_open(site):
    """The primary is killed while a victim has its grace, and comes back in the grace of the next one: the daemon goes
    on against whoever controls; each operation moves one victim once, and nothing is left."""
    run("labctl", "start", "spare")
    jobs = four_running(LONG)
    with daemon(site):
        first = submit("bob", 8, "--time=10", script="sleep 300")
        until(signalled, "a victim is warned")
        saved()
        kill_slurmctld()
        until(lambda: controllers() == ["spare"], "the backup controls")
        until(lambda: runs(first) and clean(), "the first operation ends well")
        assert sum(map(restarts, jobs)) == 1
        told = len(signalled())
        second = submit("carol", 8, "--time=5", script="sleep 300")
        until(lambda: len(signalled()) > told, "another victim is warned")
        run("labctl", "start", "slurmctld")
        until(lambda: "lab" in controllers(), "the primary controls again")
        until(lambda: runs(second) and clean(), "the second operation ends well")
    assert sum(map(restarts, jobs)) == 2


def test_two_slurmsched__leave_each_other_alone(site):
    """Another one on the same Slurm, with a record of its own: its cycle takes nothing back, nor does its undo."""
    four_running("no hint")
    gang = submit("bob", 16, "--time=10")
    until(lambda: column("%r", "PENDING").get(gang) not in (None, "None"), "Slurm has looked at it")
    site.configure(gangs__reserve="true", gangs__least_gpus="16")
    site.tick()
    (promise,) = reservations()
    other = Installed(Path("/var/lib/slurmsched-other"), settings={"preemption.enabled": "true"})
    try:
        other.tick()
        other("undo", "--apply", "--yes")
        assert reservations() == [promise]
    finally:
        run("rm", "-rf", str(other.folder))
    site("undo", "--apply", "--yes")
    assert clean()


def test_foreign_reservation__is_left_alone(site):
    """A name that only looks like ours belongs to an admin."""
    run("scontrol", "create", "reservationname=slurmsched-maint", "nodes=n4", "users=root", "starttime=now+3600",
        "duration=60")  # fmt: skip
    site.tick()
    site("undo", "--apply", "--yes")
    assert "slurmsched-maint" in run("scontrol", "show", "reservation").out
