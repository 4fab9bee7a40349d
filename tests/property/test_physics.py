"""Laws of the ideal cluster with physics, whatever a planner tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.placements.any_fit import AnyFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.linked import Linked
from slurmsched.placements.mapa import Mapa as MapaPlacement
from slurmsched.placements.topology_aware import TopologyAware as TopologyAwarePlacement
from slurmsched.planning.direct import DirectPlanner
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Physics, Placement
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.engine import replay_events
from slurmsched.replay.hardware import Hardware
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_physics import PhysicsCluster
from slurmsched.replay.layout import Layout
from slurmsched.replay.physics.mapa import Mapa
from slurmsched.replay.physics.recorded import Recorded
from slurmsched.replay.physics.spread import Spread
from slurmsched.replay.physics.topology_aware import TopologyAware
from slurmsched.replay.traces import Trace
from tests.property.test_ideal import MODELS, Chaos, traces

HARDWARE = Hardware.of(Layout.of_gpus([8, 8]).nodes, "dgx-1v")
PLACEMENTS = [AnyFit(), Consolidated(), Linked(), MapaPlacement(), TopologyAwarePlacement()]
PHYSICS = st.sampled_from([Recorded(), Spread(), Mapa(0.5), TopologyAware()])


class Masks(Chaos):
    """A planner that ranks at random, places truly, and checks that no GPU is held twice."""

    def _check(self, snapshot: Snapshot) -> None:
        super()._check(snapshot)
        seen = dict.fromkeys(snapshot.nodes.name, 0)
        held = snapshot.allocations
        for name, gpus, mask in zip(held.node, held.gpus.tolist(), held.gpu_mask.tolist(), strict=True):
            assert mask.bit_count() == gpus and not seen[name] & mask
            seen[name] |= mask
        assert list(seen.values()) == snapshot.nodes.gpu_mask_used.tolist()


class Watched(PhysicsCluster):
    """Keeps when each job went on at which speed, and when its runs were over."""

    def __init__(self, *words: Any, **named: Any) -> None:
        self.segments: list[tuple[int, float, float]] = []  # row, from [s], speed; 0 = holds nothing
        super().__init__(*words, **named)

    def _go_on(self, row: int, speed: float, moved: bool) -> None:
        super()._go_on(row, speed, moved)
        self.segments.append((row, self.now_s, speed))

    def _leave(self, row: int) -> float:
        self.segments.append((row, self.now_s, 0.0))
        return super()._leave(row)

    def work_s(self) -> Floats:
        """Sum of speed times time of each job. (J,)."""
        done, last = np.zeros(len(self.trace)), dict[int, tuple[float, float]]()
        for row, time_s, speed in self.segments:
            begun_s, rate = last.get(row, (time_s, 0.0))
            done[row] += (time_s - begun_s) * rate
            last[row] = (time_s, speed)
        return done


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda each: type(each).__name__)
@settings(deadline=None, max_examples=15)
@given(trace=traces(most_gpus=16), physics=PHYSICS, seed=st.integers(0, 99))
def test_physics__conserves_work_and_holds_no_gpu_twice(
    placement: Placement, trace: Trace, physics: Physics, seed: int
) -> None:
    """Without costs the sum of speed times time is the recorded run time, however often a job is preempted; no job is
    faster than recorded, and held GPU time adds up."""
    cluster = Watched(trace, HARDWARE, physics)
    replay_events(cluster, Masks(placement, seed), CarryStore())
    done = cluster.outcomes()
    assert done.job_id.tolist() == trace.job_id.tolist()
    np.testing.assert_allclose(cluster.work_s(), cluster.cast.duration_s, rtol=1e-6, atol=1e-6)
    assert (done.executed_s >= done.useful_s * (1 - 1e-9)).all()
    times, busy, _ = cluster.history.steps()
    np.testing.assert_allclose((np.diff(times) * busy[:-1]).sum(), (trace.gpus * done.executed_s).sum())


@settings(deadline=None, max_examples=30)
@given(trace=traces(most_gpus=16), model=MODELS, preemptive=st.booleans())
def test_physics__recorded_equals_the_plain_cluster(trace: Trace, model: IdealModel, preemptive: bool) -> None:
    """To the byte, with all costs."""
    planner = DirectPlanner(Srtf() if preemptive else Fifo(), Consolidated(), "skip")
    digests = set()
    for cluster in (IdealCluster(trace, [8, 8], model), PhysicsCluster(trace, HARDWARE, Recorded(), model)):
        replay_events(cluster, planner, CarryStore())
        digests.add(cluster.outcomes().digest)
    assert len(digests) == 1


@settings(deadline=None, max_examples=20)
@given(trace=traces(most_gpus=16), physics=PHYSICS, random=st.randoms(use_true_random=False))
def test_physics__is_blind_to_row_order_and_repeatable(trace: Trace, physics: Physics, random: Any) -> None:
    """Byte-equal outcomes, with the rows of the trace in any order."""
    order = list(range(len(trace)))
    random.shuffle(order)
    shuffled = Trace.of(*(getattr(trace, name)[order] for name in ("job_id", "gpus", "submit_s", "duration_s")))
    digests = set()
    for each in (trace, shuffled, trace):
        cluster = PhysicsCluster(each, HARDWARE, physics)
        replay_events(cluster, DirectPlanner(Fifo(), AnyFit(), "skip"), CarryStore())
        digests.add(cluster.outcomes().digest)
    assert len(digests) == 1


@settings(deadline=None, max_examples=20)
@given(trace=traces(most_gpus=16), physics=PHYSICS)
def test_physics__misses_nothing_by_leaving_cycles_out(trace: Trace, physics: Physics) -> None:
    """The same ends as with a cycle at every event."""

    class Eager(PhysicsCluster):
        @property
        def undecided(self) -> bool:
            return True

    planner = DirectPlanner(Fifo(), Linked(), "block")
    ends = []
    for kind in (PhysicsCluster, Eager):
        cluster = kind(trace, HARDWARE, physics)
        replay_events(cluster, planner, CarryStore())
        ends.append(cluster.outcomes().end_s)
    np.testing.assert_allclose(*ends, rtol=1e-9)
