"""The cost of a cycle against plain `squeue` of the same queue, in the same run. Runs inside the lab as root.

    python3 tests/lab/lab.py exec --name forky -- /opt/venv/bin/python bench/cycle.py 10000 100000

Prints rows of bench/RESULTS.md. Jobs wait in partition `phantom`, whose nodes are down. Needs pyslurm to fill
the queue in reasonable time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from slurmsched.config import Config, Ledger, Scope, Slurm
from slurmsched.daemon.assemble import assembled

REPEATS = 7
SUBMIT = """
import random, sys
import pyslurm
draw = random.Random(1)
for i in range(int(sys.argv[1])):
    gpus = draw.choice([1, 1, 1, 2, 2, 4, 8])
    pyslurm.JobSubmitDescription(
        name=f"train-{i % 97}", partition="phantom", time_limit=draw.choice([60, 240, 1440]),
        gres_per_node={"gpu": gpus}, script="#!/bin/sh\\nsleep 60\\n", environment={"PATH": "/bin:/usr/bin"},
        working_directory="/tmp", standard_output="/dev/null", memory_per_node="4G",
    ).submit()
"""  # fmt: skip


def waiting() -> int:
    return len(run("squeue", "-h", "-t", "PD", "-o", "%A").splitlines())


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def fill(jobs: int) -> None:
    """Submit until so many wait."""
    missing = jobs - waiting()
    if missing > 0:
        subprocess.run([sys.executable, "-c", SUBMIT, str(missing)], check=True)


def median_s(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median wall time, the first (warming) run left out."""
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def config(folder: Path, adapter: str) -> Config:
    """Everything of the cycle in a folder of its own, managing the whole queue."""
    ledger = Ledger(url=f"sqlite:///{folder}/ledger.db", journal=folder / "journal", lock=folder / "lock")
    return Config(ledger=ledger, scope=Scope(partitions=("*",)), slurm=Slurm(adapter=adapter))


def cold_tick_s(folder: Path) -> float:
    """The whole process, as cron starts it."""
    file = folder / "slurmsched.toml"
    file.write_text(
        f'scope.partitions = ["*"]\nledger.url = "sqlite:///{folder}/ledger.db"\n'
        f'ledger.journal = "{folder}/journal"\nledger.lock = "{folder}/lock"\n'
    )
    return median_s(lambda: run("/opt/venv/bin/slurmsched", "--config", str(file), "tick", "--dry-run"))


def rows(jobs: int, folder: Path) -> list[tuple[str, float]]:
    """Named medians [s] for a queue of so many pending jobs."""
    fill(jobs)
    made = [("squeue -h", median_s(lambda: run("squeue", "-h")))]
    made.append(("tick --dry-run, whole process", cold_tick_s(folder)))
    for adapter in ("cli", "pyslurm"):
        tree = config(folder, adapter)
        with assembled(tree, apply=False) as parts:
            made.append((f"read by {adapter} adapter", median_s(parts.cluster.read)))
            made.append((f"read, decide, plan ({adapter})", median_s(parts.look)))
            snapshot = parts.store.recall(parts.cluster.read())
            made.append((f"decide, plan ({adapter})", median_s(partial(parts.planner.plan, snapshot))))
    return made


def main() -> None:
    print("| pending jobs | what | median s | ratio to squeue -h |\n| --- | --- | --- | --- |")
    for jobs in map(int, sys.argv[1:] or ["10000"]):
        with tempfile.TemporaryDirectory() as folder:
            made = rows(jobs, Path(folder))
        for name, taken_s in made:
            print(f"| {waiting():,} | {name} | {taken_s:.3f} | {taken_s / made[0][1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
