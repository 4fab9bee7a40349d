"""Sets of GPUs of one node as bit masks: bit i is GPU index i."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Int64s


def low_bits(count: Int64s) -> Int64s:
    """Masks of the lowest `count` GPUs."""
    return (np.int64(1) << np.asarray(count, np.int64)) - 1


def bit_counts(masks: Int64s) -> Int64s:
    """GPUs in each mask. Same shape, int64."""
    words = np.ascontiguousarray(masks, np.int64).view(np.uint64).reshape(np.shape(masks))
    if hasattr(np, "bitwise_count"):  # from numpy 2.0 on
        return np.asarray(np.bitwise_count(words), np.int64)
    octets = words[..., np.newaxis].view(np.uint8)
    return np.asarray(np.unpackbits(octets, axis=-1).sum(axis=-1), np.int64)


def lowest_bits(free: int, gpus: int) -> int:
    """The lowest `gpus` of a free set, as a mask."""
    taken = 0
    for _ in range(gpus):
        taken |= free & -free
        free &= free - 1
    return taken


def mask_members(mask: int) -> list[int]:
    """The GPUs of a mask, ascending."""
    return [g for g in range(mask.bit_length()) if mask >> g & 1]
