"""On which nodes a gang goes: one node if it fits, else whole nodes and one remainder."""

from __future__ import annotations

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Floats, Int64s


@kernel
def part_of(gpus: int, nodes: int, size: int) -> int:
    """GPUs that each node of a gang gives; the last gives what is left, where that is less.

    nodes: how many are asked for. size: most GPUs of one node. Whole nodes and a rest where no more nodes are asked
    for than it needs, unless its GPUs can be shared out equally over just these; else equal parts, rounded up.
    Source: ours; as `--gpus-per-node` asks for GPUs.
    """
    least = -(-gpus // size)
    even = nodes == least and nodes > 1 and gpus % nodes == 0
    return -(-gpus // nodes) if even or nodes > least else size


@kernel(plain_below=512)
def pick_gang(free: Int64s, price: Floats, gpus: int, nodes: int, size: int, shares: Int64s) -> bool:
    """Whether the gang fits; then shares[n] GPUs of node n are its. Changes nothing but `shares`.

    free: (N,) int64 GPUs it may use. price: (N,) float64, nodes of lower price first; among equals the one
    left fullest, then the lowest row. gpus, nodes: what the job asks for. size: most GPUs of one node [GPUs].
    shares: (N,) int64, overwritten. What each node gives: see part_of. Source: ours; consolidation as in Tiresias
    (NSDI '19, section 3.3): fewest nodes.
    """
    shares[:] = 0
    part = part_of(gpus, nodes, size)
    left = gpus
    while left > 0:
        take = min(part, left)
        best = -1
        for n in range(free.size):
            if shares[n] > 0 or free[n] < take:
                continue
            if best < 0 or price[n] < price[best] or (price[n] == price[best] and free[n] < free[best]):
                best = n
        if best < 0:
            return False
        shares[best] = take
        left -= take
    return True
