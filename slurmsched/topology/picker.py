"""Which GPU indices Slurm will give a job on a node. Where it cannot be told, the answer is UNKNOWN."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from slurmsched.kernels.slurm_pick import pick_per_job, pick_per_node, pick_per_socket, pick_per_task
from slurmsched.kernels.slurm_pick_old import (
    old_pick_per_job,
    old_pick_per_node,
    old_pick_per_socket,
    old_pick_per_task,
)
from slurmsched.model.columns import Bools, Int32s
from slurmsched.topology.slurm_cores import cores_for, fullest_sockets
from slurmsched.topology.slurm_node import Form, GpuRequest, SlurmNode

NEW = (pick_per_node, pick_per_socket, pick_per_task, pick_per_job)
OLD = (old_pick_per_node, old_pick_per_socket, old_pick_per_task, old_pick_per_job)
UNKNOWN = -1  # no mask of GPUs
Version = tuple[int, ...]  # Slurm's year, month and micro: (24, 11, 5); (24, 11) = its micro is not known
REVERSED_LINKS: Version = (24, 5)  # from here on the least linked GPUs are taken first
TASKS_MENDED: Version = (24, 5, 3)  # CHANGELOG: "Fix gres per task allocation with threads-per-core"
BOUND_MENDED: Version = (24, 11, 1)  # NEWS: bound jobs got "less resources than needed"
FEW_SOCKETS_UNTIL: Version = (24, 11)  # a bound --gpus=N job of few CPUs has no more sockets than CPUs
GIVEN_TWICE: Version = (25, 5, 0)  # CHANGELOG of 25.05.1: GPUs could be "allocated to multiple jobs"
# Shares of sockets by node: 24.11.5 reckons in floats, 26.05.5 in doubles; for 25.11 see docs/topology-slurm.md.
DOUBLE_SINCE: Version = (25, 11)
ALL_SOCKETS_SINCE: Version = (26, 5)


def read_version(text: str) -> Version:
    """ "24.11.5" -> (24, 11, 5), "24.11" and "24.11.0-0rc1" -> (24, 11); (0, 0) where none is told."""
    found = re.search(r"(?<!\d)(\d\d)\.(\d\d)(?:\.(\d+)(?![\d-]*rc))?(?!\d)", text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else (0, 0)


def pick(
    node: SlurmNode, request: GpuRequest, free: int, free_cores: Sequence[int], version: Version
) -> int:  # fmt: skip
    """The GPUs given, as a mask; 0 if the job does not fit, UNKNOWN if Slurm's choice cannot be told.

    free: mask of the GPUs no job holds. free_cores: free cores of each socket. Of a version whose micro is not known it
    can be told only where all micros of the release give the same.
    """
    unheld, release = bools(free, node.gpus), version[:2]
    if request.tasks and release < REVERSED_LINKS:
        return UNKNOWN  # how many tasks fit was reckoned otherwise then
    if version == GIVEN_TWICE and not unheld.all():
        return UNKNOWN  # it may give GPUs that are held
    if request.bound and REVERSED_LINKS <= version < BOUND_MENDED:
        return UNKNOWN
    if request.crowded(node.sockets) and FEW_SOCKETS_UNTIL < release < ALL_SOCKETS_SINCE:
        return UNKNOWN
    if request.crowded(node.sockets) and release <= FEW_SOCKETS_UNTIL:
        free_cores = fullest_sockets(node, request, unheld, free_cores)
    cores = cores_for(node, request, unheld, free_cores)
    return 0 if cores is None else pick_near(node, request, free, cores, version)


def pick_near(node: SlurmNode, request: GpuRequest, free: int, cores: Int32s, version: Version) -> int:
    """As `pick`, for a job whose cores are known. cores: (S,) int32, the job's cores on each socket."""
    unheld, shape = bools(free, node.gpus), (node.socket, node.links, node.linked)
    form, count, bound = request.form, request.count, request.bound
    by_node, by_socket, by_task, by_job = OLD if version < REVERSED_LINKS else NEW
    if form is Form.PER_SOCKET and 0 < request.sockets < (cores > 0).sum():
        cores = np.where([(unheld & (node.socket == s)).any() for s in range(node.sockets)], cores, 0).astype(np.int32)
    used = int((cores > 0).sum())
    if not used or (form is Form.PER_SOCKET and request.sockets > used):
        return UNKNOWN
    if form is Form.PER_TASK:
        if version[:2] > FEW_SOCKETS_UNTIL and straddles(cores, request, node.cpus_per_core):
            return UNKNOWN
        tasks = tasks_on(cores, request, node.cpus_per_core)
        if REVERSED_LINKS <= version < TASKS_MENDED and not _counted_alike(cores, tasks, node.cpus_per_core):
            return UNKNOWN
        need, given = count * int(tasks.sum()), by_task(unheld, *shape, tasks, count, bound)
    elif form is Form.PER_SOCKET:
        need, given = count * used, by_socket(unheld, *shape, cores, count, bound)
    else:
        by = by_job if form is Form.PER_JOB else by_node
        more = (version >= DOUBLE_SINCE,) if by is pick_per_node else ()
        need, given = count, by(unheld, *shape, cores, count, bound, *more)
    return mask_of(given) if given.sum() == need else 0


def tasks_on(cores: Int32s, request: GpuRequest, cpus_per_core: int) -> Int32s:
    """(S,) int32, tasks that slurmctld counts on each socket when it shares out the GPUs of tasks."""
    tasks, left = np.zeros(len(cores), np.int32), max(1, request.tasks)
    per_core = max(1, cpus_per_core // request.cpus_per_task)
    step = max(1, request.cpus_per_task // cpus_per_core)
    for s, count in enumerate(cores):
        tasks[s] = min(left, -(-int(count) // step) * per_core)
        left -= int(tasks[s])
    return tasks


def _counted_alike(cores: Int32s, tasks: Int32s, cpus_per_core: int) -> bool:
    """Whether the tasks are also those counted before 24.05.3: one for each core, however many CPUs a task has."""
    by_core = np.diff(np.minimum(np.cumsum(cores), tasks.sum()), prepend=0)
    return cpus_per_core == 1 and bool((by_core == tasks).all())


def straddles(cores: Int32s, request: GpuRequest, cpus_per_core: int) -> bool:
    """Whether a task has cores on two sockets; 24.11 counts it on the first, 26.05 not always."""
    used = cores[cores > 0] * cpus_per_core
    return len(used) > 1 and bool((used % request.cpus_per_task).any())


def bools(mask: int, gpus: int) -> Bools:
    """(G,) bool: the bits of a mask."""
    return (mask >> np.arange(gpus)) & 1 == 1


def mask_of(given: Bools) -> int:
    """The mask of a (G,) bool."""
    return sum(1 << int(g) for g in np.flatnonzero(given))


def members(mask: int) -> list[int]:
    """The GPUs of a mask, ascending."""
    return [g for g in range(mask.bit_length()) if mask >> g & 1]
