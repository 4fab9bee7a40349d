"""How many GPUs of each node a job can have, with the CPUs and the memory that go with them."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel
def bit_count(mask: int) -> int:
    """Number of GPUs of a set. mask: >= 0. Sums of neighbouring bits, side by side."""
    pairs = mask - (mask >> 1 & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + (pairs >> 2 & 0x3333333333333333)
    octets = fours + (fours >> 4) & 0x0F0F0F0F0F0F0F0F
    octets += octets >> 8
    octets += octets >> 16
    octets += octets >> 32
    return octets & 0x7F


@kernel
def headroom(
    free: Int64s, usable: Bools, cpus: Floats, memory_mib: Floats, cpus_per_gpu: float, mib_per_gpu: float
) -> Int64s:
    """GPUs of each node that a job can have, 0 where it may not go. (N,) int64.

    free: (N,) bit masks of GPUs to give. usable: (N,). cpus, memory_mib: (N,) free ones, infinity = not counted.
    GPUs whose CPUs or memory others hold are stranded: they are not counted.
    """
    room = np.zeros(free.size, np.int64)
    for n in range(free.size):
        if not usable[n] or free[n] == 0:
            continue
        most = bit_count(free[n])
        if cpus_per_gpu > 0 and cpus[n] < most * cpus_per_gpu:
            most = int(cpus[n] / cpus_per_gpu + 1e-9)
        if mib_per_gpu > 0 and memory_mib[n] < most * mib_per_gpu:
            most = int(memory_mib[n] / mib_per_gpu + 1e-9)
        room[n] = max(most, 0)
    return room
