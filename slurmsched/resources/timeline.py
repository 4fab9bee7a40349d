"""When running jobs release what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import isfinite

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hostlists import expand_hostlist, most_names_of
from slurmsched.model.operations import Reservations
from slurmsched.resources.allocated import AllocatedGpus, holding
from slurmsched.resources.by_type import allocated_of_type
from slurmsched.resources.free import FreeResources
from slurmsched.resources.reservation_limits import YEAR_S, nodes_of_reservation


def until_expected_end_s(snapshot: Snapshot) -> Floats:
    """How much longer each job will hold GPUs at most, from its start or from now [s]. (N,), infinity without a limit.

    A running job past its end counts as about to go.
    """
    jobs = snapshot.jobs
    remaining_s = np.where(np.isnan(jobs.end_s), np.inf, jobs.end_s - snapshot.now_s)
    return np.where(holding(jobs), np.maximum(remaining_s, 0.0), jobs.time_limit_s)


def free_gpus_over_time(snapshot: Snapshot, allocated: AllocatedGpus, capacity: Int64s) -> tuple[Floats, Int64s]:
    """GPUs of each node that are free from each time on, if every job runs to its limit. times (K,) [s], (K, N).

    capacity: (N,) GPUs there are to give. The first time is now; jobs without a limit never give theirs back.
    """
    job = np.repeat(np.arange(len(allocated.count)), allocated.count)
    returns_s = until_expected_end_s(snapshot)[job]
    comes = np.isfinite(returns_s)
    times, place = np.unique(np.concatenate([[0.0], returns_s[comes]]), return_inverse=True)
    back = np.zeros((len(times), len(capacity)), np.int64)
    np.add.at(back, (place[1:], allocated.node[comes]), allocated.gpus[comes])
    back[0] += capacity - np.bincount(allocated.node, allocated.gpus, len(capacity)).astype(np.int64)
    return snapshot.now_s + times, np.cumsum(back, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedResources:
    """What running jobs give back: one row a job and node, ascending (node, end). All (E,).

    job: its row.
    end_s: when it is gone [Unix s]. CPUs and memory count as spread evenly over its nodes.
    """

    node: Int64s
    job: Int64s
    end_s: Floats
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, end_s: Floats) -> ReleasedResources:
        """end_s: (J,) when each job would be gone [Unix s]. Jobs without GPUs are there too: they hold CPUs."""
        jobs, allocated = snapshot.jobs, AllocatedGpus.of(snapshot)
        bare = np.flatnonzero(holding(jobs) & (allocated.count == 0))
        placed = _by_node_list(snapshot, bare)
        job = np.concatenate([np.repeat(np.arange(len(jobs)), allocated.count), placed[0]])
        node = np.concatenate([allocated.node, placed[1]])
        gpus = np.concatenate([allocated.gpus, np.zeros(len(placed[0]), np.int64)])
        on = np.bincount(job, minlength=len(jobs))[job]
        order = np.lexsort((job, end_s[job], node))
        columns = (node, job, end_s[job], gpus, jobs.cpus[job] / on, jobs.memory_mib[job] / on)
        return cls(*(column[order] for column in columns))

    def on(self, node: int) -> slice:
        """The rows of a node."""
        return slice(*np.searchsorted(self.node, (node, node + 1)).tolist())


def _by_node_list(snapshot: Snapshot, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Job and node rows of what these jobs hold, from the hostlist that Slurm shows. Nodes not known are left out, and
    lists that cannot be read: nothing is to come free there."""
    row_of = snapshot.nodes.name.rows()
    pairs: list[tuple[int, int]] = []
    for row in rows.tolist():
        with suppress(ValueError):
            hosts = expand_hostlist(snapshot.jobs.node_list[row], most_names_of(len(row_of)))
            pairs += [(row, row_of[name]) for name in hosts if name in row_of]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    return made[:, 0], made[:, 1]


@dataclass(frozen=True, slots=True, eq=False)
class ReservedSpan:
    """A reservation that stands or is to come.

    start_s, end_s: [Unix s].
    nodes: (N,) bool.
    """

    name: str
    start_s: float
    end_s: float
    nodes: Bools


@dataclass(frozen=True, slots=True, eq=False)
class TimelineJob:
    """The demand of one job.

    may: (N,) bool, nodes it may have.
    gpus: in all.
    each: on each node, of `many` nodes; as they come where it spreads.
    own: names of reservations that do not bar it.
    """

    may: Bools
    gpus: int
    each: int
    many: int
    whole: bool
    spread: bool
    limit_s: float
    own: frozenset[str]


