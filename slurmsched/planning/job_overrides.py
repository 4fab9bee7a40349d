"""Overrides of node lists, GPU types, sizes and shards, by job: which are still in force, and which writes restore a
job's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, TypeVar, Unpack

import numpy as np

from slurmsched.model import (
    Outcome,
    Override,
    OverrideState,
    SetCpus,
    SetField,
    SetGpuRequest,
    SetMemory,
    SetNodeList,
    SetShardNode,
    SetShards,
    SetSize,
    Snapshot,
    Step,
)
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.gpu_selection import size_text
from slurmsched.model.hostlists import same_hosts
from slurmsched.model.jobs import Jobs
from slurmsched.model.overrides import FieldValue
from slurmsched.planning.gate import ASKS, DOUBTFUL
from slurmsched.planning.proposals import Lever, Proposal, Records

NODE_LIST, GPU_TYPE, SIZE = SetNodeList.field, SetGpuRequest.field, SetSize.field
CPUS, MEMORY = SetCpus.field, SetMemory.field
NODE_LIST_FIELDS, SIZE_FIELDS = (NODE_LIST, GPU_TYPE), (SIZE,)
SHARD_FIELDS = (SetShardNode.field, SetShards.field)
_LISTS = (NODE_LIST, SetShardNode.field)
_TOGETHER = {field: fields for fields in (NODE_LIST_FIELDS, SIZE_FIELDS, SHARD_FIELDS) for field in fields}
_FOREIGN = "its request is another one: somebody changed it, or Slurm did not take ours"


class OverrideChanges(TypedDict, total=False):
    """Fields of Override that change."""

    job_id: int
    submit_s: float
    base: FieldValue
    sent: FieldValue
    state: OverrideState
    values: tuple[FieldValue, ...]
    since_s: float
    note: str


@dataclass(frozen=True, slots=True)
class JobOverrides:
    """One job's overrides of one lever: of its node list and GPU type, of its size, or of its shards and their node.

    They are written, abandoned and settled together: submission, state and note are the same in all of them. For a
    field that was never written, base and sent are "".
    """

    records: tuple[Override, ...]

    @classmethod
    def blank(cls, fields: tuple[str, ...], job_id: int, submit_s: float, since_s: float) -> JobOverrides:
        """The overrides of a job to which nothing was written."""
        return cls(tuple(Override(job_id, submit_s, field, "", "", since_s=since_s) for field in fields))

    @property
    def job_id(self) -> int:
        return self.records[0].job_id

    @property
    def submit_s(self) -> float:
        return self.records[0].submit_s

    @property
    def since_s(self) -> float:
        """Since when the job has the first of them [Unix s]."""
        return self.records[0].since_s

    @property
    def note(self) -> str:
        return self.records[0].note

    @property
    def abandoned(self) -> bool:
        """Whether slurmsched no longer changes the job: it did not start in time, or somebody else changed it."""
        return self.records[0].abandoned

    @property
    def open(self) -> bool:
        """Whether the job may have a value that slurmsched wrote."""
        return any(record.open for record in self.records)

    @property
    def unanswered(self) -> bool:
        """Whether some write is not known to have reached the job."""
        return any(record.unanswered for record in self.records)

    @property
    def sized(self) -> bool:
        """Whether these are overrides of the number of GPUs, and not of the node list or GPU type."""
        return self.records[0].field == SIZE

    @property
    def of_shards(self) -> bool:
        """Whether these are overrides that let the job ask for shards in place of its GPU."""
        return self.request.field == SetShards.field

    @property
    def nodes(self) -> Override:
        """The override of the node list."""
        return self.records[0]

    @property
    def request(self) -> Override:
        """The override of the GPU request, in normal form."""
        return self.records[-1]

    def with_nodes(self, **changes: Unpack[OverrideChanges]) -> JobOverrides:
        """With these changes of the override of the node list."""
        return JobOverrides((replace(self.nodes, **changes), *self.records[1:]))

    def with_request(self, **changes: Unpack[OverrideChanges]) -> JobOverrides:
        """With these changes of the override of the GPU request."""
        return JobOverrides((*self.records[:-1], replace(self.request, **changes)))

    def with_all(self, **changes: Unpack[OverrideChanges]) -> JobOverrides:
        """With these changes of every override."""
        return JobOverrides(tuple(replace(record, **changes) for record in self.records))

    def left_to_slurm(self, note: str) -> JobOverrides:
        return self.with_all(state=OverrideState.ABANDONED, note=note)


Known = TypeVar("Known", Override, JobOverrides)


def by_job(overrides: Iterable[Override], fields: Sequence[str] = tuple(_TOGETHER)) -> tuple[JobOverrides, ...]:
    """The overrides of these fields, put together by job."""
    of_job: dict[tuple[int, tuple[str, ...]], dict[str, Override]] = {}
    for record in overrides:
        if record.field in fields:
            of_job.setdefault((record.job_id, _TOGETHER[record.field]), {})[record.field] = record
    return tuple(_joined(together, parts) for (_, together), parts in of_job.items())


def _joined(fields: tuple[str, ...], parts: dict[str, Override]) -> JobOverrides:
    first = next(iter(parts.values()))
    state = OverrideState.ABANDONED if any(record.abandoned for record in parts.values()) else OverrideState.ACTIVE
    blank = JobOverrides.blank(fields, first.job_id, first.submit_s, first.since_s)
    found = JobOverrides(tuple(parts.get(record.field, record) for record in blank.records))
    return found.with_all(submit_s=first.submit_s, note=first.note, state=state)


def records_of(jobs: Iterable[JobOverrides]) -> tuple[Override, ...]:
    """The reverse of by_job."""
    return tuple(record for job in jobs for record in job.records)


def restore_proposal(snapshot: Snapshot, fields: Sequence[str], note: str) -> Proposal:
    """The writes that give every job its own values of these fields, as `undo` does. A job without a value of
    slurmsched gets none."""
    active, partly_changed, changed = on_record(snapshot, fields)
    back = [
        restore_steps(snapshot, row, ours, note, abandoned=False) for row, ours in (active | partly_changed).items()
    ]
    steps = tuple(step for actions, _ in back for step in actions)
    return Proposal(steps, records_of((*changed, *(ours for _, ours in back))))


# Over 30 lines: half is signature and docstring.
def on_record(
    snapshot: Snapshot, fields: Sequence[str]
) -> tuple[dict[int, JobOverrides], dict[int, JobOverrides], tuple[JobOverrides, ...]]:
    """The pending jobs with a value of ours, in three parts:

    - by row, those that hold what we gave them;
    - by row, those of which another user changed the list or the request, with what is still ours;
    - records that change by themselves.

    A record changes by itself in four cases:

    - The job waits again after a requeue, which keeps both.
    - The job has its own request again.
    - The record was made when the clock was further on.
    - The job holds nothing of ours any more.
    """
    jobs, active, partly_changed, changed = (
        snapshot.jobs,
        dict[int, JobOverrides](),
        dict[int, JobOverrides](),
        list[JobOverrides](),
    )
    every = by_job(snapshot.overrides, fields)
    split = _of_split_tasks(jobs, every)
    for row, known in of_pending(jobs, (*every, *split)):
        now = _seen(jobs, row, _waiting_anew(snapshot, row, known), snapshot.now_s)
        if not now.open:  # it was not sent
            changed.append(now)
            continue
        rest = _rest(jobs, row, now)
        latest = rest if rest and not rest.open else now
        if latest != known or known in split:
            changed.append(latest)
        if rest is None:
            active[row] = now
        elif rest.open:
            partly_changed[row] = rest
    started = (known for known in split if not jobs.pending[jobs.row_of(known.job_id)])
    return active, partly_changed, (*changed, *started)


def _seen(jobs: Jobs, row: int, known: JobOverrides, now_s: float) -> JobOverrides:
    """The overrides by what the job asks for."""
    request = _request_now(jobs, row, known)
    found = known if known.sized else _with_request_seen(known, request)
    return JobOverrides(tuple(
        seen(record, jobs.nodes_asked[row] if record.field in _LISTS else request, now_s) for record in found.records
    ))  # fmt: skip


def seen(record: Override, has: FieldValue, now_s: float) -> Override:
    """An override by the value that the job has. A job with its own value was not written, once no write can arrive any
    more. Once it shows one of ours, Slurm took a write."""
    if not record.unanswered:
        return record
    if same_value(record, has, record.base):
        return record if record.may_arrive(now_s) else replace(record, sent=record.base, values=())
    ours = any(same_value(record, has, value) for value in (record.sent, *record.values))
    return record.answered() if ours else record


def same_value(record: Override, value: FieldValue, other: FieldValue) -> bool:
    """Whether two values of this field are the same. Lists may name the same nodes in other words."""
    return same_hosts(str(value), str(other)) if record.field in _LISTS else value == other


def _of_split_tasks(jobs: Jobs, every: Iterable[JobOverrides]) -> tuple[JobOverrides, ...]:
    """Overrides of tasks that got a record of their own since their array got a size of ours: they keep it, and a
    requeued one is to get its user's own."""
    known = {job.job_id: job for job in every if job.open and job.sized}
    if not known or not jobs.array_job_id.any():
        return ()
    recorded = [job.job_id for job in every]
    split = np.isin(jobs.array_job_id, list(known)) & ~np.isin(jobs.job_id, recorded) & ~jobs.finished
    pairs = ((row, known[int(jobs.array_job_id[row])]) for row in np.flatnonzero(split).tolist())
    return tuple(
        array.with_all(job_id=int(jobs.job_id[row]), submit_s=float(jobs.submit_s[row]))
        for row, array in pairs
        if array.request.meant(jobs.gpu_request[row])
    )


