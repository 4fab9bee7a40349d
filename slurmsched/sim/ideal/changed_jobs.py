"""Jobs as the policy wants them: what a placement is given to place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.model import JobChanges, JobState, Labels, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.overrides import types_of
from slurmsched.model.states import HOLDS_NODES
from slurmsched.resources.allocated import holding, node_rows
from slurmsched.resources.by_type import only_type


def with_changes(snapshot: Snapshot, changes: JobChanges | None) -> Snapshot:
    """The snapshot in which jobs ask for the size and GPU types, and may start from the time, that the policy wants.

    A running job that holds another size or other types counts as waiting, and its GPUs as free: it is to move. That a
    job is not to start does not stop one that runs.
    """
    if changes is None or not changes.columns.keys() - {"share", "beside"}:
        return snapshot
    jobs = snapshot.jobs
    columns: dict[str, Any] = {}
    if changes.start_s is not None:
        columns["eligible_s"] = np.where(jobs.pending, np.fmax(jobs.eligible_s, changes.start_s), jobs.eligible_s)
    if changes.gpus is None and changes.gpu_type is None and changes.gpus_by_type is None:
        return replace(snapshot, jobs=jobs.with_columns(**columns))
    gpus, request = _sizes(snapshot, changes), _requests(snapshot, changes)
    columns |= {"gpus": gpus, "nodes": nodes_for(snapshot, gpus), "gpu_request": request}
    moves = holding(jobs) & ~_suits(snapshot, changes)
    return stopped(replace(snapshot, jobs=jobs.with_columns(**columns)), moves)


def stopped(snapshot: Snapshot, moves: Bools) -> Snapshot:
    """The snapshot in which these jobs wait and hold nothing. moves: (N,) bool."""
    if not moves.any():
        return snapshot
    jobs, allocations, nodes = snapshot.jobs, snapshot.allocations, snapshot.nodes
    state = np.where(moves, (jobs.state & ~int(HOLDS_NODES)) | int(JobState.PENDING), jobs.state)
    snapshot = replace(snapshot, jobs=jobs.with_columns(state=state))
    gone = np.isin(allocations.job_id, jobs.job_id[moves])
    rows = node_rows(snapshot)
    known = gone & (rows >= 0)
    freed = np.bincount(rows[known], allocations.gpus[known], len(nodes)).astype(np.int64)
    free = nodes.with_columns(gpus_used=nodes.gpus_used - freed, gpu_mask_used=np.zeros(len(nodes), np.int64))
    return replace(snapshot, allocations=allocations.take(~gone), nodes=free)


def nodes_for(snapshot: Snapshot, gpus: Int64s) -> Int64s:
    """Nodes of each job: as it asks, and where its size is another one as few as hold that. (N,) int64."""
    jobs, largest = snapshot.jobs, max(int(snapshot.nodes.gpus.max(initial=0)), 1)
    return np.where(gpus == jobs.gpus, jobs.nodes, -(-gpus // largest)).astype(np.int64)


def held_types(snapshot: Snapshot) -> list[str]:
    """GPU type of each allocation: as it says, or that of its node if it has a single one; "" if unknown. (A,)."""
    only = [only_type(text) for text in snapshot.nodes.gpu_types]
    rows = node_rows(snapshot).tolist()
    return [named or (only[node] if node >= 0 else "") for named, node in
            zip(snapshot.allocations.gpu_type, rows, strict=True)]  # fmt: skip


def _sizes(snapshot: Snapshot, changes: JobChanges) -> Int64s:
    """GPUs of each job. (N,) int64."""
    asked = snapshot.jobs.gpus.astype(np.int64)
    return asked if changes.gpus is None else np.where(changes.gpus > 0, changes.gpus, asked)


def _requests(snapshot: Snapshot, changes: JobChanges) -> Labels:
    """What each job asks for, in normal form. (N,)."""
    asked, own, gpus = snapshot.jobs.gpus, snapshot.jobs.gpu_request, _sizes(snapshot, changes)
    one, several = _texts(changes.gpu_type, len(asked)), _texts(changes.gpus_by_type, len(asked))

    def request(row: int) -> str:
        if several[row]:
            return several[row]
        if one[row]:
            return f"gpu:{one[row]}:{gpus[row]}"
        return own[row] if gpus[row] == asked[row] else f"gpu:{gpus[row]}"

    return Labels.of([request(row) for row in range(len(asked))])


def _texts(column: Labels | None, rows: int) -> Labels:
    return Labels.constant("", rows) if column is None else column


def _suits(snapshot: Snapshot, changes: JobChanges) -> Bools:
    """Whether what a job holds is what it is to hold. (N,) bool."""
    jobs, allocations, gpus = snapshot.jobs, snapshot.allocations, _sizes(snapshot, changes)
    one, several = _texts(changes.gpu_type, len(jobs)), _texts(changes.gpus_by_type, len(jobs))
    row = np.searchsorted(jobs.job_id, allocations.job_id)
    known = (row < len(jobs)) & (jobs.job_id[np.minimum(row, len(jobs) - 1)] == allocations.job_id)
    suits = np.bincount(row[known], allocations.gpus[known], len(jobs)).astype(np.int64) == gpus
    by_type: dict[int, Counter[str]] = {}
    types = np.array(held_types(snapshot), object)[known].tolist()
    for job, name, count in zip(row[known].tolist(), types, allocations.gpus[known].tolist(), strict=True):
        by_type.setdefault(job, Counter())[name] += count
    for job, has in by_type.items():
        fits = has == types_of(several[job]) if several[job] else not one[job] or has.keys() <= {one[job], ""}
        suits[job] = suits[job] and fits
    return suits
