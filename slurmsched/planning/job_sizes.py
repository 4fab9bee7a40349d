"""Writes the number of GPUs that the policy chose (`JobChanges.gpus`) into requests of pending jobs, within their
hints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import JobReportsConfig, LeverConfig, ScopeConfig
from slurmsched.model import AskSize, Jobs, Ranking, Refusal, Rights, SetSize, ShrinkJob, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.gpu_selection import counted, nodes_of_size, request_of_size, size_text
from slurmsched.model.hints import hint_column
from slurmsched.plain_text import pluralize
from slurmsched.planning import job_scope as jobs_of
from slurmsched.planning.earliest_starts import own_starts
from slurmsched.planning.job_overrides import (
    SIZE_FIELDS,
    JobOverrides,
    by_job,
    left_alone,
    on_record,
    records_of,
    restore_proposal,
    restore_steps,
    set_size,
    settled_size,
    size_of,
    untouched,
)
from slurmsched.planning.operations.victims import restart_costs_s
from slurmsched.planning.proposals import Budget, Lever, Proposal, Records
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.free import FreeResources, JobRequirements, share_on_node
from slurmsched.resources.partition_limits import limit_classes
from slurmsched.resources.reservation_limits import UnknownEligibility, reservation_classes
from slurmsched.resources.startable_jobs import startable, waits_for_nodes_alone

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner

SizeChange = tuple[SetSize, Records]
_EXTENT_LIMIT = re.compile(r"(?:Assoc|QOS)\w*(?:Node|Cpu)|PartitionNodeLimit")
_NO_SHRINK = "disable_job_shrink"  # of SchedulerParameters
MOST_WAITING = 200  # jobs that nodes of running ones are offered to in a cycle, the most urgent first
_LIMIT = "it waits for a limit that its own request may meet"


@dataclass(frozen=True, slots=True)
class SizeLever(Lever):
    """Writes the number of GPUs; sizes on record go back also after the lever is turned off."""

    config: LeverConfig
    scope: ScopeConfig

    @classmethod
    def of(cls, planner: Planner) -> SizeLever:
        return cls(planner.lever, planner.scope)

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        return own_sizes(snapshot)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if snapshot.site.rights < Rights.OPERATOR:
            return Proposal()
        return sizes(snapshot, ranking, budget.jobs, self.config, self.scope, budget.writes)

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return restore_proposal(snapshot, SIZE_FIELDS, "undo: its own request")

    settled = staticmethod(settled_size)


def own_sizes(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which pending jobs ask for as many GPUs as their users did. This is the policy's input."""
    active, _, _ = on_record(snapshot, SIZE_FIELDS)
    if not active:
        return snapshot
    jobs = snapshot.jobs
    columns = {name: getattr(jobs, name).copy() for name in ("gpus", "nodes", "tasks", "cpus")}
    requests = list(jobs.gpu_request)
    for row, size in active.items():
        own = set_size(snapshot, row, "", str(size.request.base), str(size.request.base))
        columns["gpus"][row], requests[row] = counted(own.new), request_of_size(own.new)
        if own.scales:
            for name in ("tasks", "cpus"):
                columns[name][row] = own.scaled(int(columns[name][row]))
            columns["nodes"][row] = nodes_of_size(own.new)
    return replace(snapshot, jobs=jobs.with_columns(**columns, gpu_request=Labels.of(requests)))


