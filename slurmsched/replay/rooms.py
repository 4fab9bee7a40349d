"""Nodes that gangs take consolidated or not at all: what an ideal cluster with node_gpus keeps."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels.gang import pick_gang
from slurmsched.model.columns import Floats, Int64s
from slurmsched.replay.ideal_model import NodeChoice


class Rooms:
    """Free GPUs of nodes of `size` GPUs each. size 0: there are no nodes. choice: see IdealModel.node_choice."""

    def __init__(self, gpus: int, size: int, choice: NodeChoice) -> None:
        self._size, self._choice = size, choice
        self._free = np.full(gpus // size if size else 0, size, np.int64)
        self._shares: dict[int, Int64s] = {}

    def take(self, row: int, gpus: int) -> bool:
        """Whether there is room for this gang on the fewest nodes, which it then has."""
        parts = [gpus]
        if self._choice == "rest-emptiest" and gpus > self._size and gpus % self._size:
            parts = [gpus - gpus % self._size, gpus % self._size]
        free = self._free.copy()
        for place, part in enumerate(parts):
            shares = self._on_fewest(free, part, -free.astype(np.float64) if place else np.zeros(len(free)))
            if shares is None:
                return False
            free -= shares
        self._shares[row] = self._free - free
        self._free = free
        return True

    def give(self, row: int) -> None:
        """The gang is gone."""
        self._free += self._shares.pop(row, 0)

    def _on_fewest(self, free: Int64s, gpus: int, price: Floats) -> Int64s | None:
        """GPUs of each node for so many, None if they have no place now. (N,)."""
        shares = np.zeros(len(free), np.int64)
        return shares if pick_gang(free, price, gpus, 1, self._size, shares) else None
