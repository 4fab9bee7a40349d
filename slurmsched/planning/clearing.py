"""Which nodes are cleared for a job and who leaves them: the fewest GPU seconds lost, all together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.planning.reach import binding, places
from slurmsched.resources.free import FreeResources, JobRequirements, share
from slurmsched.resources.held import Held

_EXACT = 10  # victims of a node up to which every set of them is tried
_NOTHING = 1e-6  # of CPUs or MiB: shares of jobs on several nodes are no whole numbers

Amounts = tuple[int, float, float]
Price = tuple[float, int, list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Running jobs that may lose their GPUs. lost_gpu_s: (J,) work each would lose. held: GPUs by row and node."""

    may_lose: Bools
    lost_gpu_s: Floats
    place: Int64s
    held: Held

    def without(self, snapshot: Snapshot, job_ids: Iterable[int]) -> Running:
        """The same, but these jobs keep their GPUs."""
        kept = np.isin(snapshot.jobs.job_id, sorted(job_ids))
        return replace(self, may_lose=self.may_lose & ~kept) if kept.any() else self

    def price(self, rows: list[int]) -> Price:
        """What the leaving of these costs, to be compared: GPU seconds of work lost, how many leave, and which by the
        order of the policy: the most urgent of them as late in it as can be, then the next."""
        return float(self.lost_gpu_s[rows].sum()), len(rows), sorted(-self.place[rows], reverse=True)

    def on(self, node: int) -> list[int]:
        """Rows of those that hold GPUs of this node, ascending."""
        nodes, rows = _by_node(self.held)
        here = slice(*np.searchsorted(nodes, (node, node + 1)).tolist())
        return [row for row in sorted(set(rows[here].tolist())) if self.may_lose[row]]

    def spread(self, nodes: Int64s, most: int) -> Running:
        """The same, but the work of a job counts on each of these nodes in part, as if shared among those that it
        would clear, at most so many."""
        here = np.isin(self.held.node, nodes)
        pairs = np.unique(np.stack((_rows(self.held)[here], self.held.node[here])), axis=1)  # one a GPU type on record
        among = np.bincount(pairs[0], minlength=len(self.held.count))
        return replace(self, lost_gpu_s=self.lost_gpu_s / np.clip(among, 1, most))


def _rows(held: Held) -> Int64s:
    """The job of each row of held."""
    return np.repeat(np.arange(len(held.count)), held.count)


@lru_cache(maxsize=2)  # all questions of a cycle are of one
def _by_node(held: Held) -> tuple[Int64s, Int64s]:
    """Nodes of the rows of held, ascending, and the job of each."""
    order = np.argsort(held.node, kind="stable")
    return held.node[order], _rows(held)[order]


