"""How fast the embedded cluster replays: jobs per second of the demo, one row a contender.

    python bench/replay.py [--jobs N] [--repeat 3]

Prints a Markdown table: median of wall times, jobs and cycles per second of it. Needs no Slurm.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics

from slurmsched import logs
from slurmsched.replay.demo import Demo, contenders
from slurmsched.replay.traces import sample_trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=None, help="the N jobs submitted first; default: all")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each contender; the median counts")
    options = parser.parse_args()
    logs.configure("warning")
    trace = sample_trace()
    demo = Demo(trace.first(options.jobs or len(trace)))
    for contender in contenders():  # compile the kernels
        Demo(trace.first(40)).run(contender)
    machine = f"CPython {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{machine}, {len(demo.trace)} jobs, median of {options.repeat}\n")
    print("| contender | wall [s] | jobs/s | cycles | cycles/s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for contender in contenders():
        runs = [demo.run(contender) for _ in range(options.repeat)]
        wall_s = statistics.median(run.wall_s for run in runs)
        cycles = runs[0].cycles
        print(
            f"| {contender.title} | {wall_s:.2f} | {len(demo.trace) / wall_s:.0f} | {cycles} | {cycles / wall_s:.0f} |"
        )


if __name__ == "__main__":
    main()
