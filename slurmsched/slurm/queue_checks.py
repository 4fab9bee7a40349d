"""What the queue itself tells of the setup: partitions, levers that somebody else writes, clocks."""

from __future__ import annotations

import re

import numpy as np

from slurmsched.config import Config, Scope
from slurmsched.errors import SlurmError
from slurmsched.model import Snapshot
from slurmsched.planning.levers import LEVERS
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.finding import Finding

SKEW_S = 5.0  # of two clocks, above which times of runs are off by more than a read takes
NAMED = 5  # jobs named
NOT_KNOWN = "without memory"  # as the ledger's warning begins where it could not be read


def queue_findings(config: Config, snapshot: Snapshot) -> tuple[Finding, ...]:
    """Scope and levers, judged by a snapshot with what the ledger remembers."""
    return _scope(config.scope, snapshot), _levers(config, snapshot)


def clock_finding(commands: Commands, own_s: float) -> Finding:
    """slurmctld's clock against ours [s]."""
    why = "Attained service of running jobs is our clock minus slurmctld's times."
    try:
        told = re.search(r"^sdiag output at .*\((\d+)\)", commands.run("sdiag"), re.MULTILINE)
    except SlurmError as error:
        return Finding("clock", "warn", str(error), why, "sdiag")
    if told is None:
        return Finding("clock", "warn", "sdiag does not tell slurmctld's time", why, "compare `date` on both machines")
    skew_s = own_s - float(told[1])
    verdict = "warn" if abs(skew_s) > SKEW_S else "ok"
    detail = f"{skew_s:+.0f} s from slurmctld's"
    return Finding("clock", verdict, detail, why, "timedatectl set-ntp true" if verdict == "warn" else "")


def _scope(scope: Scope, snapshot: Snapshot) -> Finding:
    why = "Only jobs whose partitions are all named are managed."
    known = dict(zip(snapshot.partitions.name, snapshot.partitions.nodes.tolist(), strict=True))
    missing = [name for name in scope.partitions if name not in known and name != "*"]
    empty = [name for name in scope.partitions if known.get(name) == 0]
    if not scope.partitions:
        return Finding("scope.partitions", "warn", "empty: no job is managed", why, f"partitions = {[*known]}")
    if missing:
        return Finding("scope.partitions", "fail", f"Slurm knows no {', '.join(missing)}", why, f"one of {[*known]}")
    if empty:
        return Finding("scope.partitions", "warn", f"{', '.join(empty)}: no nodes", why, "Nodes= in slurm.conf")
    return Finding("scope.partitions", "ok", ", ".join(scope.partitions), why)


def _levers(config: Config, snapshot: Snapshot) -> Finding:
    """Values as large as ours without a record: another tool's, or those of users who know what they do."""
    jobs, lever = snapshot.jobs, config.lever
    why = "Two that write the same lever undo each other's order."
    large = jobs.pending & (np.abs(LEVERS[lever.kind].now(jobs)) >= lever.floor)
    rows = np.flatnonzero(large & ~jobs.written)
    name = f"others' {lever.kind}"
    if not len(rows):
        return Finding(name, "ok", f"{int(large.sum())} large values, all on record", why)
    detail = f"{len(rows)} jobs have {lever.floor} or more, or as far below 0, and no record: "
    detail += ", ".join(map(str, jobs.job_id[rows[:NAMED]].tolist())) + (", ..." if len(rows) > NAMED else "")
    if any(warning.startswith(NOT_KNOWN) for warning in snapshot.warnings):
        return Finding(name, "warn", detail, why, "see it as somebody who may read the ledger")
    return Finding(name, "warn", detail, why, "see who sets it: users' own --nice, or another tool that must stop")
