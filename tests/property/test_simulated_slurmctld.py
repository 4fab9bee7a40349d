"""Laws of the simulated slurmctld, whatever a planner does to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.config import OperationsConfig, PreemptionConfig, ScopeConfig
from slurmsched.cycle import run_cycle
from slurmsched.model import JobState, Labels, Plan, Requeue, SetNice, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.placements.consolidated import Consolidated
from slurmsched.planning.planner import Planner
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.sim.event_loop import replay
from slurmsched.sim.experiments.slurmctld_setup import RequeuePlanner
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld, outcomes_of
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings, ideal

NODES = (4, 4, 2)
GPUS = sum(NODES)
LAS = RequeuePlanner(
    Planner(DiscretizedLas((100.0, 400.0)), "las", ScopeConfig(partitions=("*",))), Consolidated(), 20.0
)


class Chaos:
    """A planner that requeues and reorders at random, and checks every snapshot it is given."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.last_s = -1.0

    def plan(self, snapshot: Snapshot) -> Plan:
        self._check(snapshot)
        jobs, actions = snapshot.jobs, []
        for row in range(len(jobs)):
            key = (int(jobs.job_id[row]), float(jobs.submit_s[row]), "at random")
            if jobs.running[row] and jobs.restarts[row] < 3 and self.chance.random() < 0.3:
                actions.append(Requeue(*key))
            elif jobs.pending[row] and self.chance.random() < 0.3:
                actions.append(SetNice(*key, old=int(jobs.nice[row]), new=int(self.chance.integers(-500, 500))))
        return Plan(tuple(actions))

    def _check(self, snapshot: Snapshot) -> None:
        held, jobs = snapshot.allocations, snapshot.jobs
        by_node = dict.fromkeys(snapshot.nodes.name, 0)
        for name, gpus in zip(held.node, held.gpus.tolist(), strict=True):
            by_node[name] += gpus
        assert list(by_node.values()) == snapshot.nodes.gpus_used.tolist()
        assert (snapshot.nodes.gpus_used <= snapshot.nodes.gpus).all()
        for row in np.flatnonzero(jobs.running):
            assert held.gpus[held.job_id == jobs.job_id[row]].sum() == jobs.gpus[row]
        assert snapshot.now_s > self.last_s
        self.last_s = snapshot.now_s


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    rows = draw(st.integers(1, 10))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    duration = np.array(column(st.integers(0, 300)))
    ids = draw(st.permutations(range(1, rows + 1)))
    over = np.array(column(st.integers(50, 400)))
    return Trace.of(ids, column(st.integers(1, GPUS)), column(st.integers(0, 300)), duration, duration + over)


@st.composite
def models(draw: st.DrawFn) -> SlurmctldSettings:
    times = st.sampled_from([0.0, 7.0, 30.0])
    chosen = {name: draw(times) for name in ("kill_wait_s", "requeue_delay_s", "restart_cost_s", "checkpoint_s")}
    backfill = draw(st.sampled_from(["slurm", "easy", "none"]))
    return replace(draw(st.sampled_from([SlurmctldSettings(), ideal()])), backfill=backfill, **chosen)


def played(trace: Trace, model: SlurmctldSettings, planner: Any, seed: int = 0) -> SimulatedSlurmctld:
    cluster = SimulatedSlurmctld(trace, NODES, model, seed=seed)
    replay(cluster, planner, MemoryStore(), interval_s=25.0)
    return cluster


