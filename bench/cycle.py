"""The cost of a cycle beside plain `squeue -h` of the same queue. Run it in the lab as root; bench/run.py does.

    python bench/cycle.py [--rounds 9] [10000 100000]

Prints a Markdown table a queue size. Jobs of four users wait in partition `phantom`, whose nodes are down. Each
round runs `squeue -h` and then what is measured, so that both meet the same machine; the ratio is that of medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from slurmsched import logs
from slurmsched.config import Config, LedgerConfig, PolicyConfig, ScopeConfig, SlurmConfig
from slurmsched.cycle import run_cycle
from slurmsched.daemon.cycle_parts import CycleParts, open_cycle_parts
from slurmsched.planning.planner import Planner
from slurmsched.slurm import pyslurm_reader

COLD_JOBS = 10_000  # cron's tick is promised for a queue of this size; it is measured for others too
USERS = ("alice", "bob", "carol", "dave")
QUIET_S = 300.0  # longest wait for slurmctld and slurmdbd to finish with the submissions
SUBMIT = """
import random, sys
import pyslurm
draw = random.Random(sys.argv[2])
for i in range(int(sys.argv[1])):
    pyslurm.JobSubmitDescription(
        name=f"train-{i % 97}", partitions="phantom", time_limit=draw.choice([60, 240, 1440]),
        gres_per_node={"gpu": draw.choice([1, 1, 1, 2, 2, 4, 8])}, memory_per_node="4G",
        comment=draw.choice(["", "", "slurmsched: dur=2h preempt=yes"]), environment={"PATH": "/bin:/usr/bin"},
        script="#!/bin/sh\\nsleep 60\\n", working_directory="/tmp", standard_output="/dev/null",
    ).submit()
"""


class Cost(NamedTuple):
    """Seconds: wall time, CPU time of this process and those it started, CPU time of slurmctld."""

    wall_s: float
    cpu_s: float
    slurmctld_s: float


class FallenBack(Exception):
    """A pyslurm read was answered by the commands, now or for the rest of the minute: it says nothing of pyslurm."""


class Watch(logs.Log):
    """In place of the reader's log: a failure, after which it reads by the commands, ends the measurement."""

    def warning(self, event: str, **values: Any) -> None:
        if event == "pyslurm.failed":
            raise FallenBack(values["reason"])
        super().warning(event, **values)


def run(*command: str, user: str | None = None, env: Mapping[str, str] | None = None) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/", user=user, env=env).stdout


def waiting() -> int:
    return len(run("squeue", "-h", "-t", "PD", "-o", "%A").splitlines())


def fill(jobs: int) -> None:
    """Submit until that many wait, then until Slurm's daemons have caught up."""
    share, rest = divmod(max(jobs - waiting(), 0), len(USERS))
    started = []
    for i, user in enumerate(USERS):
        command = [sys.executable, "-c", SUBMIT, str(share + (i < rest)), user]
        started.append(subprocess.Popen(command, user=user, group=user, extra_groups=[], cwd="/"))
    if any(process.wait() for process in started):
        raise SystemExit("jobs cannot be submitted; is pyslurm installed?")
    until_s = time.monotonic() + QUIET_S
    while time.monotonic() < until_s and "DBD Agent queue size: 0" not in run("sdiag"):
        time.sleep(1)
    time.sleep(5)


def slurmctld_s() -> float:
    """CPU time that slurmctld has used."""
    pid = Path("/run/slurm/slurmctld.pid").read_text().strip()
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def cost(work: Callable[[], object]) -> Cost:
    begun, slurmctld, begun_s = os.times(), slurmctld_s(), time.perf_counter()
    work()
    wall_s, ended = time.perf_counter() - begun_s, os.times()
    return Cost(wall_s, sum(ended[:4]) - sum(begun[:4]), slurmctld_s() - slurmctld)


