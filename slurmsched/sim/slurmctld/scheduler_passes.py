"""When slurmctld's two schedulers look at the queue, and when it looks at running jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.kernels.ranking_walks import backfill
from slurmsched.kernels.slurmctld_passes import (
    BackfillRules,
    ClosedTimes,
    PassNodes,
    PassPartitions,
    QueuedJobs,
    RunningJobs,
    any_fits,
    backfill_pass,
    main_pass,
)
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.sim.event_loop import Event, EventHeap, EventKind
from slurmsched.sim.slurmctld.job_queue import QueueRecords, queue_records
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

if TYPE_CHECKING:
    from slurmsched.sim.slurmctld.slurmctld_state import SlurmctldState


class PassTimes:
    """The next main and the next backfill pass, as events; one of each kind is due at a time, the earliest asked for.

    Without a change a pass would find what the last one found: ages grow alike, so the order stands and reservations
    only come nearer. Hence passes are asked for. With bf_clock those of backfill that are left out count all the same:
    while jobs wait, slurmctld makes one every bf_interval, on its own clock. Without any it makes one after the last
    change, and then looks each second for the next.
    """

    def __init__(self, model: SlurmctldSettings, events: EventHeap) -> None:
        self._model, self._events = model, events
        self._last_main_s, self._next_backfill_s = -math.inf, model.bf_phase_s
        self._due = {EventKind.SCHEDULE: math.inf, EventKind.BACKFILL: math.inf}
        self._changed_s, self._waiting = -math.inf, False  # the last change, and whether jobs wait since
        self._check_s = -math.inf  # the last look at running jobs that was asked for or recorded

    def ask(self, now_s: float) -> None:
        """Something changed: both schedulers look again at their next time."""
        wish_s = max(now_s, self._last_main_s + self._model.batch_sched_delay_s)
        self.push(EventKind.SCHEDULE, self._tick_from(wish_s))
        self.ask_backfill(now_s)

    def ask_full(self, now_s: float) -> None:
        """slurmctld does not hear of it: the pass over the whole queue will see it."""
        self.push(EventKind.SCHEDULE, self._full_pass_from(now_s))

    def ask_backfill(self, now_s: float) -> None:
        """Backfill looks again at its next time, if there is any."""
        if self._model.backfill != "none":
            self._catch_up(now_s)
            wish_s = max(now_s, self._next_backfill_s)
            self.push(EventKind.BACKFILL, _next(wish_s, self._model.tick_s, self._model.bf_phase_s))

    def changed(self, now_s: float, waiting: bool) -> None:
        """Something changed. waiting: whether jobs wait now."""
        self._catch_up(now_s)
        self._changed_s, self._waiting = now_s, waiting

    def _catch_up(self, now_s: float) -> None:
        """Count the passes of backfill before now that were left out, as they would have found nothing."""
        if not (interval_s := self._model.bf_interval_s) or not self._model.bf_clock:
            return
        until_s = now_s if self._waiting else min(now_s, self._changed_s + interval_s)
        if self._next_backfill_s < until_s:
            self._next_backfill_s += interval_s * math.ceil((until_s - self._next_backfill_s) / interval_s)
        if not self._waiting:
            self._next_backfill_s = max(self._next_backfill_s, now_s)

    def ask_check(self, now_s: float) -> None:
        """Running jobs are held against their limits when slurmctld next looks at them."""
        if self._check_s <= now_s:
            self._check_s = self.check_from(now_s)
            self._events.push(self._check_s, EventKind.CHECK)

    def check_from(self, wish_s: float) -> float:
        """When slurmctld first looks at running jobs from wish_s on [s]."""
        return _next(wish_s, self._model.time_limit_check_s, 0.0)

    def push(self, kind: EventKind, time_s: float) -> None:
        """A pass of this kind at this time, if none is due before."""
        if time_s < self._due[kind]:
            self._due[kind] = time_s
            self._events.push(time_s, kind)

    def begins(self, event: Event) -> bool:
        """Whether the pass of this event is the one that is due; then it is under way, and none is due."""
        kind, now_s = event.kind, event.time_s
        if now_s != self._due[kind]:
            return False
        self._due[kind] = math.inf
        if kind == EventKind.BACKFILL or now_s == self._tick_from(now_s):  # an Epilog's own pass is beside the clock
            self._began(event)
        return True

    def _began(self, event: Event) -> None:
        if event.kind == EventKind.BACKFILL:
            self._next_backfill_s = event.time_s + self._model.bf_interval_s
        else:
            self._last_main_s = event.time_s

    def is_full(self, now_s: float) -> bool:
        """Whether a main pass now looks at the whole queue."""
        return now_s == self._full_pass_from(now_s)

    def _tick_from(self, wish_s: float) -> float:
        tick_s = self._model.tick_s
        return _next(wish_s, tick_s, -self._model.epoch_s % tick_s if tick_s else 0.0)

    def _full_pass_from(self, wish_s: float) -> float:
        return _next(wish_s, self._model.sched_interval_s, self._tick_from(self._model.sched_phase_s))


class RecordedPassTimes(PassTimes):
    """Passes at the times at which a recorded slurmctld made them; after those as PassTimes has them.

    recorded: time, scheduler, whether over the whole queue; or when usage was counted, or held against limits. For
    comparison with a real one, whose passes take wall time and come later by the load of its machine.
    """

    def __init__(
        self, model: SlurmctldSettings, events: EventHeap, recorded: Sequence[tuple[float, EventKind, bool]]
    ) -> None:
        super().__init__(model, events)
        self._full = {time_s for time_s, _, full in recorded if full}
        self._until_s = max(last_recorded(recorded, kind) for kind in self._due)
        self._check_s = last_recorded(recorded, EventKind.CHECK)
        for time_s, kind, _ in recorded:
            events.push(time_s, kind)

    def push(self, kind: EventKind, time_s: float) -> None:
        """Nothing is asked for before the last one recorded."""
        if time_s > self._until_s:
            super().push(kind, time_s)

    def begins(self, event: Event) -> bool:
        """Every one recorded does."""
        if event.time_s > self._until_s:
            return super().begins(event)
        self._began(event)
        return True

    def is_full(self, now_s: float) -> bool:
        return now_s in self._full or (now_s > self._until_s and super().is_full(now_s))


def last_recorded(recorded: Sequence[tuple[float, EventKind, bool]], kind: EventKind) -> float:
    """The last time recorded of this kind, minus infinity if there is none [s]."""
    return max((time_s for time_s, each, _ in recorded if each == kind), default=-math.inf)


def _next(wish_s: float, step_s: float, phase_s: float) -> float:
    """The first of phase_s, phase_s + step_s, ... that is not before wish_s; wish_s itself without a step."""
    return round(math.ceil((wish_s - phase_s) / step_s - 1e-9) * step_s + phase_s, 9) if step_s else wish_s


# slurmctld's two schedulers over the state of a simulated slurmctld: rows that start, and on which nodes.

NO_LIMIT = 10**9
FIRST_PART = 4  # a pass first takes that many times the jobs it looks at, and all only if these do not settle it
Start = tuple[int, Int64s, Int64s]  # row, its nodes (K,), and of each 1 if it gives `need`, 2 if it gives `last` (K,)


def anyone_fits(cluster: SlurmctldState) -> bool:
    """Whether enough nodes are idle for any job that may start; else no pass starts one."""
    demand, rows = cluster.demand, _one_of_each_shape(cluster, cluster.job.startable(cluster.now_s))
    idle = PassNodes(cluster.free_resources, (cluster.completing > 0) | ~cluster.open_nodes, demand.usable)
    return bool(any_fits(idle, demand.pool[rows], demand.nodes[rows], demand.last[rows]))


def _one_of_each_shape(cluster: SlurmctldState, rows: Int64s) -> Int64s:
    """One of the rows for each request among them, whatever their time limits."""
    found = np.full(cluster.shapes, -1, np.int64)
    found[cluster.shape[rows]] = rows
    return found[found >= 0]


def main_starts(cluster: SlurmctldState, full: bool) -> list[Start]:
    """Jobs that a main pass starts now, in its order. full: the whole queue, else its first queue_depth records.

    Of a long queue it takes the first part alone, where the rest would find its partitions blocked.
    """
    records, demand = main_records(cluster, full), cluster.demand
    depth, planned = NO_LIMIT if full else cluster.model.queue_depth, cluster.planned()
    first = records.take(slice(FIRST_PART * cluster.model.queue_depth))
    for part in (first, records) if len(records) else ():
        failed = np.zeros(len(demand.members), np.bool_)
        started = _main(cluster, part, depth, demand.usable, planned, failed)
        if len(part) == len(records) or failed[records.part[len(part) :]].all():
            break
    return started if len(records) else []


def main_records(cluster: SlurmctldState, full: bool) -> QueueRecords:
    """Records that a main pass may come to test, in its order. full: as in main_starts."""
    rows, most = _unbooked(cluster), cluster.model.queue_depth + 1
    if full:
        return queue_records(cluster, rows)
    return _first_records(queue_records(cluster, rows[:most] if cluster.one_record_each else rows), most)


def _first_records(records: QueueRecords, most: int) -> QueueRecords:
    """The first of these that count as so many records, as many as there are at most.

    An array counts where it comes first, whether or not others stand between its tasks.
    """
    if not records.array.any():
        return records.take(slice(most))
    begins: Bools = records.array == 0
    begins[np.unique(records.array, return_index=True)[1]] = True
    found = np.flatnonzero(begins)
    return records.take(slice(int(found[most]))) if most < len(found) else records


def booked_starts(cluster: SlurmctldState, row: int) -> list[Start]:
    """The start of a waiting job that names a reservation, if it can start there now and end before it does."""
    booking = cluster.bookings[cluster.bookings.named[row]]
    end_s = cluster.now_s + float(cluster.trace.time_limit_s[row])
    if not booking.start_s <= cluster.now_s < end_s <= booking.end_s:
        return []
    usable = (cluster.demand.usable[cluster.demand.pool[row]] & booking.nodes)[None, :]
    none, failed = np.zeros(1, np.int64), np.zeros(len(cluster.demand.members), np.bool_)
    record = QueueRecords(np.array([row]), none, cluster.demand.area[[row]], none, none)
    return _main(cluster, record, 1, usable, cluster.planned(booking.name), failed)


def _unbooked(cluster: SlurmctldState) -> Int64s:
    """Rows that may start outside of reservations, in the order slurmctld tests them."""
    rows, named = cluster.job.queue(cluster.now_s, cluster.tier), cluster.bookings.named
    return rows[~np.isin(rows, list(named))] if named else rows


def _main(
    cluster: SlurmctldState,
    records: QueueRecords,
    depth: int,
    usable: Bools,
    planned: tuple[Floats, Bools],
    failed: Bools,
) -> list[Start]:
    demand = cluster.demand
    given = main_pass(
        PassNodes(cluster.free_resources.copy(), cluster.completing > 0, usable), cluster.open_nodes.copy(),
        PassPartitions(demand.members, records.part, demand.bound[records.row], failed), ClosedTimes(*planned),
        _queued(cluster, records), cluster.limits.room.copy(), depth, cluster.now_s, cluster.node_order,
    )  # fmt: skip
    return _started(records.row, given)


def _queued(cluster: SlurmctldState, records: QueueRecords) -> QueuedJobs:
    """The records as a pass takes them."""
    demand, limits, rows = cluster.demand, cluster.limits, records.row
    return QueuedJobs(
        records.pool, demand.nodes[rows], demand.need[rows], demand.last[rows], cluster.trace.time_limit_s[rows],
        records.array, limits.tried[rows], limits.amount[rows], limits.throttle[rows],
        _groups(cluster, records), _reserve(cluster, rows),
        demand.least_loaded[rows],
        records.job if demand.several else np.arange(len(rows)),
    )  # fmt: skip


def _groups(cluster: SlurmctldState, records: QueueRecords) -> Int64s:
    """Numbers of the user, the partition, and both, for the limits on jobs that a backfill pass tests. (R, 3)."""
    model, none, part = cluster.model, np.zeros(len(records), np.int64), records.part
    if not (model.bf_max_job_user or model.bf_max_job_part or model.bf_max_job_user_part):
        return np.zeros((len(records), 3), np.int64)
    user = none
    if model.bf_max_job_user or model.bf_max_job_user_part:
        user = cluster.job.requests.user.codes[records.row].astype(np.int64)
    both = user * len(cluster.layout.partitions) + part if model.bf_max_job_user_part else none
    return np.column_stack([user, part, both])


def _reserve(cluster: SlurmctldState, rows: Int64s) -> Bools:
    """Which jobs backfill makes a reservation for: those old and urgent enough. (R,)."""
    model, reserves = cluster.model, np.ones(len(rows), np.bool_)
    if model.bf_min_age_reserve_s:
        reserves &= cluster.now_s - cluster.job.eligible_s[rows] >= model.bf_min_age_reserve_s
    if model.bf_min_prio_reserve:
        reserves &= cluster.job.priority(rows, cluster.now_s) >= model.bf_min_prio_reserve
    return reserves


def backfill_starts(cluster: SlurmctldState) -> list[Start]:
    """Jobs that a backfill pass starts now, in its order.

    Of a long queue it walks through the first part, and through more only if that does not settle who starts.
    """
    rows, model = _unbooked(cluster), cluster.model
    if not len(rows):
        return []
    records = queue_records(cluster, rows)
    if model.backfill == "easy":
        return _easy_starts(cluster, _tested(cluster, records))
    running, planned = running_by_end(cluster), ClosedTimes(*cluster.planned())
    walked = max(2 * model.bf_max_job_test, 1)
    while True:
        part = _tested(cluster, records.take(slice(walked)))
        tried = part.joined(records.take(slice(walked, None)).one_of_each())
        if not len(tried):
            return []
        given, settled = backfill_pass(
            _backfill_rules(cluster), _nodes(cluster), running, planned,
            _queued(cluster, tried), len(part), cluster.limits.room.copy(),
        )  # fmt: skip
        if settled:
            return _started(tried.row, given)
        walked *= FIRST_PART


def _nodes(cluster: SlurmctldState) -> PassNodes:
    """The nodes as a backfill pass takes them."""
    usable = cluster.demand.usable & cluster.open_nodes
    return PassNodes(cluster.free_resources.copy(), cluster.completing > 0, usable)


def _backfill_rules(cluster: SlurmctldState) -> BackfillRules:
    model = cluster.model
    tick_s = float(model.whole_ticks(cluster.now_s))
    return BackfillRules(
        tick_s, float(tick_s + model.bf_window_s), float(model.bf_resolution_s), float(model.epoch_s),
        model.bf_max_job_start or NO_LIMIT, model.bf_max_job_array_resv,
        model.bf_node_space_size or model.bf_max_job_test, model.bf_max_job_test,
        np.array([model.bf_max_job_user, model.bf_max_job_part, model.bf_max_job_user_part], np.int64),
        cluster.node_order, model.last_of_all,
    )  # fmt: skip


def running_by_end(cluster: SlurmctldState, *, completing: bool = False) -> RunningJobs:
    """Running jobs end at their time limits; of equal ends that of the lowest id comes first, tasks by the id of their
    array. completing: those that end now and requeued ones too."""
    rows = cluster.holdings.rows
    if not completing:
        rows = rows[cluster.job.phase[rows] == JobPhase.RUNNING]
    limit = cluster.model.whole_ticks(cluster.job.start_s[rows]) + cluster.trace.time_limit_s[rows]
    limit = np.minimum(limit, cluster.job.leave_s[rows])
    gone = np.where(cluster.job.phase[rows] == JobPhase.ENDING, cluster.now_s, cluster.job.stopped_s[rows])
    end = np.where(cluster.job.phase[rows] == JobPhase.RUNNING, limit, gone + cluster.model.kill_wait_s)
    order = np.lexsort((cluster.job.record_id[rows], end))
    count, node, held = cluster.holdings.parts(rows[order])
    return RunningJobs(end[order], np.cumsum(count) - count, count, node, held)


def _tested(cluster: SlurmctldState, records: QueueRecords) -> QueueRecords:
    """The records that a backfill pass can come to look at: those whose limits have room, and of an array no more tasks
    than can start or get a reservation.

    An array is one record. The pass itself counts those that it tests; one that finds no nodes does not count.
    """
    model = cluster.model
    records = records.take(cluster.limits.within(records.row))
    array = records.array
    if array.any():
        place = _place_in_group(np.where(array > 0, array, -1 - np.arange(len(records))))
        records = records.take(place <= _startable(cluster, records.row) + model.bf_max_job_array_resv)
    return records


def _startable(cluster: SlurmctldState, rows: Int64s) -> Int64s:
    """How many jobs like each row there is room for now, at most. (R,)."""
    least = np.minimum(cluster.demand.need[rows], cluster.demand.last[rows])
    room = np.where(least > 0, cluster.free_resources.sum(axis=1) // np.maximum(least, 1), NO_LIMIT)
    return np.minimum(room.min(axis=1), cluster.model.bf_max_job_test)


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
    ends = [*(np.flatnonzero(given[1:, 0] != given[:-1, 0]) + 1).tolist(), len(given)]
    return [
        (int(rows[given[begin, 0]]), given[begin:end, 1], given[begin:end, 2]) for begin, end in pairwise([0, *ends])
    ]


def _easy_starts(cluster: SlurmctldState, records: QueueRecords) -> list[Start]:
    """EASY counts GPUs only and reserves for the head alone. It looks at twice bf_max_job_test records at most."""
    found = _first_records(records, 2 * cluster.model.bf_max_job_test).row
    rows: Int64s = found[np.sort(np.unique(found, return_index=True)[1])]
    if not len(rows):
        return []
    gpus, demand = cluster.gpus[rows], cluster.demand
    if gpus.min() > cluster.free.sum():
        return []
    times, free = _outlook(cluster)
    limit_s = cluster.trace.time_limit_s[rows]
    given = backfill(times, free, gpus, demand.parted[rows], limit_s, np.zeros(free.shape[1]), cluster.size, 1, False)
    place, node = np.nonzero(given)
    kind = np.where(given[place, node] == demand.need[rows[place], 0], 1, 2)
    return _started(rows, np.column_stack([place, node, kind]))


def _outlook(cluster: SlurmctldState) -> tuple[Floats, Int64s]:
    """Free GPUs from now on, if every job runs to its time limit. times (K,), free (K, N)."""
    running, now_s, step = running_by_end(cluster, completing=True), cluster.now_s, cluster.model.bf_resolution_s
    ahead = np.maximum(running.end_s - now_s, 0.0)
    ahead = np.ceil(ahead / step) * step if step else ahead
    near: Bools = ahead <= cluster.model.bf_window_s
    times, slot = np.unique(np.concatenate([[0.0], ahead[near]]), return_inverse=True)
    back = np.zeros((len(times), len(cluster.capacity)), np.int64)
    for run, place in zip(np.flatnonzero(near).tolist(), slot[1:].tolist(), strict=True):
        parts = slice(running.first[run], running.first[run] + running.node_count[run])
        np.add.at(back[place], running.node[parts], running.held[parts, 0])
    back[0] += cluster.free
    return now_s + times, np.cumsum(back, axis=0)
