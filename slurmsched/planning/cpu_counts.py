"""CPUs of pending jobs: fewer than they ask for, within their hints, where CPUs alone keep them from free GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.model import Outcome, Override, OverrideState, Ranking, Rights, SetCpus, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hints import hint_column
from slurmsched.plain_text import pluralize
from slurmsched.planning.gate import CHANGED, FOREIGN_FIELD
from slurmsched.planning.job_overrides import CPUS, left_alone, of_field, of_pending, untouched
from slurmsched.planning.proposals import Budget, Lever, Proposal, Records
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import request_of
from slurmsched.resources.reservation_limits import UnknownEligibility
from slurmsched.resources.startable_jobs import startable

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner

MOST_JOBS = 200  # looked at in a cycle, the most urgent first
_FOREIGN = "somebody else changed its CPUs"
_LIMIT = "it waits for a limit that its own CPUs may meet"
CpuMove = tuple[SetCpus, Records]


@dataclass(frozen=True, slots=True)
class CpuLever(Lever):
    """Writes the number of CPUs; numbers on record go back also after the lever is turned off.

    Source: that a job with fewer CPUs now may be better than one that waits beside idle GPUs is of Mohan et al.
    (Synergy), OSDI '22. That only pending jobs change, and by their hints, is ours.
    """

    config: LeverConfig

    @classmethod
    def of(cls, planner: Planner) -> CpuLever:
        return cls(planner.lever)

    def as_submitted(self, snapshot: Snapshot) -> Snapshot:
        return own_cpus(snapshot)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        if snapshot.site.rights < Rights.OPERATOR:
            return Proposal()
        free = budget.without(budget.changed_by("start", "size"), snapshot.jobs.job_id)
        return cpu_counts(snapshot, ranking, free, self.config, budget.writes)

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        mine, changed = _on_record(snapshot)
        moves = [_back(snapshot, row, replace(record, state=OverrideState.ACTIVE), "undo: its own CPUs")
                 for row, record in mine.items()]  # fmt: skip
        return Proposal.of_moves(moves, changed=changed)

    @staticmethod
    def settled(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
        """As of any lever, but a number that is refused is not tried again until the job comes back. What is in force
        after that the next look tells; a job that was not written has its own. Once Slurm took a number, its user's own
        is not among the possible ones any more. A job that somebody else changed is left alone."""
        (record,) = planned
        if not answers or answers[-1].status == "unknown":
            return Lever.settled(planned, before, answers, steps)
        answer = answers[-1]
        refused, why = answer.status == "refused", answer.message
        if record.open and not refused:
            return (replace(record, values=()),)
        if record.open and why.startswith(CHANGED):
            return tuple(replace(each, state=OverrideState.ABANDONED, note=why) for each in before) or (
                record.closed(why, abandoned=True),
            )
        if record.open:
            return (replace(record, state=OverrideState.ABANDONED, note=why),)
        if (isinstance(answer.action, SetCpus) and answer.action.omitted) or why.startswith(FOREIGN_FIELD):
            return (record.closed(_FOREIGN, abandoned=True),)
        return Lever.taken_back(planned, answers, steps)


def own_cpus(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which pending jobs ask for as many CPUs as their users say: what a policy looks at."""
    mine, _ = _on_record(snapshot)
    if not mine:
        return snapshot
    cpus = snapshot.jobs.cpus.copy()
    for row, record in mine.items():
        cpus[row] = int(record.base)
    return replace(snapshot, jobs=snapshot.jobs.with_columns(cpus=cpus))


def cpu_counts(snapshot: Snapshot, ranking: Ranking, managed: Bools, lever: LeverConfig, most: int = 500) -> Proposal:
    """Numbers to give, to change and to give back. snapshot: as read. managed: (N,) bool. most: writes of this cycle.

    Of jobs of one node that tell min_cpus, and find no node with their GPUs, CPUs and memory free, if some node has the
    rest and at least min_cpus CPUs. Each is given as many as one of these nodes has. A number on record that still
    fits stays. One with an operation under way, or with another request of ours, is left as it is.
    """
    (mine, changed), records = _on_record(snapshot), of_field(snapshot.overrides, CPUS)
    others = untouched(snapshot, but=(CPUS,))
    mine = {row: _limited(snapshot, row, record) for row, record in mine.items() if not others[row]}
    alone = left_alone(snapshot.jobs, (*records, *changed, *mine.values())) | others
    wanted = _wanted(own_cpus(snapshot), ranking, managed & ~alone, mine) if lever.cpus else {}
    back = [_back(snapshot, row, record, record.note if record.abandoned else "it needs no fewer CPUs now")
            for row, record in mine.items() if row not in wanted]  # fmt: skip
    given = [_given(snapshot, row, cpus, mine.get(row)) for row, cpus in wanted.items()]
    moves = [*back, *(move for move in given if move[0].new != move[0].old)]
    return Proposal.of_moves(moves, most, changed)


