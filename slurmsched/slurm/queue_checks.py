"""What the queue itself tells of the setup: partitions, levers that somebody else writes, clocks."""

from __future__ import annotations

import re

import numpy as np

from slurmsched.config import Config, Scope
from slurmsched.db.journal import Journal
from slurmsched.errors import LedgerError, SlurmError
from slurmsched.model import Snapshot
from slurmsched.planning.levers import LEVERS
from slurmsched.planning.undo import undo_plan
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.finding import Finding
from slurmsched.words import some, some_of

SKEW_S = 5.0  # of two clocks, above which times of runs are off by more than a read takes
NAMED = 5  # jobs named
NOT_KNOWN = "without memory"  # as the ledger's warning begins where it could not be read


def queue_findings(config: Config, snapshot: Snapshot) -> tuple[Finding, ...]:
    """Scope and levers, judged by a snapshot with what the ledger remembers."""
    return (
        _scope(config.scope, snapshot),
        _gpus(config.scope, snapshot),
        _levers(config, snapshot),
        *_other_lever(config, snapshot),
    )


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


def _gpus(scope: Scope, snapshot: Snapshot) -> Finding:
    """GPUs of the nodes, and of those in scope: without any there is nothing to give."""
    why = "slurmsched orders jobs by the GPUs that Slurm counts on its nodes."
    change = "slurm.conf: GresTypes=gpu and Gres=gpu:8 on the nodes; gres.conf: Name=gpu File=/dev/nvidia[0-7]"
    nodes, listed = snapshot.nodes, frozenset(scope.partitions)
    total, without = int(nodes.gpus.sum()), "warn" if not scope.gpu_jobs_only else "fail"
    if not total:
        return Finding("GPUs", without, f"none on {some(len(nodes), 'node')}", why, change)
    all_ = not listed or "*" in listed
    serves = nodes.partitions.map(lambda text: all_ or not listed.isdisjoint(text.split(",")), np.bool_)
    here = int(nodes.gpus[serves].sum())
    if not here:
        return Finding("GPUs", without, f"none in scope, {total} elsewhere", why, "scope.partitions: those with GPUs")
    used = int((nodes.gpus[serves] > 0).sum())
    return Finding("GPUs", "ok", f"{some(here, 'GPU')} on {some(used, 'node')}", why)


def _levers(config: Config, snapshot: Snapshot) -> Finding:
    """Values as large as ours without a record: another tool's, or those of users who know what they do."""
    jobs, lever = snapshot.jobs, config.lever
    why = "Two that write the same lever undo each other's order."
    large = jobs.pending & (np.abs(LEVERS[lever.kind].now(jobs)) >= lever.floor)
    rows = np.flatnonzero(large & ~jobs.written)
    name = f"others' {lever.kind}"
    if not len(rows):
        return Finding(name, "ok", f"{some(int(large.sum()), 'large value')}, all on record", why)
    waiting = int(jobs.pending.sum())
    detail = some_of(len(rows), waiting, "waiting job", "has", "have")
    detail += f" {lever.floor} or more, up or down, and no record: "
    detail += ", ".join(map(str, jobs.job_id[rows[:NAMED]].tolist())) + (", ..." if len(rows) > NAMED else "")
    if any(warning.startswith(NOT_KNOWN) for warning in snapshot.warnings):
        return Finding(name, "warn", detail, why, "see it as somebody who may read the ledger")
    return Finding(name, "warn", detail, why, "see who sets it: users' own --nice, or another tool that must stop")


def _other_lever(config: Config, snapshot: Snapshot) -> tuple[Finding, ...]:
    """Values of ours that jobs still have of the lever that is not written any more; none where there are none."""
    try:
        records = Journal(config.ledger.journal).levers(lenient=True).values()
    except LedgerError:
        return ()  # what keeps the journal from being read is a finding of its own
    others = [record for record in records if record.kind != config.lever.kind]
    left = undo_plan(snapshot, sorted(others, key=lambda record: record.submit_s)).actions
    if not left:
        return ()
    detail = f"{config.lever.kind}, but waiting jobs have a {others[0].kind} of ours: "
    detail += ", ".join(str(action.job_id) for action in left[:NAMED]) + (", ..." if len(left) > NAMED else "")
    why = "Both levers count: the order is that of neither."
    return (Finding("lever.kind", "warn", detail, why, "stop the daemon, slurmsched undo --apply, start it"),)