def _request_now(jobs: Jobs, row: int, known: JobOverrides) -> str:
    """What a job asks for, in the form of these overrides."""
    return size_of(jobs, row) if known.sized else jobs.gpu_request[row]


def size_of(jobs: Jobs, row: int) -> str:
    """What a job asks for, as gpu_selection.size_text."""
    return size_text(jobs.gpu_request[row], jobs.gpus_by[row], int(jobs.nodes[row]))


def of_field(overrides: Iterable[Override], field: str) -> Records:
    """The overrides of this field."""
    return tuple(record for record in overrides if record.field == field)


def of_pending(jobs: Jobs, known: Iterable[Known]) -> Iterator[tuple[int, Known]]:
    """Overrides of jobs that wait and may have a value of slurmsched, with their rows."""
    pending = jobs.pending
    for ours in known:
        row = jobs.row_of(ours.job_id)
        if ours.open and row >= 0 and pending[row]:
            yield row, ours


def with_cpus(snapshot: Snapshot, fields: Sequence[str] = (CPUS, MEMORY)) -> list[int]:
    """Ids of the jobs that have CPUs or memory of ours on record."""
    return [record.job_id for field in fields for record in of_field(snapshot.overrides, field) if record.open]


def untouched(snapshot: Snapshot, *, but: Sequence[str]) -> Bools:
    """Jobs that have overrides of other fields than these, or for which an operation is under way: sizes, CPUs, memory,
    shards, or lists and Types, leave them as they are, so that a job has overrides of one kind at most. (N,) bool."""
    others = by_job(snapshot.overrides, [field for field in _TOGETHER if field not in but])
    ids = [*(operation.job_id for operation in snapshot.operations), *(job.job_id for job in others if job.open)]
    ids += with_cpus(snapshot, [field for field in (CPUS, MEMORY) if field not in but])
    return np.isin(snapshot.jobs.job_id, ids) | left_alone(snapshot.jobs, others)


