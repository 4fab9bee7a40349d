"""A node and a request as slurmctld sees them when it picks GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.kernels.slurm_pick import ANY
from slurmsched.model.columns import Int32s, frozen


class Form(StrEnum):
    """How the GPUs are asked for; --gres=gpu:N counts by node, so it is PER_NODE too."""

    PER_NODE = "gpus-per-node"
    PER_JOB = "gpus"
    PER_TASK = "gpus-per-task"
    PER_SOCKET = "gpus-per-socket"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """One job on one node (-N1). count: GPUs per node, job, task or socket, by form.

    tasks: -n, 0 = not given. cpus_per_task: -c. sockets: --sockets-per-node, 0 = not given. bound: enforce-binding.
    """

    form: Form
    count: int
    tasks: int = 0
    cpus_per_task: int = 1
    sockets: int = 0
    bound: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the whole job, 0 = not known before its sockets are."""
        if self.form is Form.PER_SOCKET:
            return 0
        return self.count * max(1, self.tasks) if self.form is Form.PER_TASK else self.count

    @property
    def cpus(self) -> int:
        """CPUs asked for; asking for sockets asks for a task on each."""
        return max(1, self.tasks, self.sockets) * self.cpus_per_task

    def crowded(self, sockets: int) -> bool:
        """Whether this is a bound --gpus=N with fewer CPUs than the node has sockets."""
        return self.form is Form.PER_JOB and self.bound and self.cpus < sockets


@dataclass(frozen=True, slots=True, eq=False)
class SlurmNode:
    """GPUs, sockets and cores. socket: (G,) int32, where the cores of each GPU are, -1 = on all sockets or not told.

    links: (G, G) int32, rows of Links; read only if `linked`: every GPU has a row. cpus_per_core: threads.
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
        """From Cores= and Links= of each GPU in the order of gres.conf, () where a line has none.

        Raises ConfigError for a core that the node does not have.
        """
        gpus, linked = len(cores), bool(links) and all(len(row) == len(cores) for row in links)
        matrix = np.array(links, np.int32) if linked else np.zeros((gpus, gpus), np.int32)
        near = [_socket(listed, sockets, cores_per_socket) for listed in cores]
        return cls(frozen(near, np.int32), frozen(matrix, np.int32), linked, sockets, cores_per_socket, cpus_per_core)


def _socket(cores: Sequence[int], sockets: int, cores_per_socket: int) -> int:
    """The first socket of these cores; ANY where they are on every socket, or not told."""
    touched = sorted({core // cores_per_socket for core in cores})
    if touched and not 0 <= touched[0] <= touched[-1] < sockets:
        has = f"cores 0-{sockets * cores_per_socket - 1}"
        raise ConfigError(f"core {max(cores)} is not on the node, which has {has}", key="Cores")
    return ANY if len(touched) in (0, sockets) else touched[0]
