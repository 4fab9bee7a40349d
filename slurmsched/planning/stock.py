"""What nodes have free, what a job needs of each, and when running jobs give theirs back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import Act, JobState, Snapshot
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s
from slurmsched.model.hostlist import expand
from slurmsched.placements.candidates import Held, holding
from slurmsched.planning.by_type import ByType, one_type


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What a job needs on each of its nodes, by the node it may be. nodes: how many. gpus, cpus, memory_mib: (N,).
    gpu_type: the one type that it asks for, see by_type.one_type."""

    nodes: int
    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    gpu_type: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> Need:
        """An equal share of all; one that is exclusive needs every GPU and CPU, so that nobody else is there."""
        jobs, fleet, nodes = snapshot.jobs, snapshot.nodes, max(int(snapshot.jobs.nodes[row]), 1)
        gpus, cpus = (np.full(len(fleet), -(-int(column[row]) // nodes), np.int64) for column in (jobs.gpus, jobs.cpus))
        if jobs.exclusive[row]:
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
class Stock:
    """What each node has free, as the cycle goes on and gives it away. gpus, cpus: (N,) int64. memory_mib: (N,).
    types: of the GPUs those of nodes of several types."""

    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    types: ByType

    @classmethod
    def of(cls, snapshot: Snapshot) -> Stock:
        """What is free, and what jobs that are completing give back within moments: nobody need leave for that."""
        nodes, jobs = snapshot.nodes, snapshot.jobs
        stock = cls(
            (nodes.gpus - nodes.gpus_used).astype(np.int64),
            (nodes.cpus - nodes.cpus_used).astype(np.int64),
            nodes.memory_mib - nodes.memory_used_mib,
            ByType.of(snapshot),
        )
        leaving = jobs.job_id[jobs.is_state(JobState.COMPLETING)]
        held = snapshot.allocations.take(np.isin(snapshot.allocations.job_id, leaving))
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

    def fits(self, need: Need) -> Bools:
        """Nodes that have a share free. (N,) bool."""
        return need.within(self.gpus, self.cpus, self.memory_mib)

    def seen_by(self, need: Need) -> Stock:
        """The same for a job of that need: where nodes have several types, the GPUs of the one that it asks for."""
        return replace(self, gpus=self.types.within(self.gpus, need.gpu_type))

    def take(self, nodes: Int64s, need: Need) -> None:
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
        self.take(np.flatnonzero(snapshot.nodes.name.isin(expand(act.nodes))), Need.of(snapshot, row))


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
    """Job and node rows of what these jobs hold, from the hostlist that Slurm shows. Nodes not known are left out."""
    row_of = {name: row for row, name in enumerate(snapshot.nodes.name)}
    pairs = [
        (row, row_of[name]) for row in rows.tolist() for name in expand(snapshot.jobs.node_list[row]) if name in row_of
    ]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    return made[:, 0], made[:, 1]