def _waiting_anew(snapshot: Snapshot, row: int, known: JobOverrides) -> JobOverrides:
    """The overrides by the job's submission: after a requeue it is no more left alone for what was before. One of a
    time to come, since the clock was set back, is of now."""
    submit_s = float(snapshot.jobs.submit_s[row])
    if known.submit_s == submit_s:
        return JobOverrides(
            tuple(replace(record, since_s=min(record.since_s, snapshot.now_s)) for record in known.records)
        )
    return known.with_all(submit_s=submit_s, since_s=snapshot.now_s, state=OverrideState.ACTIVE, note="")


def _with_request_seen(known: JobOverrides, request: str) -> JobOverrides:
    """The overrides by the request that the job has, where its own was to be written while it keeps a list: one of ours
    is there still, as the write did not reach Slurm; any other is its user's, and from then on every one is."""
    if known.request.open or not known.request.values:
        return known
    if request in known.request.values:
        return known.with_request(sent=request)
    return known.with_request(sent="", base="", values=())


def _rest(jobs: Jobs, row: int, known: JobOverrides) -> JobOverrides | None:
    """The remaining overrides after somebody else changed some; None if nobody did."""
    has_list = known.sized or _has_list(jobs.nodes_asked[row], known.nodes)
    found = known if has_list else _closed(known, known.nodes.field)
    found = (
        found if _has_request(_request_now(jobs, row, known), known.request) else _closed(found, known.request.field)
    )
    if found == known:
        return None
    what = "node list" if found.nodes.sent != known.nodes.sent else "request"
    note = _FOREIGN if known.sized or (known.of_shards and what == "request") else f"somebody else changed its {what}"
    return found.left_to_slurm(known.note if known.abandoned else note)


