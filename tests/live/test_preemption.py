"""Preemption on a real Slurm: whom it takes GPUs from, how, and that nothing is left of it whatever happens."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from slurmsched.db.move_costs import MoveCosts, decode_moves
from tests.live.lab import Installed, column, run, submit, until
from tests.live.more_nodes import more_nodes
from tests.live.operations import (
    LEAVES,
    SAVES,
    STAYS,
    WILLING,
    around,
    clean,
    cut_tick,
    featured,
    four_running,
    journal,
    node_of,
    notes,
    reservations,
    restarts,
    signalled,
    switched_on,
    tick_meanwhile,
    ticks,
)

pytestmark = pytest.mark.live

KINDS = ("reserve", "join", "signal", "requeue", "leave", "unreserve", "delay")  # of writes, in their order
POINTS = around(*KINDS)


@pytest.fixture
def site(site: Installed) -> Installed:
    """The LAS policy with small thresholds, preemption on, and no quantum to wait for."""
    switched_on(site)
    site.configure(policy='{ name = "discretized-las", thresholds_gpu_s = [8.0] }')
    return site


def full(script: str = SAVES, comment: str = WILLING) -> list[int]:
    """A job on each of the four nodes, all beyond the threshold."""
    jobs = four_running(comment, script)
    time.sleep(2)  # eight GPUs for two seconds: twice the threshold
    return jobs


def moves(site: Installed) -> MoveCosts:
    """What the ledger knows of the cost of moves."""
    with closing(sqlite3.connect(site.folder / "ledger.db")) as ledger:
        row = ledger.execute("select text from shared_lines where file = 'moves'").fetchone()
    return decode_moves(row[0] if row else "")


@pytest.fixture
def running(site: Installed) -> list[int]:
    """Four jobs that are willing to leave."""
    return full()


def test_preempt__one_victim_saves_itself_leaves_and_comes_back(site):
    """It is signalled once, requeued once after its grace, and runs again; the beneficiary starts; nothing is left.
    What the move cost is known when the job is further than it was."""
    running = full(comment=f"{WILLING} progress=1/9")
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    (victim,) = [job for job in running if restarts(job)]
    assert (signalled(), restarts(victim)) == ([victim], 1)
    begun_s = {line["operation"]["stage"]: line["operation"]["stage_s"] for line in journal(site)}
    assert begun_s["requeued"] - begun_s["warned"] >= 3  # what its hint asks for
    ticks(site, clean, "no reservation is left")
    run("scancel", str(urgent))
    ticks(site, lambda: victim in column("%A", "RUNNING"), "the victim runs again")
    assert [restarts(job) for job in sorted(running)].count(1) == 1
    assert moves(site).costs == {}
    run("scontrol", "update", f"jobid={victim}", f"comment={WILLING} progress=2/9", user="alice")
    site.tick()
    assert [(user, len(costs)) for (user, _), costs in moves(site).costs.items()] == [("alice", 1)]


def test_preempt__victim_that_leaves_by_itself_is_not_waited_for(site):
    """Its hint asks for two minutes: it is signalled once, and the other job starts when it has saved itself."""
    jobs = full(LEAVES, "slurmsched: preempt=yes ckpt=USR2@120")
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    ticks(site, clean, "no reservation is left")
    assert (len(signalled()), sorted(restarts(job) for job in jobs)) == (1, [0, 0, 0, 1])


# What a user makes of a waiting job while a victim saves itself for it, and why nobody leaves for it then.
CHANGED = [
    ("starttime=now+1hour", "its job may not start until"),
    ("dependency=afterok:{other}", "its job waits for other jobs"),
    ("numnodes=2", "its job asks for 2 nodes, 1 were chosen"),
    ("reqnodelist={elsewhere}", "its job cannot run on node"),
    ("excnodelist={node}", "its job cannot run on node"),
    ("features=slow", "its job cannot run on node"),
    ("partition=phantom", "its job"),
    ("priority=0", "its job is held"),
    ("nice=100", "its user's nice puts its job behind other jobs"),
]


def test_preempt__a_job_that_could_not_start_any_more_takes_nobodys_gpus(site):
    """Its user changes it in the grace of its victim: its nodes are given back in the next cycle, the journal says why,
    and the victim goes on. So for each change, one job after the other."""
    site.configure(policy='{ name = "srsf" }')
    jobs = four_running("slurmsched: preempt=yes ckpt=USR2@300")
    site.configure(operations__lease_s="0", scope__partitions='["gpu", "short"]')
    featured("p1", "a100,slow")
    for at, (change, why) in enumerate(CHANGED):
        urgent = submit("bob", 8, "--time=10", script="sleep 300")
        ticks(site, lambda at=at: len(signalled()) > at, "a victim is warned")
        victim = signalled()[-1]
        elsewhere = node_of(next(job for job in jobs if job != victim))
        words = change.format(other=victim, node=node_of(victim), elsewhere=elsewhere)
        run("scontrol", "update", f"jobid={urgent}", *words.split(), user="root")
        told = len(notes(site))
        site.tick()
        seen = (why, "its job waits for something else than GPUs (BadConstraints)")  # Slurm may have looked already
        assert notes(site)[told:] and notes(site)[-1].startswith(seen), (change, notes(site)[told:])
        site.tick()
        assert clean(), change
        run("scancel", str(urgent))
    assert sum(map(restarts, jobs)) == 0
    assert set(jobs) <= set(column("%A", "RUNNING"))


def test_preempt__is_judged_again_when_its_nodes_are_reserved(site):
    """Between the look at the queue and the requeue another job takes the gang's free node, and the gang's user puts
    off its start: nobody is requeued for it, and its nodes are given back in the next cycle."""
    site.configure(policy='{ name = "srsf" }')
    jobs = [submit("alice", 8, "--requeue", "--time=60", "-w n1")]
    jobs += [submit("carol", 8, "--time=60", f"-w n{node}", "--comment=slurmsched: preempt=no") for node in (2, 3)]
    until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "they run")
    site.configure(preemption__without_checkpoint="true", preemption__partitions='["gpu"]', gangs__reserve="false")
    gang, other = submit("bob", 16, "--time=10"), submit("carol", 8, "--time=60", "-w n4", "--hold")
    taken = f"scontrol release {other}; until squeue -h -j {other} -t R | grep -q .; do sleep 0.2; done"
    later = f"scontrol update jobid={gang} starttime=now+1hour"
    for command, why in ((taken, "others hold what its job needs of node n4"), (later, "its job may not start until")):
        until(lambda: site("plan", "--json").json()["steps"], "nodes would be kept for the gang")
        tick_meanwhile(site, command)
        assert notes(site)[-1].startswith(why)
        site.tick()
        assert clean()
        run("scancel", str(other))
        ticks(site, lambda: journal(site)[-1]["operation"]["stage"] == "closed", "it is over")
    assert restarts(jobs[0]) == 0


def test_preempt__second_cycle_takes_nobody_else(site):
    """While the first victim has its grace, leaves and completes, no other one is asked to."""
    jobs = full(STAYS)
    urgent = submit("bob", 8, "--time=10")
    completing = set()

    def started() -> bool:
        completing.update(column("%A", "COMPLETING"))
        return urgent in column("%A", "RUNNING")

    ticks(site, started, "the urgent job runs")
    for _ in range(3):
        site.tick()
    assert (len(signalled()), sum(restarts(job) for job in jobs)) == (1, 1)
    assert [restarts(job) for job in completing] == [1]


def test_preempt__the_published_case_in_full(site):
    """Eleven one-node jobs are willing, and the one on the only node that the urgent job may have is not: twenty cycles
    touch no one and give one reason. When it may have one of the others' nodes too, that one's job is asked once and
    moved once, and no second one while it has its grace and completes."""
    site.configure(scope__partitions='["wide"]')
    with more_nodes(12, "wide"):
        options = ("--partition=wide", "--requeue", "--time=60")
        scripts = [SAVES] * 5 + [STAYS] + [SAVES] * 5
        jobs = [submit("alice", 8, *options, f"--comment={WILLING}", f"-wn{node}", script=script)
                for node, script in enumerate(scripts, start=1)]  # fmt: skip
        jobs.append(submit("alice", 8, *options, "--comment=slurmsched: preempt=no", "-w n12"))
        until(lambda: set(jobs) <= set(column("%A", "RUNNING")), "all twelve run")
        time.sleep(2)  # eight GPUs for two seconds: beyond the threshold
        urgent = submit("bob", 8, "--partition=wide", "--time=10", "-x", "n[1-11]")
        until(lambda: column("%r", "PENDING").get(urgent) not in (None, "None"), "Slurm has looked at it")
        for _ in range(20):
            assert site.tick()["written"] == 0
        assert (signalled(), [restarts(job) for job in jobs], reservations()) == ([], [0] * 12, [])
        told = [row for row in site("plan", "--json").json()["refused"] if row["job_id"] == urgent]
        assert [row["rule"] for row in told] == ["victims"]
        run("scontrol", "update", f"jobid={urgent}", "excnodelist=n[1-5,7-11]")
        ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
        ticks(site, clean, "nothing is left")
        assert (signalled(), [restarts(job) for job in jobs]) == ([jobs[5]], [0] * 5 + [1] + [0] * 6)


def test_preempt__what_a_victim_leaves_over_serves_the_next_one(site, running):
    """Two urgent jobs of half a node: one victim leaves, and both run on its node."""
    urgent = {submit(user, 4, "--time=10", script="sleep 300") for user in ("bob", "carol")}
    until(lambda: urgent <= set(column("%r", "PENDING")), "both wait")
    ticks(site, lambda: urgent <= set(column("%A", "RUNNING")), "both run")
    ticks(site, clean, "nothing is left")
    assert (len(signalled()), sorted(restarts(job) for job in running)) == (1, [0, 0, 0, 1])
    assert len({column("%N", "RUNNING")[job] for job in urgent}) == 1


def test_preempt__job_without_hint_is_left_alone_unless_the_site_allows_it(site):
    """Nobody loses work who did not say that it may; where the site says so one is requeued with no signal, and the
    journal tells what it loses: its whole run."""
    jobs = full("sleep 600", "no hint")
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    for _ in range(5):
        site.tick()
    assert ([restarts(job) for job in jobs], reservations()) == ([0, 0, 0, 0], [])
    site.configure(preemption__partitions='["gpu"]', preemption__without_checkpoint="true")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    assert (signalled(), sorted(restarts(job) for job in jobs)) == ([], [0, 0, 0, 1])
    (victim,) = journal(site)[-1]["operation"]["victims"]
    assert victim["lost_gpu_s"] >= 8 * 2
    ticks(site, clean, "nothing is left")


def test_preempt__an_array_loses_one_task_and_not_the_one_with_its_id(site):
    """Slurm takes the id of the task that starts last for the whole array. That task keeps its GPUs; another one leaves
    alone."""
    array = submit("alice", 8, "--array=1-4", f"--comment={WILLING}", "--requeue", "--time=60", script=SAVES)
    until(lambda: len(column("%A", "RUNNING")) == 4 and array in column("%A", "RUNNING"), "all four run")
    time.sleep(2)
    urgent = submit("bob", 8, "--time=10", f"-w {node_of(array)}", script="sleep 300")
    for _ in range(4):
        site.tick()
    assert (signalled(), reservations()) == ([], [])
    run("scontrol", "update", f"JobId={urgent}", "ReqNodeList=")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    words = run("scontrol", "show", "job", str(array)).out.split()
    assert (len(signalled()), array in signalled()) == (1, False)
    assert sorted(word for word in words if word.startswith("Restarts=")) == ["Restarts=0"] * 3 + ["Restarts=1"]
    ticks(site, clean, "nothing is left")


def test_preempt__beneficiary_cancelled_in_the_grace(site, running):
    """The victim goes on; its checkpoint was for nothing, and nothing else was."""
    for job in running:
        run("scontrol", "update", f"jobid={job}", "comment=slurmsched: preempt=yes ckpt=USR2@60")
    urgent = submit("bob", 8, "--time=10")
    ticks(site, signalled, "a victim is warned")
    assert len(reservations()) == 1
    run("scancel", str(urgent))
    ticks(site, clean, "all is taken back")
    assert [restarts(job) for job in running] == [0, 0, 0, 0]


@pytest.mark.parametrize("point", POINTS[:6], ids=" ".join)
def test_preempt__killed_where_it_begins_ends_clean(site, running, point):
    """kill -9 right before or after each write: no orphan reservation, no job bound to one, nobody requeued twice."""
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    until(lambda: column("%r", "PENDING").get(urgent) not in (None, "None"), "Slurm has looked at it")
    assert cut_tick(site, [point])
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs all the same")
    ticks(site, clean, "nothing is left")
    assert max(restarts(job) for job in running) == 1
    # Cut off after a signal nobody knows whether it was heard: that operation is taken back, and another one asks
    # again.
    assert len(signalled()) == (2 if point == ("signal", "after") else 1)


def test_preempt__killed_at_every_later_step_in_turn(site, running):
    """One operation, killed right before and right after each write from the requeue to the very last: it ends as any
    other.

    The victim is kept from starting for long, so that there is something to be put right for it.
    """
    urgent = submit("bob", 8, "--time=10", script="sleep 500")
    ticks(site, signalled, "a victim is warned")
    (victim,) = signalled()
    points = POINTS[6:]

    def cycle() -> bool:
        cut_tick(site, points)
        waits = victim in column("%A", "PENDING") and victim not in column("%A", "COMPLETING")
        if waits and ("delay", "before") in points and restarts(victim) == 1:
            run("scontrol", "update", f"jobid={victim}", "starttime=now+300")
        return not points and clean()

    until(cycle, "it died everywhere, and nothing is left", limit_s=400)
    assert urgent in column("%A", "RUNNING")
    assert ([restarts(job) for job in sorted(running)].count(1), signalled()) == (1, [victim]), journal(site)
    until(lambda: column("%r", "PENDING").get(victim) != "BeginTime", "the victim may start again")
    undone = site("undo", "--apply", "--yes").out
    lines = journal(site)
    assert lines[-1]["operation"]["stage"] == "closed", (undone, lines)


def test_preempt__slurmctld_restarts_in_the_middle(site, running):
    """The operation goes on where it was."""
    urgent = submit("bob", 8, "--time=10", script="sleep 300")
    ticks(site, signalled, "a victim is warned")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    ticks(site, lambda: urgent in column("%A", "RUNNING"), "the urgent job runs")
    ticks(site, clean, "nothing is left")
    assert sum(restarts(job) for job in running) == 1