def median(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def compared(work: Callable[[], object], rounds: int) -> tuple[Cost, Cost]:
    """Medians of `squeue -h` and of the work, in turns; a first, warming turn is left out."""
    turns = [(cost(partial(run, "squeue", "-h")), cost(work)) for _ in range(rounds + 1)][1:]
    return median([squeue for squeue, _ in turns]), median([own for _, own in turns])


def config(folder: Path, adapter: str, policy: str = "discretized-las") -> Config:
    """Everything of the cycle in a folder of its own, managing the whole queue."""
    ledger = LedgerConfig(url=f"sqlite:///{folder}/ledger.db", journal=folder / "journal", lock=folder / "lock")
    return Config(ledger=ledger, scope=ScopeConfig(partitions=("*",)), slurm=SlurmConfig(adapter=adapter),
                  policy=PolicyConfig(name=policy))  # fmt: skip


def tick(folder: Path, policy: str) -> Callable[[], object]:
    """The whole process as cron starts it, by the user slurmsched. Bytecode is in a cache, as once installed."""
    file = folder / f"{policy}.toml"
    file.write_text(
        f'scope.partitions = ["*"]\npolicy.name = "{policy}"\nledger.url = "sqlite:///{folder}/ledger.db"\n'
        f'ledger.journal = "{folder}/journal"\nledger.lock = "{folder}/lock"\n'
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env = kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "NUMBA_CACHE_DIR": str(folder / "numba")}
    return lambda: run("slurmsched", "--config", str(file), "tick", "--dry-run", user="slurmsched", env=env)


@contextmanager
def own_folder(user: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["chown", user, name], check=True)
        yield Path(name)


def row(name: str, costs: tuple[Cost, Cost], target: float | None = None) -> str:
    """A row of the table."""
    squeue, own = costs
    ratio = own.wall_s / squeue.wall_s
    verdict = "" if target is None else f"{target:g}, {'met' if ratio <= target else '**missed**'}"
    cells = (f"{own.wall_s:.3f}", f"{squeue.wall_s:.3f}", f"{ratio:.2f}", verdict, f"{own.cpu_s:.3f}",
             f"{squeue.cpu_s:.3f}", f"{own.slurmctld_s:.2f}", f"{squeue.slurmctld_s:.2f}")  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def rows(jobs: int, rounds: int) -> Iterator[str]:
    """Rows of the table for a queue of that many pending jobs."""
    with own_folder("slurmsched") as folder:
        target = 10.0 if jobs == COLD_JOBS else None
        cold = compared(tick(folder, "discretized-las"), rounds)
        yield row("`slurmsched tick --dry-run`, whole process", cold, target)
        cold = compared(tick(folder, "srsf"), rounds)
        yield row("the same by srsf, which moves nearly every job", cold, target)
    for adapter in ("cli", "pyslurm"):
        with own_folder("root") as folder, open_cycle_parts(config(folder, adapter), apply=False) as parts:
            try:
                yield from warm_rows(adapter, parts, rounds)
            except FallenBack as error:
                yield f"| the rest by {adapter}: not measured, {error} |{' |' * 8}"
            if adapter == "cli":
                yield from plan_rows(config(folder, adapter, "srsf"), parts, rounds)


def warm_rows(adapter: str, parts: CycleParts, rounds: int) -> Iterator[str]:
    """Rows of the daemon's cycle by an adapter. Raises FallenBack."""
    run_cycle(parts.cluster, parts.planner, parts.store)  # as in a daemon: the ledger knows the jobs
    yield row(f"read, {adapter}", compared(parts.cluster.read, rounds))
    yield row(f"read, recall, decide, plan, {adapter}", compared(parts.look, rounds), 3.0)
    cycle = partial(run_cycle, parts.cluster, parts.planner, parts.store)
    yield row(f"whole cycle, dry-run, {adapter}", compared(cycle, rounds))


def plan_rows(other: Config, parts: CycleParts, rounds: int) -> Iterator[str]:
    """Rows of deciding alone, by the policy of the parts and by that of another configuration."""
    snapshot = parts.look()[0]
    yield row("decide, plan", compared(partial(parts.planner.plan, snapshot), rounds), 0.25)
    planner = Planner.from_config(other)
    plan = planner.plan(snapshot)
    name = f"decide, plan by {other.policy.name}: {len(plan.actions) + plan.deferred:,} jobs to move"
    yield row(name, compared(partial(planner.plan, snapshot), rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", type=int, default=[COLD_JOBS], help="pending jobs, ascending")
    parser.add_argument("--rounds", type=int, default=9, help="of each measurement")
    options = parser.parse_args()
    logs.configure("warning")
    pyslurm_reader.log = Watch()
    for jobs in options.jobs:
        fill(jobs)
        print(f"### {waiting():,} pending jobs, medians of {options.rounds} rounds\n")
        print("| what | wall s | squeue -h s | ratio | target | CPU s | squeue CPU s | slurmctld s | for squeue s |")
        print("| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |", flush=True)
        for line in rows(jobs, options.rounds):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
