"""slurmctld's two schedulers over the state of an embedded cluster: rows that start, and on which nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.kernels.backfill import backfill
from slurmsched.kernels.backfill_pass import backfill_pass
from slurmsched.kernels.main_pass import main_pass
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.replay.jobtable import Phase

if TYPE_CHECKING:
    from slurmsched.replay.embedded_state import EmbeddedState

NO_LIMIT = 10**9
Start = tuple[int, Int64s, Int64s]  # row, its nodes (K,), and of each 1 if it gives `need`, 2 if it gives `last` (K,)


def main_starts(cluster: EmbeddedState, full: bool) -> list[Start]:
    """Jobs that a main pass starts now, in its order. full: the whole queue, else its first queue_depth records."""
    rows = _unbooked(cluster)
    if not len(rows):
        return []
    depth = NO_LIMIT if full else cluster.model.queue_depth
    return _main(cluster, rows, depth, cluster.demand.usable, cluster.demand.pool[rows], cluster.planned())


def booked_starts(cluster: EmbeddedState, row: int) -> list[Start]:
    """The start of a waiting job that names a reservation, if it can start there now and end before it does."""
    booking = cluster.bookings[cluster.bookings.named[row]]
    end_s = cluster.now_s + float(cluster.trace.time_limit_s[row])
    if not booking.start_s <= cluster.now_s < end_s <= booking.end_s:
        return []
    usable = (cluster.demand.usable[cluster.demand.pool[row]] & booking.nodes)[None, :]
    rows, pool = np.array([row]), np.zeros(1, np.int64)
    return _main(cluster, rows, 1, usable, pool, cluster.planned(booking.name))


def _unbooked(cluster: EmbeddedState) -> Int64s:
    """Rows that may start outside of reservations, in the order slurmctld tests them."""
    rows, named = cluster.job.queue(cluster.now_s, cluster.tier), cluster.bookings.named
    return rows[~np.isin(rows, list(named))] if named else rows


def _main(
    cluster: EmbeddedState, rows: Int64s, depth: int, usable: Bools, pool: Int64s, planned: tuple[Floats, Bools]
) -> list[Start]:
    demand, limits, (block, blocked) = cluster.demand, cluster.limits, planned
    given = main_pass(
        cluster.left.copy(), cluster.open_nodes.copy(), cluster.completing > 0, usable, pool,
        demand.members, demand.part[rows], demand.nodes[rows], demand.need[rows], demand.last[rows],
        demand.pinned[rows],
        cluster.job.requests.array_id[rows], limits.tried[rows], limits.amount[rows], limits.room.copy(),
        depth, cluster.now_s, cluster.trace.time_limit_s[rows], block, blocked, cluster.model.shortest_run,
    )  # fmt: skip
    return _started(rows, given)


def backfill_starts(cluster: EmbeddedState) -> list[Start]:
    """Jobs that a backfill pass starts now, in its order."""
    rows = _tested(cluster, _unbooked(cluster))
    if not len(rows):
        return []
    if cluster.model.backfill == "easy":
        return _easy_starts(cluster, rows)
    model, demand, limits, running = cluster.model, cluster.demand, cluster.limits, Running.of(cluster)
    block, blocked = cluster.planned()
    now_s = float(model.told(cluster.now_s))
    clock = np.array([now_s, now_s + model.bf_window_s, model.bf_resolution_s, model.epoch_s])
    most = np.array([model.bf_max_job_start or NO_LIMIT, model.bf_max_job_array_resv,
                     model.bf_node_space_size or model.bf_max_job_test])  # fmt: skip
    given = backfill_pass(
        clock, most, cluster.left.copy(), running.end_s, running.first, running.count, running.node, running.held,
        block, blocked, cluster.completing > 0, demand.usable & cluster.open_nodes, demand.pool[rows],
        demand.nodes[rows], demand.need[rows],
        demand.last[rows], cluster.trace.time_limit_s[rows],
        cluster.job.requests.array_id[rows], limits.tried[rows],
        limits.amount[rows], limits.room.copy(), model.shortest_run, model.last_of_all,
    )  # fmt: skip
    return _started(rows, given)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """What is held, by expected end: end_s (R,) ascending; rows first .. + count of node (H,) and held (H, 3)."""

    end_s: Floats
    first: Int64s
    count: Int64s
    node: Int64s
    held: Int64s

    @classmethod
    def of(cls, cluster: EmbeddedState, *, completing: bool = False) -> Running:
        """Running jobs end at their time limits; of equal ends that of the lowest id comes first, tasks by the id of
        their array. completing: those that end now and requeued ones too."""
        rows = cluster.holdings.rows
        if not completing:
            rows = rows[cluster.job.phase[rows] == Phase.RUNNING]
        limit = cluster.model.told(cluster.job.start_s[rows]) + cluster.trace.time_limit_s[rows]
        gone = np.where(cluster.job.phase[rows] == Phase.ENDING, cluster.now_s, cluster.job.stopped_s[rows])
        end = np.where(cluster.job.phase[rows] == Phase.RUNNING, limit, gone + cluster.model.kill_wait_s)
        order = np.lexsort((cluster.job.record_id[rows], end))
        count, node, held = cluster.holdings.parts(rows[order])
        return cls(end[order], np.cumsum(count) - count, count, node, held)


def _tested(cluster: EmbeddedState, rows: Int64s) -> Int64s:
    """The rows that a backfill pass looks at: the first of each user, partition, and both, and the first of all."""
    model, parts = cluster.model, len(cluster.layout.partitions)

    def user(rows: Int64s) -> Int64s:
        return cluster.job.requests.user.codes[rows].astype(np.int64)

    def part(rows: Int64s) -> Int64s:
        return cluster.demand.part[rows]

    if model.bf_max_job_user:
        rows = rows[_place_in_group(user(rows)) < model.bf_max_job_user]
    if model.bf_max_job_part:
        rows = rows[_place_in_group(part(rows)) < model.bf_max_job_part]
    if model.bf_max_job_user_part:
        rows = rows[_place_in_group(user(rows) * parts + part(rows)) < model.bf_max_job_user_part]
    return rows[: model.bf_max_job_test]


def _place_in_group(group: Int64s) -> Int64s:
    """How many of the same group come before each. (N,)."""
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    first = np.searchsorted(sorted_group, sorted_group)
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first
    return place


def _started(rows: Int64s, given: Int64s) -> list[Start]:
    """given: (K, 3) place among the rows, node, kind; those of a job stand together."""
    if not len(given):
        return []
    begin = np.flatnonzero(np.diff(given[:, 0], prepend=-1))
    parts = np.split(given, begin[1:])
    return [(int(rows[part[0, 0]]), part[:, 1], part[:, 2]) for part in parts]


def _easy_starts(cluster: EmbeddedState, rows: Int64s) -> list[Start]:
    """EASY counts GPUs only and reserves for the head alone."""
    gpus, demand = cluster.trace.gpus[rows], cluster.demand
    if gpus.min() > cluster.free.sum():
        return []
    times, free = _outlook(cluster)
    limit_s = cluster.trace.time_limit_s[rows]
    given = backfill(times, free, gpus, demand.parted[rows], limit_s, np.zeros(free.shape[1]), cluster.size, 1, False)
    place, node = np.nonzero(given)
    kind = np.where(given[place, node] == demand.need[rows[place], 0], 1, 2)
    return _started(rows, np.column_stack([place, node, kind]))


def _outlook(cluster: EmbeddedState) -> tuple[Floats, Int64s]:
    """Free GPUs from now on, if every job runs to its time limit. times (K,), free (K, N)."""
    running, now_s, step = Running.of(cluster, completing=True), cluster.now_s, cluster.model.bf_resolution_s
    ahead = np.maximum(running.end_s - now_s, 0.0)
    ahead = np.ceil(ahead / step) * step if step else ahead
    near: Bools = ahead <= cluster.model.bf_window_s
    times, slot = np.unique(np.concatenate([[0.0], ahead[near]]), return_inverse=True)
    back = np.zeros((len(times), len(cluster.capacity)), np.int64)
    for run, place in zip(np.flatnonzero(near).tolist(), slot[1:].tolist(), strict=True):
        parts = slice(running.first[run], running.first[run] + running.count[run])
        np.add.at(back[place], running.node[parts], running.held[parts, 0])
    back[0] += cluster.free
    return now_s + times, np.cumsum(back, axis=0)
