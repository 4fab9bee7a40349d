"""What a replay costs from 10^3 to 10^6 jobs: made-up traces on 10,000 GPUs under discretized-las, ideal cluster.

    python -m bench.scale [JOBS ...]    measures these sizes (all by default) into bench/scale.csv, draws docs/scale.svg
    python -m bench.scale --draw        draws again what was measured

From the repository root. Jobs come by day more than by night, at a rate that would keep 90 % of the GPUs busy, so that
they wait by day and not by night. Each size is a process of its own: what its largest resident size is above that of
1,000 jobs is the memory that jobs take. CPU time, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import csv
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

from slurmsched import logs
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_generator import SyntheticWorkload, diurnal, generate_trace

NODES, NODE_GPUS, LOAD = 1_250, 8, 0.9
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
TABLE, PLOT = Path("bench/scale.csv"), Path("docs/scale.svg")
COLUMNS = ("jobs", "cpu_s", "wall_s", "cycles", "preemptions", "peak_mib")
WIDTH, HEIGHT, EDGE = 640, 400, 60  # of the plot [px]


def trace_of(jobs: int) -> Trace:
    """That many jobs at the rate that LOAD means."""
    sample = generate_trace(SyntheticWorkload(), 100_000, seed=1).trace
    rate = LOAD * NODES * NODE_GPUS / float((sample.gpus * sample.duration_s).mean()) * 86_400
    return generate_trace(SyntheticWorkload(jobs_per_day=rate, hourly=diurnal()), jobs).trace


def measure(jobs: int) -> dict[str, float]:
    """A row of the table."""
    trace = trace_of(jobs)
    request = ReplayRequest(cluster=f"{NODES}x{NODE_GPUS}", policy="discretized-las")
    ReplaySession(trace.first(1_000), request).run()  # loads the kernels
    session, began_s = ReplaySession(trace, request), time.process_time()
    run = session.run()
    cpu_s, peak = time.process_time() - began_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = (jobs, cpu_s, run.wall_s, run.cycles, run.figures["preemptions"], peak)
    return dict(zip(COLUMNS, (round(value, 3) for value in values), strict=True))


def rows() -> list[dict[str, float]]:
    """What was measured, ascending."""
    with TABLE.open(newline="") as file:
        read = [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]
    return sorted(read, key=lambda row: row["jobs"])


def keep(row: dict[str, float]) -> None:
    """Put a row into the table in place of the last one of its size."""
    table = {each["jobs"]: each for each in (rows() if TABLE.exists() else [])} | {float(row["jobs"]): row}
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{each[name]:g}" if name != "jobs" else int(each[name]) for name in COLUMNS}
                         for _, each in sorted(table.items()))  # fmt: skip


def draw(table: list[dict[str, float]]) -> str:
    """CPU time over jobs as SVG, both logarithmic, with n log n through the largest size."""
    least, most = table[0]["jobs"], table[-1]["jobs"]
    law = [(n, table[-1]["cpu_s"] * n * math.log(n) / (most * math.log(most))) for n in (least, most)]
    points = [(row["jobs"], row["cpu_s"]) for row in table]
    low = 10 ** math.floor(math.log10(min(cost for _, cost in points + law)))
    high = 10 ** math.ceil(math.log10(max(cost for _, cost in points + law)))

    def at(jobs: float, cost_s: float) -> str:
        x = EDGE + (WIDTH - 2 * EDGE) * math.log(jobs / least) / math.log(most / least)
        y = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * math.log(cost_s / low) / math.log(high / low)
        return f"{x:.1f},{y:.1f}"

    ours, theirs = (" ".join(at(*point) for point in line) for line in (points, law))
    marks = "".join('<circle r="4" cx="{}" cy="{}"/>'.format(*at(*point).split(",")) for point in points)
    texts = [_text(*at(n, low).split(","), f"{int(n):,}", 20) for n, _ in points]
    texts += [_text(EDGE - 30, at(least, 10.0**e).split(",")[1], f"{10.0**e:g} s", 4)
              for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]  # fmt: skip
    texts.append(_text(WIDTH / 2, HEIGHT - 12, "jobs; CPU time [s], dashed: n log n", 0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" text-anchor="middle"><rect width="100%" height="100%" fill="white"/>'
        f'<polyline points="{theirs}" fill="none" stroke="gray" stroke-dasharray="6 4"/>'
        f'<polyline points="{ours}" fill="none" stroke="#0b62a4" stroke-width="2"/><g fill="#0b62a4">{marks}</g>'
        f"{''.join(texts)}</svg>\n"
    )


def _text(x: float | str, y: float | str, words: str, below: int) -> str:
    return f'<text x="{float(x):.1f}" y="{float(y) + below:.1f}">{words}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--here", action="store_true", help="measure in this process, which has done nothing else")
    options = parser.parse_args()
    logs.configure("warning")
    for jobs in () if options.draw else options.jobs:
        if options.here:
            keep(measure(jobs))
        else:
            subprocess.run([sys.executable, "-m", "bench.scale", "--here", str(jobs)], check=True)
    if not options.here:
        print(TABLE.read_text(), end="")
        if len(table := rows()) > 1:
            PLOT.write_text(draw(table), encoding="utf-8")


if __name__ == "__main__":
    main()
