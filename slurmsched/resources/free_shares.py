"""Parts of GPUs: what is free of each GPU, with CPUs and memory beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.kernels.gpu_share_fit import WHOLE
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.resources.placeable_gpus import PlaceableGpus


@dataclass(frozen=True, slots=True, eq=False)
class FreeShares:
    """What is free of each node beside the jobs that hold something there. Writable: jobs take from it.

    gpu_milli: (N, G) int64, thousandths free of each GPU by index; 0 where nobody may have it, or there is none. G is
    the most GPUs of a node. cpus, memory_mib: (N,), infinity = not counted.
    """

    gpu_milli: Int64s
    cpus: Floats
    memory_mib: Floats

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeShares:
        """Of a snapshot. Where Slurm does not show which GPUs are held, the lowest ones count as held.

        Raises ConfigError for a node of more than 63 GPUs.
        """
        placeable = PlaceableGpus.of(snapshot)
        held, index = placeable.allocated, np.arange(int(snapshot.nodes.gpus.max(initial=0)))
        free = WHOLE * _bits(placeable.capacity, index)
        parts = snapshot.jobs.gpu_milli[held.row].astype(np.int64)[:, np.newaxis] * _bits(held.mask, index)
        np.subtract.at(free, held.node, parts)
        cpus, memory_mib = placeable.cpus.copy(), placeable.memory_mib.copy()
        np.subtract.at(cpus, held.node, held.cpus)
        np.subtract.at(memory_mib, held.node, held.memory_mib)
        return cls(np.maximum(free, 0), cpus, memory_mib)


def _bits(masks: Int64s, index: Int64s) -> Int64s:
    """1 where a mask has the bit of this index. (M, G)."""
    found: Int64s = masks[:, np.newaxis] >> index & 1
    return found
