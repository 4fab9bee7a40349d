"""Which GPU indices Slurm will give a job on a node: a model of select/cons_tres.

First come the node and the request as slurmctld sees them. Then it chooses the sockets for the cores of a one-node job,
which decide which GPUs are near. Then it picks GPUs. If the choice is unknown, the answer is UNKNOWN_SELECTION.

Written from gres_filter.c, job_test.c and dist_tasks.c. Checked on 24.11.5 and 26.05.5 with CR_Core and the default
distribution. CR_Socket, RestrictedCoresPerGPU and -m are not modelled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.slurm_gpu_pick import (
    ANY,
    old_pick_per_job,
    old_pick_per_node,
    old_pick_per_socket,
    old_pick_per_task,
    pick_per_job,
    pick_per_node,
    pick_per_socket,
    pick_per_task,
)
from slurmsched.model.columns import Bools, Int32s, frozen


class GpuOption(StrEnum):
    """The option that asks for GPUs; --gres=gpu:N is PER_NODE too."""

    PER_NODE = "gpus-per-node"
    PER_JOB = "gpus"
    PER_TASK = "gpus-per-task"
    PER_SOCKET = "gpus-per-socket"


@dataclass(frozen=True, slots=True)
class NodeGpuRequest:
    """One job on one node (-N1).

    count: GPUs per node, job, task or socket, by form.
    tasks: -n, 0 = not given.
    cpus_per_task: -c.
    sockets: --sockets-per-node, 0 = not given.
    bound: --gres-flags=enforce-binding.
    """

    form: GpuOption
    count: int
    tasks: int = 0
    cpus_per_task: int = 1
    sockets: int = 0
    bound: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the whole job; 0 if they depend on its sockets."""
        if self.form is GpuOption.PER_SOCKET:
            return 0
        return self.count * max(1, self.tasks) if self.form is GpuOption.PER_TASK else self.count

    @property
    def cpus(self) -> int:
        """CPUs of the job. With --sockets-per-node there is a task on each socket."""
        return max(1, self.tasks, self.sockets) * self.cpus_per_task

    def crowded(self, sockets: int) -> bool:
        """Whether this is a bound --gpus=N with fewer CPUs than the node has sockets."""
        return self.form is GpuOption.PER_JOB and self.bound and self.cpus < sockets


@dataclass(frozen=True, slots=True, eq=False)
class SlurmNode:
    """GPUs, sockets and cores of a node.

    socket: (G,) int32, socket of the cores of each GPU, -1 = all sockets or unknown.
    links: (G, G) int32, rows of Links; used only if `linked`.
    linked: whether every GPU has a row.
    cpus_per_core: threads.
    """

    socket: Int32s
    links: Int32s
    linked: bool
    sockets: int
    cores_per_socket: int
    cpus_per_core: int = 1

    @property
    def gpus(self) -> int:
        return len(self.socket)

    @classmethod
    def build(
        cls,
        cores: Sequence[Sequence[int]],
        links: Sequence[Sequence[int]],
        *,
        sockets: int,
        cores_per_socket: int,
        cpus_per_core: int = 1,
    ) -> SlurmNode:
        """From Cores= and Links= of each GPU in the order of gres.conf; () = none.

        Raises ConfigError for a core that the node does not have.
        """
        gpus, linked = len(cores), bool(links) and all(len(row) == len(cores) for row in links)
        matrix = np.array(links, np.int32) if linked else np.zeros((gpus, gpus), np.int32)
        near = [_socket(listed, sockets, cores_per_socket) for listed in cores]
        return cls(frozen(near, np.int32), frozen(matrix, np.int32), linked, sockets, cores_per_socket, cpus_per_core)


