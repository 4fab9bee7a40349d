"""Laws of jobs that share GPUs in a replay, whatever pairs a policy wants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import Assignments, JobChanges, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import AnyFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.linked import Linked
from slurmsched.protocols import Placement
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.physics.change_costs import ChangeCosts
from slurmsched.sim.replay_stores import CarryStore
from tests.property.test_ideal_cluster import traces
from tests.property.test_physics import HARDWARE, Watched


@dataclass(frozen=True)
class Crowded(ChangeCosts):
    """Six tenths of the speed beside other jobs; never more than `most` on a GPU, and those on all of each other's."""

    shared: ClassVar[bool] = True
    colocates: ClassVar[bool] = True

    most: int = 2

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        on: dict[tuple[int, int], list[int]] = {}
        for job in range(len(held.rows)):
            for k in range(held.first[job], held.first[job] + held.count[job]):
                for gpu in range(64):
                    if int(held.gpu_mask[k]) >> gpu & 1:
                        on.setdefault((int(held.node[k]), gpu), []).append(job)
        assert max(map(len, on.values()), default=0) <= self.most
        made = np.ones(len(held.rows))
        for job in range(len(held.rows)):
            beside = {tuple(members) for members in on.values() if job in members}
            assert len(beside) == 1  # the same neighbours, or nobody, on all its GPUs
            made[job] = 0.6 if len(beside.pop()) > 1 else 1.0
        return made


@dataclass(frozen=True)
class Couples:
    """Ranks at random, anew each minute, and puts at random up to `most` jobs of the same size together."""

    seed: int
    most: int = 2
    preemptive: ClassVar[bool] = True

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs = snapshot.jobs
        chance = np.random.default_rng((self.seed, int(snapshot.now_s // 60)))
        lots = {job: chance.random() for job in range(1, 20)}
        late = snapshot.now_s > 20_000  # chaos ends, so that jobs do
        order = np.array(sorted(range(len(jobs)), key=lambda row: (
            late and not jobs.running[row], lots[int(jobs.job_id[row])])), np.int64)  # fmt: skip
        beside, free, guests = np.full(len(jobs), -1), set[int](), Counter[int]()
        for row in () if late else order.tolist():
            host = next((other for other in free if jobs.gpus[other] == jobs.gpus[row]), None)
            if host is not None and lots[int(jobs.job_id[row])] < 0.7:
                beside[row] = jobs.job_id[host]
                guests[host] += 1
                free -= {host} if guests[host] == self.most - 1 else set()
            else:
                free.add(row)
        return Ranking(order, changes=JobChanges(beside=beside))

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        return (snapshot.now_s // 60 + 1) * 60


class Counted(Watched):
    """Checks at every look that what is used is what is held, each GPU once."""

    def read(self) -> Snapshot:
        shown = super().read()
        masks = dict.fromkeys(shown.nodes.name, 0)
        for name, mask in zip(shown.allocations.node, shown.allocations.gpu_mask.tolist(), strict=True):
            masks[name] |= mask
        assert shown.nodes.gpu_mask_used.tolist() == list(masks.values())
        assert shown.nodes.gpus_used.tolist() == [mask.bit_count() for mask in masks.values()]
        assert self.free == int(shown.nodes.gpus.sum()) - int(shown.nodes.gpus_used.sum())
        return shown


@pytest.mark.parametrize("placement", [AnyFit(), Consolidated(), Linked()], ids=lambda each: type(each).__name__)
@settings(deadline=None, max_examples=8)
@given(trace=traces(most_gpus=12), seed=st.integers(0, 99))
def test_sharing__conserves_work_and_holds_what_is_counted(placement: Placement, trace: Trace, seed: int) -> None:
    """Every job ends with its whole work done, however its neighbours change; nothing is counted twice, and nobody
    has more neighbours than the policy wants, which are one to three."""
    most = 2 + seed % 3
    cluster = Counted(trace, HARDWARE, Crowded(most=most))
    replay_events(cluster, DirectPlanner(Couples(seed, most), placement), CarryStore())
    np.testing.assert_allclose(cluster.work_s(), cluster.job_arrays.duration_s, rtol=1e-6, atol=1e-6)
    done = cluster.outcomes()
    assert (done.executed_s >= done.useful_s * (1 - 1e-9)).all()
    assert cluster.free == 16


@settings(deadline=None, max_examples=6)
@given(trace=traces(most_gpus=12), seed=st.integers(0, 99))
def test_sharing__nobody_with_nobody_is_the_same_as_without_the_want(trace: Trace, seed: int) -> None:
    """A policy that wants nobody beside another one gives the byte-same outcomes as one without a word on it."""

    class Silent(Couples):
        def rank(self, snapshot: Snapshot) -> Ranking:
            made = super().rank(snapshot)
            return replace(made, changes=JobChanges(share=np.ones(len(snapshot.jobs))))

    class Alone(Couples):
        def rank(self, snapshot: Snapshot) -> Ranking:
            made = super().rank(snapshot)
            return replace(made, changes=JobChanges(beside=np.full(len(snapshot.jobs), -1)))

    digests = set()
    policy: Any
    for policy in (Silent(seed), Alone(seed)):
        cluster = Counted(trace, HARDWARE, Crowded())
        replay_events(cluster, DirectPlanner(policy, Consolidated()), CarryStore())
        digests.add(cluster.outcomes().digest)
    assert len(digests) == 1