def sizes(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: LeverConfig, scope: ScopeConfig, most: int = 500
) -> Proposal:
    """Requests to give, to change and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    Only jobs with both hints, min_gpus and max_gpus, get another size, and only one for which their nodes have room. A
    job that is to grow beyond that gets what they have. A size that does not divide evenly over a job's nodes or tasks
    becomes the next smaller one that does. A job with an operation under way, or with a node list or Type on record, is
    not changed. Own requests are restored first, then sizes are changed, then new ones are written, most urgent first.
    """
    active, _, changed = on_record(snapshot, SIZE_FIELDS)
    others = untouched(snapshot, but=SIZE_FIELDS)
    active = {row: _limited(snapshot, row, size) for row, size in active.items() if not others[row]}
    base = own_sizes(own_starts(snapshot))
    known = by_job(snapshot.overrides, SIZE_FIELDS)
    over = others | left_alone(snapshot.jobs, (*known, *changed, *active.values()))
    wanted, refused = _wanted_requests(base, ranking, managed & ~over, scope) if lever.size else ({}, ())
    new = {row: request for row, request in wanted.items() if row not in active}
    changes = [
        *_changed(snapshot, active, wanted),
        *(_change_of(snapshot, row, request, None) for row, request in new.items()),
    ]
    return Proposal.of_changes(changes, most, records_of(changed), refused)


def _wanted_requests(
    base: Snapshot, ranking: Ranking, managed: Bools, scope: ScopeConfig
) -> tuple[dict[int, str], tuple[Refusal, ...]]:
    """Requests of the jobs that are to have another size than they ask for, by row, most urgent first; and why others
    are not."""
    jobs = base.jobs
    gpus = jobs_of.policy_gpus(ranking, jobs)
    again = _asked_and_requeued(jobs) & (gpus == 0)
    gpus = _whole_per_task(jobs, np.where(again, jobs.wanted_gpus, gpus))
    if not gpus.any():
        return {}, ()
    asked = managed & (startable(base) | again) & (gpus > 0) & (gpus != jobs.gpus) & _within_hints(jobs, gpus)
    asked &= ~((gpus > jobs.gpus) & _at_limit(jobs))
    asked &= (jobs.cpus >= jobs.tasks) | (jobs.cpus == 0)  # else Slurm shows the nodes that its last run leaves
    verdict = np.where(asked, jobs_of.size_verdicts(jobs, scope), -1).astype(np.int8)
    rows = ranking.order[(asked & (verdict < 0))[ranking.order]].tolist()
    room = _with_room(base, gpus, rows)
    found = {row: _sized(jobs, row, has) for row, has in room.items() if has not in (0, jobs.gpus[row])}
    small = (Refusal(int(jobs.job_id[row]), "size-room",
                     f"{'no node that it may have has' if jobs.nodes[row] == 1 else 'its nodes do not have'} "
                     f"{pluralize(gpus[row], 'GPU')}") for row in rows if row not in found)  # fmt: skip
    return found, (*jobs_of.refusals(base, verdict, jobs_of.SIZE_RULES), *small)


def _whole_per_task(jobs: Jobs, gpus: Int64s) -> Int64s:
    """The largest number of GPUs up to this one that is a whole number of each job's nodes or tasks. (N,)."""
    units = jobs_of.size_units(jobs)
    found: Int64s = gpus // units * units
    return found


