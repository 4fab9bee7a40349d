"""GPUs of each node by type now: how many are free or linked, which they are, and which jobs share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model import Nodes, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gres import device_shards, parse_gres
from slurmsched.resources.by_type import surely_free, whole_types
from slurmsched.resources.gpu_sets import largest_linked
from slurmsched.resources.placeable_gpus import topology_class, topology_class_rows, whole_gpu_masks

OPEN, BOOT, DRAINED, DOWN, UNREAD = "open", "after a boot", "drained", "down", "used GPUs cannot be read"
COUNTS_ONLY = "Slurm shows counts only"
NO_WIRING = "wiring unknown"
SEVERAL = "several types"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The whole GPUs of one type on one node.

    node: row of snapshot.nodes.
    standing: OPEN, BOOT (it takes jobs after a boot), DRAINED, DOWN or UNREAD (nobody can tell how many are used).
    used: held by jobs, also in part; 0 on a node that is DOWN or UNREAD.
    mask: which are free, None = not known.
    linked: the most free GPUs that are linked, None = not known.
    why: why `linked` is not known.
    """

    node: int
    gpu_type: str
    gpus: int
    used: int
    standing: str
    mask: int | None
    linked: int | None
    why: str = ""

    @property
    def unheld(self) -> int:
        """GPUs that no job holds, whether or not a job could have them."""
        return self.gpus - self.used

    @property
    def free(self) -> int:
        """GPUs that a job could have now."""
        return self.unheld if self.standing == OPEN else 0

    @property
    def boot(self) -> int:
        """GPUs that a job could have after a boot."""
        return self.unheld if self.standing == BOOT else 0


@dataclass(frozen=True, slots=True)
class MigDevices:
    """The MIG devices of one type on one node; free: of nodes that take jobs now."""

    node: int
    gpu_type: str
    devices: int
    free: int


def free_masks(snapshot: Snapshot) -> tuple[Int64s, Bools]:
    """Whole GPUs of each node that no job holds, as masks, and where that is known. Both (N,).

    It is not where Slurm tells how many GPUs are held but not which.
    """
    nodes = snapshot.nodes
    known = (bit_counts(nodes.gpu_mask_used) == nodes.gpus_used) & (nodes.gpus < 64)
    whole = whole_gpu_masks(snapshot)
    return np.where(known, whole & ~nodes.gpu_mask_used, 0), known & (nodes.gpu_mask_used & ~whole == 0)


@lru_cache(maxsize=2)  # one request is tried in many ways
def node_gpus(snapshot: Snapshot) -> tuple[NodeGpus, ...]:
    """Every node that has whole GPUs, by type, in the order of nodes."""
    return tuple(_node_gpus(snapshot))


def _node_gpus(snapshot: Snapshot) -> Iterator[NodeGpus]:
    nodes, used = snapshot.nodes, snapshot.nodes.gpu_use()["allocated"].tolist()
    masks, known = free_masks(snapshot)
    classes, states = topology_class_rows(snapshot), node_availability(nodes)
    for row in np.flatnonzero(nodes.gpus > 0).tolist():
        standing = states[row]
        types = whole_types(nodes.gpu_types[row]) or {"": int(nodes.gpus[row])}
        for gpu_type, gpus in types.items():
            if len(types) > 1:
                held = 0 if standing in (DOWN, UNREAD) else gpus - int(surely_free(snapshot, gpu_type)[row])
                yield NodeGpus(row, gpu_type, gpus, held, standing, None, None, SEVERAL)
                continue
            mask = int(masks[row]) if known[row] else None
            some = standing in (OPEN, BOOT) and gpus > used[row]
            linked, why = _linked(snapshot, int(classes[row]), mask) if some else (0, "")
            yield NodeGpus(row, gpu_type, gpus, used[row], standing, mask, linked, why)


@lru_cache(maxsize=2)
def node_availability(nodes: Nodes) -> tuple[str, ...]:
    """Of each node whether jobs could have its GPUs: OPEN, BOOT, DRAINED, DOWN or UNREAD."""
    rules = (nodes.down, DOWN), (nodes.gpus_unread, UNREAD), (nodes.draining, DRAINED), (nodes.after_boot, BOOT)
    return tuple(np.select([mask for mask, _ in rules], [name for _, name in rules], OPEN).tolist())


def mig_devices(snapshot: Snapshot) -> Iterator[MigDevices]:
    """Every node that has MIG devices, by type."""
    takes_jobs = ~(snapshot.nodes.closed | snapshot.nodes.after_boot)
    for row, text in enumerate(snapshot.nodes.gpu_types):
        for entry in parse_gres(text):
            if entry.mig:
                free = int(surely_free(snapshot, entry.type)[row]) if takes_jobs[row] else 0
                yield MigDevices(row, entry.type, entry.count, free)


def gpu_types(snapshot: Snapshot) -> frozenset[str]:
    """GPU types of the cluster as Slurm names them, those of MIG devices too."""
    return frozenset(entry.type for text in set(snapshot.nodes.gpu_types) for entry in parse_gres(text) if entry.type)


def _linked(snapshot: Snapshot, row: int, mask: int | None) -> tuple[int | None, str]:
    one = topology_class(snapshot.topology, row)
    if one is None or not one.known:
        return None, NO_WIRING
    return (None, COUNTS_ONLY) if mask is None else (largest_linked(one, mask), "")


# Which jobs have parts of the same GPU.


def jobs_beside(snapshot: Snapshot, row: int) -> tuple[int, ...]:
    """Rows of the other running jobs with a part of this job's GPU, as far as Slurm shows it; () for a job that does
    not run or has no shards."""
    gpu = snapshot.jobs.shared_gpu[row]
    return tuple(other for other in _running_on(snapshot, gpu) if other != row) if gpu else ()


def jobs_to_join(snapshot: Snapshot, row: int) -> tuple[int, ...]:
    """Rows of the running jobs on the GPU that a waiting job with shards and one node will have a part of: the fullest
    that has room, as Slurm fills them. () where no GPU of that node has shards in use, or Slurm does not show whose."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    name = jobs.nodes_asked[row]
    at = np.flatnonzero(nodes.name.isin([name]))
    if not len(at) or not jobs.pending[row] or not jobs.shards[row]:
        return ()
    devices = device_shards(nodes.shards[int(at[0])])
    room = {gpu: size - used - int(jobs.shards[row]) for gpu, (used, size) in enumerate(devices) if used}
    fits = {gpu: spare for gpu, spare in room.items() if spare >= 0}
    return _running_on(snapshot, f"{name} {min(fits, key=fits.__getitem__)}") if fits else ()


def _running_on(snapshot: Snapshot, gpu: str) -> tuple[int, ...]:
    return tuple(np.flatnonzero(snapshot.jobs.shared_gpu.isin([gpu]) & snapshot.jobs.running).tolist())
