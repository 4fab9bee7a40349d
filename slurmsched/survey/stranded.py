"""Stranded GPUs: free ones that no job can get, since the CPUs or the memory beside them are taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.model import JobState, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hostlist import expand
from slurmsched.resources.held import node_rows

HOLDING = JobState.RUNNING | JobState.SUSPENDED | JobState.COMPLETING


@dataclass(frozen=True, slots=True)
class Holder:
    """A job on the node. cpus, memory_mib: of the whole job, shared out evenly over its nodes. gpus: held there."""

    job_id: int
    user: str
    cpus: float
    memory_mib: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Stranded:
    """Free GPUs of a node and why none can be had: "CPUs", "memory" or "CPUs and memory".

    holders: the jobs there, whoever holds most of that first; empty where Slurm hides them.
    """

    node: str
    gpus: int
    cause: str
    holders: tuple[Holder, ...]


def stranded(snapshot: Snapshot) -> tuple[Stranded, ...]:
    """Every open node with free GPUs and not one CPU, or not 1 MiB of memory where jobs are given memory, left."""
    nodes = snapshot.nodes
    no_cpu = (nodes.cpus > 0) & (nodes.cpus_used >= nodes.cpus)
    counted = gives_memory(snapshot)
    no_memory = (nodes.memory_mib > 0) & (nodes.memory_used_mib > nodes.memory_mib - 1.0) & counted
    rows = np.flatnonzero((nodes.gpu_use()["idle"] > 0) & ~nodes.closed & (no_cpu | no_memory)).tolist()
    there = _jobs_on(snapshot, {nodes.name[row] for row in rows})
    return tuple(_stranded(snapshot, row, no_cpu, no_memory, there.get(nodes.name[row], ())) for row in rows)


def gives_memory(snapshot: Snapshot) -> bool:
    """Whether Slurm gives out memory, by SelectTypeParameters; taken as given out where that is not told."""
    text = snapshot.site.settings.get("SelectTypeParameters", "CR_CORE_MEMORY").upper()
    return "MEMORY" in text


def _stranded(snapshot: Snapshot, row: int, no_cpu: Bools, no_memory: Bools, jobs: Sequence[int]) -> Stranded:
    causes = [name for name, lacks in (("CPUs", no_cpu), ("memory", no_memory)) if lacks[row]]
    holders = list(_holders(snapshot, row, jobs))
    holders.sort(key=lambda one: (-one.cpus if no_cpu[row] else -one.memory_mib, one.job_id))
    return Stranded(
        snapshot.nodes.name[row], int(snapshot.nodes.gpu_use()["idle"][row]), " and ".join(causes), tuple(holders)
    )


def _holders(snapshot: Snapshot, row: int, jobs: Sequence[int]) -> Iterator[Holder]:
    held, table = snapshot.allocations, snapshot.jobs
    here = node_rows(snapshot) == row
    for job in jobs:
        share = max(int(table.nodes[job]), 1)
        gpus = int(held.gpus[here & (held.job_id == table.job_id[job])].sum())
        yield Holder(
            int(table.job_id[job]), table.user[job], table.cpus[job] / share, table.memory_mib[job] / share, gpus
        )


def _jobs_on(snapshot: Snapshot, names: Collection[str]) -> dict[str, list[int]]:
    """Rows of the jobs that hold something of these nodes."""
    found: dict[str, list[int]] = {}
    jobs = snapshot.jobs
    for row in np.flatnonzero(jobs.is_state(HOLDING)).tolist() if names else ():
        for name in _expanded(jobs.node_list[row]):
            if name in names:
                found.setdefault(name, []).append(row)
    return found


def _expanded(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError:
        return ()  # what cannot be read holds nothing that could be told
