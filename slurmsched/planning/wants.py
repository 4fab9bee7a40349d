"""Jobs as the policy wants them: what a placement is given to place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.model import JobState, Labels, Snapshot, Wants
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.candidates import holding, node_rows

_PLACED = int(JobState.RUNNING | JobState.SUSPENDED)


def as_wanted(snapshot: Snapshot, wants: Wants | None) -> Snapshot:
    """The snapshot in which jobs ask for the size and GPU type, and may start from the time, that the policy wants.

    A running job that holds another size or type counts as waiting, and its GPUs as free: it is to move. That a job
    is not to start does not stop one that runs.
    """
    if wants is None or not wants.columns.keys() - {"share", "beside"}:
        return snapshot
    jobs = snapshot.jobs
    columns: dict[str, Any] = {}
    if wants.start_s is not None:
        columns["eligible_s"] = np.where(jobs.pending, np.fmax(jobs.eligible_s, wants.start_s), jobs.eligible_s)
    if wants.gpus is None and wants.gpu_type is None:
        return replace(snapshot, jobs=jobs.with_columns(**columns))
    gpus, gpu_type = _sizes(snapshot, wants), wants.gpu_type or Labels.constant("", len(jobs))
    columns |= {"gpus": gpus, "nodes": _nodes(snapshot, gpus), "gpu_request": _requests(snapshot, gpus, gpu_type)}
    moves = holding(jobs) & ~_suits(snapshot, gpus, gpu_type)
    columns["state"] = np.where(moves, (jobs.state & ~_PLACED) | int(JobState.PENDING), jobs.state)
    return _without(replace(snapshot, jobs=jobs.with_columns(**columns)), moves)


def _sizes(snapshot: Snapshot, wants: Wants) -> Int64s:
    """GPUs of each job. (N,) int64."""
    asked = snapshot.jobs.gpus.astype(np.int64)
    return asked if wants.gpus is None else np.where(wants.gpus > 0, wants.gpus, asked)


def _nodes(snapshot: Snapshot, gpus: Int64s) -> Int64s:
    """Nodes of each job: as it asks, and where its size is another one as few as hold that. (N,) int64."""
    jobs, largest = snapshot.jobs, max(int(snapshot.nodes.gpus.max(initial=0)), 1)
    return np.where(gpus == jobs.gpus, jobs.nodes, -(-gpus // largest)).astype(np.int64)


def _requests(snapshot: Snapshot, gpus: Int64s, gpu_type: Labels) -> Labels:
    """What each job asks for, in normal form. (N,)."""
    asked, own = snapshot.jobs.gpus, snapshot.jobs.gpu_request

    def request(row: int) -> str:
        if gpu_type[row]:
            return f"gpu:{gpu_type[row]}:{gpus[row]}"
        return own[row] if gpus[row] == asked[row] else f"gpu:{gpus[row]}"

    return Labels.of([request(row) for row in range(len(gpus))])


def _suits(snapshot: Snapshot, gpus: Int64s, gpu_type: Labels) -> Bools:
    """Whether what a job holds is what it is to hold. (N,) bool."""
    jobs, held = snapshot.jobs, snapshot.allocations
    row = np.searchsorted(jobs.job_id, held.job_id)
    known = (row < len(jobs)) & (jobs.job_id[np.minimum(row, len(jobs) - 1)] == held.job_id)
    row = row[known]
    size = np.bincount(row, held.gpus[known], len(jobs)).astype(np.int64)
    types = _held_types(snapshot)
    wrong = [a for a, r in zip(np.flatnonzero(known).tolist(), row.tolist(), strict=True)
             if gpu_type[r] and types[a] and gpu_type[r] != types[a]]  # fmt: skip
    suits = size == gpus
    suits[np.searchsorted(jobs.job_id, held.job_id[wrong])] = False
    return suits


def _held_types(snapshot: Snapshot) -> list[str]:
    """GPU type of each allocation: as it says, or that of its node if it has a single one; "" if unknown. (A,)."""
    only = [parts[1] if len(parts := text.split(":")) == 3 else "" for text in snapshot.nodes.gpu_types]
    rows = node_rows(snapshot).tolist()
    return [named or (only[node] if node >= 0 else "") for named, node in
            zip(snapshot.allocations.gpu_type, rows, strict=True)]  # fmt: skip


def _without(snapshot: Snapshot, moves: Bools) -> Snapshot:
    """The snapshot in which these jobs hold nothing."""
    held, nodes = snapshot.allocations, snapshot.nodes
    gone = np.isin(held.job_id, snapshot.jobs.job_id[moves])
    if not gone.any():
        return snapshot
    rows = node_rows(snapshot)
    known = gone & (rows >= 0)
    freed = np.bincount(rows[known], held.gpus[known], len(nodes)).astype(np.int64)
    free = nodes.with_columns(gpus_used=nodes.gpus_used - freed, gpu_mask_used=np.zeros(len(nodes), np.int64))
    return replace(snapshot, allocations=held.take(~gone), nodes=free)
