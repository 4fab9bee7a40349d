"""Laws of gangs on several GPU types at once in a replay, whatever parts a policy wants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import JobChanges, Labels, Plan, Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.overrides import request_of_types, types_of
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import AnyFit, BestFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.protocols import Placement
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.physics.change_costs import RecordedSpeed
from slurmsched.sim.replay_stores import CarryStore
from tests.property.test_ideal_cluster import traces
from tests.property.test_physics import Watched

TYPES = ("k80", "p100", "v100")
HARDWARE = ClusterHardware.of(ClusterLayout.of_gpus([4] * 6, [TYPES[n % 3] for n in range(6)]).nodes)


@dataclass(frozen=True)
class Parts:
    """Ranks at random, anew each minute; each job on one type, on any, or in parts at random on two or three."""

    seed: int
    preemptive: ClassVar[bool] = True

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        if snapshot.now_s > 20_000:  # chaos ends, so that jobs do
            return Ranking(
                np.argsort(~jobs.running, kind="stable"), changes=JobChanges(start_s=np.full(len(jobs), -np.inf))
            )
        lots = {job: np.random.default_rng((self.seed, int(snapshot.now_s // 60), job)) for job in range(1, 20)}
        drawn = [lots[job] for job in jobs.job_id.tolist()]
        order = np.argsort([each.random() for each in drawn])
        parts = [_parts(int(gpus), each) for gpus, each in zip(jobs.gpus, drawn, strict=True)]
        several = [request_of_types(of) if len(of) > 1 else "" for of in parts]
        one = [next(iter(of)) if of else "" for of in parts]
        return Ranking(order, changes=JobChanges(gpu_type=Labels.of(one), gpus_by_type=Labels.of(several)))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        return (snapshot.now_s // 60 + 1) * 60


def _parts(gpus: int, chance: np.random.Generator) -> dict[str, int]:
    """GPUs by type, none where any type will do."""
    types = chance.permutation(TYPES)[: chance.integers(0, min(3, gpus) + 1)].tolist()
    cuts = sorted(chance.choice(np.arange(1, gpus), len(types) - 1, replace=False).tolist()) if len(types) > 1 else []
    sizes = np.diff([0, *cuts, gpus]).tolist()
    return dict(zip(types, sizes, strict=True)) if types else {}


@dataclass(frozen=True)
class Checked:
    """A planner of whose target each gang is checked."""

    planner: DirectPlanner

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.planner.plan(snapshot)
        assert plan.target is not None
        assert plan.ranking is not None
        target, wants, used = plan.target, plan.ranking.changes, Counter[int]()
        assert len(set(target.rows.tolist())) == len(target.rows)
        for row, first, count in zip(target.rows.tolist(), target.first.tolist(), target.count.tolist(), strict=True):
            nodes, gpus = target.node[first : first + count].tolist(), target.gpus[first : first + count].tolist()
            held = Counter[str]()
            for node, each in zip(nodes, gpus, strict=True):
                used[node] += each
                held[snapshot.nodes.gpu_types[node].split(":")[1]] += each
            assert nodes == sorted(set(nodes))
            assert held.total() == snapshot.jobs.gpus[row]  # the whole gang
            several = wants.gpus_by_type[row] if wants and wants.gpus_by_type else ""
            if several:
                assert held == types_of(several)  # as many of each type as the policy wants
        assert all(each <= 4 for each in used.values())
        return plan


class Once(Watched):
    """Checks at every look that no GPU is held twice."""

    def read(self) -> Snapshot:
        shown, taken = super().read(), Counter[str]()
        for name, mask in zip(shown.allocations.node, shown.allocations.gpu_mask.tolist(), strict=True):
            assert not taken[name] & mask
            taken[name] |= mask
        return shown


@pytest.mark.parametrize("placement", [AnyFit(), BestFit(), Consolidated()], ids=lambda each: type(each).__name__)
@settings(deadline=None, max_examples=15)
@given(trace=traces(most_gpus=8), seed=st.integers(0, 99))
def test_mixed__gangs_are_whole_and_no_gpu_is_held_twice(placement: Placement, trace: Trace, seed: int) -> None:
    """By type too; every job ends with its whole work done, however its types change."""
    cluster = Once(trace, HARDWARE, RecordedSpeed())
    replay_events(cluster, Checked(DirectPlanner(Parts(seed), placement)), CarryStore())
    np.testing.assert_allclose(cluster.work_s(), cluster.job_arrays.duration_s, rtol=1e-6, atol=1e-6)
    assert cluster.outcomes().job_id.tolist() == trace.job_id.tolist()
    assert cluster.free == 24
