"""CPUs and memory of pending jobs, within their hints: less where that alone keeps them from free GPUs, and more CPUs
where no free GPU needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.model import Outcome, Override, OverrideState, Ranking, Rights, SetCpus, SetMemory, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column
from slurmsched.planning.gate import CHANGED, FOREIGN_FIELD, MIB_OF_GIB
from slurmsched.planning.job_overrides import left_alone, of_field, of_pending, untouched
from slurmsched.planning.proposals import Budget, Lever, Proposal, Records
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.startable_jobs import not_waiting_for_gpus, startable

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner

MOST_JOBS = 500  # waiting jobs considered in a cycle, the most urgent first
_LIMIT = "it waits for a limit that its own {} may meet"
ResourceChange = tuple[SetCpus | SetMemory, Records]


@dataclass(frozen=True, slots=True)
class HostResource:
    """What a lever changes of a job.

    step: the action.
    column: of jobs, and of JobRequest.
    least: name of the hint.
    most: name of the hint; "" if the amount only goes down.
    unit: of a hint, in that of the column.
    words: name of the resource for people.
    too_few: parts of Slurm's reasons, in lower case, of a job that may wait for having less.
    too_many: the same for having more.
    """

    step: type[SetCpus] | type[SetMemory]
    column: str
    least: str
    most: str
    unit: float
    words: str
    too_few: tuple[str, ...]
    too_many: tuple[str, ...] = ()

    def of(self, snapshot: Snapshot) -> Int64s:
        """What each job asks for. (N,)."""
        return getattr(snapshot.jobs, self.column).astype(np.int64)  # type: ignore[no-any-return]

    def hint(self, snapshot: Snapshot, name: str) -> Floats:
        """A hint of each job, NaN = not given. (N,)."""
        return hint_column(snapshot.jobs, name) * self.unit if name else np.full(len(snapshot.jobs), np.nan)


CPUS = HostResource(SetCpus, "cpus", "min_cpus", "max_cpus", 1.0, "CPUs", ("mincpu", "minbilling"),
                    ("maxcpu", "grpcpu", "maxbilling", "grpbilling"))  # fmt: skip
MEMORY = HostResource(SetMemory, "memory_mib", "min_mem", "", MIB_OF_GIB, "MiB", ("minmem",))


@dataclass(frozen=True, slots=True)
class CpuLever(Lever):
    """Writes the number of CPUs; numbers on record go back also after the lever is turned off.

    Source: that a job with fewer CPUs now may be better than one that waits beside idle GPUs is of Mohan et al.
    (Synergy), OSDI '22. That only pending jobs change, and by their hints, is ours.
    """

    resource: ClassVar[HostResource] = CPUS
    others: ClassVar[tuple[str, ...]] = ("start", "size")  # levers whose jobs it leaves alone

    config: LeverConfig

    @classmethod
    def of(cls, planner: Planner) -> CpuLever:
        return cls(planner.lever)

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        return own_request(snapshot, self.resource)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if snapshot.site.rights < Rights.OPERATOR:
            return Proposal()
        free = budget.without(budget.changed_by(*self.others), snapshot.jobs.job_id)
        on = self.config.cpus if self.resource is CPUS else self.config.memory
        return resource_changes(snapshot, ranking, free, self.resource, on, budget.writes)

    @classmethod
    def restore(cls, snapshot: Snapshot) -> Proposal:
        what = cls.resource
        active, changed = _on_record(snapshot, what)
        note = f"undo: its own {what.words}"
        changes = [_restore(snapshot, row, what, replace(record, state=OverrideState.ACTIVE), note)
                 for row, record in active.items()]  # fmt: skip
        return Proposal.of_changes(changes, changed=changed)

    @staticmethod
    def settled(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
        """As of any lever, but a number that is refused is not tried again until the job comes back.

        What is in force after that the next look tells; a job that was not written has its own. Once Slurm took a
        number, its user's own is not among the possible ones any more. Earlier ones of ours are: a write without an
        answer may arrive after it. A job that somebody else changed is not written to.
        """
        (record,) = planned
        if not answers or answers[-1].status == "unknown":
            return Lever.settled(planned, before, answers, steps)
        answer = answers[-1]
        refused, why = answer.status == "refused", answer.message
        if record.open and not refused:
            return (record.answered(),)
        if record.open and any(each.unanswered for each in before):
            return before  # an earlier write may still arrive
        if record.open and why.startswith(CHANGED):
            return tuple(replace(each, state=OverrideState.ABANDONED, note=why) for each in before) or (
                record.closed(why, abandoned=True),
            )
        if record.open:
            return (replace(record, state=OverrideState.ABANDONED, note=why),)
        if (isinstance(answer.action, SetCpus) and answer.action.omitted) or why.startswith(FOREIGN_FIELD):
            return (record.closed(_foreign(record.field), abandoned=True),)
        return Lever.settled_restore(planned, answers, steps)


@dataclass(frozen=True, slots=True)
class MemoryLever(CpuLever):
    """Writes the memory of the one node of a job; amounts on record go back also after the lever is turned off."""

    resource: ClassVar[HostResource] = MEMORY
    others: ClassVar[tuple[str, ...]] = ("start", "size", "cpus")


def own_request(snapshot: Snapshot, what: HostResource) -> Snapshot:
    """The snapshot in which pending jobs ask for what their users say: what a policy looks at."""
    active, _ = _on_record(snapshot, what)
    if not active:
        return snapshot
    amount = getattr(snapshot.jobs, what.column).copy()
    for row, record in active.items():
        amount[row] = int(record.base)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(**{what.column: amount}))


def resource_changes(
    snapshot: Snapshot, ranking: Ranking, managed: Bools, what: HostResource, on: bool, most: int = 500
) -> Proposal:
    """Amounts to give, to change and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    Less: for jobs of one node that have the hint for the least, and find no node with all that they ask for free. Some
    node must have the rest and at least that. Each is given as much as one of these nodes has.

    More: for jobs that have the hint for the most, where a node has more than its free GPUs and waiting jobs need.

    An amount on record that still fits stays. A job with an operation under way, or with another request of ours, is
    not changed.
    """
    (active, changed), records = _on_record(snapshot, what), of_field(snapshot.overrides, what.step.field)
    others = untouched(snapshot, but=(what.step.field,))
    active = {row: _limited(snapshot, row, what, record) for row, record in active.items() if not others[row]}
    alone = left_alone(snapshot.jobs, (*records, *changed, *active.values())) | others
    wanted = _wanted(own_request(snapshot, what), ranking, managed & ~alone, what, active) if on else {}
    suits = f"its own {what.words} suit it now"
    back = [_restore(snapshot, row, what, record, record.note if record.abandoned else suits)
            for row, record in active.items() if row not in wanted]  # fmt: skip
    given = [_change_of(snapshot, row, what, amount, active.get(row)) for row, amount in wanted.items()]
    changes = [change for change in (*back, *given) if change[0].new != change[0].old]
    return Proposal.of_changes(changes, most, changed)


def _wanted(
    base: Snapshot, ranking: Ranking, free: Bools, what: HostResource, active: dict[int, Override]
) -> dict[int, int]:
    """Amounts of the jobs that are to have another one than they ask for, by row, most urgent first."""
    jobs, own = base.jobs, what.of(base)
    least, most = what.hint(base, what.least), what.hint(base, what.most)
    waits = startable(base) & (jobs.gpus > 0)
    asked = free & waits & ((least < own) | (most > own))  # NaN: no hint
    asked &= (jobs.array_job_id == 0) & (jobs.het_job_id == 0) & (jobs.nodes == 1) & ~jobs.exclusive
    if not asked.any():
        return {}
    walk = asked | (waits & ~not_waiting_for_gpus(jobs))
    rows, room, found = (
        ranking.order[walk[ranking.order]][:MOST_JOBS].tolist(),
        RemainingRoom(base, what),
        dict[int, int](),
    )
    for row in rows:
        if asked[row]:
            low = own[row] if np.isnan(least[row]) else min(int(least[row]), own[row])
            found[row] = room.take(
                row, int(low), int(active[row].sent) if row in active else 0, more=most[row] > own[row]
            )
        else:
            room.take_own(row)
    # More only of what no waiting job of this walk needs.
    for row, amount in found.items():
        if amount == own[row] and most[row] > own[row]:
            found[row] = room.add(row, int(most[row]), int(active[row].sent) if row in active else 0)
    return {row: amount for row, amount in found.items() if amount != own[row]}


class RemainingRoom:
    """What is free on each node, less what jobs of this walk are to have. node: of each job that has its amount."""

    def __init__(self, base: Snapshot, what: HostResource) -> None:
        self._base, self._what, nodes = base, what, len(base.nodes)
        self._taken = {name: np.zeros(nodes) for name in ("gpus", "cpus", "memory_mib")}
        self._node = dict[int, int]()

    def take(self, row: int, least: int, has: int, *, more: bool = False) -> int:
        """The amount for a job: as much as a node has, from `least` to its own, or what it has by us while that fits.

        Where nothing fits it is what the job has by us if that fits beside running jobs, else its own.

        has: what it has by us, 0 = nothing.
        more: whether it may get more afterwards.
        """
        column, own = self._what.column, int(self._what.of(self._base)[row])
        request = request_of(self._base, row)
        remaining, fits = self.free(self._asking(request, least), sure=True)
        if not fits.any():
            return has if least <= has < own and self._fits_alone(self._asking(request, has)).any() else own
        node = int(np.where(fits, remaining[column], -1.0).argmax())
        if more and remaining[column][node] >= own:
            spare = remaining[column] - self._needed(remaining["gpus"] - request.gpus)
            node = int(np.where(fits & (remaining[column] >= own), spare, -np.inf).argmax())
        given = min(int(remaining[column][node]), own)
        given = has if least <= has <= given < own else given
        for name, taken in self._taken.items():
            taken[node] += given if name == column else getattr(request, name)
        self._node[row] = node
        return given

    def take_own(self, row: int) -> None:
        """Subtract what a job takes if it starts now as it asks, or as many tasks of an array as start."""
        request, tasks = request_of(self._base, row), max(int(self._base.jobs.array_tasks[row]), 1)
        for _ in range(tasks):
            remaining, fits = self.free(request)
            nodes = np.flatnonzero(fits)
            if len(nodes) < request.nodes:
                return
            most = nodes[np.argsort(-remaining[self._what.column][nodes], kind="stable")][: request.nodes]
            for name, taken in self._taken.items():
                taken[most] += getattr(request, name)

    def take_on(self, node: int, request: JobRequest) -> None:
        """Subtract what a job takes on this node."""
        for name, taken in self._taken.items():
            taken[node] += getattr(request, name)

    def add(self, row: int, most: int, has: int) -> int:
        """The amount for a job that has its own: more by what its node has free and no other free GPU there needs.

        What it has by us stays as long as that is free.

        most: most that it may have.
        has: what it has by us, 0 = nothing.
        """
        own = int(self._what.of(self._base)[row])
        if row not in self._node:
            return own
        remaining, _ = self.free(replace(request_of(self._base, row), gpus=0, types=(), cpus=0, memory_mib=0.0))
        node = self._node[row]
        spare = int((remaining[self._what.column] - self._needed(remaining["gpus"]))[node])
        given = min(own + max(spare, 0), most)
        given = has if own < has <= given else given
        self._taken[self._what.column][node] += given - own
        return given

    def free(self, request: JobRequest, *, sure: bool = False) -> tuple[dict[str, Floats], Bools]:
        """What is free for the request on each node, and which nodes have its share.

        sure: only nodes that it may have for sure, such as none of a job whose constraint counts nodes.
        """
        free = free_for(self._base, request)
        remaining = {name: getattr(free, name) - taken for name, taken in self._taken.items()}
        fits = free.mask & free.eligibility.sure if sure else free.mask
        for name, amount in remaining.items():
            fits = fits & (amount >= getattr(request, name))
        return remaining, fits

    def _asking(self, request: JobRequest, amount: int) -> JobRequest:
        return replace(request, cpus=amount) if self._what.column == "cpus" else replace(request, memory_mib=amount)

    def _fits_alone(self, request: JobRequest) -> Bools:
        """Nodes that have its share free beside running jobs, and that it may have for sure. (N,) bool."""
        free = free_for(self._base, request)
        return free.mask & free.eligibility.sure

    def _needed(self, gpus: Floats) -> Floats:
        """What so many free GPUs of each node need of its CPUs: their part of them. (N,)."""
        nodes = self._base.nodes
        needed: Floats = nodes.cpus / np.maximum(nodes.gpus, 1) * np.maximum(gpus, 0)
        return needed


def _on_record(snapshot: Snapshot, what: HostResource) -> tuple[dict[int, Override], Records]:
    """Pending jobs that hold an amount of ours, by row; and records that change: of jobs that have their own amount,
    that somebody else changed, or of which it shows now that ours was sent."""
    jobs, active, changed = snapshot.jobs, dict[int, Override](), list[Override]()
    amounts = what.of(snapshot)
    for row, record in of_pending(jobs, of_field(snapshot.overrides, what.step.field)):
        now, has = _waiting_anew(record, float(jobs.submit_s[row]), snapshot.now_s), int(amounts[row])
        if has == record.base and now.may_arrive(snapshot.now_s):
            active[row] = now
            changed += [now] if now != record else []
        elif has == record.base and (now.abandoned or record.meant(has)):  # ours was not sent, or is taken back
            changed.append(now.closed(abandoned=now.abandoned))
        elif not record.meant(has):
            changed.append(now.closed(_foreign(record.field), abandoned=True))
        else:  # a requeue keeps it
            active[row] = replace(
                now, sent=has, values=tuple(each for each in now.values if each not in (has, now.base))
            )
            changed += [active[row]] if record.base in record.values else []
    return active, tuple(changed)


def _foreign(field: str) -> str:
    return f"somebody else changed its {'CPUs' if field == SetCpus.field else field}"


def _waiting_anew(record: Override, submit_s: float, now_s: float) -> Override:
    """The record by the job's submission: after a requeue, earlier changes by others no longer count."""
    if record.submit_s == submit_s:
        return record
    return replace(record, submit_s=submit_s, since_s=now_s, state=OverrideState.ACTIVE)


