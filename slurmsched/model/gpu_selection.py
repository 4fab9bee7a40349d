"""What Slurm's own choice of GPUs depends on, and how good a choice was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmsched.model.columns import Int64s


def counted(request: str) -> int:
    """GPUs of a request in normal form or of a size_text, "" = none."""
    return sum(int(entry.rpartition(":")[2]) for entry in request.split(",") if entry)


_NODES = " nodes:"


def size_text(request: str, by: str, nodes: int) -> str:
    """What a job asks for, as one text: "gpu:4", and "2 nodes:gpu:4" where it asks by node for several nodes.

    request: of all its nodes, in normal form. by: as Jobs.gpus_by.
    """
    return f"{nodes}{_NODES}{request}" if by == "node" and nodes > 1 else request


def nodes_of_size(text: str) -> int:
    """Nodes that a size_text names, 1 = none."""
    return int(text.partition(_NODES)[0]) if _NODES in text else 1


def request_of_size(text: str) -> str:
    """The request in a size_text, of all its nodes."""
    return text.rpartition(_NODES)[2]


@dataclass(frozen=True, slots=True)
class JobGpuRequest:
    """How a pending job asks for its GPUs, as far as Slurm's choice among those of a node depends on it.

    form: "gpus-per-node", "gpus", "gpus-per-task" or "gpus-per-socket".
    count: GPUs by that form.
    tasks, sockets: 0 = not given; 1 task may be given or not, which Slurm does not tell.
    bound: enforce-binding.
    bars: what else it asks for that a node list might break, or that makes Slurm's choice unknown, as text.
    nodes: exactly that many, 0 = their number is not fixed.
    even: each of several nodes gets as many GPUs.
    whole: nobody else may be on them.
    """

    job_id: int
    submit_s: float
    form: str
    count: int
    tasks: int = 0
    cpus_per_task: int = 1
    sockets: int = 0
    bound: bool = False
    bars: tuple[str, ...] = ()
    asks: str = ""
    alone: bool = True
    nodes: int = 1
    even: bool = True
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GpuSelection:
    """What Slurm picks by. Row i of node_kind and free_cores belongs to row i of snapshot.nodes.

    kinds: GPUs, sockets and Links as slurmctld has them, or GPUs of several Types.
    node_kind: (N,) int64 index into kinds, -1 = not known.
    free_cores: of each socket, () = not known.
    version: Slurm's, as in topology.slurm_selection.
    """

    kinds: tuple[Any, ...]  # slurm_selection.SlurmNode or gres_nodes.TypedNode, made from what lies above the model
    node_kind: Int64s
    free_cores: tuple[tuple[int, ...], ...]
    version: tuple[int, ...]
    gpu_requests: tuple[JobGpuRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """What a job of several GPUs got at its start, and the best it could have had then.

    got_gb_per_s, best_gb_per_s: smallest link of the best ring through the set [GB/s]. If these are equal, the sum of
        its links. NaN for a job of several nodes.
    ratio: got over best, 0 to 1. For a job of several nodes it is the least of three numbers: 1 over the cells of the
        fabric that it spans without need, and the kept shares of its --switches and of its --segment.
    pinned: it started on a node list of slurmsched.
    note: what it missed.
    """

    job_id: int
    first_submit_s: float
    start_s: float
    nodes: str
    gpus: int
    got_gb_per_s: float
    best_gb_per_s: float
    ratio: float
    pinned: bool
    note: str = ""

    @property
    def missed(self) -> bool:
        return bool(self.note)
