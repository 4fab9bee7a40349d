"""The replay engine: an event heap, and the loop that lets the daemon's own cycle work on simulated time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from slurmsched.cycle import run_cycle
from slurmsched.errors import StandstillError
from slurmsched.protocols import Cluster, Planner, Store

FOREVER = math.inf


class Kind(IntEnum):
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
    """run: of the job, when the event was made; an event of an earlier run is void. row: -1 = no job."""

    time_s: float
    kind: Kind
    sequence: int
    row: int = -1
    run: int = 0


class EventHeap:
    """Events in order of (time, kind, sequence): equal inputs give equal orders."""

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._made = 0

    def push(self, time_s: float, kind: Kind, row: int = -1, run: int = 0) -> None:
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

    def advance(self, until_s: float) -> int:
        """Let time pass up to and with until_s. Returns the number of events that happened."""
        ...


def replay(
    cluster: SimulatedCluster,
    planner: Planner | None = None,
    store: Store | None = None,
    *,
    interval_s: float = 60.0,
    on_progress: Callable[[SimulatedCluster], None] | None = None,
) -> int:
    """Run the cluster to its end, with a cycle every interval_s, and return the number of cycles.

    Without a planner Slurm is alone. A cycle is left out only if no job waits and nothing has happened since
    the last one, or if the cluster knows that it would plan the same (see EventCluster): it could write nothing and
    see nothing new.
    """
    cycles, news = 0, 0
    while not cluster.finished:
        if cluster.next_event_s == FOREVER and not cluster.waiting:
            raise StandstillError(cluster.now_s)
        if planner is None or store is None:
            cluster.advance(_stop_after(cluster, interval_s))
        else:
            news += cluster.advance(_next_tick(cluster, interval_s, bool(news)))
            if _undecided(cluster, bool(news)):
                run_cycle(cluster, planner, store)
                cycles += 1
            news = 0
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
    planner: Planner,
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
    """A simulated cluster that also knows whether deciding anew can matter, so that cycles follow events."""

    @property
    def undecided(self) -> bool:
        """Whether a plan made now can differ from the last one."""
        ...

    def proceed(self) -> None:
        """Let time pass to the next event, or to a later one before which no plan can matter."""
        ...


def replay_events(
    cluster: EventCluster,
    planner: Planner,
    store: Store,
    *,
    on_progress: Callable[[EventCluster], None] | None = None,
) -> int:
    """Run the cluster to its end, with a cycle whenever something happened that matters; returns their number.

    Raises StandstillError if jobs wait though nothing will happen any more.
    """
    cycles = 0
    while not cluster.finished:
        if cluster.next_event_s == FOREVER:
            raise StandstillError(cluster.now_s)
        cluster.proceed()
        if cluster.undecided:
            run_cycle(cluster, planner, store)
            cycles += 1
        if on_progress is not None:
            on_progress(cluster)
    return cycles


def _undecided(cluster: SimulatedCluster, news: bool) -> bool:
    """Whether a cycle now can matter. news: something has happened since the last one."""
    undecided: bool = getattr(cluster, "undecided", news or cluster.waiting > 0)
    return undecided or _wake_s(cluster) <= cluster.now_s


def _wake_s(cluster: SimulatedCluster) -> float:
    """When the last plan wants to be looked at again, infinite if it does not care (see EmbeddedCluster)."""
    wake_s: float = getattr(cluster, "wake_s", FOREVER)
    return wake_s


def _next_tick(cluster: SimulatedCluster, interval_s: float, news: bool) -> float:
    """The daemon's next look at the cluster; ticks at which nothing can have changed are skipped."""
    tick = (math.floor(cluster.now_s / interval_s) + 1) * interval_s
    wake_s = _wake_s(cluster)
    if _undecided(cluster, news) or cluster.next_event_s <= tick:
        return min(tick, wake_s)
    return min(math.ceil(cluster.next_event_s / interval_s) * interval_s, wake_s)


def _stop_after(cluster: SimulatedCluster, interval_s: float) -> float:
    """Without a daemon, time stops only for the progress bar."""
    return max(cluster.now_s + 100 * interval_s, cluster.next_event_s)
