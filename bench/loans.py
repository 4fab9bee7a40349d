"""What loans of a service's nodes bring: jobs on 12 nodes of their own, and on the 4 of a service when it is idle.

python -m bench.loans                    prints the table of docs/policies/lyra.md; takes two minutes
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np

from slurmsched import logs
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace

HOURS, CYCLE_H, NODES, GPUS = 24, 8, 4, 4
RUN_S, APART_S, FIRST = 3_500.0, 10.0, 1_000  # of the service's jobs
CLUSTER = """[[nodes]]
names = "n[01-16]"
gpus = 4
cpus = 64

[[partitions]]
name = "train"
nodes = "{train}"

[[partitions]]
name = "serve"
nodes = "n[13-16]"
"""
CASES: tuple[tuple[str, str, str, dict[str, object] | None], ...] = (
    ("own nodes", "n[01-12]", "lyra", None),
    ("and lent ones", "n[01-16]", 'lyra:lenders=["serve"]', None),
    ("the same, with `--preempt`", "n[01-16]", 'lyra:lenders=["serve"]', {}),
    ("all nodes, nothing taken back", "n[01-16]", "sjf", None),
)


def main() -> None:
    logs.configure("warning")
    print("| nodes of the jobs | mean JCT [s] | mean wait [s] | wait of the service [s] | longest [s] | jobs stopped |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, nodes, policy, preempt in CASES:
        print(f"| {name} | {' | '.join(f'{figure:,.0f}' for figure in figures(nodes, policy, preempt))} |", flush=True)


def figures(nodes: str, policy: str, preempt: dict[str, object] | None) -> tuple[float, ...]:
    """Mean JCT and mean wait of the jobs, mean and longest wait of the service [s], and how often a job was stopped."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(CLUSTER.format(train=nodes))
        request = ReplayRequest(cluster=str(cluster), policy=policy, model="slurm", preempt=preempt)
        found = ReplaySession(workload(), request).run()
    ends, submitted = found.all_outcomes, dict(zip(found.trace.job_id.tolist(), found.trace.submit_s, strict=True))
    came_s = np.array([submitted[job] for job in ends.job_id.tolist()])
    jct_s, wait_s, serves = ends.end_s - came_s, ends.first_start_s - came_s, ends.job_id >= FIRST
    return (
        float(jct_s[~serves].mean()),
        float(wait_s[~serves].mean()),
        float(wait_s[serves].mean()),
        float(wait_s[serves].max()),
        float(ends.preemptions.sum()),
    )


def workload() -> Trace:
    """160 jobs of Pollux's authors, and a service that needs none to all of its nodes, three times a day."""
    jobs = shipped_trace("pollux_w6_fixed")
    busy = [round(NODES / 2 * (1 + math.sin(2 * math.pi * hour / CYCLE_H))) for hour in range(HOURS)]
    starts_s = [3_600.0 * hour + APART_S * node for hour, nodes in enumerate(busy) for node in range(nodes)]
    served = len(starts_s)
    return Trace.of(
        [*jobs.job_id, *range(FIRST, FIRST + served)],
        [*jobs.gpus, *[GPUS] * served],
        [*jobs.submit_s, *starts_s],
        [*jobs.duration_s, *[RUN_S] * served],
        nodes=np.array([*-(-jobs.gpus // GPUS), *[1] * served], np.int64),
        partition=["train"] * len(jobs) + ["serve"] * served,
        comment=["slurmsched: preempt=yes ckpt=USR1@60"] * len(jobs) + [""] * served,
    )


if __name__ == "__main__":
    main()