def _sized(jobs: Jobs, row: int, gpus: int) -> str:
    """What the job asks for with that many GPUs, as gpu_selection.size_text."""
    request = f"{jobs.gpu_request[row].rpartition(':')[0]}:{gpus}"
    nodes = int(jobs.nodes[row])
    return size_text(request, jobs.gpus_by[row], gpus * nodes // int(jobs.gpus[row]) if nodes > 1 else 1)


def _within_hints(jobs: Jobs, gpus: Int64s) -> Bools:
    """Whether a job's hints allow that many GPUs; not without both of them. (N,) bool."""
    found: Bools = (gpus >= hint_column(jobs, "min_gpus")) & (gpus <= hint_column(jobs, "max_gpus"))  # NaN: no hint
    return found


def _asked_and_requeued(jobs: Jobs) -> Bools:
    """Jobs that went back to the queue after they were asked for another size, and wait for their begin time. They get
    it now: Slurm may start them before the next cycle. (N,) bool."""
    return jobs.pending & ~jobs.held & (jobs.restarts > 0) & (jobs.wanted_gpus > 0) & jobs.dependency.isin([""])


@dataclass(frozen=True, slots=True)
class ShrinkLever(Lever):
    """Takes nodes from running jobs that agreed to lose some. A requeue gives them all again: undo has nothing to do.

    restart_cost_s: of a job without the hint and without measured restarts [s].
    most: jobs that lose nodes in a cycle.
    """

    reports: JobReportsConfig
    scope: ScopeConfig
    restart_cost_s: float = 0.0
    most: int = 4

    @classmethod
    def of(cls, planner: Planner) -> ShrinkLever:
        return cls(
            planner.reports, planner.scope, planner.preemption.restart_cost_s, planner.operations_config.per_cycle
        )

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        options = snapshot.site.settings.get("SchedulerParameters", "")
        if snapshot.site.rights < Rights.OPERATOR or _NO_SHRINK in options:
            return Proposal()
        jobs, (rows, refused) = snapshot.jobs, self._shrinkable(snapshot, ranking, _in_operations(snapshot, budget))
        steps = [ShrinkJob(*jobs.id_and_submit(row), _ask_reason(jobs, row, gpus), f"shrink-{jobs.job_id[row]}",
                           gpus * int(jobs.nodes[row]) // int(jobs.gpus[row]), int(jobs.nodes[row]), gpus,
                           int(jobs.restarts[row])) for row, gpus in rows.items()]  # fmt: skip
        most = max(min(budget.writes, self.most), 0)
        return Proposal(
            tuple(steps[:most]), refusals=refused, postponed=tuple(action.job_id for action in steps[most:])
        )

    def _shrinkable(
        self, snapshot: Snapshot, ranking: Ranking, in_operations: Sequence[int]
    ) -> tuple[dict[int, int], tuple[Refusal, ...]]:
        """GPUs that running jobs are to keep, in whole nodes, by row, least urgent first; and why others keep theirs.

        A job is looked at if it meets all of these:

        - It has several nodes, and the hints shrink=yes and min_gpus.
        - Slurm may not requeue it. A requeued job could wait with fewer tasks than its user asked for.
        - The policy gives it fewer GPUs, and its size may change.
        - It has run for reports.least_run_s.
        - A waiting job can use the nodes.
        - It has more to run than a restart costs. Else to go on with fewer GPUs costs it as much.

        in_operations: ids of jobs that a preemption or gang reservation concerns.
        """
        jobs = snapshot.jobs
        gpus = _whole_per_task(jobs, jobs_of.policy_gpus(ranking, jobs))
        asked = jobs.running & ~jobs.requeueable & (jobs.nodes > 1) & (hint_column(jobs, "shrink") == 1)
        asked &= jobs_of.scoped(jobs, self.scope) & (gpus < jobs.gpus) & (gpus >= hint_column(jobs, "min_gpus"))
        asked &= (jobs.run_s >= self.reports.least_run_s) & ~np.isin(jobs.job_id, in_operations)
        asked &= _remaining_s(jobs) > restart_costs_s(jobs, self.restart_cost_s)
        by_node = jobs.with_columns(tasks=jobs.nodes, cpus=jobs.nodes)  # Slurm takes nodes, whatever runs on them
        verdict = np.where(asked, jobs_of.size_verdicts(by_node, self.scope), -1).astype(np.int8)
        rows = ranking.order[(asked & (verdict < 0))[ranking.order]][::-1].tolist()
        useful = _useful(snapshot, ranking, {row: int(gpus[row] * jobs.nodes[row] // jobs.gpus[row]) for row in rows})
        return (
            {row: int(gpus[row]) for row in rows if row in useful},
            jobs_of.refusals(snapshot, verdict, jobs_of.SIZE_RULES),
        )


def _in_operations(snapshot: Snapshot, budget: Budget) -> list[int]:
    """Ids of the jobs of operations that are under way or begin in this cycle, and of their victims."""
    begun = budget.proposals["operation"].operations if "operation" in budget.proposals else ()
    return [*budget.changed_by("operation"), *(each for operation in (*snapshot.operations, *begun)
            for each in (operation.job_id, *(victim.job_id for victim in operation.victims)))]  # fmt: skip


def _useful(snapshot: Snapshot, ranking: Ranking, keeps: dict[int, int]) -> set[int]:
    """Which of these jobs have a node to give back that a waiting job needs to start now. keeps: nodes that each is to
    keep, by row. Waiting jobs take nodes in the order of the ranking, free ones first."""
    if not keeps:
        return set()
    free, allocated, owner = FreeResources.of(snapshot), AllocatedGpus.of(snapshot), dict[int, int]()
    for row, nodes in keeps.items():
        for node in allocated.nodes(row)[nodes:]:
            gpus, cpus, memory_mib = share_on_node(snapshot, allocated, row, node)
            free.gpus[node] += gpus
            free.cpus[node] += int(cpus)
            free.memory_mib[node] += memory_mib
            free.types.give(int(snapshot.jobs.job_id[row]), node)
            owner[node] = row
    found, waits = set[int](), startable(snapshot) & waits_for_nodes_alone(snapshot) & (snapshot.jobs.gpus > 0)
    for row in ranking.order[waits[ranking.order]][:MOST_WAITING].tolist():
        need = JobRequirements.of(snapshot, row)
        try:
            fits = np.flatnonzero(allowed_nodes(snapshot, row, sized=False) & free.seen_by(need).fits(need)).tolist()
        except UnknownEligibility:
            continue
        if len(fits) >= need.nodes:
            takes = sorted(fits, key=lambda node: node in owner)[: need.nodes]
            free.take(np.array(takes, np.int64), need)
            found |= {owner[node] for node in takes if node in owner}
    return found


@dataclass(frozen=True, slots=True)
class RunningSizeLever(Lever):
    """Asks running jobs to change to the number of GPUs that the policy gives them. Nothing is written to Slurm.

    restart_cost_s: of a job without the hint and without measured restarts [s].
    most: jobs that are asked anew in a cycle.
    """

    reports: JobReportsConfig
    scope: ScopeConfig
    restart_cost_s: float = 0.0
    most: int = 4

    @classmethod
    def of(cls, planner: Planner) -> RunningSizeLever:
        return cls(
            planner.reports, planner.scope, planner.preemption.restart_cost_s, planner.operations_config.per_cycle
        )

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        jobs = snapshot.jobs
        wanted = running_sizes(snapshot, ranking, self.reports, self.scope, self.restart_cost_s, self.most)
        asks = [AskSize(*jobs.id_and_submit(row), _ask_reason(jobs, row, gpus), f"want-{jobs.job_id[row]}", gpus,
                        int(jobs.restarts[row])) for row, gpus in wanted.items()]  # fmt: skip
        sent, later = asks[: max(budget.writes, 0)], asks[max(budget.writes, 0) :]
        return Proposal(tuple(sent), postponed=tuple(action.job_id for action in later))

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        """Withdraws all requests for another size, whoever made them."""
        jobs, why = snapshot.jobs, "undo: no other size is wanted of it"
        rows = np.flatnonzero(jobs.wanted_gpus > 0).tolist()
        return Proposal(tuple(AskSize(*jobs.id_and_submit(row), why, f"want-{jobs.job_id[row]}") for row in rows))


def _ask_reason(jobs: Jobs, row: int, gpus: int) -> str:
    has = pluralize(int(jobs.gpus[row]), "GPU")
    return (
        f"the policy wants it on {gpus} of the GPUs that its hints allow; it has {has}"
        if gpus
        else (f"the policy wants it on {has} as it is")
    )


def running_sizes(
    snapshot: Snapshot, ranking: Ranking, reports: JobReportsConfig, scope: ScopeConfig, restart_cost_s: float = 0.0,
    most: int = 4,
) -> dict[int, int]:  # fmt: skip
    """GPUs that running jobs are to be asked to change to, by row, most urgent first; 0 = what was asked holds no more.
    Only what differs from what they were asked before.

    Of batch jobs in scope that Slurm may requeue, whose size may change, and that have run for reports.least_run_s. A
    job is asked to grow only if that saves it more than a restart costs, as far as its progress is known. It is asked
    for no more GPUs than its nodes have.
    restart_cost_s: of a job without the hint and without measured restarts [s]. most: jobs that are asked anew.
    """
    jobs = snapshot.jobs
    gpus = _whole_per_task(jobs, jobs_of.policy_gpus(ranking, jobs))
    may = jobs.running & jobs.batch & jobs.requeueable & jobs_of.scoped(jobs, scope) & (jobs.gpus > 0)
    may &= jobs_of.size_verdicts(jobs, scope) < 0  # else it would come back as it was
    ask = may & (gpus > 0) & (gpus != jobs.gpus) & _within_hints(jobs, gpus) & (jobs.run_s >= reports.least_run_s)
    room = _with_room(snapshot, gpus, np.flatnonzero(ask).tolist())
    gpus[list(room)] = list(room.values())  # 0 without room: it would come back as it was
    ask &= (gpus < jobs.gpus) | (_saved_s(jobs, gpus) > restart_costs_s(jobs, restart_cost_s))
    wanted = np.where(ask & (gpus != jobs.gpus), gpus, 0)
    changed = may & (wanted != jobs.wanted_gpus) & ((wanted > 0) | (gpus == jobs.gpus))
    rows = ranking.order[changed[ranking.order]]
    new = [row for row in rows.tolist() if wanted[row]][: max(most, 0)]
    return {row: int(wanted[row]) for row in (*rows[wanted[rows] == 0].tolist(), *new)}


def _saved_s(jobs: Jobs, gpus: Int64s) -> Floats:
    """Run time that each job would save at most on this number of GPUs [s]; infinite if its progress is unknown.
    (N,)."""
    with np.errstate(invalid="ignore"):
        saved: Floats = _remaining_s(jobs) * (1.0 - jobs.gpus / np.maximum(gpus, 1))
    return np.where(np.isnan(saved), np.inf, saved)


def _remaining_s(jobs: Jobs) -> Floats:
    """Run time that is left to each job as it is, by its progress [s]; infinite where that is unknown. (N,)."""
    progress = hint_column(jobs, "progress")
    with np.errstate(divide="ignore", invalid="ignore"):
        remaining: Floats = np.maximum(jobs.executed_s, jobs.run_s) * (1.0 - progress) / progress
    return np.where(np.isnan(remaining), np.inf, remaining)


def _with_room(base: Snapshot, gpus: Int64s, rows: Sequence[int]) -> dict[int, int]:
    """The sizes for which the nodes of these jobs have room, by row; 0 for none. gpus: (N,) wanted.

    A job that is to grow beyond what they have gets all of it, if that is at least its own number and its min_gpus.
    """
    least, found = np.fmax(hint_column(base.jobs, "min_gpus"), base.jobs.gpus), dict[int, int]()
    for row, most in _most_gpus(base, rows).items():
        has = min(int(gpus[row]), most)
        found[row] = has if has == gpus[row] or has >= least[row] else 0
    return found


def _most_gpus(base: Snapshot, rows: Sequence[int]) -> dict[int, int]:
    """Most GPUs that each of these jobs may have, by row; 0 if that is not known.

    It is the most GPUs of an open node, or of as many nodes as there are, with the job's CPUs and memory. The job's
    partition counts as up. Slurm takes any number.
    """
    jobs, parts = base.jobs, base.partitions
    up = replace(base, partitions=parts.with_columns(up=np.ones(len(parts), np.bool_)))
    texts = (jobs.partition, jobs.gpu_request, jobs.features_asked, jobs.nodes_asked, jobs.nodes_excluded,
             jobs.reservation, jobs.gpus_by)  # fmt: skip
    numbers: tuple[NDArray[Any], ...] = (
        jobs.cpus, jobs.memory_mib, jobs.nodes, jobs.tasks, jobs.gpus, jobs.exclusive, *limit_classes(up),
        *reservation_classes(up),
    )  # fmt: skip
    known: dict[tuple[object, ...], int] = {}
    found = {}
    for row in rows:
        key = (*(text[row] for text in texts), *(float(column[row]) for column in numbers))
        if key not in known:
            known[key] = _most(up, row)
        found[row] = known[key]
    return found


def _most(base: Snapshot, row: int) -> int:
    jobs, nodes = base.jobs, base.nodes
    # Empty nodes with room for its CPUs and memory.
    with_room = replace(JobRequirements.of(base, row), gpus=np.zeros(len(nodes), np.int64)).fits_empty(base)
    try:
        allowed = allowed_nodes(base, row, sized=False) & with_room
    except UnknownEligibility:
        return 0
    unit = int(jobs_of.size_units(jobs)[row])
    if jobs.nodes[row] > 1:  # each node has as many
        return unit * int((allowed & (nodes.gpus >= unit)).sum())
    if jobs.gpus_by[row] == "task":  # each task has its CPUs, too
        by_cpus = nodes.cpus // max(int(jobs.cpus[row]) // max(int(jobs.tasks[row]), 1), 1)
        return unit * int(np.minimum(nodes.gpus // unit, by_cpus)[allowed].max(initial=0))
    return int(nodes.gpus[allowed].max(initial=0))


def _changed(snapshot: Snapshot, active: dict[int, JobOverrides], wanted: dict[int, str]) -> list[SizeChange]:
    """Changes of the sizes that slurmsched wrote: own requests restored, then other sizes."""
    rows = sorted(active, key=lambda row: row in wanted)
    changes = [
        _change_of(snapshot, row, wanted[row], active[row]) if row in wanted else _restore(snapshot, row, active[row])
        for row in rows
    ]
    return [change for change in changes if change[0].new != change[0].old]


def _limited(snapshot: Snapshot, row: int, size: JobOverrides) -> JobOverrides:
    """The override, abandoned if its size may be why the job waits for a limit: Slurm checks none when an Operator
    writes."""
    reason, more = snapshot.jobs.reason[row], counted(str(size.request.sent)) > counted(str(size.request.base))
    limit = _at_limit(snapshot.jobs)[row] if more else "MinGRES" in reason
    return size.left_to_slurm(_LIMIT) if limit and not size.abandoned else size


def _at_limit(jobs: Jobs) -> Bools:
    """Whether Slurm says that an association or QOS lets a job have no more GPUs, such as QOSMaxGRESPerUser; or no more
    nodes or CPUs, of a job that gets those with its GPUs. (N,) bool."""
    by_gpus = jobs.reason.map(lambda reason: "GRES" in reason or "Billing" in reason, np.bool_)
    by_extent = jobs.reason.map(lambda reason: _EXTENT_LIMIT.match(reason) is not None, np.bool_)
    found: Bools = by_gpus | (by_extent & ((jobs.nodes > 1) | jobs.gpus_by.isin(["task"])))
    return found


def _restore(snapshot: Snapshot, row: int, size: JobOverrides) -> SizeChange:
    note = size.note if size.abandoned else "the policy wants it as it asks"
    (step,), own = restore_steps(snapshot, row, size, note, abandoned=size.abandoned)
    assert isinstance(step, SetSize)
    return step, own.records


def _change_of(snapshot: Snapshot, row: int, request: str, before: JobOverrides | None) -> SizeChange:
    """The write, and the override that still knows of the requests before."""
    key, has = snapshot.jobs.id_and_submit(row), size_of(snapshot.jobs, row)
    size = before or JobOverrides.blank(SIZE_FIELDS, *key, snapshot.now_s).with_request(base=has, sent=has)
    why = f"the policy wants it on {counted(request)} of the GPUs that its hints allow"
    step = set_size(snapshot, row, why, request, str(size.request.base))
    return step, (size.request.given(request, snapshot.now_s),)
