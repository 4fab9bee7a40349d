"""Laws of the ideal cluster with physics, whatever a planner tells it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import JobChanges, Labels, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import AnyFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.linked import Linked
from slurmsched.placements.mapa import Mapa as MapaPlacement
from slurmsched.placements.topology_aware import TopologyAware as TopologyAwarePlacement
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Physics, Placement
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.change_costs import RecordedSpeed
from slurmsched.sim.physics.interconnect_speed import DistanceSpeed, RingBandwidthSpeed, SocketSpeed
from slurmsched.sim.physics.scaling_speed import AmdahlSpeed
from slurmsched.sim.replay_stores import CarryStore
from tests.property.test_ideal_cluster import MODELS, Chaos, traces

HARDWARE = ClusterHardware.of(ClusterLayout.of_gpus([8, 8]).nodes, "dgx-1v")
PLACEMENTS = [AnyFit(), Consolidated(), Linked(), MapaPlacement(), TopologyAwarePlacement()]
PHYSICS = st.sampled_from([RecordedSpeed(), DistanceSpeed(), RingBandwidthSpeed(0.5), SocketSpeed()])


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
    np.testing.assert_allclose(cluster.work_s(), cluster.job_arrays.duration_s, rtol=1e-6, atol=1e-6)
    assert (done.executed_s >= done.useful_s * (1 - 1e-9)).all()
    times, busy, _ = cluster.history.steps()
    np.testing.assert_allclose((np.diff(times) * busy[:-1]).sum(), (trace.gpus * done.executed_s).sum())


@settings(deadline=None, max_examples=30)
@given(trace=traces(most_gpus=16), model=MODELS, preemptive=st.booleans())
def test_physics__recorded_equals_the_plain_cluster(trace: Trace, model: IdealSettings, preemptive: bool) -> None:
    """To the byte, with all costs."""
    planner = DirectPlanner(Srtf() if preemptive else Fifo(), Consolidated(), "skip")
    digests = set()
    for cluster in (IdealCluster(trace, [8, 8], model), PhysicsCluster(trace, HARDWARE, RecordedSpeed(), model)):
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


# Jobs at other sizes.


def elastic(trace: Trace) -> Trace:
    """The trace, and all of its jobs may have any size."""
    return trace.with_columns(comment=Labels.constant("slurmsched: min_gpus=1 max_gpus=16", len(trace)))


@dataclass(frozen=True)
class AnySize:
    """A policy that gives jobs sizes drawn anew each time, in an order drawn anew."""

    preemptive: ClassVar[bool] = True
    seed: int = 0
    own: bool = False  # each the size it asks for

    def rank(self, snapshot: Snapshot) -> Ranking:
        count = len(snapshot.jobs)
        chance = np.random.default_rng((self.seed, int(snapshot.now_s * 1_000) & 0xFFFF_FFFF))
        gpus = snapshot.jobs.gpus if self.own else chance.integers(1, 17, count)
        return Ranking(chance.permutation(count), changes=JobChanges(gpus=gpus.astype(np.int32)))


@settings(deadline=None, max_examples=25)
@given(trace=traces(most_gpus=16), serial=st.sampled_from([0.0, 0.02, 1.0]), seed=st.integers(0, 99))
def test_sizes__conserve_work_and_count_what_is_held(trace: Trace, serial: float, seed: int) -> None:
    """Whatever sizes jobs have in turn, the sum of speed times time is the recorded run time, no GPU is held twice, and
    attained service is the GPU time that was held."""
    cluster = Watched(elastic(trace), HARDWARE, AmdahlSpeed(serial=serial))
    replay_events(cluster, DirectPlanner(AnySize(seed), Consolidated(), "skip"), CarryStore())
    np.testing.assert_allclose(cluster.work_s(), cluster.job_arrays.duration_s, rtol=1e-6, atol=1e-6)
    times, busy, _ = cluster.history.steps()
    assert (busy <= 16).all()
    rows = np.arange(len(trace))
    np.testing.assert_allclose((np.diff(times) * busy[:-1]).sum(), cluster._service(rows).sum(), rtol=1e-9)


@settings(deadline=None, max_examples=25)
@given(trace=traces(most_gpus=16), model=MODELS, preemptive=st.booleans())
def test_sizes__a_fixed_size_gives_the_old_figures(trace: Trace, model: IdealSettings, preemptive: bool) -> None:
    """To the byte, whether jobs may have other sizes, and whether a policy says so of each of them or of none."""
    policy = Srtf() if preemptive else Fifo()
    fixed = DirectPlanner(policy, Consolidated(), "skip")
    told = DirectPlanner(OwnSizes(policy, preemptive), Consolidated(), "skip")
    digests = set()
    for jobs, physics, planner in ((trace, RecordedSpeed(), fixed), (elastic(trace), AmdahlSpeed(), fixed),
                                   (elastic(trace), AmdahlSpeed(), told)):  # fmt: skip
        cluster = PhysicsCluster(jobs, HARDWARE, physics, model)
        replay_events(cluster, planner, CarryStore())
        assert not cluster.resizes.any()
        digests.add(cluster.outcomes().digest)
    assert len(digests) == 1


@dataclass(frozen=True)
class OwnSizes:
    """A policy that says of each job that it is to have the size that it asks for."""

    of: Srtf | Fifo
    preemptive: bool

    def rank(self, snapshot: Snapshot) -> Ranking:
        return replace(self.of.rank(snapshot), changes=JobChanges(gpus=snapshot.jobs.gpus.astype(np.int32)))


@settings(deadline=None, max_examples=25)
@given(trace=traces(most_gpus=16, most=1, least_s=1), gpus=st.integers(1, 15), serial=st.sampled_from([0.0, 0.1, 1.0]))
def test_sizes__more_gpus_end_a_job_no_later(trace: Trace, gpus: int, serial: float) -> None:
    """Alone, on one GPU more: by Amdahl's law at most in proportion."""

    @dataclass(frozen=True)
    class Fixed:
        gpus: int
        preemptive: ClassVar[bool] = True

        def rank(self, snapshot: Snapshot) -> Ranking:
            count = len(snapshot.jobs)
            return Ranking(np.arange(count), changes=JobChanges(gpus=np.full(count, self.gpus, np.int32)))

    def run_s(held: int) -> float:
        cluster = PhysicsCluster(elastic(trace), HARDWARE, AmdahlSpeed(serial=serial))
        replay_events(cluster, DirectPlanner(Fixed(held), Consolidated(), "skip"), CarryStore())
        return float(cluster.outcomes().executed_s[0])

    few, many = run_s(gpus), run_s(gpus + 1)
    assert many <= few * (1 + 1e-9)
    assert many >= few * gpus / (gpus + 1) * (1 - 1e-9)
