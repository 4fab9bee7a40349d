"""What training brings to `dl2`: mean JCT under the simple rule and by the network. `python -m bench.dl2`."""

from __future__ import annotations

import numpy as np

from slurmsched.logs import configure
from slurmsched.model.trace import Trace
from slurmsched.policies.dl2 import Dl2, smallest_share
from slurmsched.sim.experiments.policy_training import highest_score, played, train
from slurmsched.sim.experiments.replay_request import ReplayRequest

JOBS, EPISODES = 14, 60
REQUEST = ReplayRequest(cluster="1x8", placement="scattered", physics="amdahl:serial=0.05")


def made_up(seed: int) -> Trace:
    """Jobs of one to eight GPUs that come within 100 minutes."""
    chance = np.random.default_rng(seed)
    lasts_s = chance.choice([600, 1_200, 3_600, 14_400], JOBS)
    comments = [f"slurmsched: min_gpus=1 max_gpus=8 dur={run_s}s" for run_s in lasts_s]
    submit_s = np.sort(chance.integers(0, 6_000, JOBS))
    return Trace.of(job_id=range(1, JOBS + 1), gpus=[1] * JOBS, submit_s=submit_s, duration_s=lasts_s,
                    time_limit_s=lasts_s, comment=comments)  # fmt: skip


def main() -> None:
    configure("warning")
    policy = Dl2(serial=0.05, interval_s=300.0)
    network = train(made_up(1), REQUEST, policy, EPISODES, seed=0)
    for seed in (1, 2, 3):
        rule = played(made_up(seed), REQUEST, policy, smallest_share).mean_jct_s
        ours = played(made_up(seed), REQUEST, policy, highest_score(network)).mean_jct_s
        print(f"trace {seed}{' (trained on)' * (seed == 1)}: rule {rule:,.0f} s, network {ours:,.0f} s")


if __name__ == "__main__":
    main()