def _closed(known: JobOverrides, *fields: str) -> JobOverrides:
    """These fields with their users' own values, and all values that were meant for them."""
    return JobOverrides(tuple(
        replace(record, sent=record.base) if record.field in fields else record for record in known.records
    ))  # fmt: skip


def _has_list(nodes: str, record: Override) -> bool:
    return any(same_value(record, nodes, ours) for ours in (record.sent, *record.values))


def _has_request(request: str, record: Override) -> bool:
    return not record.open or record.meant(request)


def own_lists(snapshot: Snapshot, fields: Sequence[str] = NODE_LIST_FIELDS) -> Jobs:
    """The jobs with the node lists and requests that their users gave them, whatever state they are in."""
    known = {job.job_id: job for job in by_job(snapshot.overrides, fields) if job.open}
    jobs = snapshot.jobs
    rows = np.flatnonzero(np.isin(jobs.job_id, list(known))).tolist()
    lists, requests = (list(jobs.nodes_asked), list(jobs.gpu_request)) if rows else ([], [])
    for row in rows:
        ours = _with_request_seen(known[int(jobs.job_id[row])], requests[row])
        if _has_list(lists[row], ours.nodes):
            lists[row] = str(ours.nodes.base)
        if ours.request.open and _has_request(requests[row], ours.request):
            requests[row] = str(ours.request.base)
    return jobs.with_columns(nodes_asked=Labels.of(lists), gpu_request=Labels.of(requests)) if rows else jobs


def left_alone(jobs: Jobs, known: Iterable[Override | JobOverrides]) -> Bools:
    """Jobs that slurmsched does not change until they run or are submitted again. (N,) bool."""
    abandoned = {(job.job_id, job.submit_s) for job in known if job.abandoned}
    keys = zip(jobs.job_id.tolist(), jobs.submit_s.tolist(), strict=True) if abandoned else ()
    return np.array([key in abandoned for key in keys], np.bool_) if abandoned else np.zeros(len(jobs), np.bool_)


