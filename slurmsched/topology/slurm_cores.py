"""On which sockets slurmctld gives a one-node job its cores: they decide which GPUs are near. Slurm 24.05 and later.

Written from what select/cons_tres does (gres_filter.c, job_test.c, dist_tasks.c); checked against 24.11.5 and 26.05.5
with CR_Core and the default distribution. Other settings (CR_Socket, RestrictedCoresPerGPU, -m) are not covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slurmsched.kernels.slurm_pick import ANY
from slurmsched.model.columns import Bools, Int32s
from slurmsched.topology.slurm_node import Form, GpuRequest, SlurmNode


def cores_for(node: SlurmNode, request: GpuRequest, free: Bools, free_cores: Sequence[int]) -> Int32s | None:
    """(S,) int32, cores of each socket the job gets, None if it does not fit.

    free: (G,) bool. free_cores: free cores of each socket. Slurm first keeps to sockets with GPUs the job can use,
    and tries all of them if the job does not fit there.
    """
    for near in (True, False):
        search = _Search(node, request, free, list(free_cores), near)
        kept = search.keep()
        if kept is not None:
            cpus = max(request.cpus, search.least_cores * node.cpus_per_core)
            return np.array(_dealt(kept, -(-cpus // node.cpus_per_core), request, node.cpus_per_core), np.int32)
    return None


def fullest_sockets(node: SlurmNode, request: GpuRequest, free: Bools, free_cores: Sequence[int]) -> list[int]:
    """free_cores of only as many sockets as the job has CPUs: those with most free GPUs, of equals the last."""
    have = [int((free & (node.socket == s)).sum()) if free_cores[s] else 0 for s in range(node.sockets)]
    best = sorted((s for s in range(node.sockets) if have[s]), key=lambda s: (have[s], s))
    dropped = best[: max(0, len(best) - request.cpus)]
    return [0 if s in dropped else count for s, count in enumerate(free_cores)]


@dataclass(slots=True)
class _Search:
    """One pass over the sockets. near: only sockets with GPUs are kept."""

    node: SlurmNode
    request: GpuRequest
    free: Bools
    cores: list[int]
    near: bool
    wanted: set[int] = field(default_factory=set)
    least_cores: int = 0

    def keep(self) -> list[int] | None:
        """Cores of each socket that the job may still use, None if they are too few."""
        request, threads = self.request, self.node.cpus_per_core
        if request.bound and request.form is Form.PER_SOCKET:
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
        """Free GPUs near socket s and no other."""
        return int(self.free[self.node.socket == s].sum())

    def _tasks(self) -> tuple[int, int] | None:
        """Fewest and most tasks on the node: -n given, that many; else as many as CPUs allow."""
        room = sum(self.cores) * self.node.cpus_per_core // self.request.cpus_per_task
        given = max(self.request.tasks, self.request.sockets)
        fewest = given or 1
        if room < fewest:
            return None
        return fewest, min(given, room) if given else room

    def _cpus_per_gpu(self) -> int:
        """CPUs beside each GPU that Slurm tries for at first, where tasks and GPUs divide evenly. 0 = none."""
        request = self.request
        if not (self.near and request.tasks and request.form in (Form.PER_JOB, Form.PER_TASK)):
            return 0
        if request.tasks % request.gpus == 0:
            return request.tasks // request.gpus * request.cpus_per_task
        each, rest = divmod(request.gpus, request.tasks)
        return request.cpus_per_task // each if rest == 0 and request.cpus_per_task % each == 0 else 0

    def _usable(self, least: int, per_gpu: int) -> int | None:
        """GPUs the job could use; fills `wanted`, the sockets needed for them, those with most free cores first."""
        request, form = self.request, self.request.form
        anywhere = int(self.free[self.node.socket == ANY].sum())
        most = request.gpus
        each = request.count if form is Form.PER_SOCKET else 0
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
        needed = request.count * max(1, request.sockets) if form is Form.PER_SOCKET else request.count
        return total if total >= needed else None

    def _most_tasks(self, tasks: tuple[int, int], usable: int, per_gpu: int) -> int:
        fewest, most = tasks
        if per_gpu:
            cpus = per_gpu * usable
            few = cpus < fewest * self.request.cpus_per_task
            most = fewest if few else min(most, cpus // self.request.cpus_per_task)
        if self.request.form is Form.PER_TASK:
            most = min(most, usable // self.request.count)
        return most // fewest * fewest

    def _cores_needed(self, fewest: int, most: int, usable: int, per_gpu: int) -> int | None:
        """Cores for the most tasks that fit, None if not even the fewest do."""
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
        """Give up cores: of sockets that are not wanted, then of the fullest wanted one, until `need` are left."""
        if not self.request.bound and not self.near:
            for s in range(len(self.cores)):
                if s not in self.wanted:
                    self.cores[s] -= min(self.cores[s], max(0, sum(self.cores) - need))
        while self.wanted and sum(self.cores) > need:
            fullest = max(sorted(self.wanted), key=lambda s: self.cores[s])
            if not self.cores[fullest]:
                break
            self.cores[fullest] -= 1


def _dealt(kept: list[int], need: int, request: GpuRequest, threads: int) -> list[int]:
    """`need` cores out of those kept: whole tasks packed socket by socket, single-CPU tasks dealt round."""
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