@dataclass(slots=True)
class GpuTimeline:
    """GPUs free as time goes on.

    size: GPUs of each open node.
    ends: a heap of runs and reservations: when [Unix s], a number of its own, nodes, GPUs on each.
    kept: reservations, with their nodes as (N,) bool.
    """

    now_s: float
    free: Int64s
    size: Int64s
    ends: list[tuple[float, int, Int64s, Int64s]]
    kept: tuple[ReservedSpan, ...]
    taken: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot, reservations: Reservations, gpu_type: str = "") -> GpuTimeline:
        """From now on, every running job to its time limit. gpu_type: of the job that asks, "" = any."""
        nodes, free = snapshot.nodes, FreeResources.of(snapshot)
        size = np.where(nodes.closed, 0, nodes.gpus).astype(np.int64)
        seen = replace(snapshot, reservations=reservations)
        rows = np.flatnonzero(reservations.end_s > snapshot.now_s).tolist()
        kept = tuple(ReservedSpan(reservations.name[row], float(reservations.start_s[row]),
                                  float(reservations.end_s[row]), nodes_of_reservation(seen, row))
                     for row in rows)  # fmt: skip
        gpus = np.where(nodes.closed, 0, np.clip(free.types.within(free.gpus, gpu_type), 0, None))
        none = np.zeros(0, np.int64)
        over = [one.end_s for one in kept if one.end_s - one.start_s < YEAR_S]
        ends = [*_releases(snapshot, gpu_type)]
        ends += [(end_s, -len(snapshot.jobs) - number, none, none) for number, end_s in enumerate(over)]
        heapify(ends)
        return cls(snapshot.now_s, gpus, size, ends, kept)

    def fits(self, one: TimelineJob, may: Bools, free: Int64s) -> bool:
        """Whether that many GPUs free are enough."""
        got = self._got(one, may, free)
        return bool(got.sum() >= one.gpus if one.spread else np.count_nonzero(got) >= one.many)

    def _got(self, one: TimelineJob, may: Bools, free: Int64s) -> Int64s:
        """GPUs it could have on each node. (N,) int64."""
        if one.spread:
            return np.where(may, free, 0)
        found = may & (free >= one.each)
        return np.where(found & (free >= self.size), self.size, 0) if one.whole else np.where(found, one.each, 0)

    def _open(self, one: TimelineJob) -> Bools:
        """Nodes that no reservation bars from now until it would be over."""
        may = one.may
        for kept in self.kept:
            if kept.start_s < self.now_s + one.limit_s and kept.end_s > self.now_s and kept.name not in one.own:
                may = may & ~kept.nodes
        return may

    def wait(self, one: TimelineJob) -> bool:
        """Until it fits; False where it never does."""
        while not self.fits(one, self._open(one), self.free):
            if not self.ends:
                return False
            end_s, _, allocated, gpus = heappop(self.ends)
            np.add.at(self.free, allocated, gpus)
            self.free[allocated] = np.minimum(self.free[allocated], self.size[allocated])
            self.now_s = max(self.now_s, end_s)
        return True

    def take(self, one: TimelineJob) -> None:
        """The fullest nodes that fit; of a job that fits on none alone, the emptiest first."""
        got = self._got(one, self._open(one), self.free)
        if one.spread and not (got >= one.gpus).any():
            allocated = np.argsort(-got, kind="stable")
            given = np.diff(np.minimum(np.cumsum(got[allocated]), one.gpus), prepend=0)
        else:
            fit = np.flatnonzero(got >= (one.gpus if one.spread else 1))
            allocated = fit[np.argsort(self.free[fit], kind="stable")[: one.many]]
            given = np.full(len(allocated), one.gpus) if one.spread else got[allocated]
        self.free[allocated] -= given
        if isfinite(one.limit_s):
            self.taken += 1
            heappush(self.ends, (self.now_s + one.limit_s, self.taken, allocated, given))


def _releases(snapshot: Snapshot, gpu_type: str) -> Iterator[tuple[float, int, Int64s, Int64s]]:
    """End [Unix s] of each job that holds GPUs and ends, a number of its own, its nodes, and its GPUs on each.

    Of a job of which it is not shown what it holds where, as many on each of its nodes.
    """
    jobs = snapshot.jobs
    allocated = allocated_of_type(snapshot, gpu_type) if gpu_type else AllocatedGpus.of(snapshot)
    for row in np.flatnonzero(holding(jobs) & (jobs.gpus > 0) & np.isfinite(jobs.end_s)).tolist():
        node, gpus = allocated.node[allocated.rows(row)], allocated.gpus[allocated.rows(row)]
        if not len(node):
            node = np.unique(_by_node_list(snapshot, np.array([row]))[1])
            gpus = np.full(len(node), -(-int(jobs.gpus[row]) // max(len(node), 1)))
        if len(node):
            yield float(jobs.end_s[row]), -row, node, gpus
