"""From what each row says of each pair to the tables of one class of node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from slurmsched.model.topology import MAX_GPUS, GpuTopology, Int8s, Int16s, LinkKind
from slurmsched.topology.bandwidth import bandwidth
from slurmsched.topology.plain import joined, numbered

Link = tuple[LinkKind, int]  # kind, lanes
Said = Mapping[tuple[int, int], Link]  # (row, column) of the GPUs -> what the row says
FABRIC_GPUS = 3  # so many joined GPUs are a fabric that one can fall off; two are a bridged pair


def agreed(gpus: int, said: Said, weak: Collection[tuple[int, int]] = ()) -> tuple[Int8s, Int16s, tuple[str, ...]]:
    """(G, G) kinds and lanes, and warnings. A pair that both rows name must be named alike, or it is unknown.

    weak: entries that count only if the other row says the same.
    """
    kind, lanes = np.zeros((gpus, gpus), np.int8), np.zeros((gpus, gpus), np.int16)
    warnings = []
    for i, j in combinations(range(gpus), 2):
        there, back = said.get((i, j)), said.get((j, i))
        if there and back and there != back:
            warnings.append(f"GPU{i} and GPU{j}: one row says {told(there)}, the other {told(back)}; taken as unknown")
            continue
        link = there or back
        alone = there is None or back is None
        if link and not (alone and ((i, j) in weak or (j, i) in weak)):
            kind[i, j] = kind[j, i] = link[0]
            lanes[i, j] = lanes[j, i] = link[1]
    return kind, lanes, tuple(warnings)


def told(link: Link) -> str:
    """A link as nvidia-smi writes it: "NV4", "PIX"."""
    return f"NV{link[1]}" if link[0] == LinkKind.NVLINK else link[0].name


def shown(node: GpuTopology, link: Link) -> str:
    """As told; XGMI over other GPUs in brackets where some is direct."""
    around = link == (LinkKind.XGMI, 0) and node.lanes.any()
    return f"({told(link)})" if around else told(link)


def class_of(name: str, kind: Int8s, lanes: Int16s, *, gpu_type: str = "", **columns: Any) -> GpuTopology:
    """The class with bandwidth, switch groups and GPUs off the fabric worked out where they are not given."""
    columns.setdefault("pcie_group", switch_groups(kind))
    columns.setdefault("on_fabric", ~fallen(kind))
    wide = bandwidth(kind, lanes, gpu_type)
    return GpuTopology.build(
        name, len(kind), kind=kind, lanes=lanes, bandwidth_gb_per_s=wide, gpu_type=gpu_type, **columns
    )


def switch_groups(kind: Int8s, gpus: int | None = None) -> list[int]:
    """For each GPU the number of the PCIe switch it shares with another GPU, -1 = it shares none that is known.

    kind: (D, D) of all devices, the GPUs first; gpus: how many of them are GPUs, default all.
    """
    ends = np.argwhere(np.triu(kind) == LinkKind.PIX).tolist()
    return numbered(joined(len(kind), ends)[:gpus])


def fallen(kind: Int8s, unwired: Collection[tuple[int, int]] = ()) -> Any:
    """(G,) bool: GPUs without any NVLink or XGMI, all their links known, where at least three others are joined.

    unwired: pairs of UNKNOWN kind of which it is told that neither joins them.
    """
    wired = kind >= LinkKind.XGMI
    keys = joined(len(kind), np.argwhere(wired).tolist())
    largest = max((keys.count(key) for key in keys), default=0)
    told = kind != LinkKind.UNKNOWN
    for i, j in unwired:
        told[i, j] = told[j, i] = True
    known = told.sum(1) == len(kind) - 1
    return ~wired.any(1) & known & (largest >= FABRIC_GPUS)


def links_of(node: GpuTopology) -> Iterator[tuple[int, int, LinkKind, int]]:
    """Each known pair once, i < j, with kind and lanes."""
    for i, j in combinations(range(node.gpus), 2):
        if node.kind[i, j] != LinkKind.UNKNOWN:
            yield i, j, LinkKind(int(node.kind[i, j])), int(node.lanes[i, j])


def few_enough(gpus: int) -> tuple[int, tuple[str, ...]]:
    """So many GPUs, at most 64, and a warning if there were more."""
    if gpus <= MAX_GPUS:
        return gpus, ()
    return MAX_GPUS, (f"{gpus} GPUs in one node; the first {MAX_GPUS} are taken",)
