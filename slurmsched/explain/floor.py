"""The GPUs of a cluster as time goes on and jobs that wait take their shares. Source: ours."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import isfinite

import numpy as np

from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Kept, free_gpus, names, reservations
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.eligibility import YEAR_S


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What one job takes. may: (N,) bool, nodes it may have. gpus: in all. each: on each node, of `many` nodes; as they
    come where it spreads. own: names of reservations that do not bar it."""

    may: Bools
    gpus: int
    each: int
    many: int
    whole: bool
    spread: bool
    limit_s: float
    own: frozenset[str]


@dataclass(slots=True)
class Floor:
    """GPUs free as time goes on. size: GPUs of each open node. ends: a heap of runs and reservations: when [Unix s], a
    number of its own, nodes, GPUs on each. kept: reservations, with their nodes as (N,) bool."""

    now_s: float
    free: Int64s
    size: Int64s
    ends: list[tuple[float, int, Int64s, Int64s]]
    kept: tuple[tuple[Kept, Bools], ...]
    taken: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot, facts: Facts) -> Floor:
        jobs, at = snapshot.jobs, {name: n for n, name in enumerate(snapshot.nodes.name)}
        size = np.where(snapshot.nodes.closed, 0, snapshot.nodes.gpus).astype(np.int64)
        kept = [(one, _nodes(snapshot, one)) for one in reservations(snapshot, facts)]
        floor = cls(snapshot.now_s, free_gpus(snapshot), size, [], tuple(kept))
        holds = ~jobs.pending & ~jobs.finished & (jobs.gpus > 0) & np.isfinite(jobs.end_s)
        for row in holds.nonzero()[0].tolist():
            held = np.array(sorted(at[name] for name in names(jobs.node_list[row]) if name in at), dtype=np.int64)
            if len(held):
                each = np.full(len(held), -(-int(jobs.gpus[row]) // len(held)))
                floor.ends.append((float(jobs.end_s[row]), -row, held, each))
        none = np.zeros(0, dtype=np.int64)
        over = [one.end_s for one, _ in kept if one.end_s - one.start_s < YEAR_S]
        floor.ends += [(end_s, -len(jobs) - number, none, none) for number, end_s in enumerate(over)]
        heapify(floor.ends)
        return floor

    def fits(self, one: Share, may: Bools, free: Int64s) -> bool:
        """Whether so many GPUs free are enough."""
        got = self._got(one, may, free)
        return bool(got.sum() >= one.gpus if one.spread else np.count_nonzero(got) >= one.many)

    def _got(self, one: Share, may: Bools, free: Int64s) -> Int64s:
        """GPUs it could have on each node. (N,) int64."""
        if one.spread:
            return np.where(may, free, 0)
        found = may & (free >= one.each)
        return np.where(found & (free >= self.size), self.size, 0) if one.whole else np.where(found, one.each, 0)

    def _open(self, one: Share) -> Bools:
        """Nodes that no reservation bars from now until it would be over."""
        may = one.may
        for kept, nodes in self.kept:
            if kept.start_s < self.now_s + one.limit_s and kept.end_s > self.now_s and kept.name not in one.own:
                may = may & ~nodes
        return may

    def wait(self, one: Share) -> bool:
        """Until it fits; False where it never does."""
        while not self.fits(one, self._open(one), self.free):
            if not self.ends:
                return False
            end_s, _, held, gpus = heappop(self.ends)
            self.free[held] = np.minimum(self.free[held] + gpus, self.size[held])
            self.now_s = max(self.now_s, end_s)
        return True

    def take(self, one: Share) -> None:
        """The fullest nodes that fit; of a job that fits on none alone, the emptiest first."""
        got = self._got(one, self._open(one), self.free)
        if one.spread and not (got >= one.gpus).any():
            held = np.argsort(-got, kind="stable")
            given = np.diff(np.minimum(np.cumsum(got[held]), one.gpus), prepend=0)
        else:
            fit = np.flatnonzero(got >= (one.gpus if one.spread else 1))
            held = fit[np.argsort(self.free[fit], kind="stable")[: one.many]]
            given = np.full(len(held), one.gpus) if one.spread else got[held]
        self.free[held] -= given
        if isfinite(one.limit_s):
            self.taken += 1
            heappush(self.ends, (self.now_s + one.limit_s, self.taken, held, given))


def _nodes(snapshot: Snapshot, one: Kept) -> Bools:
    found: Bools = snapshot.nodes.name.isin(snapshot.nodes.name if one.nodes is None else one.nodes)
    return found
