"""What `status` shows: mode, who works, the last cycles and failures, GPUs and jobs."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from slurmsched.config import Config
from slurmsched.config_file import digest
from slurmsched.daemon.cycle_parts import CycleParts, paused
from slurmsched.daemon.lock import LockHolder, holder, lock_holder_work
from slurmsched.db.ledger_queries import FailedWrite, last_cycles, last_failures, placements_since
from slurmsched.errors import LedgerError
from slurmsched.model import Plan, Snapshot
from slurmsched.observe.queue_rows import job_state_counts, operation_records
from slurmsched.planning.gate import CHANGED
from slurmsched.slurm.scontrol_tables import orphan_names

SHOWN = 5  # cycles and failures


def status_facts(config: Config, parts: CycleParts) -> tuple[Snapshot, dict[str, Any]]:
    """The cluster now, and what `status` shows of it, as plain values. Raises SlurmError and ConfigError."""
    snapshot, plan = parts.look()
    return snapshot, _gathered(config, snapshot, plan) | {"leader": _leader(parts)} | _ledger_facts(config)


def _leader(parts: CycleParts) -> dict[str, Any] | None:
    """Who leads of the hosts that share the ledger; None where there is one host only, or nobody can say."""
    if parts.lead is None:
        return None
    lease = parts.lead.lease
    try:
        leader = lease.leader()
    except LedgerError:
        return None  # the snapshot's warnings say why
    return {
        "name": leader.name,
        "term": leader.term,
        "remaining_s": leader.remaining_s,
        "us": lease.name,
        "text": str(leader),
    }


def _ledger_facts(config: Config) -> dict[str, Any]:
    """The ledger's last cycles, and the last writes that failed, newest first; nothing where it cannot be read."""
    try:
        return {"cycles": last_cycles(config.ledger.address, SHOWN), "failures": _failures(config.ledger.address),
                "placements": _placements(config.ledger.address)}  # fmt: skip
    except LedgerError:
        return {"cycles": [], "failures": [], "placements": {}}  # the snapshot's warnings say why


def _placements(url: str) -> dict[str, int]:
    """Jobs of several GPUs that started in the last day, and those that missed better GPUs; empty if there is none."""
    rows = placements_since(url, time.time() - 86_400)
    return {"jobs": len(rows), "missed": sum(bool(row.note) for row in rows)} if rows else {}


def _failures(url: str) -> list[FailedWrite]:
    """Without jobs that just started or ended before their write: that happens all the time."""
    return [row for row in last_failures(url, 10 * SHOWN) if not row.message.startswith(CHANGED)][:SHOWN]


# Over 30 lines: one line for each key of the answer.
def _gathered(config: Config, snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    """What the cluster and the configuration tell, as plain values."""
    working, work = _holder(config)
    writing = (work.mode == "apply" if work else writes(working, config.mode)) if working else False
    return {
        "mode": config.mode,
        "paused": paused(config),
        "working": working,
        "writing": writing,
        "work": work and asdict(work) | {"same_config": work.config == digest(config)},
        "policy": config.policy.name,
        "lever": config.lever.kind,
        "cluster": snapshot.site.cluster,
        "slurm": snapshot.site.version,
        "user": snapshot.site.user,
        "rights": snapshot.site.rights.name.lower(),
        "gpus": snapshot.nodes.gpu_totals(),
        "jobs": job_state_counts(snapshot.jobs),
        "managed": int(plan.managed.sum()),
        "planned": len(plan.actions) + plan.deferred,
        "operations": operation_records(snapshot.operations),
        "orphans": orphan_names(snapshot.reservations, snapshot.operations, snapshot.tag),
        "now_s": snapshot.now_s,
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def _holder(config: Config) -> tuple[str, LockHolder | None]:
    """Who holds the lock, as text, and what that one says that it does."""
    try:
        return holder(config.ledger.lock), lock_holder_work(config.ledger.lock)
    except LedgerError as error:
        return f"not known: {error}", None


def writes(holder: str, mode: str) -> bool:
    """Whether a holder of the lock that does not say what it does writes to Slurm: by its command line, else by
    mode."""
    words = holder.split()
    if not words or "--dry-run" in words:
        return False
    return "--apply" in words or (mode == "apply" and "undo" not in words)
