"""`tick`: one cycle and out, for cron."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config
from slurmsched.errors import PausedError

if TYPE_CHECKING:
    from slurmsched.model import Receipt


CHANGED = "changed since the snapshot"  # jobs start and end all the time: nothing that cron should mail


@output.command("tick")
@click.option("--apply", "apply", is_flag=True, help='Write to Slurm even if the configuration says mode = "dry-run".')
@click.option("--dry-run", is_flag=True, help="Write nothing to Slurm, whatever else says so.")
@click.option("-v", "--verbose", is_flag=True, help="Say what was done; without it only what went wrong.")
def command(out: Output, apply: bool, dry_run: bool, verbose: bool) -> int:
    """Run one cycle: read, decide, write, remember. Quiet unless something is wrong."""
    gc.disable()  # one short process: looking for garbage while importing is a tenth of its time
    from slurmsched.daemon.assemble import assembled, paused
    from slurmsched.daemon.lock import exclusive
    from slurmsched.logs import configure

    tree = config()
    configure("info" if verbose else "warning", tree.log.format)
    wanted = (apply or tree.mode == "apply") and not dry_run
    if wanted and paused(tree):
        if verbose:
            click.echo(f"slurmsched: paused by {tree.cycle.stop_file}", err=True)
        return PausedError.exit_code
    with exclusive(tree.ledger.lock), assembled(tree, apply=wanted) as parts:
        from slurmsched.cycle import run_cycle

        receipt = run_cycle(parts.cluster, parts.planner, parts.store)
    gc.freeze()  # nor at exit, where that would be another tenth
    return _report(out, receipt, verbose)


def _report(out: Output, receipt: Receipt, verbose: bool) -> int:
    if out.as_json:
        out.json(summary(receipt))
    elif verbose:
        verb = "would be written" if receipt.dry_run else "written"
        out.line(f"{receipt.planned if receipt.dry_run else len(receipt.written)} of {receipt.planned} changes {verb}")
    for outcome in receipt.refused:
        if verbose or not outcome.message.startswith(CHANGED):
            click.echo(f"slurmsched: job {outcome.action.job_id}: {outcome.status}: {outcome.message}", err=True)
    return 0  # why writing ended early is in the log


def summary(receipt: Receipt) -> dict[str, object]:
    """A receipt as plain values."""
    return {
        "dry_run": receipt.dry_run,
        "planned": receipt.planned,
        "written": len(receipt.written),
        "refused": [{"job_id": o.action.job_id, "status": o.status, "message": o.message} for o in receipt.refused],
        "stopped": receipt.stopped,
    }
