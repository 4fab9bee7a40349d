"""Gavel with space sharing in a whole replay: two jobs on one GPU against turns."""

from __future__ import annotations

import pytest

from slurmsched.estimators.throughput_table import pair_throughput, throughput, throughput_table
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import AnyFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.policies.gavel import Gavel
from slurmsched.protocols import Placement
from slurmsched.registry import make_plugin
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay, replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.gpu_speed import PairSpeed
from slurmsched.sim.replay_stores import CarryStore

MODEL = "ResNet-18 (batch size 16)"
WORK_S = 3_600.0


def played(jobs: int, gpus: int, placement: Placement, *, sharing: bool, round_s: float = 0.0) -> JobOutcomes:
    """So many jobs of one hour of V100 at once."""
    trace = Trace.of(range(1, jobs + 1), [1] * jobs, [0] * jobs, [WORK_S] * jobs, model=[MODEL] * jobs)
    hardware = ClusterHardware.of(ClusterLayout.of_gpus([gpus], ["v100"]).nodes)
    cluster = PhysicsCluster(trace, hardware, PairSpeed("gavel"), IdealSettings(round_s=round_s))
    policy = make_plugin("policies", "gavel", {"speeds": "gavel", "space_sharing": sharing})
    assert isinstance(policy, Gavel)
    planner = DirectPlanner(policy, placement, "skip")
    if round_s:
        replay(cluster, planner, CarryStore(), interval_s=round_s)
    else:
        replay_events(cluster, planner, CarryStore())
    return cluster.outcomes()


def kept() -> float:
    table = throughput_table("gavel")["v100"]
    return pair_throughput(table, MODEL, MODEL, 1)[0] / throughput(table, MODEL, 1)


@pytest.mark.parametrize("placement", [Consolidated(), AnyFit()], ids=lambda each: type(each).__name__)
def test_gavel__two_jobs_share_a_gpu_from_begin_to_end(placement: Placement) -> None:
    """Each hour takes as much longer as the pair is slower, and nobody is preempted; in turns they take two hours."""
    done = played(2, 1, placement, sharing=True)
    assert kept() > 0.5
    assert done.end_s.tolist() == pytest.approx([WORK_S / kept()] * 2)
    assert done.preemptions.tolist() == [0, 0]
    assert played(2, 1, placement, sharing=False).makespan_s == pytest.approx(2 * WORK_S)


@pytest.mark.parametrize("round_s", [0.0, 360.0])
def test_gavel__more_pairs_than_gpus_take_turns(round_s: float) -> None:
    """Five jobs on two GPUs: all end with their whole work done, sooner than without sharing."""
    shared = played(5, 2, Consolidated(), sharing=True, round_s=round_s)
    alone = played(5, 2, Consolidated(), sharing=False, round_s=round_s)
    assert shared.useful_s.tolist() == pytest.approx([WORK_S] * 5)
    assert shared.makespan_s < alone.makespan_s
    assert shared.jct_s.mean() < alone.jct_s.mean()
