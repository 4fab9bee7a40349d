"""What is free on each node, what a job needs there, and the first reason why it cannot start there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import JobState, Operation, Snapshot
from slurmsched.model.columns import Bools, Floats, Int8s, Int32s, Int64s
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.resources.allocated import AllocatedGpus, allocated_whole_gpus
from slurmsched.resources.by_type import FreeByType, one_type, surely_free
from slurmsched.resources.eligibility import Eligibility, Exclusion, eligibility
from slurmsched.resources.job_request import JobRequest, request_of
from slurmsched.resources.partition_limits import partition_cpus, partition_memory_mib, shares_cpus_with_others


@dataclass(frozen=True, slots=True, eq=False)
class FreeForRequest:
    """What is free for one request on each node now. All (N,), by row of the nodes.

    eligibility: which nodes it may have, whatever others hold.
    exclusion: an Exclusion each: that of the eligibility, else what others hold of what the request needs.
    gpus: free ones that it can use: of its GPU types, less what reservations of parts of the node keep.
    cpus, memory_mib: free, at most what its partitions give it. cpus count from 0 where jobs share them.
    """

    eligibility: Eligibility
    exclusion: Int8s
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats

    @property
    def mask(self) -> Bools:
        """Nodes on which the request has its share free. (N,) bool."""
        found: Bools = self.exclusion == Exclusion.NONE
        return found


def free_for(snapshot: Snapshot, request: JobRequest, *, sized: bool = True) -> FreeForRequest:
    """What is free for this request. sized: see eligibility."""
    found, nodes = eligibility(snapshot, request, sized=sized), snapshot.nodes
    gpus, lacks_type = _gpus_for(snapshot, request, found.kept_gpus)
    kept_cpus = found.kept_cpus + nodes.cpus_for_other_gpus(gpus - request.gpus)
    cpus = (nodes.cpus - nodes.cpus_used - kept_cpus).astype(np.float64)
    cpus = nodes.cpus.astype(np.float64) if shares_cpus_with_others(snapshot, request) else cpus
    memory_mib = nodes.memory_mib - nodes.memory_used_mib
    exclusion = found.exclusion.copy()
    lacks = (
        (Exclusion.NOT_EMPTY, is_taken(snapshot) & request.whole),
        (Exclusion.GPUS, (gpus < request.gpus) | lacks_type),
        (Exclusion.CPUS, cpus < request.cpus),
        (Exclusion.MEMORY, memory_mib < request.memory_mib),
    )
    for why, where in lacks:
        exclusion[(exclusion == Exclusion.NONE) & where] = why
    cpus = np.minimum(cpus, partition_cpus(snapshot, request)) if request.partitions else cpus
    return FreeForRequest(found, exclusion, gpus, cpus, np.minimum(memory_mib, partition_memory_mib(snapshot, request)))


def is_taken(snapshot: Snapshot) -> Bools:
    """Nodes where a job runs. (N,) bool."""
    found: Bools = (snapshot.nodes.cpus_used > 0) | (snapshot.nodes.gpus_used > 0)
    return found


def _gpus_for(snapshot: Snapshot, request: JobRequest, kept: Int64s) -> tuple[Int64s, Bools]:
    """Free GPUs of its types on each node, of all types where it names none; and nodes with too few of one of them.

    kept: (N,) those that reservations keep. Two (N,).
    """
    if not request.types:
        free = snapshot.nodes.gpus.astype(np.int64) - snapshot.nodes.gpus_used - kept
        return np.clip(free, 0, None), np.zeros(len(kept), np.bool_)
    by_type = [(np.clip(surely_free(snapshot, name) - kept, 0, None), gpus) for name, gpus in request.types]
    lacks = [free < gpus for free, gpus in by_type]
    lacks_type = np.logical_and.reduce(lacks) if request.apart else np.logical_or.reduce(lacks)
    return np.sum([free for free, _ in by_type], axis=0), lacks_type


@dataclass(frozen=True, slots=True, eq=False)
class JobRequirements:
    """What a job needs on each of its nodes, by the node it may be.

    nodes: how many.
    gpus, cpus, memory_mib: (N,).
    gpu_type: the one type that it asks for, see one_type.
    cpus_per_other_gpu: (N,) CPUs that it must leave for each GPU that it does not use (RestrictedCoresPerGPU).
    """

    nodes: int
    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    cpus_per_other_gpu: Int64s
    gpu_type: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, row: int) -> JobRequirements:
        """An equal share of all; one that is exclusive needs every GPU and CPU, so that nobody else is there.

        Where jobs share CPUs whatever they do (OverSubscribe=FORCE), none need be free.
        """
        jobs, fleet, nodes = snapshot.jobs, snapshot.nodes, max(int(snapshot.jobs.nodes[row]), 1)
        gpus, cpus = (np.full(len(fleet), -(-int(column[row]) // nodes), np.int64) for column in (jobs.gpus, jobs.cpus))
        request, kept = request_of(snapshot, row), fleet.cpus_per_gpu_kept.astype(np.int64)
        if shares_cpus_with_others(snapshot, request):
            cpus, kept = np.zeros_like(cpus), np.zeros_like(kept)
        if request.whole:
            gpus, cpus = np.maximum(gpus, fleet.gpus), np.maximum(cpus, fleet.cpus)
        memory_mib = np.full(len(fleet), float(jobs.memory_mib[row]) / nodes)
        return cls(nodes, gpus, cpus, memory_mib, kept, one_type(snapshot, row))

    def fits_empty(self, snapshot: Snapshot) -> Bools:
        """Nodes that could hold its share if they were empty. (N,) bool."""
        nodes = snapshot.nodes
        return self.within(nodes.gpus, nodes.cpus, nodes.memory_mib)

    def fits_free(self, snapshot: Snapshot) -> Bools:
        """Nodes that have its share free as they are shown. (N,) bool."""
        return FreeResources.now(snapshot).seen_by(self).fits(self)

    def within(self, gpus: Int32s | Int64s, cpus: Int32s | Int64s, memory_mib: Floats) -> Bools:
        """Nodes where so much holds its share. All (N,)."""
        for_others = self.cpus_per_other_gpu * np.maximum(gpus - self.gpus, 0)
        return (gpus >= self.gpus) & (cpus - for_others >= self.cpus) & (memory_mib >= self.memory_mib)


@dataclass(slots=True, eq=False)
class FreeResources:
    """What is free on each node, while the cycle assigns it to jobs.

    gpus, cpus: (N,) int64.
    memory_mib: (N,).
    types: of the GPUs those of nodes of several types.
    """

    gpus: Int64s
    cpus: Int64s
    memory_mib: Floats
    types: FreeByType

    @classmethod
    def now(cls, snapshot: Snapshot) -> FreeResources:
        """What is free as Slurm shows it."""
        nodes = snapshot.nodes
        gpus, cpus = (nodes.gpus - nodes.gpus_used).astype(np.int64), (nodes.cpus - nodes.cpus_used).astype(np.int64)
        return cls(gpus, cpus, nodes.memory_mib - nodes.memory_used_mib, FreeByType.of(snapshot))

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeResources:
        """What is free, and what completing jobs will release soon: no job must be preempted for that."""
        jobs, free = snapshot.jobs, cls.now(snapshot)
        leaving = np.isin(snapshot.allocations.job_id, jobs.job_id[jobs.is_state(JobState.COMPLETING)])
        allocated = snapshot.allocations.with_columns(gpus=allocated_whole_gpus(snapshot)).take(leaving)
        at = snapshot.nodes.name.rows()
        rows = [at.get(name, -1) for name in allocated.node]
        for job_id, node in dict.fromkeys(zip(allocated.job_id.tolist(), rows, strict=True)):
            free.types.give(job_id, node)
        for job_id, node, gpus in zip(allocated.job_id.tolist(), rows, allocated.gpus.tolist(), strict=True):
            row, on = jobs.row_of(job_id), int((allocated.job_id == job_id).sum())
            if node >= 0:
                free.gpus[node] += gpus
                free.cpus[node] += int(jobs.cpus[row]) // on
                free.memory_mib[node] += float(jobs.memory_mib[row]) / on
        return free

    def fits(self, need: JobRequirements) -> Bools:
        """Nodes that have a share free. (N,) bool."""
        return need.within(self.gpus, self.cpus, self.memory_mib)

    def seen_by(self, need: JobRequirements) -> FreeResources:
        """The same for a job of that need: where nodes have several types, the GPUs of the one that it asks for."""
        return replace(self, gpus=self.types.within(self.gpus, need.gpu_type))

    def take(self, nodes: Int64s, need: JobRequirements) -> None:
        """Subtract the need of one job, in place. nodes: rows."""
        self.gpus[nodes] -= need.gpus[nodes]
        self.cpus[nodes] -= need.cpus[nodes]
        self.memory_mib[nodes] -= need.memory_mib[nodes]
        self.types.take(nodes, need.gpus, need.gpu_type)

    def follow(self, snapshot: Snapshot, operation: Operation, allocated: AllocatedGpus) -> None:
        """Count a preemption under way as done: its victims have ended, and its job runs."""
        jobs = snapshot.jobs
        row = jobs.row_of(operation.job_id)
        if operation.ending or row < 0 or not jobs.pending[row]:
            return
        for victim in operation.victims:
            other = jobs.row_of(victim.job_id)
            if other < 0 or int(jobs.restarts[other]) != victim.restarts:
                continue
            for node in allocated.nodes(other):
                gpus, cpus, memory_mib = share_on_node(snapshot, allocated, other, node)
                self.gpus[node] += gpus
                self.cpus[node] += int(cpus)
                self.memory_mib[node] += memory_mib
                self.types.give(victim.job_id, node)
        self.take(
            np.flatnonzero(snapshot.nodes.name.isin(expand_hostlist(operation.nodes))),
            JobRequirements.of(snapshot, row),
        )


def share_on_node(snapshot: Snapshot, allocated: AllocatedGpus, row: int, node: int) -> tuple[int, float, float]:
    """GPUs, CPUs and memory [MiB] that come free on a node when this job leaves; CPUs and memory spread evenly."""
    rows, jobs = allocated.rows(row), snapshot.jobs
    gpus, on = int(allocated.gpus[rows][allocated.node[rows] == node].sum()), max(len(allocated.nodes(row)), 1)
    return gpus, float(jobs.cpus[row]) / on, float(jobs.memory_mib[row]) / on


def nodes_beside_reservations(
    snapshot: Snapshot, row: int, available: FreeResources, operations: Iterable[Operation] = ()
) -> tuple[Bools, FreeResources]:
    """Nodes where Slurm would start the job now as far as reservations go: none has the whole node before it would be
    over. And what is available less what reservations of parts of nodes keep from it. (N,) bool.

    operations: whose reservations are counted otherwise.
    """
    table = snapshot.reservations
    if own := [operation.reservation for operation in operations]:
        snapshot = replace(snapshot, reservations=table.take(~table.name.isin(own)))
    found = eligibility(snapshot, request_of(snapshot, row), sized=False)
    gpus, cpus = available.gpus - found.kept_gpus, available.cpus - found.kept_cpus
    unreserved: Bools = found.reserved_by < 0
    return unreserved, replace(available, gpus=gpus, cpus=cpus)
