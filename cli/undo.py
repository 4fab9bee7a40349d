"""`undo`: every lever back to its base."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, complain, read_config
from slurmsched.cli.listing import operation_word, print_steps
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.db.leader_lease import LeaderFiles
    from slurmsched.model import Plan, Receipt
    from slurmsched.slurm.live_cluster import LiveCluster

UNKNOWN = "the writes of other hosts are unknown; make sure that no other host runs slurmsched: {}"
_GIVEN = {
    "pin": "node list",
    "retype": "request",
    "defer": "earliest start",
    "cpus": "number of CPUs",
    "memory": "amount of memory",
    "comment": "AdminComment",
    "want": "asked size",
}
_MANY = {"cpus": "numbers of CPUs", "memory": "amounts of memory"}


@framework.examples(
    ("slurmsched undo", "Show what would be restored."), ("slurmsched undo --apply --yes", "Restore it without asking.")
)
@framework.command("undo")
@click.option("--apply", "apply", is_flag=True, help="Write to Slurm; otherwise the changes are only shown.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(out: Output, apply: bool, yes: bool) -> int:
    """Restore all values in Slurm that slurmsched has changed.

    Restores nice, site factor, node list, request, CPUs, memory and earliest start of each job, and empties its
    AdminComment if slurmsched wrote it. Ends preemptions and reservations. Withdraws requests for another size.

    Needs only the journal file; works without the database and while the stop file exists. Stop the daemon
    before --apply: it holds the lock, and its next cycle would write again.
    """
    from slurmsched.daemon.cycle_parts import record_ended_operations, restoring_plan
    from slurmsched.daemon.lock import exclusive_lock, work_of_config
    from slurmsched.logs import configure

    tree = read_config(plugins=False)
    configure("warning", "text")  # of records that cannot be read or written; _report tells what else went wrong
    if apply and not yes and not sys.stdin.isatty():
        raise click.UsageError("no terminal to confirm on; pass --yes")
    with (
        exclusive_lock(tree.ledger.lock, signed=False) if apply else nullcontext() as publish,
        _opened_cluster(tree, apply=apply) as opened,
    ):
        cluster, lead = opened
        _ = publish and publish(work_of_config(tree, apply=apply))
        plan = restoring_plan(tree, cluster.read(), lead)
        receipt = None
        if not out.as_json:
            _print(out, plan, applies=apply)
        if apply and plan.actions:
            yes or click.confirm(f"{_question(plan)}?", abort=True)
            receipt = cluster.apply(plan)
        if apply and not (receipt and receipt.stopped):
            record_ended_operations(tree, cluster, lead)
    return _report(out, plan, receipt)


@contextmanager
def _opened_cluster(tree: Config, *, apply: bool) -> Iterator[tuple[LiveCluster, LeaderFiles | None]]:
    """The cluster, and what other hosts have on record if they may write too."""
    from slurmsched.daemon.cycle_parts import open_leadership
    from slurmsched.errors import LedgerError
    from slurmsched.slurm.open_cluster import open_live

    with ExitStack() as stack:
        lead: LeaderFiles | None = None
        try:
            offered = stack.enter_context(open_leadership(tree))
            lead = offered and _with_lease(offered, apply=apply)
        except LedgerError as error:
            complain(UNKNOWN.format(error))
        with closing(open_live(tree, apply=apply, heed_stop=False, lead=lead)) as cluster:
            yield cluster, lead


def _with_lease(lead: LeaderFiles, *, apply: bool) -> LeaderFiles | None:
    """The lease, taken if it is needed; None, with a warning, where the database is lost: then our own journal counts.

    Raises NotLeadingError while another host leads.
    """
    from slurmsched.errors import LedgerError

    try:
        if apply and not lead.lease.take():
            raise lead.lease.lost()
        lead.lease.leader()
    except LedgerError as error:
        complain(UNKNOWN.format(error))
        return None
    return lead


def _question(plan: Plan) -> str:
    return f"Restore {pluralize(len(plan.priority_changes), 'lever')}{_also(plan, 'end ')}"


def _also(plan: Plan, ends: str = "", after: str = "") -> str:
    """What else the plan gives back, and the operations that it ends, as text."""
    kinds = [step.kind for step in plan.steps]
    phrases = [
        pluralize(kinds.count(kind), what, _MANY.get(kind, "")) for kind, what in _GIVEN.items() if kind in kinds
    ]
    operations = Counter(operation_word(operation) for operation in plan.operations)
    phrases += [f"{ends}{pluralize(number, word)}{after}" for word, number in operations.items()]
    return "".join(f", {text}" for text in phrases)


def _print(out: Output, plan: Plan, *, applies: bool) -> None:
    levers = plan.priority_changes
    if levers:
        out.table(("job>", "lever", "now>", "base>"), [(a.job_id, a.kind, a.old, a.new) for a in levers])
    print_steps(out, plan.steps)
    for refusal in plan.refused:
        out.line(f"job {refusal.job_id} left alone: {refusal.reason}", "warning")
    out.line(
        f"{pluralize(len(levers), 'lever')} to restore"
        + _also(plan, after=" to end")
        + ("" if applies or not plan.actions else "; --apply does it")
    )


def _report(out: Output, plan: Plan, receipt: Receipt | None) -> int:
    from slurmsched.cli.tick import summary
    from slurmsched.errors import SlurmRefusedError

    if out.as_json:
        from slurmsched.observe.queue_rows import step_records

        jobs = [{"job_id": a.job_id, "lever": a.kind, "now": a.old, "base": a.new} for a in plan.priority_changes]
        out.json(
            {
                "restore": jobs,
                "steps": step_records(plan.steps),
                "left_alone": plan.refused,
                "receipt": receipt and summary(receipt),
            },
            schema="undo",
        )
    if receipt is None:
        return 0
    if not out.as_json:
        out.line(f"{len(receipt.written)} of {len(plan.actions)} written")
    for outcome in receipt.refused:
        complain(f"job {outcome.action.job_id}: {outcome.status}: {outcome.message}")
    if receipt.stopped:
        complain(f"writing ended early: {receipt.stopped}")
    failed = len(receipt.written) < len(plan.actions)
    return receipt.exit_code or (SlurmRefusedError.exit_code if failed else 0)
