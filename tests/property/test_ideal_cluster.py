"""Laws of the ideal cluster, whatever a planner tells it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.model import Assignments, Plan, Ranking, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import BestFit, Spread
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.placements.linked import Linked
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gittins import Gittins
from slurmsched.policies.las import Las
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import DecidingPlanner, Placement
from slurmsched.sim.cluster_layout import NodeSpec
from slurmsched.sim.event_loop import replay, replay_events
from slurmsched.sim.ideal.gpu_parts_cluster import GpuPartsCluster
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.replay_stores import CarryStore
from tests.reference.schedules import conservative_ends

NODES = (4, 4, 2)
GPUS = sum(NODES)
PLANNERS = [
    DirectPlanner(Fifo(), Count(), "block"), DirectPlanner(Fifo(), Count(), "skip"),
    DirectPlanner(Fifo(), Count(), "easy"), DirectPlanner(Fifo(), Count(), "conservative"),
    DirectPlanner(Sjf(), Count(), "block"),
    DirectPlanner(Srtf(), Count()), DirectPlanner(Srsf(), Count()),
    *(DirectPlanner(DiscretizedLas((100.0, 400.0), fifo_by=by), Count()) for by in ("arrival", "start", "submit")),
    DirectPlanner(Smallest(), Count()), DirectPlanner(Las(quantum_gpu_s=30.0), Count()),
    DirectPlanner(Gittins((100.0,), 50.0, least_samples=1), Count()),
]  # fmt: skip


class Chaos:
    """A planner that ranks at random anew each time, places truly, and checks every snapshot it is given."""

    def __init__(self, placement: Placement, seed: int) -> None:
        self.placement, self.chance, self.last_s, self.cycles = placement, np.random.default_rng(seed), -1.0, 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self._check(snapshot)
        self.cycles += 1
        order = self.chance.permutation(len(snapshot.jobs))
        if self.cycles > 200:  # chaos ends, so that jobs do
            order = np.argsort(~snapshot.jobs.running, kind="stable")
        target = self.placement.place(snapshot, Ranking(order))
        return IdealPlan(target=target, next_look_s=snapshot.now_s + float(self.chance.integers(1, 90)))

    def _check(self, snapshot: Snapshot) -> None:
        held, jobs, nodes = snapshot.allocations, snapshot.jobs, snapshot.nodes
        by_node = dict.fromkeys(nodes.name, 0)
        for name, gpus in zip(held.node, held.gpus.tolist(), strict=True):
            by_node[name] += gpus
        assert list(by_node.values()) == nodes.gpus_used.tolist()
        assert (nodes.gpus_used <= nodes.gpus).all()
        of_job = {int(job): int(held.gpus[held.job_id == job].sum()) for job in jobs.job_id}
        assert list(of_job.values()) == np.where(jobs.running, jobs.gpus, 0).tolist()
        assert snapshot.now_s >= self.last_s  # equal: a job of 0 s came and went
        self.last_s = snapshot.now_s


@dataclass
class Everything:
    """The same planner, asked at every event and told of every change: nothing is left out."""

    planner: DirectPlanner
    plans: list[Plan] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.planner.plan(snapshot)
        assert plan.target is not None and plan.ranking is not None
        running = np.zeros(len(snapshot.jobs), np.bool_)
        running[plan.target.rows] = True
        changes = getattr(self.planner.policy, "next_change_s", None)
        at_s = changes(snapshot, plan.ranking, running) if changes else float("inf")
        return IdealPlan(ranking=plan.ranking, target=plan.target, next_look_s=at_s)


class Eager(IdealCluster):
    """An ideal cluster that wants a plan at every event."""

    @property
    def undecided(self) -> bool:
        return True


@st.composite
def traces(draw: st.DrawFn, *, most_gpus: int = GPUS, most: int = 12, least_s: int = 0) -> Trace:
    rows = draw(st.integers(1, most))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=rows, max_size=rows))

    ids = draw(st.permutations(range(1, rows + 1)))
    gpus, submit_s = column(st.integers(1, most_gpus)), column(st.integers(0, 300))
    return Trace.of(ids, gpus, submit_s, column(st.integers(least_s, 300)))


MODELS = st.builds(
    IdealSettings, start_cost_s=st.sampled_from([0.0, 7.0]), restart_cost_s=st.sampled_from([0.0, 7.0]),
    checkpoint_s=st.sampled_from([0.0, 20.0]), clock_s=st.sampled_from([0.0, 1.0]),
)  # fmt: skip


def played(
    trace: Trace, planner: DecidingPlanner, model: IdealSettings | None = None, nodes: Any = (GPUS,)
) -> IdealCluster:
    cluster = IdealCluster(trace, nodes, model)
    replay_events(cluster, planner, CarryStore(np.array([30.0, 80.0, 300.0, 900.0])))
    return cluster


@settings(deadline=None, max_examples=60)
@given(trace=traces(), model=MODELS, seed=st.integers(0, 99), pile=st.booleans(), round_s=st.sampled_from([0.0, 25.0]))
def test_ideal__keeps_its_laws_under_any_plan(
    trace: Trace, model: IdealSettings, seed: int, pile: bool, round_s: float
) -> None:
    """No GPU is held twice, gangs are whole, time goes on (Chaos checks); all jobs end, and service adds up."""
    cluster = IdealCluster(trace, [GPUS] if pile else NODES, model)
    planner: DecidingPlanner = Chaos(Count() if pile else Consolidated(), seed)
    if round_s:
        replay(cluster, planner, CarryStore(), interval_s=round_s)
    else:
        replay_events(cluster, planner, CarryStore())
    done = cluster.outcomes()
    assert done.job_id.tolist() == trace.job_id.tolist()
    assert (done.first_start_s >= trace.submit_s).all()
    times, busy, _ = cluster.history.steps()
    np.testing.assert_allclose((np.diff(times) * busy[:-1]).sum(), (trace.gpus * done.executed_s).sum())
    lost_s = done.executed_s - done.useful_s
    most_s = model.start_cost_s + done.preemptions * (model.checkpoint_s + model.restart_cost_s)
    assert (lost_s[done.preemptions == 0] >= model.start_cost_s - 1e-6).all()  # who is preempted may pay but a part
    assert (lost_s <= most_s + 1e-6).all()


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: f"{type(p.policy).__name__}-{p.filling}")
@settings(deadline=None, max_examples=40)
@given(trace=traces())
def test_ideal__misses_nothing_by_leaving_cycles_out(planner: DirectPlanner, trace: Trace) -> None:
    """The same ends, preemptions and makespan as with a cycle at every event (see Validity)."""
    eager = Eager(trace, [GPUS])
    replay_events(eager, Everything(planner), CarryStore(np.array([30.0, 80.0, 300.0, 900.0])))
    assert played(trace, planner).outcomes().digest == eager.outcomes().digest


@pytest.mark.parametrize("planner", [p for p in PLANNERS if p.filling in ("skip", "block")],
                         ids=lambda p: f"{type(p.policy).__name__}-{p.filling}")  # fmt: skip
@settings(deadline=None, max_examples=40)
@given(trace=traces(), placement=st.sampled_from([Consolidated(), Linked(), CellPlacement(), BestFit(), Spread()]))
def test_nodes__miss_nothing_by_leaving_cycles_out(planner: DirectPlanner, trace: Trace, placement: Placement) -> None:
    """The same on nodes, where a job waits until its parts find room, and who comes may find nodes without a cycle."""
    planner, eager = replace(planner, placement=placement), Eager(trace, NODES)
    replay_events(eager, Everything(planner), CarryStore(np.array([30.0, 80.0, 300.0, 900.0])))
    assert played(trace, planner, nodes=NODES).outcomes().digest == eager.outcomes().digest


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: f"{type(p.policy).__name__}-{p.filling}")
@settings(deadline=None, max_examples=25)
@given(trace=traces(), model=MODELS)
def test_counted__plans_as_the_count_placement_does(planner: DirectPlanner, trace: Trace, model: IdealSettings) -> None:
    """The same outcomes, and the same steps of the history."""
    if isinstance(planner.policy, Las):  # which swaps two jobs so often that costs leave no progress
        model = IdealSettings()
    plain, counted = (played(trace, replace(planner, counted=way), model) for way in (False, True))
    assert counted.outcomes().digest == plain.outcomes().digest
    assert [steps.tolist() for steps in counted.history.steps()] == [steps.tolist() for steps in plain.history.steps()]


@settings(deadline=None, max_examples=60)
@given(trace=traces(least_s=1))  # the naive loop lets others run through a reservation of no length
@pytest.mark.parametrize("placement", [Count(), Consolidated()], ids=["count", "consolidated"])
def test_conservative__ends_every_job_as_the_naive_loop_does(placement: Placement, trace: Trace) -> None:
    """Each job at the earliest time that delays none before it; on one node, so that placement is no question."""
    rows = zip(*(getattr(trace, name).tolist() for name in ("submit_s", "job_id", "gpus", "duration_s")), strict=True)
    ends_s = conservative_ends(list(rows), GPUS)
    done = played(trace, DirectPlanner(Fifo(), placement, "conservative")).outcomes()
    assert [ends_s[number] for number in trace.job_id.tolist()] == done.end_s.tolist()


@pytest.mark.parametrize("planner", PLANNERS[:-1], ids=lambda p: f"{type(p.policy).__name__}-{p.filling}")
@settings(deadline=None, max_examples=20)
@given(trace=traces())
def test_rounds__miss_nothing_by_leaving_cycles_out(planner: DirectPlanner, trace: Trace) -> None:
    """A round at whose end a plan would be the same needs none. Gittins says itself that it looks only at events."""
    digests = set()
    for kind in (IdealCluster, Eager):
        cluster = kind(trace, [GPUS], IdealSettings(round_s=25.0, restart_cost_s=7.0))
        replay(cluster, planner, CarryStore(np.array([30.0, 80.0, 300.0, 900.0])), interval_s=25.0)
        digests.add(cluster.outcomes().digest)
    assert len(digests) == 1


@settings(deadline=None, max_examples=40)
@given(trace=traces(), random=st.randoms(use_true_random=False), number=st.integers(0, len(PLANNERS) - 1))
def test_ideal__is_blind_to_row_order_and_repeatable(trace: Trace, random: Any, number: int) -> None:
    """Byte-equal outcomes, with the rows of the trace in any order."""
    order = list(range(len(trace)))
    random.shuffle(order)
    shuffled = Trace.of(*(getattr(trace, name)[order] for name in ("job_id", "gpus", "submit_s", "duration_s")))
    assert len({played(each, PLANNERS[number]).outcomes().digest for each in (trace, shuffled, trace)}) == 1


@settings(deadline=None, max_examples=60)
@given(trace=traces(most_gpus=1, most=20))
def test_fifo_without_gangs__never_idles_a_gpu_that_a_job_waits_for(trace: Trace) -> None:
    """Work conservation: jobs wait only while all GPUs are busy."""
    times, busy, waiting = played(trace, PLANNERS[0], nodes=[3]).history.steps()
    lasting = np.diff(times, append=np.inf) > 0
    assert (busy[lasting & (waiting > 0)] == 3).all()


@settings(deadline=None, max_examples=40)
@given(trace=traces(), quantum=st.sampled_from([30.0, 100.0]))
def test_las__keeps_to_its_quantum(trace: Trace, quantum: float) -> None:
    """Continuous LAS with a quantum ends all jobs and loses no service to preemption."""
    done = played(trace, DirectPlanner(Las(quantum_gpu_s=quantum), Count())).outcomes()
    np.testing.assert_allclose(done.executed_s, trace.duration_s)


# Parts of GPUs.

PART_PLACEMENTS = ("dot-product", "fgd", "gpu-clustering", "gpu-packing", "share-best-fit", "share-random")
PART_NODES = [NodeSpec("a", 2, 8, 64.0), NodeSpec("b", 4, 8, 32.0)]


class Stopping:
    """A planner that starts whom the placement says, stops some at random, and checks every snapshot it is given."""

    def __init__(self, name: str, seed: int) -> None:
        self.placement: Placement = registry.make_plugin("placements", name, key="placement")
        self.chance, self.cycles = np.random.default_rng(seed), 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self._check(snapshot)
        self.cycles += 1
        order = self.chance.permutation(len(snapshot.jobs))
        target = self.placement.place(snapshot, Ranking(order))
        stay = self.chance.random(len(target.rows)) < (0.8 if self.cycles < 30 else 1)
        rows, count = target.rows[stay], target.count[stay]
        chosen = target.first[stay]
        parts = (target.node[chosen], target.gpus[chosen], target.gpu_mask[chosen])
        return IdealPlan(target=Assignments(rows, np.arange(len(rows)), count, *parts), next_look_s=snapshot.now_s + 40)

    def _check(self, snapshot: Snapshot) -> None:
        held, jobs, nodes = snapshot.allocations, snapshot.jobs, snapshot.nodes
        assert sorted(held.job_id) == sorted(jobs.job_id[jobs.running])
        row = np.searchsorted(jobs.job_id, held.job_id)
        milli = jobs.gpu_milli[row]
        for n, name in enumerate(nodes.name):
            here, union = held.node.isin([name]), 0
            for gpu in range(int(nodes.gpus[n])):
                parts = milli[here & (held.gpu_mask >> gpu & 1 == 1)].tolist()
                assert sum(parts) <= 1000 and (len(parts) < 2 or 1000 not in parts)
                union |= bool(parts) << gpu
            assert (int(nodes.gpu_mask_used[n]), int(nodes.gpus_used[n])) == (union, union.bit_count())
            assert jobs.cpus[row[here]].sum() == nodes.cpus_used[n] <= nodes.cpus[n]
            assert jobs.memory_mib[row[here]].sum() == nodes.memory_used_mib[n] <= nodes.memory_mib[n]


@settings(deadline=None, max_examples=30)
@given(trace=traces(most_gpus=2), name=st.sampled_from(PART_PLACEMENTS), seed=st.integers(0, 99), model=MODELS)
def test_gpu_parts__keep_their_laws_under_any_plan(trace: Trace, name: str, seed: int, model: IdealSettings) -> None:
    """No GPU, CPU or memory is given twice, and whole GPUs are not shared (Stopping checks); in the end all jobs have
    ended, all is free, and the GPU time is that of the parts."""
    chance, jobs = np.random.default_rng(seed), len(trace)
    share = chance.choice([0.0001, 0.25, 0.3335, 0.5, 0.7, 1.0], jobs)
    asked = {"gpu_share": share, "cpus": chance.integers(0, 9, jobs), "memory_mib": chance.integers(0, 33, jobs)}
    cluster = GpuPartsCluster(trace.with_columns(**asked), PART_NODES, model, cpus_known=True, seed=seed)
    replay_events(cluster, Stopping(name, seed), CarryStore())
    done, (times_s, busy, waiting) = cluster.outcomes(), cluster.history.steps()
    assert done.job_id.tolist() == trace.job_id.tolist()
    assert (cluster.free, busy[-1], waiting[-1]) == (6_000, 0.0, 0)
    part = np.where(trace.gpus == 1, np.maximum(np.rint(1_000 * share), 1), 1_000) / 1_000
    assert (done.held_gpus * done.executed_s).sum() == pytest.approx((trace.gpus * part * done.executed_s).sum())
    assert (np.diff(times_s) * busy[:-1]).sum() == pytest.approx((trace.gpus * part * done.executed_s).sum())


@settings(deadline=None, max_examples=15)
@given(trace=traces(most_gpus=4), name=st.sampled_from(PART_PLACEMENTS), model=MODELS)
def test_gpu_parts__change_nothing_where_nobody_asks_for_one(trace: Trace, name: str, model: IdealSettings) -> None:
    """The same schedule as with whole GPUs, by any of these placements."""
    planner = DirectPlanner(Fifo(), registry.make_plugin("placements", name, key="placement"), "skip", each_order=True)
    parts, whole = GpuPartsCluster(trace, PART_NODES, model), IdealCluster(trace, [2, 4], model)
    for cluster in (parts, whole):
        replay_events(cluster, planner, CarryStore())
    assert parts.outcomes().digest == whole.outcomes().digest
    assert [steps.tolist() for steps in parts.history.steps()] == [steps.tolist() for steps in whole.history.steps()]