def _wanted(base: Snapshot, ranking: Ranking, free: Bools, mine: dict[int, Override]) -> dict[int, int]:
    """CPUs of the jobs that are to have fewer than they ask for, by row, most urgent first."""
    jobs = base.jobs
    least = hint_column(jobs, "min_cpus")
    asked = free & startable(base) & (jobs.gpus > 0) & (least < jobs.cpus)  # NaN: no hint
    asked &= (jobs.array_job_id == 0) & (jobs.het_job_id == 0) & (jobs.nodes == 1) & ~jobs.exclusive
    room = _Room(base)
    found = {}
    for row in ranking.order[asked[ranking.order]][:MOST_JOBS].tolist():
        cpus = room.take(row, int(least[row]), int(mine[row].sent) if row in mine else 0)
        if cpus < jobs.cpus[row]:
            found[row] = cpus
    return found


class _Room:
    """What is free on each node, less what jobs of this walk are to have."""

    def __init__(self, base: Snapshot) -> None:
        self._base, nodes = base, len(base.nodes)
        self._gpus, self._cpus, self._memory_mib = np.zeros(nodes, np.int64), np.zeros(nodes), np.zeros(nodes)

    def take(self, row: int, least: int, has: int) -> int:
        """CPUs for a job: its own where they fit or nothing does, else as many as a node has, at least `least`; what
        it has by us, 0 = nothing, as long as that fits."""
        own, request = int(self._base.jobs.cpus[row]), request_of(self._base, row)
        try:
            free = free_for(self._base, replace(request, cpus=least))
        except UnknownEligibility:
            return own
        cpus = free.cpus - self._cpus
        fits = free.mask & (cpus >= least) & (free.gpus - self._gpus >= request.gpus)
        fits &= free.memory_mib - self._memory_mib >= request.memory_mib
        if not fits.any():
            return own
        node = int(np.where(fits, cpus, -1.0).argmax())
        given = min(int(cpus[node]), own)
        given = has if least <= has <= given < own else given
        self._gpus[node] += request.gpus
        self._cpus[node] += given
        self._memory_mib[node] += request.memory_mib
        return given


def _on_record(snapshot: Snapshot) -> tuple[dict[int, Override], Records]:
    """Pending jobs that hold a number of ours, by row; and records that change: of jobs that have their own number,
    that somebody else changed, or of which it shows now that ours was sent."""
    jobs, mine, changed = snapshot.jobs, dict[int, Override](), list[Override]()
    for row, record in of_pending(jobs, of_field(snapshot.overrides, CPUS)):
        now, has = _waiting_anew(record, float(jobs.submit_s[row])), int(jobs.cpus[row])
        if has == record.base and (now.abandoned or record.meant(has)):  # ours was not sent, or is taken back
            changed.append(now.closed(abandoned=now.abandoned))
        elif not record.meant(has):
            changed.append(now.closed(_FOREIGN, abandoned=True))
        else:  # a requeue keeps it
            mine[row] = replace(now, sent=has, values=tuple(each for each in now.values if each not in (has, now.base)))
            changed += [mine[row]] if record.base in record.values else []
    return mine, tuple(changed)


def _waiting_anew(record: Override, submit_s: float) -> Override:
    """The record by the job's submission: after a requeue it is no more left alone for what was before."""
    return record if record.submit_s == submit_s else replace(record, submit_s=submit_s, state=OverrideState.ACTIVE)


def _limited(snapshot: Snapshot, row: int, record: Override) -> Override:
    """The record, abandoned if its number may be why the job waits for a limit, such as QOSMinCpuNotSatisfied: Slurm
    checks none when an Operator writes."""
    reason = snapshot.jobs.reason[row].lower()
    limit = "mincpu" in reason or "minbilling" in reason  # not CPUMinutes
    return replace(record, state=OverrideState.ABANDONED, note=_LIMIT) if limit and not record.abandoned else record


def _given(snapshot: Snapshot, row: int, cpus: int, before: Override | None) -> CpuMove:
    """The write, and the record that still knows of the numbers before."""
    key, has = snapshot.jobs.id_and_submit(row), int(snapshot.jobs.cpus[row])
    record = before or Override(*key, CPUS, has, has, since_s=snapshot.now_s)
    why = f"a node has its GPUs free, and {cpus} of its {pluralize(int(record.base), 'CPU')}"
    values = tuple(dict.fromkeys((*record.values, record.sent)))
    step = SetCpus(*key, why, f"cpus-{key[0]}", cpus, has, int(record.base))
    return step, (replace(record, sent=cpus, values=values),)


def _back(snapshot: Snapshot, row: int, record: Override, note: str) -> CpuMove:
    key, has, base = snapshot.jobs.id_and_submit(row), int(snapshot.jobs.cpus[row]), int(record.base)
    return SetCpus(*key, note, f"cpus-{key[0]}", base, has, base), (record.closed(note, abandoned=record.abandoned),)
