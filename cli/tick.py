"""`tick`: one cycle and out, for cron."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, collect_no_garbage, complain, read_config
from slurmsched.errors import LockedError, NotLeadingError, PausedError

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.daemon.observers import Observers
    from slurmsched.model import Plan, Receipt, Snapshot

OVERLAP_S = 600.0  # a lock held for less is a slow cycle, or a daemon just started: nothing that cron should mail


@framework.examples(
    ("slurmsched tick --dry-run --verbose", "One cycle that writes nothing."),
    ("* * * * * slurm slurmsched tick", "One cycle a minute, as a line of /etc/cron.d."),
)
@framework.command("tick")
@click.option("--apply", "apply", is_flag=True, help='Write to Slurm, even if the configuration has mode = "dry-run".')
@click.option("--dry-run", is_flag=True, help="Never write to Slurm; overrides --apply and the configuration.")
@click.option("-v", "--verbose", is_flag=True, help="Also print what was done.")
def command(out: Output, apply: bool, dry_run: bool, verbose: bool) -> int:
    """Run one cycle: read, decide, write, record.

    For cron and systemd timers. Prints nothing unless something is wrong.
    """
    collect_no_garbage()
    from slurmsched.daemon.cycle_parts import paused
    from slurmsched.logs import configure

    tree = read_config()
    configure("info" if verbose else "warning", tree.log.format)
    wanted = (apply or tree.mode == "apply") and not dry_run
    held = wanted and paused(tree)
    if held and verbose:
        complain(f"paused by {tree.cycle.stop_file}; nothing is written")
    try:
        receipt = _cycle(tree, apply=wanted and not held, verbose=verbose)
    except LockedError as error:
        if verbose or error.held_s >= OVERLAP_S:
            raise
        return error.exit_code
    return PausedError.exit_code if _report(out, receipt, verbose) == 0 and held else receipt.exit_code


def _cycle(tree: Config, *, apply: bool, verbose: bool) -> Receipt:
    """One cycle under the lock. verbose: what the log has once in a daemon is logged too."""
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.daemon.lock import exclusive_lock, work_of_config

    with (
        exclusive_lock(tree.ledger.lock) as publish,
        _counted_cycle(tree, apply) as watch,
        open_cycle_parts(tree, apply=apply) as parts,
    ):
        from slurmsched.cycle import run_cycle
        from slurmsched.daemon.observers import WarningLog

        publish(work_of_config(tree, apply=apply))
        parts.need_lease()
        warning_log = WarningLog(placing=tree.placement.places) if verbose else None
        if watch is None:
            return run_cycle(parts.cluster, parts.planner, parts.store, warning_log)

        def tell(snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
            watch.done(snapshot, plan, receipt)
            if warning_log:
                warning_log(snapshot, plan, receipt)

        return run_cycle(*watch.parts(parts.cluster, parts.planner, parts.store), tell)


@contextmanager
def _counted_cycle(tree: Config, apply: bool) -> Iterator[Observers | None]:
    """Counts the cycle of the body in metrics.textfile, where there is one; nothing is served, mailed or profiled."""
    if not tree.metrics.textfile:
        yield None
        return
    from slurmsched.daemon.observers import Observers

    quiet = {
        "metrics": tree.metrics.model_copy(update={"listen": ""}), "web": type(tree.web)(),
        "idle_gpus": tree.idle_gpus.model_copy(update={"mail_command": ()}),
        "measured_use": tree.measured_use.model_copy(update={"profiles": ""}),
    }  # fmt: skip
    watch = Observers(tree.model_copy(update=quiet), apply=apply)
    try:
        yield watch
    except NotLeadingError:
        watch.ended("standby")
        raise
    except Exception:
        watch.ended("failed")
        raise


def _report(out: Output, receipt: Receipt, verbose: bool) -> int:
    """Jobs start and end all the time: that one changed before its write is nothing that cron should mail."""
    from slurmsched.planning.gate import CHANGED

    if out.as_json:
        out.json(summary(receipt), schema="tick")
    elif verbose:
        verb = "would be written" if receipt.dry_run else "written"
        out.line(f"{receipt.planned if receipt.dry_run else len(receipt.written)} of {receipt.planned} changes {verb}")
    for outcome in receipt.refused:
        if outcome.status == "refused" and (verbose or not outcome.message.startswith(CHANGED)):
            complain(f"job {outcome.action.job_id}: {outcome.status}: {outcome.message}")
    if receipt.stopped:  # by a write without an answer, too
        complain(f"writing ended early: {receipt.stopped}")
    return receipt.exit_code


def summary(receipt: Receipt) -> dict[str, object]:
    """A receipt as plain values."""
    return {
        "dry_run": receipt.dry_run,
        "planned": receipt.planned,
        "written": len(receipt.written),
        "refused": [{"job_id": o.action.job_id, "status": o.status, "message": o.message} for o in receipt.refused],
        "stopped": receipt.stopped,
        "exit_code": receipt.exit_code,
    }
