"""How fast replays are: 10,000 jobs on 400 GPUs, ideal cluster, against a bare loop and against peers' simulators.

    python -m bench.replay [--policies fifo,easy,...] [--repeat 3] [--trace FILE --gpus N]     from the repository root
    python -m bench.replay --demo [--jobs N]                                                   the demo's contenders

Prints a Markdown table: best wall time of the repeats (kernels loaded before, trace read before), jobs and cycles per
second of it, ratio to the bare loop of tests/reference/schedules.py run in the same process, and how many times faster
than the fastest peer measured (docs/reproduced.md; on another day, on two shared cores). Needs no Slurm.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from pathlib import Path

from slurmsched import logs
from slurmsched.replay.demo import Demo, contenders
from slurmsched.replay.run import Replayed, Request, Session
from slurmsched.replay.traces import Trace, read_trace, sample_trace
from tests.reference.schedules import job_ends

TRACE = Path("slurmsched/replay/traces/philly_10k.csv.gz")
GPUS = 400
# discipline -> fastest peer on this trace and its wall time [s]
PEERS = {
    "fifo": ("AccaSim", 26.0), "easy": ("CQSim", 247.0), "srtf": ("Tiresias", 114.0), "srsf": ("Tiresias", 174.0),
    "discretized-las": ("Tiresias", 54.0), "gittins": ("Tiresias", 279.0),
}  # fmt: skip
BARE = {"fifo": False, "easy": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=",".join(PEERS), help="which, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the best counts")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--gpus", type=int, default=GPUS)
    parser.add_argument("--demo", action="store_true", help="the contenders of slurmsched demo instead")
    parser.add_argument("--jobs", type=int, default=None, help="the N jobs submitted first; default: all")
    options = parser.parse_args()
    logs.configure("warning")
    print(f"CPython {platform.python_version()}, {os.cpu_count()} cores, best of {options.repeat}\n")
    if options.demo:
        trace = sample_trace()
        demo_table(trace.first(options.jobs or len(trace)), options.repeat)
    else:
        trace = read_trace(options.trace)
        table(trace.first(options.jobs or len(trace)), options.gpus, options.policies.split(","), options.repeat)


def table(trace: Trace, gpus: int, policies: list[str], repeat: int) -> None:
    """Ours beside the bare loop and the fastest peer."""
    print("| discipline | wall [s] | jobs/s | cycles | us a cycle | bare loop [s] | ratio | peer [s] | times faster |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for policy in policies:
        played(trace.first(1_000), gpus, policy)  # loads the kernels
        runs = [played(trace, gpus, policy) for _ in range(repeat)]
        run = min(runs, key=lambda each: each.wall_s)
        bare_s = min(bare(trace, gpus, easy=BARE[policy]) for _ in range(repeat)) if policy in BARE else 0.0
        peer, peer_s = PEERS.get(policy, ("", 0.0))
        cells = (
            policy, f"{run.wall_s:.2f}", f"{len(trace) / run.wall_s:.0f}", run.cycles,
            f"{1e6 * run.wall_s / run.cycles:.0f}" if run.cycles > 1 else "-",
            f"{bare_s:.3f}" if bare_s else "-", f"{run.wall_s / bare_s:.1f}" if bare_s else "-",
            f"{peer} {peer_s:.0f}" if peer else "-", f"{peer_s / run.wall_s:.0f}" if peer else "-",
        )  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print(f"\nLargest resident size: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def played(trace: Trace, gpus: int, policy: str) -> Replayed:
    return Session(trace, Request(cluster=f"1x{gpus}", policy=policy)).run()


def bare(trace: Trace, gpus: int, *, easy: bool) -> float:
    """Wall time of the bare loop [s]."""
    columns = (trace.submit_s, trace.job_id, trace.gpus, trace.duration_s)
    jobs = list(zip(*(column.tolist() for column in columns), strict=True))
    began = time.perf_counter()
    job_ends(jobs, gpus, easy=easy)
    return time.perf_counter() - began


def demo_table(trace: Trace, repeat: int) -> None:
    """The demo's contenders under slurmctld's model."""
    print("| contender | wall [s] | jobs/s | cycles | cycles/s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for contender in contenders():
        Demo(trace.first(40)).run(contender)  # loads the kernels
        runs = [Demo(trace).run(contender) for _ in range(repeat)]
        wall_s, cycles = min(run.wall_s for run in runs), runs[0].cycles
        print(f"| {contender.title} | {wall_s:.2f} | {len(trace) / wall_s:.0f} | {cycles} | {cycles / wall_s:.0f} |")


if __name__ == "__main__":
    main()
