"""The replay engine: an event heap, and the loop that lets the daemon's own cycle work on simulated time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from slurmsched.cycle import run_cycle
from slurmsched.errors import StandstillError
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import Cluster, DecidingPlanner, Store

FOREVER = math.inf


class EventKind(IntEnum):
    """What happens; at one time in this order: GPUs come back, jobs come, writes arrive, usage is counted and held
    against limits, then Slurm schedules."""

    END = 0
    PART_RELEASE = 1
    RELEASE = 2
    SUBMIT = 3
    ELIGIBLE = 4
    CANCEL = 5
    NODES = 6
    BOOKING = 7
    SAVED = 8
    WRITE = 9
    USAGE = 10
    CHECK = 11
    SCHEDULE = 12
    BACKFILL = 13


class Event(NamedTuple):
    """Something that happens at a time.

    run: of the job, when the event was made; an event of an earlier run is void.
    row: -1 = no job.
    """

    time_s: float
    kind: EventKind
    sequence: int
    row: int = -1
    run: int = 0


class EventHeap:
    """Events in order of (time, kind, sequence): equal inputs give equal orders."""

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._made = 0

    def push(self, time_s: float, kind: EventKind, row: int = -1, run: int = 0) -> None:
        heapq.heappush(self._heap, Event(time_s, kind, self._made, row, run))
        self._made += 1

    def pop(self) -> Event:
        return heapq.heappop(self._heap)

    @property
    def next_s(self) -> float:
        """Time of the next event, infinite when there is none."""
        return self._heap[0].time_s if self._heap else FOREVER


class SimulatedCluster(Cluster, Protocol):
    """A cluster whose time is ours to move. A cluster model offers this; the engine asks for nothing else."""

    @property
    def now_s(self) -> float: ...

    @property
    def next_event_s(self) -> float:
        """When something happens by itself; infinite when nothing will."""
        ...

    @property
    def waiting(self) -> int:
        """Jobs that could start if there were GPUs."""
        ...

    @property
    def finished(self) -> bool: ...

    @property
    def undecided(self) -> bool:
        """Whether a plan made now can differ from the last one."""
        ...

    @property
    def next_look_s(self) -> float:
        """When the last plan is to be followed by another in any case, unless that is an event of the cluster."""
        ...

    def advance(self, until_s: float) -> int:
        """Let time pass up to and with until_s. Returns the number of events that happened."""
        ...


StandsUntil = Callable[[Snapshot, Plan], float]  # when to plan again though nothing happens [s]


# Over 30 lines: half is signature and docstring.
def replay(
    cluster: SimulatedCluster,
    planner: DecidingPlanner | None = None,
    store: Store | None = None,
    *,
    interval_s: float = 60.0,
    stands_until: StandsUntil | None = None,
    on_progress: Callable[[SimulatedCluster], None] | None = None,
) -> int:
    """Run the cluster to its end, with a cycle every interval_s, and return the number of cycles.

    Without a planner Slurm is alone. A cycle is left out if the cluster says that it would plan the same. Cycles are
    jumped over, and counted, while nothing happens and by stands_until each would do as the last one, which is nothing.
    An event that changes nothing for a plan counts as none.
    """
    cycles, stands_s = 0, -math.inf

    def heed(snapshot: Snapshot, plan: Plan, _: Receipt) -> None:
        nonlocal stands_s
        stands_s = -math.inf if stands_until is None else stands_until(snapshot, plan)

    while not cluster.finished:
        if cluster.next_event_s == FOREVER and not cluster.waiting:
            raise StandstillError(cluster.now_s)
        if planner is None or store is None:
            cluster.advance(_stop_after(cluster, interval_s))
        else:
            tick_s = _next_tick(cluster, interval_s)
            if cluster.waiting and tick_s < (later_s := _tick_from(min(cluster.next_event_s, stands_s), interval_s)):
                cycles += round((later_s - tick_s) / interval_s)
                tick_s = later_s
            happened = cluster.advance(tick_s)
            if _is_cycle_due(cluster):
                if happened or not tick_s < stands_s:
                    run_cycle(cluster, planner, store, heed)
                cycles += 1
        if on_progress is not None:
            on_progress(cluster)
    return cycles


class RoundCluster(SimulatedCluster, Protocol):
    """A simulated cluster that also knows when it falls quiet, so that a round can end early."""

    @property
    def quiet_s(self) -> float:
        """When all jobs that run now will have ended; infinite when none runs."""
        ...


def replay_following(
    cluster: RoundCluster,
    planner: DecidingPlanner,
    store: Store,
    *,
    round_s: float,
    hold_s: float = 0.0,
    on_progress: Callable[[RoundCluster], None] | None = None,
) -> int:
    """Run the cluster to its end with a cycle after each round in which something happened; returns their number.

    A round begins where the one before ended, and ends after round_s or when all its jobs have ended; while nothing
    runs, time goes on to the next arrival. A plan made after time 0 stands for hold_s at least, unless nothing would
    ever happen again. Source: the simulator of Gavel (Narayanan et al., OSDI '20).
    """
    cycles, news, planned_s = 0, 0, 0.0
    while not cluster.finished:
        quiet_s = cluster.quiet_s
        stuck = quiet_s == cluster.next_event_s == FOREVER
        if not stuck:
            end_s = cluster.next_event_s if quiet_s == FOREVER else min(cluster.now_s + round_s, quiet_s)
            news += cluster.advance(end_s)
        if stuck or (news and (planned_s == 0 or cluster.now_s - planned_s >= hold_s)):
            if stuck and not news:
                raise StandstillError(cluster.now_s)
            run_cycle(cluster, planner, store)
            cycles, news, planned_s = cycles + 1, 0, cluster.now_s
        if on_progress is not None:
            on_progress(cluster)
    return cycles


class EventCluster(SimulatedCluster, Protocol):
    """A simulated cluster that also moves on by single events, so that cycles follow them."""

    def proceed(self) -> bool:
        """Let time pass to the next event. Returns whether there was one."""
        ...


def replay_events(
    cluster: EventCluster,
    planner: DecidingPlanner,
    store: Store,
    *,
    on_progress: Callable[[EventCluster], None] | None = None,
) -> int:
    """Run the cluster to its end, with a cycle whenever something happened that matters; returns their number.

    Raises StandstillError if jobs wait though nothing will happen any more.
    """
    cycles = 0
    while not cluster.finished:
        if not cluster.proceed():
            raise StandstillError(cluster.now_s)
        if cluster.undecided:
            run_cycle(cluster, planner, store)
            cycles += 1
        if on_progress is not None:
            on_progress(cluster)
    return cycles


def _is_cycle_due(cluster: SimulatedCluster) -> bool:
    """Whether a cycle now can matter."""
    return cluster.undecided or cluster.next_look_s <= cluster.now_s


def _next_tick(cluster: SimulatedCluster, interval_s: float) -> float:
    """The daemon's next look at the cluster; ticks at which nothing can have changed are skipped."""
    tick, look_s = (math.floor(cluster.now_s / interval_s) + 1) * interval_s, cluster.next_look_s
    if _is_cycle_due(cluster) or cluster.next_event_s <= tick:
        return min(tick, look_s)
    return min(_tick_from(cluster.next_event_s, interval_s), look_s)


def _tick_from(time_s: float, interval_s: float) -> float:
    """The first tick that is not before a time; none before infinity."""
    return math.ceil(time_s / interval_s) * interval_s if math.isfinite(time_s) else -math.inf


def _stop_after(cluster: SimulatedCluster, interval_s: float) -> float:
    """Without a daemon, time stops only for the progress bar."""
    return max(cluster.now_s + 100 * interval_s, cluster.next_event_s)