@given(traces(), models(), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_slurmctld__keeps_its_laws_under_any_plan(trace: Trace, model: SlurmctldSettings, seed: int) -> None:
    """No GPU is held twice, gangs are whole, time goes on (Chaos checks), all jobs end, and run time adds up."""
    cluster = played(trace, model, Chaos(seed))
    done, job = outcomes_of(cluster), cluster.job
    assert np.isfinite(done.end_s).all()
    np.testing.assert_allclose(done.useful_s, trace.duration_s)
    assert (done.first_start_s >= trace.submit_s).all()
    times, busy, _ = cluster.history.steps()
    held_gpu_s = (np.diff(times) * busy[:-1]).sum()
    expected = (trace.gpus * (job.executed_s + job.restarts * model.kill_wait_s)).sum()
    np.testing.assert_allclose(held_gpu_s, expected)


@given(traces(), st.integers(0, 99), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=15)
def test_slurmctld__is_blind_to_row_order_and_repeatable(trace: Trace, seed: int, random: Any) -> None:
    """Equal seeds give byte-equal outcomes, with the rows of the trace in any order."""
    order = list(range(len(trace)))
    random.shuffle(order)
    names = ("job_id", "gpus", "submit_s", "duration_s", "time_limit_s")
    shuffled = Trace.of(*(getattr(trace, name)[order] for name in names))
    digests = {outcomes_of(played(one, SlurmctldSettings(), LAS)).digest for one in (trace, trace, shuffled)}
    assert len(digests) == 1
    assert len({outcomes_of(played(t, SlurmctldSettings(), Chaos(seed))).digest for t in (trace, shuffled)}) == 1


@given(traces(), models(), st.integers(0, 99), st.booleans())
@settings(deadline=None, max_examples=40)
def test_queue__kept_from_pass_to_pass_is_the_one_sorted_anew(
    trace: Trace, model: SlurmctldSettings, seed: int, tiers: bool
) -> None:
    """Whatever comes, starts, is requeued, or gets another nice, at every event the order is that of all keys."""
    cluster = SimulatedSlurmctld(trace, NODES, model, seed=seed)
    cluster.tier, store = (trace.job_id % 2 if tiers else None), MemoryStore()
    planner, job, asked = Chaos(seed), cluster.job, 0
    while not cluster.finished:
        cluster.advance(min(cluster.next_event_s, cluster.now_s + 25.0))
        for now_s in (cluster.now_s, cluster.now_s):  # the second time nothing has changed
            rows = job.startable(now_s)
            keys = [job._turn[rows], job.record_id[rows], job.submit_s[rows], -job.priority(rows, now_s)]
            expected = rows[np.lexsort(keys if cluster.tier is None else [*keys, -cluster.tier[rows]])]
            assert job.queue(now_s, cluster.tier).tolist() == expected.tolist()
        asked += 1
        if asked % 3 == 0:
            run_cycle(cluster, planner, store)


@given(traces())
@settings(deadline=None, max_examples=30)
def test_slurmctld__las_by_requeue_wastes_only_restarts(trace: Trace) -> None:
    """Under a preempting planner all jobs end, and what is lost is at most the restart cost of each requeue."""
    cluster = played(trace, SlurmctldSettings(), LAS)
    assert cluster.finished
    assert (cluster.job.wasted_s <= cluster.job.restarts * cluster.model.restart_cost_s + 1e-6).all()


HINTS = st.sampled_from(["", "slurmsched: preempt=yes", "slurmsched: preempt=yes ckpt=USR2@20"])


@given(traces(), st.lists(HINTS, min_size=10, max_size=10), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_slurmctld__las_by_operations_moves_only_who_is_willing(
    trace: Trace, hints: list[str], plain: bool, leaves: bool
) -> None:
    """By the daemon's own preemption all jobs end, none without a hint is moved, none oftener than allowed, and no
    operation leaves a job in its reservation when it is over."""
    limits = PreemptionConfig(
        enabled=True, quantum_s=20.0, restart_cost_s=5.0, most_per_job=2, without_checkpoint=plain
    )
    planner = Planner(
        DiscretizedLas((100.0, 400.0)),
        "las",
        ScopeConfig(partitions=("*",)),
        preemption=limits,
        operations_config=OperationsConfig(),
    )
    given_hints = hints[: len(trace)]
    requests = SubmittedRequests.build(len(trace), {"comment": Labels.of(given_hints)})
    model = SlurmctldSettings(restart_cost_s=5.0, checkpoint_s=np.inf, leaves_saved=leaves, kill_wait_s=5.0)
    cluster = SimulatedSlurmctld(trace, NODES, model, requests=requests)
    replay(cluster, planner, MemoryStore(), interval_s=25.0)
    willing = np.array([("ckpt" in hint) or (plain and bool(hint)) for hint in given_hints])
    assert (cluster.job.restarts[~willing] == 0).all()
    assert (cluster.job.restarts <= 2).all()
    over_their_limit = cluster.job.ended_as != int(JobState.COMPLETED)
    np.testing.assert_allclose(outcomes_of(cluster).useful_s[~over_their_limit], trace.duration_s[~over_their_limit])
    assert {operation.reservation for operation in cluster.operations} >= set(cluster.read().reservations.name)
