"""`undo`: every lever back to its base."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Plan, Receipt, Snapshot


@output.command("undo")
@click.option("--apply", "apply", is_flag=True, help="Write; without it the changes are only shown.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(out: Output, apply: bool, yes: bool) -> int:
    """Give every job its own nice and site factor back.

    Works from the journal file alone, also with the database lost. Stop the daemon or timer first:
    the next cycle would write again.
    """
    from slurmsched.daemon.lock import exclusive
    from slurmsched.slurm.open import open_live

    tree = config()
    with exclusive(tree.ledger.lock), closing(open_live(tree, apply=apply)) as cluster:
        plan = restoring(tree, cluster.read())
        receipt = None
        if not out.as_json:
            _print(out, plan)
        if apply and plan.actions:
            yes or click.confirm(f"Restore {len(plan.actions)} jobs?", abort=True)
            receipt = cluster.apply(plan)
    return _report(out, plan, receipt)


def restoring(tree: Config, snapshot: Snapshot) -> Plan:
    """The plan that restores every lever the journal knows. Raises LedgerError if it cannot be read."""
    from slurmsched.db.journal import Journal
    from slurmsched.planning.undo import undo_plan

    records = Journal(tree.ledger.journal).levers(lenient=True).values()
    return undo_plan(snapshot, sorted(records, key=lambda record: record.submit_s))


def _print(out: Output, plan: Plan) -> None:
    if plan.actions:
        out.table(("job>", "lever", "now>", "base>"), [(a.job_id, a.kind, a.old, a.new) for a in plan.actions])  # type: ignore[attr-defined]
    for refusal in plan.refused:
        out.line(f"job {refusal.job_id} left alone: {refusal.reason}", "warning")
    out.line(f"{len(plan.actions)} jobs to restore")


def _report(out: Output, plan: Plan, receipt: Receipt | None) -> int:
    from slurmsched.cli.tick import summary
    from slurmsched.errors import SlurmRefusedError

    if out.as_json:
        jobs = [{"job_id": a.job_id, "lever": a.kind, "now": a.old, "base": a.new} for a in plan.actions]  # type: ignore[attr-defined]
        out.json({"restore": jobs, "left_alone": plan.refused, "receipt": receipt and summary(receipt)})
    if receipt is None:
        return 0
    if not out.as_json:
        out.line(f"{len(receipt.written)} restored")
    for outcome in receipt.refused:
        click.echo(f"slurmsched: job {outcome.action.job_id}: {outcome.status}: {outcome.message}", err=True)
    failed = len(receipt.written) < len(plan.actions)
    return SlurmRefusedError.exit_code if failed else 0
