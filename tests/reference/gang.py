"""Naive twin of gang_fit.pick_gang: the parts of the gang as a list, each to the best node."""

from __future__ import annotations

import numpy as np


def parts(gpus: int, nodes: int, size: int) -> list[int]:
    """GPUs of each node: equal parts where they come out or more nodes are asked for, else whole nodes and a rest."""
    equal = gpus % nodes == 0 and gpus <= nodes * size
    part = size if not equal and nodes <= -(-gpus // size) else -(-gpus // nodes)
    return [part] * (gpus // part) + ([gpus % part] if gpus % part else [])


def pick_gang(free: np.ndarray, price: np.ndarray, gpus: int, nodes: int, size: int) -> list[int] | None:
    """GPUs of each node, None if the gang does not fit."""
    shares = [0] * len(free)
    for part in parts(gpus, nodes, size):
        open_nodes = [n for n in range(len(free)) if not shares[n] and free[n] >= part]
        if not open_nodes:
            return None
        shares[min(open_nodes, key=lambda n: (price[n], free[n], n))] = part
    return shares
