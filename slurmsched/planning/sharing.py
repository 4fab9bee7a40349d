"""Jobs that are to run on the GPUs of others: hidden from a placement, and set beside their hosts when it is done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model import Assignments, JobState, Ranking, Snapshot, Wants
from slurmsched.model.columns import Bools, Int64s, sealed
from slurmsched.resources.held import Held, holding, node_rows

_PLACED = int(JobState.RUNNING | JobState.SUSPENDED)


def hosts_of(snapshot: Snapshot, wants: Wants | None) -> Int64s | None:
    """Row of the job on whose GPUs each is to run, -1 = on its own; None if the policy has no word on that. (N,).

    A job whose host is not there, or asks for another number of GPUs, is on its own.
    """
    if wants is None or wants.beside is None:
        return None
    jobs = snapshot.jobs
    row = np.minimum(np.searchsorted(jobs.job_id, wants.beside), max(len(jobs) - 1, 0))
    fits = (wants.beside >= 0) & (jobs.job_id[row] == wants.beside) & (jobs.gpus[row] == jobs.gpus)
    return np.where(fits, row, -1)


def without_guests(snapshot: Snapshot, ranking: Ranking, host: Int64s) -> Snapshot:
    """The snapshot in which guests neither hold GPUs nor wait, and no two jobs hold the same GPU.

    Of several that hold one now, the first of the ranking keeps it; the others count as waiting: they are to move.
    host: as hosts_of gives it. Only GPUs that are told one by one can be seen to be shared.
    """
    jobs, guests = snapshot.jobs, host >= 0
    leaves = guests | _behind(snapshot, ranking.order, guests)
    moves = leaves & holding(jobs)
    state = np.where(moves, (jobs.state & ~_PLACED) | int(JobState.PENDING), jobs.state)
    eligible_s = np.where(guests, np.inf, jobs.eligible_s)
    return _left(replace(snapshot, jobs=jobs.with_columns(state=state, eligible_s=eligible_s)), moves)


def _behind(snapshot: Snapshot, order: Int64s, guests: Bools) -> Bools:
    """Who holds a GPU that a job before it in the order holds too, guests apart. (N,) bool."""
    held, mask = Held.of(snapshot), _masks(snapshot)
    taken, found = np.zeros(len(snapshot.nodes), np.int64), np.zeros(len(guests), np.bool_)
    for row in order[(held.count > 0)[order] & ~guests[order]].tolist():
        part = slice(held.first[row], held.first[row] + held.count[row])
        node = held.node[part]
        found[row] = bool((taken[node] & mask[part]).any())
        if not found[row]:
            taken[node] |= mask[part]
    return found


def _masks(snapshot: Snapshot) -> Int64s:
    """GPUs of each entry of Held, as a mask, 0 = not told."""
    held, jobs = snapshot.allocations, snapshot.jobs
    known = np.isin(held.job_id, jobs.job_id[holding(jobs)]) & (node_rows(snapshot) >= 0)
    return held.gpu_mask[known].astype(np.int64)


def _left(snapshot: Snapshot, moves: Bools) -> Snapshot:
    """The snapshot in which these jobs hold nothing; a GPU is free if nobody else holds it."""
    held, nodes, node = snapshot.allocations, snapshot.nodes, node_rows(snapshot)
    gone = np.isin(held.job_id, snapshot.jobs.job_id[moves])
    given, kept = np.zeros((2, len(nodes)), np.int64)
    for masks, which in ((given, gone), (kept, ~gone)):
        np.bitwise_or.at(masks, node[which & (node >= 0)], held.gpu_mask[which & (node >= 0)])
    free = given & ~kept
    used = nodes.gpus_used - np.array([mask.bit_count() for mask in free.tolist()], np.int64)
    nodes = nodes.with_columns(gpus_used=used.astype(np.int32), gpu_mask_used=nodes.gpu_mask_used & ~free)
    return replace(snapshot, allocations=held.take(~gone), nodes=nodes)


def with_guests(target: Assignments, host: Int64s) -> Assignments:
    """The target, and after it the guests of jobs that are in it, each on the GPUs of its host.

    host: as hosts_of gives it.
    """
    place = np.full(len(host), -1, np.int64)
    place[target.rows] = np.arange(len(target.rows))
    guests = np.flatnonzero(host >= 0)
    guests = guests[place[host[guests]] >= 0]
    if not len(guests):
        return target
    at = place[host[guests]]
    count = target.count[at]
    first = len(target.node) + np.cumsum(count) - count
    entry = np.repeat(target.first[at] - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    mask = target.gpu_mask
    columns = [(target.rows, guests), (target.first, first), (target.count, count), (target.node, target.node[entry]),
               (target.gpus, target.gpus[entry]), (mask, mask[entry] if len(mask) else mask),
               (np.full(len(target.rows), -1, np.int64), host[guests])]  # fmt: skip
    return Assignments(*(sealed(np.concatenate(pair)) for pair in columns))
