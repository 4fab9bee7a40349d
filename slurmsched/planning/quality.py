"""How well the GPUs of a job are linked, compared with the best set that was free when it started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, nan

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gpu_selection import PlacedJob
from slurmsched.model.hostlists import expand_hostlist, fold_hostlist
from slurmsched.model.snapshot import Snapshot
from slurmsched.placements.linked import ClassTables
from slurmsched.planning.job_overrides import NODE_LIST, own_lists
from slurmsched.resources.allocated import holding, node_rows
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.gpu_sets import gb_per_s, set_table
from slurmsched.resources.placeable_gpus import MOST_GPUS, PlaceableGpus
from slurmsched.resources.reservation_limits import UnknownEligibility
from slurmsched.resources.topology_limits import unmet_topology_requests


@dataclass(frozen=True, slots=True, eq=False)
class _JobStart:
    """One job that started since the snapshot before. node, mask: (K,) what it holds."""

    row: int
    start_s: float
    node: Int64s
    mask: Int64s


def placed(before: Snapshot, now: Snapshot) -> tuple[PlacedJob, ...]:
    """The jobs of two and more GPUs that started between two snapshots, in the order of their starts.

    What was free when a job started is counted in three steps:

    - what was free before;
    - less what jobs took that started earlier;
    - with what others gave back until then.

    A job without a known end counts as one that held its GPUs all the while. A node without room for the job's CPUs and
    memory now counts as one that had none. Jobs on nodes of unknown wiring do not count.
    """
    topology, alike = now.topology, tuple(before.nodes.name) == tuple(now.nodes.name)
    rows, wired = _new(before, now), bool(topology.classes or len(topology.fabric.cell))
    if not (alike and len(rows) and wired) or now.nodes.gpus.max(initial=0) > MOST_GPUS:
        return ()
    snapshot = replace(now, jobs=own_lists(now))
    placeable, tables = PlaceableGpus.of(snapshot), ClassTables.of(topology, "smallest")
    moment = _Moment(
        snapshot, tables, np.where(placeable.blind, -1, placeable.node_class), _free(before), _freed_gpus(before, now)
    )
    found: list[PlacedJob] = []
    for start in _starts(snapshot, rows, placeable):
        moment.pass_to(start.start_s)
        found += moment.judged(start)
        np.bitwise_and.at(moment.free, start.node, ~start.mask)
    return tuple(found)


def _new(before: Snapshot, now: Snapshot) -> Int64s:
    """Rows of runs that the snapshot before did not have, by start and id."""
    jobs, earlier = now.jobs, holding(before.jobs)
    ran = dict(zip(before.jobs.job_id[earlier].tolist(), before.jobs.start_s[earlier].tolist(), strict=True))
    rows = np.flatnonzero(holding(jobs) & (jobs.gpus > 0))
    known = [ran.get(int(jobs.job_id[row])) == float(jobs.start_s[row]) for row in rows.tolist()]
    new: Int64s = rows[~np.array(known, np.bool_)]
    return new[np.lexsort((jobs.job_id[new], jobs.start_s[new]))]


def _starts(now: Snapshot, rows: Int64s, placeable: PlaceableGpus) -> Iterator[_JobStart]:
    allocated = placeable.allocated
    for row in rows[allocated.count[rows] > 0].tolist():
        entries = allocated.entries(np.array([row]))
        yield _JobStart(row, float(now.jobs.start_s[row]), allocated.node[entries], allocated.mask[entries])


def _free(before: Snapshot) -> Int64s:
    whole = (np.int64(1) << before.nodes.gpus.astype(np.int64)) - 1
    return whole & ~before.nodes.gpu_mask_used


def _freed_gpus(before: Snapshot, now: Snapshot) -> list[tuple[float, int, int]]:
    """What was given back between the snapshots: when, node row and mask, by time."""
    jobs = now.jobs
    over = dict(zip(jobs.job_id[jobs.finished].tolist(), jobs.end_s[jobs.finished].tolist(), strict=True))
    allocations = before.allocations
    rows = zip(allocations.job_id.tolist(), node_rows(before).tolist(), allocations.gpu_mask.tolist(), strict=True)
    return sorted((over[job], node, mask) for job, node, mask in rows if node >= 0 and job in over)


@dataclass(slots=True, eq=False)
class _Moment:
    """The cluster as it was at one time between the snapshots. free: (N,) masks. ends: still to come."""

    snapshot: Snapshot
    tables: ClassTables
    node_class: Int64s
    free: Int64s
    ends: list[tuple[float, int, int]]

    def pass_to(self, at_s: float) -> None:
        """Free everything that ended by this time."""
        while self.ends and self.ends[0][0] <= at_s:
            _, node, mask = self.ends.pop(0)
            self.free[node] |= mask

    def judged(self, start: _JobStart) -> Iterator[PlacedJob]:
        """The comparison for one start; None for a job of one GPU or on unknown wiring."""
        gpus, has_room = int(bit_counts(start.mask).sum()), self._nodes_with_room(start)
        if len(start.node) > 1:
            yield from self._gang(start, gpus, has_room)
        elif gpus > 1 and has_room is not None:
            yield from self._one_node(start, gpus, has_room)

    def _nodes_with_room(self, start: _JobStart) -> Bools | None:
        """Nodes that the job may have, with CPUs and memory for a share of it now; its own have them. None where what
        it asks of nodes is not understood."""
        try:
            allowed = allowed_nodes(self.snapshot, start.row)
        except UnknownEligibility:
            return None
        jobs, nodes = self.snapshot.jobs, self.snapshot.nodes
        cpus, memory_mib = (float(column[start.row]) / len(start.node) for column in (jobs.cpus, jobs.memory_mib))
        has_room = (nodes.cpus - nodes.cpus_used >= cpus) & (nodes.memory_mib - nodes.memory_used_mib >= memory_mib)
        has_room &= allowed & ~nodes.after_boot
        has_room[start.node] = True
        return has_room

    def _one_node(self, start: _JobStart, gpus: int, allowed: Bools) -> Iterator[PlacedJob]:
        node, mask = int(start.node[0]), int(start.mask[0])
        if self.node_class[node] < 0 or not self.tables.tabled[self.node_class[node]]:
            return
        free = self.free.copy()
        free[node] |= mask  # it had them
        sets = [(n, self.tables.take(int(self.node_class[n]), int(free[n]), gpus))
                for n in np.flatnonzero(allowed & (bit_counts(free) >= gpus)).tolist()
                if self.node_class[n] >= 0 and self.tables.tabled[self.node_class[n]]]  # fmt: skip
        best = max(sets, key=lambda each: self._rank(*each))
        got_s, best_s = self._speed(node, mask), self._speed(*best)
        if self._rank(node, mask) >= self._rank(*best):
            yield self._placed_job(start, gpus, got_s[0], got_s[0], 1.0)
            return
        of = 0 if got_s[0] < best_s[0] else 1  # the smallest link decides, then the sum
        ratio = min(1.0, got_s[of] / best_s[of]) if best_s[of] else 1.0
        where = self.snapshot.nodes.name[best[0]]
        note = f"{where} had GPUs {','.join(str(g) for g in range(64) if best[1] >> g & 1)}"
        yield self._placed_job(start, gpus, got_s[of], best_s[of], ratio, note)

    def _gang(self, start: _JobStart, gpus: int, has_room: Bools | None) -> Iterator[PlacedJob]:
        """A gang that lies on the fabric worse than it had to, or otherwise than its user asked."""
        cell = self.snapshot.topology.cell
        wrong = list(unmet_topology_requests(self.snapshot, start.row, start.node))
        placed = len(cell) == len(self.free) and bool((cell[start.node] >= 0).all())
        if has_room is not None and placed:
            wrong += self._split(start, gpus, has_room)
        if wrong or (has_room is not None and placed):
            ratio = min((kept for kept, _ in wrong), default=1.0)
            yield self._placed_job(start, gpus, nan, nan, ratio, "; ".join(note for _, note in wrong))

    def _split(self, start: _JobStart, gpus: int, allowed: Bools) -> Iterator[tuple[float, str]]:
        """Over several cells though one had room for it all; nothing of a job that asked for smaller segments, or that
        may have."""
        cell, nodes = self.snapshot.topology.cell, len(start.node)
        size = int(self.snapshot.jobs.segment_nodes[start.row])
        if size and size < nodes:
            return
        free = self.free.copy()
        np.bitwise_or.at(free, start.node, start.mask)
        room = allowed & (bit_counts(free) >= ceil(gpus / nodes)) & (cell >= 0)
        has, count = np.unique(cell[room], return_counts=True)
        spans, fits = len(np.unique(cell[start.node])), has[count >= nodes]
        names = self.snapshot.topology.fabric.cell
        if spans > 1 and len(fits):
            yield 1.0 / spans, f"it spans {spans} of the lowest cells, {names[int(fits[0])]} had room for it all"

    def _rank(self, node: int, mask: int) -> int:
        return int(self.tables.rank[self.tables.set_at[self.node_class[node]] + mask])

    def _speed(self, node: int, mask: int) -> tuple[float, float]:
        """Smallest link and sum of links of the set's best ring [GB/s]."""
        quality = set_table(self.tables.classes[self.node_class[node]]).quality[mask]
        return float(gb_per_s(quality[1])), float(gb_per_s(quality[2]))

    def _placed_job(
        self, start: _JobStart, gpus: int, got: float, best: float, ratio: float, note: str = ""
    ) -> PlacedJob:  # fmt: skip
        jobs, names = self.snapshot.jobs, self.snapshot.nodes.name
        row = start.row
        hosts = [names[n] for n in start.node.tolist()]
        first_s = float(jobs.first_submit_s[row])
        pinned = any(ours.key == (jobs.job_id[row], NODE_LIST) and set(expand_hostlist(str(ours.sent))) == set(hosts)
                     for ours in self.snapshot.overrides if ours.open)  # fmt: skip
        return PlacedJob(
            int(jobs.job_id[row]), first_s, start.start_s, fold_hostlist(hosts), gpus, got, best, ratio, pinned, note
        )
