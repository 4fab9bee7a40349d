"""How fast replays are: 10,000 jobs on 400 GPUs, ideal cluster, against a bare loop and against peers' simulators.

    python -m bench.replay [--policies fifo,easy,...] [--repeat 3] [--trace FILE --gpus N]     from the repository root
    python -m bench.replay --placements count,linked,...               SRSF on 50 nodes of 8 GPUs, in turns, over count
    python -m bench.replay --demo [--jobs N]                                                   the demo's contenders

Prints a Markdown table: medians of the repeats (kernels loaded before, trace read before). All but the first column
is CPU time, since the machine may be shared: jobs per second, ratio to the bare loop of tests/reference/schedules.py
run in the same process, and how many times faster than the fastest peer measured (docs/reproduced.md; on another day,
on two shared cores). Needs no Slurm. The cost of more jobs: bench/scale.py.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from pathlib import Path

from slurmsched import logs
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.demo_runs import Demo, demo_policies
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import read_trace, sample_trace
from tests.reference.schedules import job_ends

TRACE = Path("slurmsched/sim/traces/shipped/philly_10k.csv.gz")
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
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--gpus", type=int, default=GPUS)
    parser.add_argument("--placements", default="", help="these instead of policies, separated by commas; count first")
    parser.add_argument("--demo", action="store_true", help="the contenders of slurmsched demo instead")
    parser.add_argument("--jobs", type=int, default=None, help="the N jobs submitted first; default: all")
    options = parser.parse_args()
    logs.configure("warning")
    print(f"CPython {platform.python_version()}, {os.cpu_count()} cores, {options.repeat} runs each\n")
    if options.demo:
        trace = sample_trace()
        demo_table(trace.first(options.jobs or len(trace)), options.repeat)
    elif options.placements:
        trace = read_trace(options.trace)
        placement_table(trace.first(options.jobs or len(trace)), options.placements.split(","), options.repeat)
    else:
        trace = read_trace(options.trace)
        table(trace.first(options.jobs or len(trace)), options.gpus, options.policies.split(","), options.repeat)


def table(trace: Trace, gpus: int, policies: list[str], repeat: int) -> None:
    """Ours beside the bare loop and the fastest peer."""
    print(
        "| discipline | wall [s] | CPU [s] | jobs/s | cycles | us a cycle | bare loop [s] | ratio | "
        "peer [s], another run | faster, not the same run |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for policy in policies:
        played(trace.first(1_000), gpus, policy)  # loads the kernels
        wall_s, cpu_s, cycles = (statistics.median(column) for column in
                                 zip(*(played(trace, gpus, policy) for _ in range(repeat)), strict=True))  # fmt: skip
        bare_s = 0.0
        if policy in BARE:
            bare_s = statistics.median(bare(trace, gpus, easy=BARE[policy]) for _ in range(repeat))
        peer, peer_s = PEERS.get(policy, ("", 0.0))
        cells = (
            policy, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{len(trace) / cpu_s:.0f}", cycles,
            f"{1e6 * cpu_s / cycles:.0f}" if cycles > 1 else "-",
            f"{bare_s:.3f}" if bare_s else "-", f"{cpu_s / bare_s:.1f}" if bare_s else "-",
            f"{peer} {peer_s:.0f}" if peer else "-", f"{peer_s / cpu_s:.0f}" if peer else "-",
        )  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print(f"\nLargest resident size: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def placement_table(trace: Trace, placements: list[str], repeat: int) -> None:
    """CPU time of each placement over that of the first."""
    print("| placement | CPU [s] | cycles | us a cycle | over the first |\n| --- | ---: | ---: | ---: | ---: |")
    request = {name: ReplayRequest(cluster="50x8", policy="srsf", placement=name) for name in placements}
    for name in placements:
        replayed(trace.first(3_000), request[name])  # loads the kernels
    turns = [{name: replayed(trace, request[name]) for name in placements} for _ in range(repeat)]
    first_s = statistics.median(turn[placements[0]][1] for turn in turns)
    for name in placements:
        cpu_s, cycles = statistics.median(turn[name][1] for turn in turns), turns[0][name][2]
        print(f"| {name} | {cpu_s:.2f} | {cycles} | {1e6 * cpu_s / cycles:.0f} | {cpu_s / first_s:.1f} |", flush=True)


def played(trace: Trace, gpus: int, policy: str) -> tuple[float, float, int]:
    """Wall time [s], CPU time [s] and cycles of a replay on one pile of GPUs."""
    return replayed(trace, ReplayRequest(cluster=f"1x{gpus}", policy=policy))


def replayed(trace: Trace, request: ReplayRequest) -> tuple[float, float, int]:
    """Wall time [s], CPU time [s] and cycles of a replay."""
    session, began_s = ReplaySession(trace, request), time.process_time()
    run = session.run()
    return run.wall_s, time.process_time() - began_s, run.cycles


def bare(trace: Trace, gpus: int, *, easy: bool) -> float:
    """CPU time of the bare loop [s]."""
    columns = (trace.submit_s, trace.job_id, trace.gpus, trace.duration_s)
    jobs = list(zip(*(column.tolist() for column in columns), strict=True))
    began_s = time.process_time()
    job_ends(jobs, gpus, easy=easy)
    return time.process_time() - began_s


def demo_table(trace: Trace, repeat: int) -> None:
    """The demo's contenders under slurmctld's model."""
    print("| contender | wall [s] | jobs/s | cycles | cycles/s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for contender in demo_policies():
        Demo(trace.first(40)).run(contender)  # loads the kernels
        runs = [Demo(trace).run(contender) for _ in range(repeat)]
        wall_s, cycles = min(run.wall_s for run in runs), runs[0].cycles
        print(f"| {contender.title} | {wall_s:.2f} | {len(trace) / wall_s:.0f} | {cycles} | {cycles / wall_s:.0f} |")


if __name__ == "__main__":
    main()
