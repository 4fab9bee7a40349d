"""From the requeue of a victim to the start of the job it makes room for. Run it in the lab as root, its queue empty.

    python -m bench.preempt [--rounds 50]

Prints a Markdown table. By the daemon's own cycle and, in turns, by hand: the reservation, the name and the requeue
are typed as `scontrol` commands, which is the least that this can take with any Slurm. The victim ends at the first
SIGTERM. When its requeue was complete and when the other job got its nodes is read from slurmctld's log; what lies
between the requeue command and the first of these is the victim's exit time, which is taken out.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.cycle import own_folder, run
from slurmsched import logs
from slurmsched.config import Config, LedgerConfig, OperationsConfig, PolicyConfig, PreemptionConfig, ScopeConfig
from slurmsched.cycle import run_cycle
from slurmsched.daemon.cycle_parts import CycleParts, open_cycle_parts
from slurmsched.model import Action, Outcome, Requeue
from slurmsched.slurm.writer import CommandWriter

LOG = Path("/var/log/slurm/slurmctld.log")
LONGEST_S = 60.0  # until something that must happen has happened
NODE = "n1"
TARGET_S = 3.0  # of issue 5: median of what is not the victim's exit time
Begun = Callable[[int, int], tuple[float, float]]  # victim, beneficiary -> begin, and when the requeue was sent


class Took(NamedTuple):
    """One preemption [s]: from the begin of the cycle, or the first command, to the requeue; from there until the
    victim was gone; from there until the other job had its nodes."""

    before_s: float
    exit_s: float
    start_s: float


def submit(user: str, *options: str, script: str) -> int:
    """Job id of a job of all GPUs of the node."""
    words = ("sbatch", "--parsable", "--output=/dev/null", "--nodes=1", "--gpus-per-node=8", "--mem=1G", "-w", NODE)
    return int(run(*words, *options, f"--wrap={script}", user=user))


def until(true: Callable[[], object], what: str) -> None:
    """Wait for it. Raises SystemExit if it takes too long."""
    end_s = time.monotonic() + LONGEST_S
    while not true():
        if time.monotonic() > end_s:
            raise SystemExit(f"not within {LONGEST_S:.0f} s: {what}")
        time.sleep(0.1)


def shown(code: str, job: int) -> str:
    """One column of squeue, "" for a job that is gone."""
    done = subprocess.run(["squeue", "-h", "-j", str(job), "-o", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def logged(words: str, since: int) -> float:
    """Unix time of the first line of slurmctld's log with these words after that many bytes, 0 if there is none yet."""
    with LOG.open("rb") as file:
        file.seek(since)
        found = re.search(rf"^\[(\S+)\] {words}\b", file.read().decode(errors="replace"), re.MULTILINE)
    return datetime.fromisoformat(found[1]).timestamp() if found else 0.0


def preempted(begun: Begun, clean: Callable[[int], None]) -> Took:
    """One round: a victim, a job that waits for its node, and what came of it."""
    victim = submit("alice", "--requeue", "--time=60", script="exec sleep 600")
    until(lambda: shown("%T", victim) == "RUNNING", "the victim runs")
    time.sleep(2.5)  # its quantum
    urgent = submit("bob", "--time=10", script="sleep 1")
    until(lambda: shown("%r", urgent) not in ("", "None"), "Slurm has looked at the waiting job")
    since = LOG.stat().st_size
    begin_s, sent_s = begun(victim, urgent)
    until(lambda: logged(f"sched: Allocate JobId={urgent}|sched/backfill: _start_job: Started JobId={urgent}", since),
          "the waiting job starts")  # fmt: skip
    gone_s = logged(f"Requeuing JobId={victim}", since)
    start_s = logged(f"sched: Allocate JobId={urgent}|sched/backfill: _start_job: Started JobId={urgent}", since)
    clean(urgent)
    run("scancel", str(victim), str(urgent))
    until(lambda: not shown("%T", victim) and not shown("%T", urgent), "the node is free")
    return Took(sent_s - begin_s, gone_s - sent_s, start_s - gone_s)


def by_hand(victim: int, urgent: int) -> tuple[float, float]:
    begin_s = time.time()
    run("scontrol", "create", "ReservationName=by-hand", f"Nodes={NODE}", "Users=bob", "StartTime=now", "Duration=30",
        "Flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER")  # fmt: skip
    run("scontrol", "update", f"JobId={urgent}", "ReservationName=by-hand")
    sent_s = time.time()
    run("scontrol", "requeue", "incomplete", str(victim))
    return begin_s, sent_s