@dataclass(frozen=True, slots=True, eq=False)
class Clearing:
    """The question whom one job's GPUs are taken from. row: of that job."""

    snapshot: Snapshot
    row: int
    need: JobRequirements
    running: Running
    stock: FreeResources

    def cheapest(self, allowed: Int64s) -> tuple[list[int], list[int]] | None:
        """The nodes of these that are cleared at the fewest lost GPU seconds, and who leaves; None if too few can be.

        Exact for one node. Of several it is the better of two searches, node after node: by what each job would lose,
        and by that spread over the nodes it would clear, since a job of several nodes is lost but once.
        """
        ways = [self.running]
        if self.need.nodes > 1:
            ways.append(self.running.spread(allowed, self.need.nodes))
        found = [chosen for way in ways if (chosen := self._chosen(allowed, way)) is not None]
        return min(found, key=lambda chosen: self.running.price(chosen[1]), default=None)

    def _chosen(self, allowed: Int64s, way: Running) -> tuple[list[int], list[int]] | None:
        """Of every place where Slurm would start the job, the cheapest."""
        offers = {node: rows for node in allowed.tolist() if (rows := self._victims_on(node, (), way)) is not None}
        prices = {node: way.price(rows) for node, rows in offers.items()}
        order = np.array(sorted(offers, key=lambda node: (prices[node], node)), np.int64)
        sets = places(binding(self.snapshot, self.row), order, self.need.nodes)
        found = (self._among({node: offers[node] for node in each.tolist()}, way) for each in sets)
        return min(found, key=lambda chosen: self.running.price(chosen[1]), default=None)

    def _among(self, offers: dict[int, list[int]], way: Running) -> tuple[list[int], list[int]]:
        """Always the node that costs least beside those that leave already. offers: who leaves each node."""
        nodes, leave = list[int](), list[int]()
        prices = {node: way.price(rows) for node, rows in offers.items()}
        while len(nodes) < self.need.nodes:
            node = min(offers, key=lambda each: (prices[each], each))
            rows = offers.pop(node)
            nodes.append(node)
            leave += rows
            for other in {each for row in rows for each in way.held.nodes(row)} & offers.keys():
                again = self._victims_on(other, leave, way)
                assert again is not None, "fewer leave than before"
                offers[other] = again
                prices[other] = way.price(offers[other])
        return sorted(nodes), self._needed(nodes, leave)

    def _needed(self, nodes: list[int], leave: list[int]) -> list[int]:
        """Those who leave, without any that the others make room enough without: the dearest of these stays."""
        on = {node: {row for row in leave if node in self.running.held.nodes(row)} for node in nodes}
        for row in sorted(leave, key=lambda row: (self.running.price([row]), row), reverse=True):
            here = [node for node in nodes if row in on[node]]  # elsewhere its staying changes nothing
            if all(max(self.lack(node, sorted(on[node] - {row}))) <= _NOTHING for node in here):
                for node in here:
                    on[node].remove(row)
        return sorted(set().union(*on.values()))

    def _victims_on(self, node: int, leave: Sequence[int], way: Running) -> list[int] | None:
        """The less urgent jobs whose leaving makes room on a node, beside those that leave already; None if none do."""
        lack = self.lack(node, leave)
        if max(lack) <= _NOTHING:
            return []
        less = [row for row in way.on(node) if way.place[row] > way.place[self.row] and row not in leave]
        shares = {row: share(self.snapshot, way.held, row, node) for row in less}
        if max(_left(lack, shares.values())) > _NOTHING:
            return None  # they are too few all together
        enough = (rows for rows in _sets(less, way) if max(_left(lack, [shares[row] for row in rows])) <= _NOTHING)
        return min(enough, key=lambda rows: (way.price(rows), rows), default=None)

    def enough(self, node: int, leave: Sequence[int]) -> bool:
        """Whether a node has enough for the job when these have left."""
        return max(self.lack(node, leave)) <= _NOTHING

    def lack(self, node: int, leave: Sequence[int]) -> Amounts:
        """GPUs, CPUs and memory [MiB] that a node has too few of for the job when these have left."""
        needs, has, held = self.need, self.stock, self.running.held
        gpus, cpus = int(needs.gpus[node] - has.gpus[node]), float(needs.cpus[node] - has.cpus[node])
        lack = (gpus, cpus, float(needs.memory_mib[node] - has.memory_mib[node]))
        return _left(lack, [share(self.snapshot, held, row, node) for row in leave if node in held.nodes(row)])


def _left(lack: Amounts, shares: Iterable[Amounts]) -> Amounts:
    gpus, cpus, memory_mib = lack
    for share_gpus, share_cpus, share_mib in shares:
        gpus, cpus, memory_mib = gpus - share_gpus, cpus - share_cpus, memory_mib - share_mib
    return gpus, cpus, memory_mib


def _sets(rows: list[int], running: Running) -> Iterator[list[int]]:
    """Every set of the rows if they are few, else only the cheapest ones, growing."""
    if len(rows) <= _EXACT:
        for size in range(1, len(rows) + 1):
            yield from map(list, combinations(rows, size))
        return
    order = sorted(rows, key=lambda row: (running.price([row]), row))
    for size in range(1, len(order) + 1):
        yield sorted(order[:size])
