"""`undo`: every lever back to its base."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, complain
from slurmsched.cli.settings import config
from slurmsched.cli.steps import act_word, parted, print_steps, step_rows
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.db.lead import Lead
    from slurmsched.model import Plan, Receipt, Snapshot
    from slurmsched.slurm.live_cluster import LiveCluster

UNKNOWN = "what other hosts wrote is not known, see that none of them works: {}"
_GIVEN = {"pin": "node list", "retype": "request", "defer": "earliest start"}


@output.command("undo")
@click.option("--apply", "apply", is_flag=True, help="Write; without it the changes are only shown.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(out: Output, apply: bool, yes: bool) -> int:
    """Give every job its own nice, site factor, node list, request and start back; end preemptions and promises.

    Works from the journal file alone, also with the database lost, and while the stop file is there.
    Before --apply stop the daemon: it holds the lock, and its next cycle would write again.
    """
    from slurmsched.daemon.lock import exclusive, work_of
    from slurmsched.logs import configure

    tree = config()
    configure("warning", "text")  # of records that cannot be read or written; _report tells what else went wrong
    if apply and not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody here to ask: add --yes")
    with (
        exclusive(tree.ledger.lock, signed=False) if apply else nullcontext() as publish,
        _opened(tree, apply=apply) as opened,
    ):
        cluster, lead = opened
        _ = publish and publish(work_of(tree, apply=apply))
        plan = restoring(tree, cluster.read(), lead)
        receipt = None
        if not out.as_json:
            _print(out, plan, applies=apply)
        if apply and plan.actions:
            yes or click.confirm(f"{_told(plan)}?", abort=True)
            receipt = cluster.apply(plan)
        if apply and not (receipt and receipt.stopped):
            _closed(tree, cluster, lead)
    return _report(out, plan, receipt)


def _closed(tree: Config, cluster: LiveCluster, lead: Lead | None) -> None:
    """Put on record that what Slurm shows no more is over: of a preemption cut off at its end nothing else is left."""
    from dataclasses import replace

    plan = restoring(tree, cluster.read(), lead)
    over = tuple(act for act in plan.acts if act.stage == "closed")
    if over:
        cluster.apply(replace(plan, actions=(), acts=over, pins=(), deferrals=()))


@contextmanager
def _opened(tree: Config, *, apply: bool) -> Iterator[tuple[LiveCluster, Lead | None]]:
    """The cluster, and what other hosts have on record if they may write too."""
    from slurmsched.daemon.assemble import opened_lead
    from slurmsched.errors import LedgerError
    from slurmsched.slurm.open import open_live

    with ExitStack() as stack:
        lead: Lead | None = None
        try:
            offered = stack.enter_context(opened_lead(tree))
            lead = offered and _held(offered, apply=apply)
        except LedgerError as error:
            complain(UNKNOWN.format(error))
        with closing(open_live(tree, apply=apply, heed_stop=False, lead=lead)) as cluster:
            yield cluster, lead


def _held(lead: Lead, *, apply: bool) -> Lead | None:
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


def restoring(tree: Config, snapshot: Snapshot, lead: Lead | None = None) -> Plan:
    """The plan that restores every lever, node list, request and start the journal knows and takes every act back.

    Raises LedgerError if the journal cannot be read.
    """
    from dataclasses import replace

    from slurmsched.db.journal import Journal
    from slurmsched.planning.acts import taken_back
    from slurmsched.planning.deferrals import given_back as starts_back
    from slurmsched.planning.pin_records import given_back
    from slurmsched.planning.undo import undo_plan

    records = Journal(tree.ledger.journal, shared=lead.journal if lead else None).levers(lenient=True).values()
    plan = undo_plan(snapshot, sorted(records, key=lambda record: record.submit_s))
    moves = [taken_back(act, snapshot) for act in snapshot.acts]
    steps = tuple(step for move in moves for step in move.steps)
    lists = given_back(snapshot, "undo: its own node list and request")
    starts = starts_back(snapshot, "undo: its own start")
    actions = (*plan.actions, *lists.actions, *starts.actions, *steps)
    acts = tuple(move.act for move in moves)
    return replace(plan, actions=actions, acts=acts, pins=lists.pins, deferrals=starts.deferrals)


def _told(plan: Plan) -> str:
    levers, _ = parted(plan.actions)
    return f"Restore {some(len(levers), 'lever')}{_also(plan, 'end ')}"


def _also(plan: Plan, ends: str = "", after: str = "") -> str:
    """Node lists, requests, earliest starts, preemptions and promises of the plan, in words."""
    kinds = [step.kind for step in parted(plan.actions)[1]]
    told = [some(kinds.count(kind), what) for kind, what in _GIVEN.items() if kind in kinds]
    acts = Counter(act_word(act) for act in plan.acts)
    told += [f"{ends}{some(number, word)}{after}" for word, number in acts.items()]
    return "".join(f", {text}" for text in told)


def _print(out: Output, plan: Plan, *, applies: bool) -> None:
    levers, steps = parted(plan.actions)
    if levers:
        out.table(("job>", "lever", "now>", "base>"), [(a.job_id, a.kind, a.old, a.new) for a in levers])
    print_steps(out, steps)
    for refusal in plan.refused:
        out.line(f"job {refusal.job_id} left alone: {refusal.reason}", "warning")
    out.line(
        f"{some(len(levers), 'lever')} to restore"
        + _also(plan, after=" to end")
        + ("" if applies or not plan.actions else "; --apply does it")
    )


def _report(out: Output, plan: Plan, receipt: Receipt | None) -> int:
    from slurmsched.cli.tick import summary
    from slurmsched.errors import SlurmRefusedError

    if out.as_json:
        levers, steps = parted(plan.actions)
        jobs = [{"job_id": a.job_id, "lever": a.kind, "now": a.old, "base": a.new} for a in levers]
        out.json(
            {
                "restore": jobs,
                "steps": step_rows(steps),
                "left_alone": plan.refused,
                "receipt": receipt and summary(receipt),
            }
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
