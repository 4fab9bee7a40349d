"""`status`: one screen on how things are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, duration, read_config
from slurmsched.cli.operation_tables import operation_rows, print_operations
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.daemon.cycle_parts import CycleParts
    from slurmsched.daemon.lock import LockHolder
    from slurmsched.model import Plan, Snapshot

SHOWN = 5  # cycles and failures
SELDOM = {"boot": "free after a boot", "unknown": "cannot be read"}  # told only where there are some


@framework.examples(
    ("slurmsched status", "Mode, daemon, last cycles, GPUs and jobs."),
    ("slurmsched status --json | jq .gpus", "The number of GPUs by state."),
)
@framework.command("status")
def command(out: Output) -> None:
    """Show mode, daemon, last cycles, GPUs and jobs.

    Reads only.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts

    tree = read_config()
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        snapshot, plan = parts.look()
        facts = gathered(tree, snapshot, plan) | {"leader": led(parts)} | remembered(tree)
    if out.as_json:
        out.json(facts, schema="status")
    else:
        _print(out, facts)
        print_operations(out, snapshot.operations, snapshot.now_s)
        _print_orphans(out, facts["orphans"])


def led(parts: CycleParts) -> dict[str, Any] | None:
    """Who leads of the hosts that share the ledger; None where there is one host only, or nobody can say."""
    from slurmsched.errors import LedgerError

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


def remembered(tree: Config) -> dict[str, Any]:
    """The ledger's last cycles, and the last writes that failed, newest first; nothing where it cannot be read."""
    from slurmsched.db.ledger_queries import last_cycles
    from slurmsched.errors import LedgerError

    try:
        return {"cycles": last_cycles(tree.ledger.address, SHOWN), "failures": _failures(tree.ledger.address),
                "placements": _placements(tree.ledger.address)}  # fmt: skip
    except LedgerError:
        return {"cycles": [], "failures": [], "placements": {}}  # the snapshot's warnings say why


def _placements(url: str) -> dict[str, int]:
    """Jobs of several GPUs that started in the last day, and those that missed better GPUs; empty if there is none."""
    import time

    from slurmsched.db.ledger_queries import placements_since

    rows = placements_since(url, time.time() - 86_400)
    return {"jobs": len(rows), "missed": sum(bool(row["note"]) for row in rows)} if rows else {}


def _failures(url: str) -> list[dict[str, Any]]:
    """Without jobs that just started or ended before their write: that happens all the time."""
    from slurmsched.db.ledger_queries import last_failures
    from slurmsched.planning.gate import CHANGED

    return [row for row in last_failures(url, 10 * SHOWN) if not row["message"].startswith(CHANGED)][:SHOWN]


