"""What training brings to `harmony` where neighbours slow jobs: mean JCT by placement. `python -m bench.harmony`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.logs import configure
from slurmsched.model.trace import Trace
from slurmsched.placements.harmony import Harmony, least_lost
from slurmsched.sim.experiments.policy_training import highest_score, played, train, training_request
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace

JOBS, EPISODES = 40, 40
REQUEST = training_request("harmony", 0, {"cluster": "6x4", "policy": "fjf"})
OTHERS = ("random", "best-fit", "spread")


def made_up(seed: int) -> Trace:
    """Jobs drawn from Gavel's 96, that come within 20,000 s."""
    chance, trace = np.random.default_rng(seed), shipped_trace("gavel_96_v100")
    rows = chance.integers(0, len(trace.job_id), JOBS)
    submit_s = np.sort(chance.integers(0, 20_000, JOBS))
    return Trace.of(job_id=range(1, JOBS + 1), gpus=trace.gpus[rows], submit_s=submit_s,
                    duration_s=trace.duration_s[rows], name=[trace.name[row] for row in rows.tolist()],
                    comment=[trace.comment[row] for row in rows.tolist()])  # fmt: skip


def by_placement(trace: Trace, name: str) -> float:
    """Mean JCT under another placement [s]."""
    return float(ReplaySession(trace, replace(REQUEST, placement=name)).run().figures["avg_jct_s"])


def main() -> None:
    configure("warning")
    network = train(made_up(1), REQUEST, Harmony(), EPISODES, seed=0)
    for seed in range(1, 6):
        trace = made_up(seed)
        found = {name: by_placement(trace, name) for name in OTHERS}
        found["rule"] = played(trace, REQUEST, Harmony(), least_lost).mean_jct_s
        found["network"] = played(trace, REQUEST, Harmony(), highest_score(network)).mean_jct_s
        told = ", ".join(f"{name} {jct_s:,.0f} s" for name, jct_s in found.items())
        print(f"trace {seed}{' (trained on)' * (seed == 1)}: {told}")


if __name__ == "__main__":
    main()