def clean_by_hand(urgent: int) -> None:
    run("scontrol", "update", f"JobId={urgent}", "ReservationName=")
    run("scontrol", "delete", "ReservationName=by-hand")


class Clocked:
    """The daemon's cycle; notes when it sends a requeue."""

    def __init__(self, parts: CycleParts) -> None:
        self._cycle = partial(run_cycle, parts.cluster, parts.planner, parts.store)
        self._parts, self._sent_s = parts, 0.0
        self._cycle()  # the first one reads what was there when the parts were opened

    @contextmanager
    def noting(self) -> Iterator[None]:
        """For the body, requeues that any writer sends are noted."""
        send = CommandWriter.send

        def noted(actions: Iterable[Action]) -> Iterator[Action]:
            for action in actions:
                if isinstance(action, Requeue):
                    self._sent_s = time.time()
                yield action

        def clocked(writer: CommandWriter, actions: Iterable[Action]) -> Iterator[Outcome]:
            return send(writer, noted(actions))

        CommandWriter.send = clocked  # type: ignore[method-assign]
        try:
            yield
        finally:
            CommandWriter.send = send  # type: ignore[method-assign]

    def begun(self, victim: int, urgent: int) -> tuple[float, float]:
        begin_s, self._sent_s = time.time(), 0.0
        receipt = self._cycle()
        if not self._sent_s:
            raise SystemExit(f"the cycle requeued nobody: {receipt}")
        return begin_s, self._sent_s

    def clean(self, urgent: int) -> None:
        def over() -> bool:
            self._cycle()
            return not self._parts.cluster.read().operations

        until(over, "the preemption is over")


def config(folder: Path) -> Config:
    """Everybody may be preempted after a second, without a checkpoint."""
    ledger = LedgerConfig(url=f"sqlite:///{folder}/ledger.db", journal=folder / "journal", lock=folder / "lock")
    taking = PreemptionConfig(enabled=True, partitions=("gpu",), without_checkpoint=True, quantum_s=1, restart_cost_s=0,
                        least_factor=0)  # fmt: skip
    policy = PolicyConfig(name="discretized-las", thresholds_gpu_s=[8.0])
    often = OperationsConfig(per_hour=10_000, per_user_per_hour=10_000)
    return Config(
        ledger=ledger, scope=ScopeConfig(partitions=("*",)), policy=policy, preemption=taking, operations=often
    )


def row(name: str, values: list[float], target_s: float | None = None) -> str:
    """A row of the table: median and worst."""
    median_s = statistics.median(values)
    verdict = "" if target_s is None else f"{target_s:g}, {'met' if median_s <= target_s else '**missed**'}"
    return f"| {name} | {median_s:.3f} | {max(values):.3f} | {verdict} |"


def rows(took: list[Took], who: str, target_s: float | None = None) -> Iterator[str]:
    yield row(f"{who}: until the requeue is sent", [each.before_s for each in took])
    yield row(f"{who}: the victim's exit and epilog", [each.exit_s for each in took])
    yield row(f"{who}: from there to the start", [each.start_s for each in took])
    yield row(f"{who}: requeue to start without the exit, and all before it",
              [each.before_s + each.start_s for each in took], target_s)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="preemptions by the cycle, and as many by hand")
    options = parser.parse_args()
    logs.configure("warning")
    ours, hand = [], []
    with own_folder("root") as folder, open_cycle_parts(config(folder), apply=True) as parts:
        clocked = Clocked(parts)
        with clocked.noting():
            for number in range(options.rounds + 1):
                ours.append(preempted(clocked.begun, clocked.clean))
                hand.append(preempted(by_hand, clean_by_hand))
                print(f"{number} of {options.rounds}: {ours[-1]} {hand[-1]}", file=sys.stderr, flush=True)
    print(f"{run('sinfo', '--version').strip()}, {options.rounds} preemptions each, in turns\n")
    print("| what | median s | worst s | target |\n| --- | ---: | ---: | --- |")
    for line in (*rows(ours[1:], "cycle", TARGET_S), *rows(hand[1:], "by hand")):  # the first warms
        print(line)


if __name__ == "__main__":
    main()
