"""The nodes of a gres.conf as Slurm's selection sees them, also with GPUs of several GRES Types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Int32s, Int64s, frozen
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.topology.gpu_links import GpuDevice
from slurmsched.topology.slurm_selection import SlurmNode
from slurmsched.topology.topology_files import NodeClass
from slurmsched.topology.topology_text import fold_names, fold_numbers


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node whose GPUs have several Types. types: Type of each Slurm index."""

    types: tuple[str, ...]

    @property
    def gpus(self) -> int:
        return len(self.types)


@dataclass(frozen=True, slots=True)
class TypedRequest:
    """A request by Type.

    request: normal form, such as "gpu:a_i0:2".
    mask: the worst set that Slurm can give for it.
    rank: the rank of that set.
    """

    request: str
    mask: int
    rank: int


def safest_request(types: Sequence[str], free: int, gpus: int, rank: Int64s, prefer: int = 0) -> TypedRequest | None:
    """The request by Type whose worst result is best; None if too few GPUs are free.

    Slurm chooses which GPUs of a Type a job gets, so every set that a request allows counts. Of equal requests the one
    that certainly gives `prefer` is taken, then the one with fewest Types.

    free: mask.
    gpus: how many.
    rank: (2**G,) int64, higher is better.
    prefer: mask of a best free set of that size, 0 = none is known.
    Source: ours.
    """
    cuts = tuple(dict.fromkeys(types))
    if prefer and all(prefer & (mine := int(_mask(types, cut))) in (0, free & mine) for cut in cuts):
        return TypedRequest(_request(types, prefer), prefer, int(rank[prefer]))
    sets = _sets(len(types), gpus)
    sets = sets[sets & ~np.int64(free) == 0]
    if not len(sets):
        return None
    counts = np.column_stack([bit_counts(sets & _mask(types, cut)) for cut in cuts])
    way = np.unique(counts, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((sets, rank[sets], way))
    first = order[np.append(True, np.diff(way[order]) > 0)]  # the worst set of each way
    other, many = sets[first] != prefer, (counts[first] > 0).sum(axis=1)
    best = int(sets[first[np.lexsort((sets[first], many, other, -rank[sets[first]]))[0]]])
    return TypedRequest(_request(types, best), best, int(rank[best]))


def _request(types: Sequence[str], gpus: int) -> str:
    """The request, in normal form, for as many GPUs of each Type as the set (a mask) has."""
    counts = Counter(name for g, name in enumerate(types) if gpus >> g & 1)
    return ",".join(f"gpu:{name}:{count}" for name, count in sorted(counts.items()))


def best_share(types: Sequence[str], rank: Int64s) -> float:
    """Share of states (free GPUs and a size of at least two) in which the safest request gives a best set."""
    found: Counter[bool] = Counter()
    for free in range(1 << len(types)):
        for gpus in range(2, free.bit_count() + 1):
            sure, sets = safest_request(types, free, gpus, rank), _sets(len(types), gpus)
            found[sure is not None and sure.rank == rank[sets[sets & ~np.int64(free) == 0]].max()] += 1
    return found[True] / max(1, found.total())


@lru_cache(maxsize=64)
def _sets(gpus: int, size: int) -> Int64s:
    """All sets of this size, as masks."""
    masks = np.arange(1 << gpus, dtype=np.int64)
    return frozen(masks[bit_counts(masks) == size], np.int64)


def _mask(types: Sequence[str], one: str) -> np.int64:
    return np.int64(sum(1 << g for g, name in enumerate(types) if name == one))


# Nodes of a gres.conf for the selection.

NodeShape = tuple[int, int, int]  # sockets, cores of each, threads of each core


def slurm_node(one: NodeClass, shape: NodeShape) -> SlurmNode:
    """The GPUs of a class of gres.conf as slurmctld has them.

    Raises InputError if the file lists no GPUs, several types, or MIG devices.
    """
    devices = one.devices
    if not devices:
        raise InputError(f"{one.topology.name}: gres.conf lists no GPU; write the File lines that `slurmd -G` prints")
    if len({device.type for device in devices}) > 1 or any(device.mig for device in devices):
        raise InputError(f"{one.topology.name} has GPUs of several types or MIG devices; each type is picked by itself")
    sockets, cores, threads = shape
    links = [device.links for device in devices]
    return SlurmNode.build([device.cores for device in devices], links, sockets=sockets, cores_per_socket=cores,
                           cpus_per_core=threads)  # fmt: skip


def typed_node(one: NodeClass, counted: Sequence[tuple[str, int]]) -> TypedNode | None:
    """The node of a class of gres.conf whose GPUs have several Types; None for other classes.

    Slurm numbers GPUs Type by Type in its own order. If the file has another order, indices are unknown (seen on
    26.05.5).

    counted: Types and numbers in Slurm's order (`sinfo -o %G`).
    """
    types = tuple(device.type for device in one.devices)
    whole = not any(device.mig for device in one.devices)
    numbered = tuple(name for name, count in counted for _ in range(count))
    return TypedNode(types) if whole and all(types) and len(set(types)) > 1 and types == numbered else None


def true_links(one: NodeClass, matrix: GpuTopology | None) -> GpuTopology:
    """The true links: of `told` (a topology matrix), else the Links of the file, with PCIe for all other pairs.

    Raises InputError if `told` has another number of GPUs.
    """
    if matrix is None:
        return one.topology
    if matrix.gpus != len(one.devices):
        raise InputError(f"{matrix.name} has {matrix.gpus} GPUs, {one.topology.name} of gres.conf {len(one.devices)}")
    return matrix


def conf_lines(one: NodeClass, node: SlurmNode, order: Int32s | None = None) -> list[str]:
    """Lines of gres.conf: the devices of the class in this order with these Links; all else stays.

    Lines with NodeName turn AutoDetect off. With AutoDetect Slurm ignores each GPU whose Links differ from what it
    detects. On lines without NodeName Slurm ignores AutoDetect=off.
    """
    order = frozen(range(node.gpus), np.int32) if order is None else order
    return [_line(one.nodes, one.devices[g], node.links[g][order].tolist() if node.linked else ()) for g in order]


def _line(nodes: Sequence[str], device: GpuDevice, links: Sequence[int]) -> str:
    files = {"File": device.files[0]} if len(device.files) == 1 else {"MultipleFiles": ",".join(device.files)}
    near, wired = fold_numbers(device.cores), ",".join(map(str, links))
    values = {"NodeName": fold_names(nodes), "AutoDetect": "off", "Name": "gpu"} if nodes else {"Name": "gpu"}
    values |= {"Type": device.type, **files,
              "Cores": near, "Links": wired, "Flags": ",".join(device.flags)}  # fmt: skip
    return " ".join(f"{key}={value}" for key, value in values.items() if value)
