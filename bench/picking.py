"""What placing jobs asks slurmctld for, beside the whole queue. Run it in the lab as root; bench/run.py does not.

    python -m bench.picking [--rounds 9] [10000]

Prints a Markdown table: one listing of every job, which each cycle took before; the same facts when every job is known
but a few that are new; and the last look at some that are about to be written. Wall time, and CPU time of slurmctld.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from bench.cycle import Cost, cost, fill, median, waiting
from slurmsched.config import SlurmConfig
from slurmsched.model import SetNodeList, Snapshot
from slurmsched.slurm.cons_tres import SelectionRecords, read_gpu_request
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.recheck import Recheck

FEW = 10  # jobs that come between two cycles, and jobs that a cycle writes


def rows(jobs: int, rounds: int) -> Iterator[str]:
    """The table's lines for a queue of that many jobs."""
    fill(jobs)
    commands, snapshot = open_commands(SlurmConfig()), read()
    records, recheck = SelectionRecords(commands, read_gpu_request), Recheck(commands)
    records.read(snapshot.jobs, cores=True)
    wishing = np.flatnonzero(snapshot.jobs.pending & (snapshot.jobs.gpus > 1))[:FEW]
    ids, submits = snapshot.jobs.job_id[wishing].tolist(), snapshot.jobs.submit_s[wishing].tolist()
    pins = [
        SetNodeList(job, submit_s, "", f"pin-{job}", "n1", "", "") for job, submit_s in zip(ids, submits, strict=True)
    ]
    works: dict[str, Callable[[], object]] = {
        "every job (`scontrol -d show job`)": lambda: commands.run("scontrol", "-o", "-d", "show", "job"),
        "nothing new": lambda: records.read(snapshot.jobs, cores=True),
        f"{FEW} new jobs": lambda: (records.forget(ids), records.read(snapshot.jobs, cores=True)),
        f"last look at {FEW} jobs": lambda: recheck(pins),
    }
    yield f"| {waiting()} jobs in the queue | wall | slurmctld |"
    yield "| --- | --- | --- |"
    for name, work in works.items():
        work()
        yield row(name, median([cost(work) for _ in range(rounds)]))


def read() -> Snapshot:
    reader = open_reader(SlurmConfig(), indices=False)
    try:
        reader.begin()
        return reader.read()
    finally:
        reader.close()


def row(name: str, one: Cost) -> str:
    return f"| {name} | {one.wall_s * 1e3:.1f} ms | {one.slurmctld_s * 1e3:.1f} ms |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("jobs", type=int, nargs="?", default=10_000)
    chosen = parser.parse_args()
    for line in rows(chosen.jobs, chosen.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
