"""What the ledger costs a cycle: recall and append for a queue of pending and 1,000 running jobs.

    python bench/ledger.py [--pending 10000] [--cycles 15] [--url sqlite:///FILE]

Prints one row of a table for a warm process (the daemon) and one for a cold one (a tick from cron: the ledger is
opened and read anew each cycle). Every pending job has a lever on record, and each cycle writes 500 of them anew.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.db.ledger_store import LedgerStore, open_store
from slurmsched.model import Allocations, Jobs, JobState, Nodes, Outcome, Partitions, Plan, Receipt, SetNice, Snapshot

RUNNING_JOBS = 1_000
WRITES = 500
START_S = 1_700_000_000.0


def queue(pending: int, now_s: float, nice: np.ndarray) -> Snapshot:
    """A queue of `pending` waiting jobs, whose nice is given, and RUNNING_JOBS running ones."""
    total = pending + RUNNING_JOBS
    runs = np.arange(total) >= pending
    columns = {
        "job_id": 1 + np.arange(total),
        "state": np.where(runs, int(JobState.RUNNING), int(JobState.PENDING)),
        "submit_s": np.full(total, START_S - 86_400.0),
        "start_s": np.where(runs, START_S - 3_600.0, np.nan),
        "run_s": np.where(runs, now_s - START_S + 3_600.0, 0.0),
        "gpus": np.full(total, 4),
        "nice": np.concatenate([nice, np.zeros(RUNNING_JOBS, np.int64)]),
    }
    return Snapshot(now_s, Jobs.build(total, columns), Nodes.build(0, {}), Partitions.build(0, {}),
                    Allocations.build(0, {}))  # fmt: skip


def write(nice: np.ndarray, rows: range, cycle: int) -> tuple[Outcome, ...]:
    """Give the jobs of these rows a new nice, as Slurm would show it at the next cycle."""
    outcomes = []
    for row in rows:
        new = -1_000 * (cycle + 1) - row
        action = SetNice(row + 1, START_S - 86_400.0, "to its place", int(nice[row]), new, 0)
        outcomes.append(Outcome(action, "written"))
        nice[row] = new
    return tuple(outcomes)


def timed(store: LedgerStore, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> tuple[float, float]:
    """Seconds that recall and append take."""
    begun_s = time.perf_counter()
    recalled = store.recall(snapshot)
    recalled_s = time.perf_counter()
    store.append(recalled, Plan(tuple(outcome.action for outcome in outcomes)), Receipt(outcomes))
    return recalled_s - begun_s, time.perf_counter() - recalled_s


def measure(config: Config, pending: int, cycles: int, *, cold: bool) -> str:
    """A row of the table: medians in milliseconds."""
    nice = np.zeros(pending, np.int64)
    store, times = open_store(config), []
    timed(store, queue(pending, START_S, nice), write(nice, range(pending), 0))
    for cycle in range(1, cycles + 1):
        snapshot = queue(pending, START_S + 60.0 * cycle, nice)
        first = cycle * WRITES % pending
        outcomes = write(nice, range(first, min(first + WRITES, pending)), cycle)
        begun_s = time.perf_counter()
        store = open_store(config) if cold else store
        opened_s = time.perf_counter() - begun_s
        times.append((opened_s, *timed(store, snapshot, outcomes)))
    opened_ms, recall_ms, append_ms = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    process = "cold" if cold else "warm"
    return f"| {pending:,} | {process} | {opened_ms:.1f} | {recall_ms:.1f} | {append_ms:.1f} | {cycles} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=15)
    parser.add_argument("--url", help="an empty database; default: SQLite in a temporary folder")
    args = parser.parse_args()
    print("| pending jobs | process | open [ms] | recall [ms] | append, 500 writes [ms] | cycles |")
    print("|---|---|---|---|---|---|")
    for cold in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            url = args.url or f"sqlite:///{folder}/ledger.db"
            config = parse_config({"ledger": {"url": url, "journal": str(Path(folder) / "journal.jsonl")}})
            print(measure(config, args.pending, args.cycles, cold=cold), flush=True)


if __name__ == "__main__":
    main()
