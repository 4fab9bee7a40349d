"""What a placement walks over: jobs that may hold GPUs now, and the GPUs there are to give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from slurmsched.kernels.stock import givable, standing_of, wanted_of
from slurmsched.kernels.walk import walk
from slurmsched.model import Assignments, JobState, Snapshot, frozen
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, sealed
from slurmsched.model.states import HELD
from slurmsched.resources.eligibility import eligibility, limit_classes, named_rows
from slurmsched.resources.held import Held, node_rows, whole_gpus
from slurmsched.resources.job_request import request_of

_FLAGS = (int(JobState.PENDING), int(JobState.RUNNING | JobState.SUSPENDED), int(JobState.COMPLETING))
MAY_START, HOLDS = 1, 2


@lru_cache(maxsize=1)  # planner and placement of one cycle both ask
def standing(snapshot: Snapshot) -> Int64s:
    """HOLDS for a job that holds GPUs by itself (running or suspended, not completing), MAY_START for one that could
    start now (pending, not held, not delayed, no open dependency or reservation), 0 for the others. (N,) int64."""
    jobs = snapshot.jobs
    found = np.empty(len(jobs), np.int64)
    standing_of(jobs.state, jobs.priority, jobs.eligible_s, snapshot.now_s, _FLAGS, found)
    for column in (jobs.dependency, jobs.reservation):
        if column.names not in ((), ("",)):
            found[(found == MAY_START) & ~column.isin([""])] = 0
    found[(found == MAY_START) & jobs.is_state(HELD)] = 0
    return sealed(found)


def eligible(snapshot: Snapshot) -> Bools:
    """Jobs that could start now (see standing). (N,) bool."""
    return standing(snapshot) == MAY_START


def wanted_gpus(snapshot: Snapshot, stands: Int64s) -> Int64s:
    """GPUs each job holds, or asks for if it may start; 0 for the others. (J,) int64. stands: of `standing`."""
    jobs, held = snapshot.jobs, snapshot.allocations
    found: Int64s = wanted_of(jobs.job_id, stands, jobs.gpus, held.job_id, whole_gpus(snapshot))
    return found


def to_give(snapshot: Snapshot) -> Int64s:
    """GPUs of each node that jobs of the snapshot hold or may get: without those of unseen holders and the free
    ones of closed nodes, with those of completing jobs. (N,) int64."""
    nodes, held = snapshot.nodes, whole_gpus(snapshot)
    found: Int64s = givable(nodes.closed, nodes.gpus, nodes.gpus_used, node_rows(snapshot), held)
    return found


def pools(snapshot: Snapshot) -> tuple[Int64s, Bools]:
    """Row of the table for each job, and the table: which open nodes it may have. (J,), (P, N).

    As resources.eligibility tells, but whatever the size of nodes, and whoever reserved them. A request of several
    types at once gets nodes that have all of them.
    """
    jobs = snapshot.jobs
    texts = (jobs.partition, jobs.gpu_request, jobs.features_asked, jobs.gpus_by, jobs.reservation)
    parts: list[Int64s] = [one.codes.astype(np.int64) for one in texts if len(one.names) > 1]
    alike, kind = _alike(np.zeros(len(jobs), np.int64), (*parts, *limit_classes(snapshot)))
    table = np.zeros((max(len(alike), 1), len(snapshot.nodes)), np.bool_)
    for at, row in enumerate(alike.tolist()):
        any_node = replace(request_of(snapshot, row), nodes_asked="", nodes_excluded="")
        table[at] = eligibility(snapshot, any_node, sized=False).open
    if jobs.nodes_asked.names in ((), ("",)) and jobs.nodes_excluded.names in ((), ("",)):
        return kind, table
    many = np.where(jobs.nodes_asked.isin([""]), 0, jobs.nodes).astype(
        np.int64
    )  # see eligibility: too few are no limit
    lists = (many, jobs.nodes_asked.codes.astype(np.int64), jobs.nodes_excluded.codes.astype(np.int64))
    first, pool = _alike(kind, lists)
    usable = table[kind[first]]
    for at, row in enumerate(first.tolist()):
        _keep_named(snapshot, row, usable[at])
    return pool, usable


def _alike(code: Int64s, columns: Iterable[Int64s]) -> tuple[Int64s, Int64s]:
    """The first row of each class of rows with the same code and columns, and the class of each row. (C,), (N,)."""
    for column in columns:
        _, code = np.unique(code * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    _, first, made = np.unique(code, return_index=True, return_inverse=True)
    return first.astype(np.int64), made.astype(np.int64)


def _keep_named(snapshot: Snapshot, row: int, usable: Bools) -> None:
    """Takes from `usable` the nodes that the job in this row excludes or does not ask for, as eligibility does."""
    asked, excluded = snapshot.jobs.nodes_asked[row], snapshot.jobs.nodes_excluded[row]
    if excluded and (names := named_rows(snapshot, excluded)) is not None:
        usable[names[0]] = False
    if asked and (names := named_rows(snapshot, asked)) is not None and names[1] >= max(1, snapshot.jobs.nodes[row]):
        others = np.ones_like(usable)
        others[names[0]] = False
        usable[others] = False


def parted(gpus: Int64s, nodes: Int32s | Int64s, pool: Int64s, usable: Bools, capacity: Int32s | Int64s) -> Int64s:
    """Over how many nodes each job is shared out: those it asks for; 1, which is whole nodes and a rest, where it
    needs them all and too few nodes could ever hold an equal part. (J,) int64.

    gpus, nodes: (J,) asked for. pool, usable: see pools. capacity: (N,) GPUs of each node.
    """
    made = nodes.astype(np.int64)
    several = np.flatnonzero((nodes > 1) & (gpus % np.maximum(nodes, 1) == 0))
    if not len(several):
        return made
    asked, place = np.unique(np.stack([gpus, nodes, pool])[:, several], axis=1, return_inverse=True)
    for kind, (all_, count, row) in enumerate(asked.T.tolist()):
        here = capacity[usable[row]]
        needed = -(-all_ // max(int(here.max(initial=0)), 1))
        if count == needed and int((here >= all_ // count).sum()) < count:
            made[several[place.reshape(-1) == kind]] = 1
    return made


def assign(
    snapshot: Snapshot, order: Int64s, capacity: Int64s, held: Held, pool: Int64s, usable: Bools, handicap: Floats
) -> Assignments:
    """The walk over holding and eligible jobs of the order, as assignments. handicap: see kernels.walk."""
    jobs = snapshot.jobs
    rows = order[((held.count > 0) | eligible(snapshot))[order]]
    gpus = jobs.gpus.astype(np.int64)
    nodes = parted(gpus, jobs.nodes, pool, usable, snapshot.nodes.gpus)
    given = walk(rows, gpus, nodes, held.first, held.count, held.node, held.gpus, pool, usable, capacity, handicap)
    return assignments(rows, given)


def assignments(rows: Int64s, given: Int64s) -> Assignments:
    """The rows that were given GPUs, with their places. rows: (R,). given: (R, N) GPUs of each node."""
    served = np.flatnonzero(given.any(axis=1))
    rank, node = np.nonzero(given[served])
    count = np.bincount(rank, minlength=len(served)).astype(np.int64)
    ints = (rows[served], np.cumsum(count) - count, count, node, given[served][rank, node])
    return Assignments(*(frozen(column, np.int64) for column in ints))