# Over 30 lines: one line for each key of the answer.
def gathered(tree: Config, snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    """What the cluster and the configuration tell, as plain values."""
    from dataclasses import asdict

    from slurmsched.config_file import digest
    from slurmsched.daemon.cycle_parts import paused
    from slurmsched.observe.queue_rows import job_state_counts
    from slurmsched.slurm.scontrol_tables import orphan_names

    working, work = _holder(tree)
    writing = (work.mode == "apply" if work else writes(working, tree.mode)) if working else False
    return {
        "mode": tree.mode,
        "paused": paused(tree),
        "working": working,
        "writing": writing,
        "work": work and asdict(work) | {"same_config": work.config == digest(tree)},
        "policy": tree.policy.name,
        "lever": tree.lever.kind,
        "cluster": snapshot.site.cluster,
        "slurm": snapshot.site.version,
        "user": snapshot.site.user,
        "rights": snapshot.site.rights.name.lower(),
        "gpus": snapshot.nodes.gpu_totals(),
        "jobs": job_state_counts(snapshot.jobs),
        "managed": int(plan.managed.sum()),
        "planned": len(plan.actions) + plan.deferred,
        "operations": operation_rows(snapshot.operations),
        "orphans": orphan_names(snapshot.reservations, snapshot.operations, snapshot.tag),
        "now_s": snapshot.now_s,
        "notes": plan.notes,
        "warnings": snapshot.warnings,
    }


def _holder(tree: Config) -> tuple[str, LockHolder | None]:
    """Who holds the lock, in words, and what that one says that it does."""
    from slurmsched.daemon.lock import holder, lock_holder_work
    from slurmsched.errors import LedgerError

    try:
        return holder(tree.ledger.lock), lock_holder_work(tree.ledger.lock)
    except LedgerError as error:
        return f"not known: {error}", None


def writes(holder: str, mode: str) -> bool:
    """Whether a holder of the lock that does not say what it does writes to Slurm: by its command line, else by
    mode."""
    words = holder.split()
    if not words or "--dry-run" in words:
        return False
    return "--apply" in words or (mode == "apply" and "undo" not in words)


def _print(out: Output, facts: dict[str, Any]) -> None:
    mode = _mode(facts) + (", paused by the stop file" if facts["paused"] else "")
    gpus = ", ".join(f"{count} {SELDOM.get(name, name)}" for name, count in facts["gpus"].items()
                     if name != "all" and (count or name not in SELDOM))  # fmt: skip
    jobs = ", ".join(f"{count} {name}" for name, count in facts["jobs"].items() if count or name != "other")
    lines = {
        "mode": f"{mode}; policy {facts['policy']}, lever {facts['lever']}",
        "at work": _at_work(facts),
        "slurm": f"{facts['cluster']}, {facts['slurm']}; {facts['user']} is {facts['rights']}",
        "GPUs": f"{facts['gpus']['all']}: {gpus}",
        "jobs": f"{jobs}; {facts['managed']} managed, {facts['planned']} would change",
    }
    if leader := facts["leader"]:
        lines["leader"] = leader["text"] + _standing(leader)
    for name, text in lines.items():
        out.line(f"{name:8} {text}")
    if placed := facts["placements"]:
        text = f"{pluralize(placed['jobs'], 'job')} of several GPUs in a day, {placed['missed']} missed better ones"
        out.line(f"{'links':8} {text} (`slurmsched topology quality`)", "warning" if placed["missed"] else "")
    _print_cycles(out, facts)
    for failure in facts["failures"]:
        ago = duration(facts["now_s"] - failure["recorded_s"])
        out.line(f"{ago} ago job {failure['job_id']}: {failure['outcome']}: {failure['message']}", "warning")
    for text in (*_differences(facts["work"]), *facts["notes"], *facts["warnings"]):
        out.line(f"note: {text}", "warning")


def _print_orphans(out: Output, names: Sequence[str]) -> None:
    from slurmsched.slurm.scontrol_tables import end_by_hand

    for name in names:
        out.line(f"reservation {name} belongs to no operation on record; to end it: {end_by_hand(name)}", "warning")


def _mode(facts: dict[str, Any]) -> str:
    at_work = "apply" if facts["writing"] else "dry-run"
    if not facts["working"] or at_work == facts["mode"]:
        return str(facts["mode"])
    return f"{facts['mode']} in the configuration, {at_work} at work"


def _at_work(facts: dict[str, Any]) -> str:
    if not facts["working"]:
        return "nobody now"
    does, work = "writes" if facts["writing"] else "writes nothing", facts["work"]
    since = f", since {duration(facts['now_s'] - work['since_s'])}; slurmsched {work['version']}" if work else ""
    return f"{facts['working']} ({does}{since})"


def _differences(work: dict[str, Any] | None) -> Iterator[str]:
    """What the one at work does otherwise than the configuration read here says."""
    if work and not work["same_config"]:
        yield "who is at work has another configuration than the one read here: reload it, or see its environment"
    if work and work["refused"]:
        yield f"its last reload was refused, so that it goes on by the configuration before: {work['refused']}"


def _standing(leader: dict[str, Any]) -> str:
    if leader["remaining_s"] <= 0:
        return ""
    return " (this host)" if leader["name"] == leader["us"] else f"; this host, {leader['us']}, stands by"


def _took(duration_s: float) -> str:
    return f"{duration_s:.1f}s" if 0 <= duration_s < 10 else duration(duration_s)


def _print_cycles(out: Output, facts: dict[str, Any]) -> None:
    if not facts["cycles"]:
        out.line("cycles   none on record")
        return
    columns = ("cycle", "took", "jobs>", "planned>", "written>", "refused>", "ended early")
    rows = [
        (f"{duration(facts['now_s'] - c['recorded_s'])} ago", _took(c["duration_s"]), c["jobs"], c["planned"],
         "dry-run" if c["dry_run"] else c["written"], c["refused"], c["stopped"].partition(":")[0])
        for c in facts["cycles"]
    ]  # fmt: skip
    out.table(columns, rows)
