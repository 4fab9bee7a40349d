"""What each node has free, what a job needs of each, and when running jobs give theirs back."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slurmsched.model import Act, JobState, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hostlist import expand, most_of
from slurmsched.model.wants import types_of
from slurmsched.resources.eligibility import shares_cpus
from slurmsched.resources.held import Held, holding, node_rows, whole_gpus
from slurmsched.resources.job_request import JobRequest, request_of


def one_type(snapshot: Snapshot, row: int) -> str:
    """The GPU type that a job asks for, if it asks for one alone and not for whole nodes; "" for any other."""
    request = snapshot.jobs.gpu_request[row]
    named = types_of(request)
    return next(iter(named)) if len(named) == 1 and "," not in request and not request_of(snapshot, row).whole else ""


def held_of(snapshot: Snapshot, gpu_type: str) -> Held:
    """What holding jobs hold, on nodes of several types of this type alone."""
    held, node = snapshot.allocations, node_rows(snapshot)
    several = np.append(snapshot.nodes.gpu_types.map(lambda has: "," in has, np.bool_), False)
    gpus = np.where(several[node] & ~held.gpu_type.isin([gpu_type]), 0, held.gpus)
    return Held.of(replace(snapshot, allocations=held.with_columns(gpus=gpus)))


@dataclass(slots=True, eq=False)
class FreeByType:
    """GPUs by type on nodes that have several.

    told: (N,) bool, those of these nodes of which it is known how many of each type are free. has, free: (N,) int64 by
    type, 0 on other nodes. held: by job id and row of the node.
    """

    told: Bools
    has: dict[str, Int64s]
    free: dict[str, Int64s]
    held: dict[tuple[int, int], Counter[str]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeByType:
        """Not told where jobs hold GPUs that are not seen, or are not said to be of a type."""
        nodes, found = snapshot.nodes, cls(np.zeros(len(snapshot.nodes), np.bool_), {}, {}, {})
        several = nodes.gpu_types.map(lambda has: "," in has, np.bool_)
        for node in np.flatnonzero(several).tolist():
            types = types_of(nodes.gpu_types[node])
            found.told[node] = sum(types.values()) == int(nodes.gpus[node])
            for name, gpus in types.items():
                found.has.setdefault(name, np.zeros(len(nodes), np.int64))[node] = gpus
        if not several.any():
            return found
        found.free = {name: gpus.copy() for name, gpus in found.has.items()}
        used, held, rows = np.zeros(len(nodes), np.int64), snapshot.allocations, node_rows(snapshot).tolist()
        for job_id, node, name, gpus in zip(held.job_id.tolist(), rows, held.gpu_type, held.gpus.tolist(), strict=True):
            if node >= 0 and several[node]:
                used[node] += gpus
                found.held.setdefault((job_id, node), Counter())[name] += gpus
                if name in found.free:
                    found.free[name][node] -= gpus
                else:
                    found.told[node] = False
        found.told &= used == nodes.gpus_used
        return found

    def able(self, gpu_type: str, gpus: Int64s) -> Bools:
        """Those of the nodes that are told and could hold so many of this type each. gpus: (N,). (N,) bool."""
        return self.told & self.could(gpu_type, gpus)

    def could(self, gpu_type: str, gpus: Int64s) -> Bools:
        """The same, whether or not it is told what is free there. (N,) bool."""
        return self.has[gpu_type] >= gpus if gpu_type in self.has else np.zeros_like(self.told)

    def within(self, gpus: Int64s, gpu_type: str) -> Int64s:
        """Free GPUs of all nodes, of those that are told the ones of this type. gpus: (N,) of any. (N,) int64."""
        return np.where(self.told, self.free[gpu_type], gpus) if gpu_type in self.free else gpus

    def give(self, job_id: int, node: int) -> None:
        """A job gives back what it holds of a node."""
        for name, gpus in self.held.get((job_id, node), {}).items():
            if name in self.free:
                self.free[name][node] += gpus

    def take(self, nodes: Int64s, gpus: Int64s, gpu_type: str) -> None:
        """A job takes so many of each of these nodes; of "" any, so that nobody knows what is free then. gpus: (N,)."""
        if gpu_type in self.free:
            self.free[gpu_type][nodes] -= gpus[nodes]
        elif not gpu_type:
            self.told[nodes] = False


@dataclass(frozen=True, slots=True, eq=False)
class JobRequirements:
    """What a job needs on each of its nodes, by the node it may be. nodes: how many. gpus, cpus, memory_mib: (N,).
    gpu_type: the one type that it asks for, see one_type."""

    nodes: int
    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    gpu_type: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> JobRequirements:
        """An equal share of all; one that is exclusive needs every GPU and CPU, so that nobody else is there.

        Where jobs share CPUs whatever they do (OverSubscribe=FORCE), none need be free.
        """
        jobs, fleet, nodes = snapshot.jobs, snapshot.nodes, max(int(snapshot.jobs.nodes[row]), 1)
        gpus, cpus = (np.full(len(fleet), -(-int(column[row]) // nodes), np.int64) for column in (jobs.gpus, jobs.cpus))
        request = request_of(snapshot, row)
        if shares(snapshot, request):
            cpus = np.zeros_like(cpus)
        if request.whole:
            gpus, cpus = np.maximum(gpus, fleet.gpus), np.maximum(cpus, fleet.cpus)
        memory_mib = np.full(len(fleet), float(jobs.memory_mib[row]) / nodes)
        return cls(nodes, gpus, cpus, memory_mib, one_type(snapshot, row))

    def fits_empty(self, snapshot: Snapshot) -> Bools:
        """Nodes that could hold its share if they were empty. (N,) bool."""
        nodes = snapshot.nodes
        return self.within(nodes.gpus, nodes.cpus, nodes.memory_mib)

    def fits_free(self, snapshot: Snapshot) -> Bools:
        """Nodes that have its share free as they are shown. (N,) bool."""
        nodes = snapshot.nodes
        gpus, cpus = nodes.gpus.astype(np.int64) - nodes.gpus_used, nodes.cpus.astype(np.int64) - nodes.cpus_used
        return self.within(gpus, cpus, nodes.memory_mib - nodes.memory_used_mib)

    def within(self, gpus: Int32s | Int64s, cpus: Int32s | Int64s, memory_mib: Floats) -> Bools:
        """Nodes where so much holds its share. All (N,)."""
        return (gpus >= self.gpus) & (cpus >= self.cpus) & (memory_mib >= self.memory_mib)


@dataclass(slots=True, eq=False)
class FreeResources:
    """What each node has free, as the cycle goes on and gives it away. gpus, cpus: (N,) int64. memory_mib: (N,).
    types: of the GPUs those of nodes of several types."""

    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    types: FreeByType

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeResources:
        """What is free, and what jobs that are completing give back within moments: nobody need leave for that."""
        nodes, jobs = snapshot.nodes, snapshot.jobs
        stock = cls(
            (nodes.gpus - nodes.gpus_used).astype(np.int64),
            (nodes.cpus - nodes.cpus_used).astype(np.int64),
            nodes.memory_mib - nodes.memory_used_mib,
            FreeByType.of(snapshot),
        )
        leaving = jobs.job_id[jobs.is_state(JobState.COMPLETING)]
        held = snapshot.allocations.with_columns(gpus=whole_gpus(snapshot)).take(
            np.isin(snapshot.allocations.job_id, leaving)
        )
        row_of = {name: row for row, name in enumerate(nodes.name)}
        for job_id, node in {
            (int(job_id), row_of.get(name, -1)) for job_id, name in zip(held.job_id, held.node, strict=True)
        }:
            stock.types.give(job_id, node)
        for job_id, name, gpus in zip(held.job_id, held.node, held.gpus, strict=True):
            row, on = int(np.searchsorted(jobs.job_id, job_id)), int((held.job_id == job_id).sum())
            if (node := row_of.get(name, -1)) >= 0:
                stock.gpus[node] += gpus
                stock.cpus[node] += int(jobs.cpus[row]) // on
                stock.memory_mib[node] += float(jobs.memory_mib[row]) / on
        return stock

    def fits(self, need: JobRequirements) -> Bools:
        """Nodes that have a share free. (N,) bool."""
        return need.within(self.gpus, self.cpus, self.memory_mib)

    def seen_by(self, need: JobRequirements) -> FreeResources:
        """The same for a job of that need: where nodes have several types, the GPUs of the one that it asks for."""
        return replace(self, gpus=self.types.within(self.gpus, need.gpu_type))

    def take(self, nodes: Int64s, need: JobRequirements) -> None:
        self.gpus[nodes] -= need.gpus[nodes]
        self.cpus[nodes] -= need.cpus[nodes]
        self.memory_mib[nodes] -= need.memory_mib[nodes]
        self.types.take(nodes, need.gpus, need.gpu_type)

    def follow(self, snapshot: Snapshot, act: Act, held: Held) -> None:
        """Count a preemption on its way as done: whom it takes GPUs from is gone, whom it gives them to is there."""
        jobs = snapshot.jobs
        row = jobs.row_of(act.job_id)
        if act.ending or row < 0 or not jobs.pending[row]:
            return
        for victim in act.victims:
            other = jobs.row_of(victim.job_id)
            if other < 0 or int(jobs.restarts[other]) != victim.restarts:
                continue
            for node in held.nodes(other):
                gpus, cpus, memory_mib = share(snapshot, held, other, node)
                self.gpus[node] += gpus
                self.cpus[node] += int(cpus)
                self.memory_mib[node] += memory_mib
                self.types.give(victim.job_id, node)
        self.take(np.flatnonzero(snapshot.nodes.name.isin(expand(act.nodes))), JobRequirements.of(snapshot, row))


def share(snapshot: Snapshot, held: Held, row: int, node: int) -> tuple[int, float, float]:
    """GPUs, CPUs and memory [MiB] that come free on a node when this job leaves; CPUs and memory spread evenly."""
    rows, jobs = held.rows(row), snapshot.jobs
    gpus, on = int(held.gpus[rows][held.node[rows] == node].sum()), max(len(held.nodes(row)), 1)
    return gpus, float(jobs.cpus[row]) / on, float(jobs.memory_mib[row]) / on


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """What running jobs give back: one row a job and node, ascending (node, end). All (E,).

    job: its row. end_s: when it is gone [Unix s]. CPUs and memory count as spread evenly over its nodes.
    """

    node: Int64s
    job: Int64s
    end_s: Floats
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, end_s: Floats) -> Leaving:
        """end_s: (J,) when each job would be gone [Unix s]. Jobs without GPUs are there too: they hold CPUs."""
        jobs, held = snapshot.jobs, Held.of(snapshot)
        bare = np.flatnonzero(holding(jobs) & (held.count == 0))
        placed = _by_node_list(snapshot, bare)
        job = np.concatenate([np.repeat(np.arange(len(jobs)), held.count), placed[0]])
        node = np.concatenate([held.node, placed[1]])
        gpus = np.concatenate([held.gpus, np.zeros(len(placed[0]), np.int64)])
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
    row_of = {name: row for row, name in enumerate(snapshot.nodes.name)}
    pairs: list[tuple[int, int]] = []
    for row in rows.tolist():
        with suppress(ValueError):
            hosts = expand(snapshot.jobs.node_list[row], most_of(len(row_of)))
            pairs += [(row, row_of[name]) for name in hosts if name in row_of]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def partition_memory_mib(snapshot: Snapshot, request: JobRequest) -> Floats:
    """Memory of each node that a partition gives one job at most (MaxMemPerNode) [MiB]. (N,)."""
    table = snapshot.partitions
    limits = table.max_memory_mib[table.name.isin(request.partitions)]
    return np.full(len(snapshot.nodes), limits.max() if len(limits) else inf)


def shares(snapshot: Snapshot, request: JobRequest) -> bool:
    """Whether it shares CPUs with others whatever they do (OverSubscribe=FORCE), so that none need be free."""
    table = snapshot.partitions
    return any(shares_cpus(table, row) for row in np.flatnonzero(table.name.isin(request.partitions)).tolist())
