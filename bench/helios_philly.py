"""Helios's Philly experiment with ours: October and November 2017, each virtual cluster by itself, mean over all jobs.

python -m bench.helios_philly PHILLY_JOBS PHILLY_VC       the job list of Pollux's authors, nodes by virtual cluster
"""

from __future__ import annotations

import csv
import gzip
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slurmsched import logs
from slurmsched.replay.loaders.rows import wall_s
from slurmsched.replay.run import Request, Session
from slurmsched.replay.trace_files import load

FIRST_S, END_S = (datetime(2017, month, 1, tzinfo=UTC).timestamp() for month in (10, 12))
POLICIES = ("fifo", "sjf", "srtf", "qssf:trees_share=0", "qssf")
NODE_GPUS = 8


def main() -> None:
    logs.configure("warning")
    trace = load(Path(sys.argv[1])).trace
    when = trace.submit_s + _first_s(Path(sys.argv[1]))
    with Path(sys.argv[2]).open(encoding="utf-8") as file:
        sizes = {row["vc"]: int(row["node num"]) for row in csv.DictReader(file)}
    for policy in POLICIES:
        jct, wait, refused = [], [], 0
        for vc, nodes in sorted(sizes.items(), key=lambda pair: pair[1]):
            mine = trace.take((when >= FIRST_S) & (when < END_S) & trace.account.isin([vc]))
            fits = mine.gpus <= nodes * NODE_GPUS
            refused += int((~fits).sum())
            request = Request(cluster=f"{nodes}x{NODE_GPUS}", policy=policy, placement="consolidated", seed=0)
            done = Session(mine.take(fits), request).run().outcomes
            jct.append(done.jct_s)
            wait.append(done.jct_s - done.executed_s)
            print(f"  {policy} {vc} {len(done.job_id)} jobs", file=sys.stderr, flush=True)
        jct_s, wait_s = np.concatenate(jct), np.concatenate(wait)
        told = f"{len(jct_s)} jobs, {refused} too large"
        print(f"{policy}: {told}, JCT {jct_s.mean():.0f} s, queueing {wait_s.mean():.0f} s", flush=True)


def _first_s(path: Path) -> float:
    """The first submission of the list, which is 0 in the trace [s]."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return wall_s(min(row["timestamp"] for row in csv.DictReader(file)))


if __name__ == "__main__":
    main()
