"""When a job starts if each job before it takes its turn and every job runs to its time limit. Source: ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import isfinite, nan

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind, free_gpus, names
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.snapshot import Snapshot

MOST = 2_000  # jobs before it, tasks of arrays counted one by one


def by_plan(snapshot: Snapshot, before: Sequence[int], row: int, facts: Facts) -> tuple[float, float]:
    """The start [Unix s] were it next, and after all of `before` (rows in their order); NaN where it cannot be told.

    Only GPUs are counted. Backfill and jobs that end early make it earlier, jobs that are new before it later.
    """
    jobs = snapshot.jobs
    tasks = np.maximum(jobs.array_tasks[list(before)], 1)
    if not jobs.gpus[row] or tasks.sum() > MOST:
        return nan, nan
    own = _own(snapshot, row, facts)
    return _turn(snapshot, (), row, own), _turn(snapshot, np.repeat(list(before), tasks).astype(int).tolist(), row, own)


def _own(snapshot: Snapshot, row: int, facts: Facts) -> Bools:
    """Nodes that only GPUs keep it off, if anything."""
    asks = Asks.of(snapshot, row, facts)
    found = (asks.obstacle(at) for at in range(len(snapshot.nodes)))
    return np.array([one is None or one.kind is Kind.GPUS for one in found], dtype=np.bool_)


def _turn(snapshot: Snapshot, before: Sequence[int], row: int, own: Bools) -> float:
    floor = _Floor.of(snapshot)
    for one in before:
        may, each, many = floor.mask(snapshot, one), *_shape(snapshot, one)
        if not each or np.count_nonzero(floor.whole[may] >= each) < many:
            continue  # it holds no GPUs, or cannot start now: Slurm passes it by
        if not floor.wait(may, each, many):
            return nan
        floor.take(may, each, many, float(snapshot.jobs.time_limit_s[one]))
    return floor.now_s if floor.wait(own, *_shape(snapshot, row)) else nan


def _shape(snapshot: Snapshot, row: int) -> tuple[int, int]:
    """GPUs on each node, spread evenly, and nodes."""
    many = max(1, int(snapshot.jobs.nodes[row]))
    return -(-int(snapshot.jobs.gpus[row]) // many), many


@dataclass(slots=True)
class _Floor:
    """GPUs free as time goes on. whole: of each open node. ends: a heap of runs: when [Unix s], a number of its own,
    nodes, GPUs on each."""

    now_s: float
    free: Int64s
    whole: Int64s
    ends: list[tuple[float, int, Int64s, int]]
    masks: dict[str, Bools] = field(default_factory=dict)
    taken: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Floor:
        jobs, at = snapshot.jobs, {name: n for n, name in enumerate(snapshot.nodes.name)}
        floor = cls(snapshot.now_s, free_gpus(snapshot), np.where(snapshot.nodes.closed, 0, snapshot.nodes.gpus), [])
        holds = ~jobs.pending & ~jobs.finished & (jobs.gpus > 0) & np.isfinite(jobs.end_s)
        for row in holds.nonzero()[0].tolist():
            held = np.array(sorted(at[name] for name in names(jobs.node_list[row]) if name in at), dtype=np.int64)
            if len(held):
                floor.ends.append((float(jobs.end_s[row]), -row, held, -(-int(jobs.gpus[row]) // len(held))))
        heapify(floor.ends)
        return floor

    def mask(self, snapshot: Snapshot, row: int) -> Bools:
        """Nodes of a job's partitions."""
        listed = snapshot.jobs.partition[row]
        if listed not in self.masks:
            wanted = set(listed.split(","))
            found = (not wanted.isdisjoint(one.split(",")) for one in snapshot.nodes.partitions)
            self.masks[listed] = np.fromiter(found, np.bool_, len(snapshot.nodes))
        return self.masks[listed]

    def wait(self, may: Bools, each: int, many: int) -> bool:
        """Until so many nodes have so many GPUs free; False where they never have."""
        while np.count_nonzero(may & (self.free >= each)) < many:
            if not self.ends:
                return False
            end_s, _, held, gpus = heappop(self.ends)
            self.free[held] = np.minimum(self.free[held] + gpus, self.whole[held])
            self.now_s = max(self.now_s, end_s)
        return True

    def take(self, may: Bools, each: int, many: int, limit_s: float) -> None:
        """The fullest nodes that fit."""
        fit = np.flatnonzero(may & (self.free >= each))
        held = fit[np.argsort(self.free[fit], kind="stable")[:many]]
        self.free[held] -= each
        if isfinite(limit_s):
            self.taken += 1
            heappush(self.ends, (self.now_s + limit_s, self.taken, held, each))