def restore_steps(
    snapshot: Snapshot, row: int, known: JobOverrides, note: str, *, abandoned: bool
) -> tuple[tuple[Step, ...], JobOverrides]:
    """The steps that restore what a job's user asked for, and the overrides after them."""
    key, jobs = snapshot.jobs.id_and_submit(row), snapshot.jobs
    operation = operation_of(snapshot, row, known.request.field)
    nodes, gpus = jobs.nodes_asked[row], jobs.gpu_request[row]
    steps = tuple(
        set_size(snapshot, row, note, str(record.base), str(record.base)) if record.field == SIZE else
        _SETS[record.field](*key, note, operation, str(record.base), nodes if record is known.nodes else gpus,
                            str(record.base))
        for record in known.records
        if record.open
    )  # fmt: skip
    state = OverrideState.ABANDONED if abandoned else OverrideState.ACTIVE
    return steps, _closed(known, *_TOGETHER).with_all(submit_s=key[1], state=state, note=note)


_SETS: dict[str, type[SetNodeList] | type[SetGpuRequest]] = {
    each.field: each for each in (SetNodeList, SetGpuRequest, SetShardNode, SetShards)
}


def set_size(snapshot: Snapshot, row: int, why: str, new: str, base: str) -> SetSize:
    """The write of a size. new, base: as gpu_selection.size_text."""
    jobs, key, operation = snapshot.jobs, snapshot.jobs.id_and_submit(row), operation_of(snapshot, row, SIZE)
    by = jobs.gpus_by[row] or "node"
    extent = int(jobs.nodes[row]), int(jobs.tasks[row]), int(jobs.cpus[row])
    return SetSize(*key, why, operation, new, size_of(jobs, row), base, by, *extent)


def operation_of(snapshot: Snapshot, row: int, field: str) -> str:
    """The name under which the ledger has the steps of a job. field: of its request."""
    return f"{field if field in (SIZE, SetShards.field) else 'pin'}-{snapshot.jobs.job_id[row]}"


def settled_list(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
    """The overrides of a job's node list and request after these answers to that many steps; () if they stay.

    A job has its own again when Slurm has taken every step of that. One whose first list was refused has it too, since
    no request is sent then. A refusal is an answer too.
    """
    (job,) = by_job(planned)
    if not job.open or not answers:
        return Lever.settled_restore(planned, answers, steps)
    first = answers[0]
    refused = isinstance(first.action, SetNodeList) and first.action.old == job.nodes.base
    if refused and first.status == "refused":
        return _never_given(job, first.message)
    fields = {outcome.action.field for outcome in answers
              if isinstance(outcome.action, SetField) and outcome.status in ("written", "refused")}  # fmt: skip
    found = tuple(record.answered() if record.field in fields else record for record in planned)
    return found if found != planned else ()


def settled_size(planned: Records, before: Records, answers: Sequence[Outcome], steps: int) -> Records:
    """The override of a job's size after these answers; () if it stays.

    As of any lever, but a job whose size was not sent has what it had. One whose size was refused gets its own back and
    is abandoned; so is one that could not be given its own.
    """
    (record,) = planned
    if steps and record.open and not answers:
        return before or (record.closed(),)
    if answers and answers[-1].status == "written" and record.open:
        return (record.answered(),)
    if not answers or answers[0].status != "refused":
        return Lever.settled(planned, before, answers, steps)
    if record.open and any(each.unanswered for each in before):
        return before  # an earlier write may still arrive
    return tuple(
        replace(each, state=OverrideState.ABANDONED, note=answers[0].message)
        for each in (planned if record.open else before)
    )


def _never_given(job: JobOverrides, why: str) -> Records:
    """The overrides of a job whose first list was refused: it has its own. If by what it asks for, which Slurm's list
    of jobs does not show, it would be refused in every cycle: it is left to Slurm, unless that is another user's
    doing."""
    barred = why.startswith(ASKS) and not why.endswith(DOUBTFUL)
    fields = tuple(record.field for record in job.records)
    blank = JobOverrides.blank(fields, job.job_id, job.submit_s, job.since_s)
    own = blank.with_nodes(base=job.nodes.base, sent=job.nodes.base)
    return own.left_to_slurm(why).records if barred else own.with_all(note="Slurm refused the list").records
