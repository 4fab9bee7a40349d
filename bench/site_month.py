"""A month of a large site under the model of slurmctld, with backfill: 1,000 nodes, 8,000 GPUs, 100,000 jobs.

    python -m bench.site_month [--jobs N] [--load 0.9] [--policy slurm]

From the repository root. The trace is that of `slurmsched trace generate` with the arguments below and seed 1, at a
rate that keeps `load` of the GPUs busy; every job has a time limit as users set them. Prints a row of docs/replay.md.
CPU time, since the machine may be shared; kernels loaded before.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

from slurmsched import logs
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_generator import SyntheticWorkload, WorkloadLaw, diurnal, generate_trace, zipf

NODES, NODE_GPUS, DAYS, JOBS, USERS = 1_000, 8, 30, 100_000, 200
SIZES = {1: 50, 2: 10, 4: 10, 8: 20, 16: 6, 32: 3, 64: 1}
SHAPE = 1.8  # sigma of the log of run times


def trace_of(load: float) -> Trace:
    """A month of jobs that would keep this share of the GPUs busy."""
    gpus = sum(size * weight for size, weight in SIZES.items()) / sum(SIZES.values())
    mean_s = load * NODES * NODE_GPUS * DAYS * 86_400 / (JOBS * gpus)
    law = WorkloadLaw("lognormal", mean_s / math.exp(SHAPE**2 / 2), SHAPE)
    return generate_trace(
        SyntheticWorkload(JOBS / DAYS, diurnal(), SIZES, law, users=zipf(USERS)), JOBS, 1, limits=True
    ).trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS, help="the N submitted first")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--policy", default="slurm")
    options = parser.parse_args()
    logs.configure("warning")
    request = ReplayRequest(cluster=f"{NODES}x{NODE_GPUS}", model="slurm", policy=options.policy)
    trace = trace_of(options.load).first(options.jobs)
    ReplaySession(trace.first(1_000), request).run()  # loads the kernels
    session, began_s = ReplaySession(trace, request), time.process_time()
    run = session.run()
    cpu_s, peak = time.process_time() - began_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("| policy | load | jobs | CPU [s] | jobs per CPU s | mean wait [s] | cycles | largest resident size [MiB] |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print(f"| {options.policy} | {options.load} | {len(trace):,} | {cpu_s:.0f} | {len(trace) / cpu_s:.0f} | "
          f"{run.figures['avg_wait_s']:.0f} | {run.cycles} | {peak:.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