def _limited(snapshot: Snapshot, row: int, what: HostResource, record: Override) -> Override:
    """The record, abandoned if its amount may be why the job waits for a limit, such as QOSMinCpuNotSatisfied: Slurm
    checks none when an Operator writes."""
    reason = snapshot.jobs.reason[row].lower()
    words = what.too_few if record.sent < record.base else what.too_many  # type: ignore[operator]  # whole numbers
    limit = any(word in reason for word in words)
    note = _LIMIT.format(what.words)
    return replace(record, state=OverrideState.ABANDONED, note=note) if limit and not record.abandoned else record


def _change_of(
    snapshot: Snapshot, row: int, what: HostResource, amount: int, before: Override | None
) -> ResourceChange:
    """The write, and the record that still knows of the amounts before."""
    key, has = snapshot.jobs.id_and_submit(row), int(what.of(snapshot)[row])
    record = before or Override(*key, what.step.field, has, has, since_s=snapshot.now_s)
    less, words = amount < int(record.base), what.words
    why = (f"a node has its GPUs free, and {amount} of its {record.base} {words}" if less else
           f"a node has {amount} {words} for it that its free GPUs do not need")  # fmt: skip
    step = what.step(*key, why, f"{what.step.kind}-{key[0]}", amount, has, int(record.base))
    return step, (record.given(amount, snapshot.now_s),)


def _restore(snapshot: Snapshot, row: int, what: HostResource, record: Override, note: str) -> ResourceChange:
    key, has, base = snapshot.jobs.id_and_submit(row), int(what.of(snapshot)[row]), int(record.base)
    step = what.step(*key, note, f"{what.step.kind}-{key[0]}", base, has, base)
    return step, (record.closed(note, abandoned=record.abandoned),)
