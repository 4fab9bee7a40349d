"""How soon the loss of jobs has fallen: slaq against policies that do not look at losses.

python -m bench.quality                  prints the table of docs/policies/slaq.md; takes two minutes
"""

from __future__ import annotations

import numpy as np

from slurmsched import logs
from slurmsched.estimators.profiled_goodput import training_profiles
from slurmsched.estimators.throughput_table import model_and_batch
from slurmsched.model.columns import Floats
from slurmsched.placements.baselines import Scattered
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import SimulatedCluster, replay
from slurmsched.sim.experiments.released_policies import make_policy
from slurmsched.sim.experiments.replay_request import parse_policy
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.scaling_speed import TrainingSpeed
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.sim.traces.trace_io import shipped_trace

SHARES = (0.5, 0.9, 0.95)  # of the fall from the first epoch to the last
POLICIES = ("slaq:speeds=goodput", "dragon", "optimus:speeds=goodput", "pollux:speeds=goodput")
COST_S, ROUND_S = 30.0, 60.0


def main() -> None:
    logs.configure("warning")
    heads = " | ".join(f"{share:.0%} of the fall [s]" for share in SHARES)
    print(f"| policy | {heads} | end [s] |\n| --- |" + " ---: |" * (len(SHARES) + 1))
    for policy in POLICIES:
        print(
            f"| {policy.partition(':')[0]} | {' | '.join(f'{mean_s:,.0f}' for mean_s in times_s(policy))} |", flush=True
        )


def times_s(policy: str) -> Floats:
    """Mean time from submission until the loss of a job has fallen by each of SHARES, and until its end [s]."""
    trace = shipped_trace("pollux_w6")
    hardware = ClusterHardware.of(ClusterLayout.of_gpus([4] * 16).nodes)
    settings = IdealSettings(round_s=ROUND_S, start_cost_s=COST_S, restart_cost_s=COST_S, resize_cost_s=COST_S)
    cluster = PhysicsCluster(trace, hardware, TrainingSpeed(adapt=True, tells_loss=True), settings)
    due = dict(zip(trace.job_id.tolist(), (shares_of_work(model) for model in trace.model), strict=True))
    reached_s = {job: np.full(len(SHARES), np.nan) for job in due}

    def look(now: SimulatedCluster) -> None:
        assert isinstance(now, PhysicsCluster)
        for job, done in zip(now.job_id.tolist(), now._done(np.arange(len(trace))).tolist(), strict=True):
            passed = np.isnan(reached_s[job]) & (done >= due[job] - 1e-9)
            reached_s[job][passed] = now.now_s

    planner = DirectPlanner(make_policy(*parse_policy(policy)), Scattered(compact=True), "skip")
    replay(cluster, planner, CarryStore(), interval_s=ROUND_S, on_progress=look)
    ends = cluster.outcomes()
    submitted = dict(zip(trace.job_id.tolist(), trace.submit_s.tolist(), strict=True))
    rows = []
    for job, end_s in zip(ends.job_id.tolist(), ends.end_s.tolist(), strict=True):
        each_s = np.where(np.isnan(reached_s[job]), end_s, reached_s[job])
        rows.append(np.append(each_s, end_s) - submitted[job])
    return np.asarray(np.mean(rows, axis=0))


def shares_of_work(model: str) -> Floats:
    """Share of the work of a job after which its loss has fallen by each of SHARES."""
    profile = training_profiles("pollux")[model_and_batch(model)[0]]
    losses = np.minimum.accumulate(profile.losses)
    fallen = (losses[0] - losses) / (losses[0] - losses[-1])
    return profile.epoch_ends[[int(np.argmax(fallen >= share - 1e-9)) for share in SHARES]]


if __name__ == "__main__":
    main()
