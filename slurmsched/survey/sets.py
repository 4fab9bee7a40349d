"""Sets of free GPUs of one node: the best of a size, the largest that is linked, and what links one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.placements.gpu_sets import TABLE_GPUS, gb_per_s, large_set, link_kind, link_weights, ring, set_table
from slurmsched.topology.picker import members


@dataclass(frozen=True, slots=True)
class Link:
    """The smallest link on the best ring through a set. gb_per_s: one direction, 0 = the model's is not known."""

    kind: LinkKind
    gb_per_s: float

    @property
    def direct(self) -> bool:
        """Whether NVLink or XGMI joins the whole ring."""
        return self.kind >= LinkKind.XGMI


def best_set(topology: GpuTopology, free: int, gpus: int) -> int:
    """The best set of so many free GPUs as a mask, 0 if there are too few; of classes over 16 GPUs a good one."""
    if topology.gpus > TABLE_GPUS:
        return large_set(topology, free, gpus)
    return int(set_table(topology).best[free, gpus]) if gpus <= topology.gpus else 0


@lru_cache(maxsize=1 << 14)
def link_of(topology: GpuTopology, mask: int) -> Link | None:
    """What joins a set of at least two GPUs; None for one GPU, or where nothing is known of the wiring."""
    if mask.bit_count() < 2 or not topology.known:
        return None
    if topology.gpus <= TABLE_GPUS:
        weight = int(set_table(topology).quality[mask, 1])
    else:
        order = ring(topology, tuple(members(mask)))
        weights = link_weights(topology)
        weight = min(int(weights[a, b]) for a, b in zip(order, (*order[1:], order[0]), strict=True))
    told = bool(topology.bandwidth_gb_per_s.any())
    return Link(link_kind(weight), float(gb_per_s(weight)) if told else 0.0)


@lru_cache(maxsize=1 << 14)
def largest_linked(topology: GpuTopology, free: int) -> int:
    """The most free GPUs that a ring of NVLink or XGMI joins: 1 where no two are, 0 where none is free."""
    for gpus in range(free.bit_count(), 1, -1):
        link = link_of(topology, best_set(topology, free, gpus))
        if link is not None and link.direct:
            return gpus
    return min(1, free.bit_count())