def _socket(cores: Sequence[int], sockets: int, cores_per_socket: int) -> int:
    """The first socket of these cores; ANY if they are on every socket, or unknown."""
    touched = sorted({core // cores_per_socket for core in cores})
    if touched and not 0 <= touched[0] <= touched[-1] < sockets:
        has = f"cores 0-{sockets * cores_per_socket - 1}"
        raise ConfigError(f"core {max(cores)} is not on the node, which has {has}", key="Cores")
    return ANY if len(touched) in (0, sockets) else touched[0]


# The sockets of a job.


def cores_for(node: SlurmNode, request: NodeGpuRequest, free: Bools, free_cores: Sequence[int]) -> Int32s | None:
    """(S,) int32, cores of each socket that the job gets; None if it does not fit.

    Slurm first tries the sockets with GPUs that the job can use, then all sockets.

    free: (G,) bool. free_cores: free cores of each socket.
    """
    for near in (True, False):
        search = _CoreSearch(node, request, free, list(free_cores), near)
        kept = search.keep()
        if kept is not None:
            cpus = max(request.cpus, search.least_cores * node.cpus_per_core)
            return np.array(_dealt_cores(kept, -(-cpus // node.cpus_per_core), request, node.cpus_per_core), np.int32)
    return None


def fullest_sockets(node: SlurmNode, request: NodeGpuRequest, free: Bools, free_cores: Sequence[int]) -> list[int]:
    """free_cores, but of at most as many sockets as the job has CPUs: those with most free GPUs, of equals the last."""
    have = [int((free & (node.socket == s)).sum()) if free_cores[s] else 0 for s in range(node.sockets)]
    best = sorted((s for s in range(node.sockets) if have[s]), key=lambda s: (have[s], s))
    dropped = best[: max(0, len(best) - request.cpus)]
    return [0 if s in dropped else count for s, count in enumerate(free_cores)]


@dataclass(slots=True)
class _CoreSearch:
    """One pass over the sockets. near: only sockets with GPUs are used."""

    node: SlurmNode
    request: NodeGpuRequest
    free: Bools
    cores: list[int]
    near: bool
    wanted: set[int] = field(default_factory=set)
    least_cores: int = 0

    def keep(self) -> list[int] | None:
        """Cores of each socket that the job may still use; None if there are too few."""
        request, threads = self.request, self.node.cpus_per_core
        if request.bound and request.form is GpuOption.PER_SOCKET:
            self.cores = [n if self._here(s) >= request.count else 0 for s, n in enumerate(self.cores)]
        tasks = self._tasks()
        per_gpu = self._cpus_per_gpu()
        if tasks is None:
            return None
        least = -(-max(tasks[0], 1) * request.cpus_per_task // threads)
        usable = self._usable(least, per_gpu)
        if usable is None:
            return None
        fewest, most = tasks[0], self._most_tasks(tasks, usable, per_gpu)
        if most < max(fewest, 1):
            return None
        if len(self.wanted) < len(self.cores) and (request.bound or self.near):
            self.cores = [count if s in self.wanted else 0 for s, count in enumerate(self.cores)]
        need = self._cores_needed(fewest, most, usable, per_gpu)
        if need is None:
            return None
        self._trim(need)
        self.least_cores = need if request.bound else 0
        return self.cores

    def _here(self, s: int) -> int:
        """Free GPUs near socket s only."""
        return int(self.free[self.node.socket == s].sum())

    def _tasks(self) -> tuple[int, int] | None:
        """Fewest and most tasks on the node: those of -n, else as many as the CPUs allow."""
        room = sum(self.cores) * self.node.cpus_per_core // self.request.cpus_per_task
        given = max(self.request.tasks, self.request.sockets)
        fewest = given or 1
        if room < fewest:
            return None
        return fewest, min(given, room) if given else room

    def _cpus_per_gpu(self) -> int:
        """CPUs for each GPU that Slurm tries first, if tasks and GPUs divide evenly; 0 = none."""
        request = self.request
        if not (self.near and request.tasks and request.form in (GpuOption.PER_JOB, GpuOption.PER_TASK)):
            return 0
        if request.tasks % request.gpus == 0:
            return request.tasks // request.gpus * request.cpus_per_task
        each, rest = divmod(request.gpus, request.tasks)
        return request.cpus_per_task // each if rest == 0 and request.cpus_per_task % each == 0 else 0

    def _usable(self, least: int, per_gpu: int) -> int | None:
        """GPUs that the job could use. Fills `wanted`: the sockets for them, those with most free cores first."""
        request, form = self.request, self.request.form
        anywhere = int(self.free[self.node.socket == ANY].sum())
        most = request.gpus
        each = request.count if form is GpuOption.PER_SOCKET else 0
        total, enough = anywhere, False
        for s in sorted(range(len(self.cores)), key=lambda s: -self.cores[s]):
            here = self._here(s)
            if request.bound and not self.cores[s]:
                here = 0
            if each:
                here = each if here >= each else 0
            if per_gpu and (request.bound or self.near):
                here = min(here, self.cores[s] * self.node.cpus_per_core // per_gpu)
            if (each > anywhere + here or anywhere + here == 0) and self.near:
                self.cores[s] -= max(0, min(self.cores[s], sum(self.cores) - least))
            if (request.bound or self.near) and not self.cores[s]:
                continue
            total += here
            if (here and not enough) or anywhere:
                self.wanted.add(s)
            enough = enough or bool(most and total >= most)
        if per_gpu:
            cpus = sum(self.cores) * self.node.cpus_per_core // per_gpu
            most = min(most, cpus) if most else cpus
        total = min(total, most) if most else total
        needed = request.count * max(1, request.sockets) if form is GpuOption.PER_SOCKET else request.count
        return total if total >= needed else None

    def _most_tasks(self, tasks: tuple[int, int], usable: int, per_gpu: int) -> int:
        fewest, most = tasks
        if per_gpu:
            cpus = per_gpu * usable
            few = cpus < fewest * self.request.cpus_per_task
            most = fewest if few else min(most, cpus // self.request.cpus_per_task)
        if self.request.form is GpuOption.PER_TASK:
            most = min(most, usable // self.request.count)
        return most // fewest * fewest

    def _cores_needed(self, fewest: int, most: int, usable: int, per_gpu: int) -> int | None:
        """Cores for the most tasks that fit; None if not even the fewest fit."""
        request, threads, have = self.request, self.node.cpus_per_core, sum(self.cores)
        while most >= fewest:
            need = -(-most * request.cpus_per_task // threads)
            if need <= have:
                break
            most -= 1
        need = -(-most * request.cpus_per_task // threads)
        if per_gpu:
            need = max(need, -(-usable * per_gpu // threads))
        if request.bound:
            need = max(need, len(self.wanted))
        return need if most >= fewest and need <= have else None

    def _trim(self, need: int) -> None:
        """Drop cores of other sockets, then of the fullest wanted one, until `need` remain."""
        if not self.request.bound and not self.near:
            for s in range(len(self.cores)):
                if s not in self.wanted:
                    self.cores[s] -= min(self.cores[s], max(0, sum(self.cores) - need))
        while self.wanted and sum(self.cores) > need:
            fullest = max(sorted(self.wanted), key=lambda s: self.cores[s])
            if not self.cores[fullest]:
                break
            self.cores[fullest] -= 1


def _dealt_cores(kept: list[int], need: int, request: NodeGpuRequest, threads: int) -> list[int]:
    """`need` of these cores: whole tasks socket by socket; tasks of one CPU in turn over the sockets."""
    got = [0] * len(kept)
    if request.cpus_per_task > 1:
        for s, count in enumerate(kept):
            cpus = count * threads // request.cpus_per_task * request.cpus_per_task
            got[s] = min(-(-cpus // threads), need - sum(got))
    while sum(got) < need and any(g < k for g, k in zip(got, kept, strict=True)):
        for s in range(len(kept)):
            if sum(got) < need and got[s] < kept[s]:
                got[s] += 1
    return got


# The GPUs of a job.

SINCE_24_05 = (pick_per_node, pick_per_socket, pick_per_task, pick_per_job)
BEFORE_24_05 = (old_pick_per_node, old_pick_per_socket, old_pick_per_task, old_pick_per_job)
UNKNOWN_SELECTION = -1  # no mask of GPUs
SlurmVersion = tuple[int, ...]  # Slurm's year, month and micro: (24, 11, 5); (24, 11) = its micro is not known
REVERSED_LINKS: SlurmVersion = (24, 5)  # from here on the least linked GPUs are taken first
TASK_COUNT_FIXED: SlurmVersion = (24, 5, 3)  # CHANGELOG: "Fix gres per task allocation with threads-per-core"
BINDING_FIXED: SlurmVersion = (24, 11, 1)  # NEWS: bound jobs got "less resources than needed"
FEW_SOCKETS_UNTIL: SlurmVersion = (24, 11)  # a bound --gpus=N job of few CPUs has no more sockets than CPUs
GIVEN_TWICE: SlurmVersion = (25, 5, 0)  # CHANGELOG of 25.05.1: GPUs could be "allocated to multiple jobs"
# Shares of sockets by node: 24.11.5 computes in floats, 26.05.5 in doubles; for 25.11 see docs/topology-slurm.md.
DOUBLE_SINCE: SlurmVersion = (25, 11)
ALL_SOCKETS_SINCE: SlurmVersion = (26, 5)


def read_version(text: str) -> SlurmVersion:
    """ "24.11.5" -> (24, 11, 5), "24.11" and "24.11.0-0rc1" -> (24, 11); (0, 0) for other text."""
    found = re.search(r"(?<!\d)(\d\d)\.(\d\d)(?:\.(\d+)(?![\d-]*rc))?(?!\d)", text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else (0, 0)


def fault_of(version: SlurmVersion) -> str:
    """Why the choice of this version is not known while jobs hold GPUs; "" where it is."""
    if version != GIVEN_TWICE:
        return ""
    return "Slurm 25.05.0 may give a job GPUs that other jobs hold (fixed in 25.05.1): how it picks is not known"


def select_gpus(
    node: SlurmNode, request: NodeGpuRequest, free: int, free_cores: Sequence[int], version: SlurmVersion
) -> int:  # fmt: skip
    """The GPUs that Slurm gives, as a mask; 0 if the job does not fit, UNKNOWN_SELECTION if the choice is unknown.

    free: mask of the GPUs that no job holds.
    free_cores: free cores of each socket.
    version: without the micro, the answer is known only if all micros of the release agree.
    """
    unheld, release = mask_to_bools(free, node.gpus), version[:2]
    if request.tasks and release < REVERSED_LINKS:
        return UNKNOWN_SELECTION  # those versions counted tasks in another way
    if fault_of(version) and not unheld.all():
        return UNKNOWN_SELECTION
    if request.bound and REVERSED_LINKS <= version < BINDING_FIXED:
        return UNKNOWN_SELECTION
    if request.crowded(node.sockets) and FEW_SOCKETS_UNTIL < release < ALL_SOCKETS_SINCE:
        return UNKNOWN_SELECTION
    if request.crowded(node.sockets) and release <= FEW_SOCKETS_UNTIL:
        free_cores = fullest_sockets(node, request, unheld, free_cores)
    cores = cores_for(node, request, unheld, free_cores)
    return 0 if cores is None else select_near_cores(node, request, free, cores, version)


def select_near_cores(node: SlurmNode, request: NodeGpuRequest, free: int, cores: Int32s, version: SlurmVersion) -> int:
    """As select_gpus, for a job with known cores. cores: (S,) int32, its cores on each socket."""
    unheld, shape = mask_to_bools(free, node.gpus), (node.socket, node.links, node.linked)
    form, count, bound = request.form, request.count, request.bound
    by_node, by_socket, by_task, by_job = BEFORE_24_05 if version < REVERSED_LINKS else SINCE_24_05
    if form is GpuOption.PER_SOCKET and 0 < request.sockets < (cores > 0).sum():
        cores = np.where([(unheld & (node.socket == s)).any() for s in range(node.sockets)], cores, 0).astype(np.int32)
    used = int((cores > 0).sum())
    if not used or (form is GpuOption.PER_SOCKET and request.sockets > used):
        return UNKNOWN_SELECTION
    if form is GpuOption.PER_TASK:
        if version[:2] > FEW_SOCKETS_UNTIL and straddles(cores, request, node.cpus_per_core):
            return UNKNOWN_SELECTION
        tasks = tasks_on(cores, request, node.cpus_per_core)
        if REVERSED_LINKS <= version < TASK_COUNT_FIXED and not _counted_alike(cores, tasks, node.cpus_per_core):
            return UNKNOWN_SELECTION
        need, given = count * int(tasks.sum()), by_task(unheld, *shape, tasks, count, bound)
    elif form is GpuOption.PER_SOCKET:
        need, given = count * used, by_socket(unheld, *shape, cores, count, bound)
    else:
        by = by_job if form is GpuOption.PER_JOB else by_node
        more = (version >= DOUBLE_SINCE,) if by is pick_per_node else ()
        need, given = count, by(unheld, *shape, cores, count, bound, *more)
    return bools_to_mask(given) if given.sum() == need else 0


def tasks_on(cores: Int32s, request: NodeGpuRequest, cpus_per_core: int) -> Int32s:
    """(S,) int32, tasks that slurmctld counts on each socket when it distributes the GPUs of tasks."""
    tasks, remaining = np.zeros(len(cores), np.int32), max(1, request.tasks)
    per_core = max(1, cpus_per_core // request.cpus_per_task)
    step = max(1, request.cpus_per_task // cpus_per_core)
    for s, count in enumerate(cores):
        tasks[s] = min(remaining, -(-int(count) // step) * per_core)
        remaining -= int(tasks[s])
    return tasks


def _counted_alike(cores: Int32s, tasks: Int32s, cpus_per_core: int) -> bool:
    """Whether 24.05.3 and earlier versions count the same tasks. Those counted one for each core."""
    by_core = np.diff(np.minimum(np.cumsum(cores), tasks.sum()), prepend=0)
    return cpus_per_core == 1 and bool((by_core == tasks).all())


def straddles(cores: Int32s, request: NodeGpuRequest, cpus_per_core: int) -> bool:
    """Whether a task has cores on two sockets. 24.11 counts it on the first; 26.05 not always."""
    used = cores[cores > 0] * cpus_per_core
    return len(used) > 1 and bool((used % request.cpus_per_task).any())


def mask_to_bools(mask: int, gpus: int) -> Bools:
    """(G,) bool: the bits of a mask."""
    return (mask >> np.arange(gpus)) & 1 == 1


def bools_to_mask(given: Bools) -> int:
    """The mask of a (G,) bool."""
    return sum(1 << int(g) for g in np.flatnonzero(given))
