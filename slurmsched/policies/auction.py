"""A partial-allocation auction over whole gangs."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s


def auction(gains: Floats, gpus: Int64s, offered: int) -> tuple[Bools, Floats]:
    """Who wins, (B,) bool, and the part of a lease that each winner keeps, (B,) in (0, 1].

    gains: (B,) above 0, by how much log(1 / rho) of a bidder grows if it wins. gpus: (B,) its gang, at least 1.
    The product of all 1 / rho is made largest, exactly, by dynamic programming over the GPUs offered. A winner keeps
    the product of the others' values with it over that without it, which is the hidden payment of the mechanism.
    Source: Cole et al., EC '13, as used by Mahajan et al. (Themis), NSDI '20. Taking the payment from
    the length of the lease, since a gang is whole, is ours.
    """
    below = _best(gains, gpus, offered)
    above = _best(gains[::-1], gpus[::-1], offered)[::-1]
    wins, left = np.zeros(len(gains), np.bool_), offered
    for bidder in range(len(gains) - 1, -1, -1):
        if below[bidder + 1, left] > below[bidder, left]:
            wins[bidder], left = True, left - int(gpus[bidder])
    part, best = np.ones(len(gains)), below[-1, offered]
    for bidder in np.flatnonzero(wins).tolist():
        without = float(np.max(below[bidder] + above[bidder + 1][::-1]))
        part[bidder] = np.exp(min(best - gains[bidder] - without, 0.0))
    return wins, part


def _best(gains: Floats, gpus: Int64s, offered: int) -> Floats:
    """Largest sum of gains of the first b bidders on c GPUs. (B + 1, offered + 1)."""
    table = np.zeros((len(gains) + 1, offered + 1))
    for bidder, (gain, size) in enumerate(zip(gains.tolist(), gpus.tolist(), strict=True)):
        table[bidder + 1] = table[bidder]
        if size <= offered:
            with_it = table[bidder, : offered + 1 - size] + gain
            table[bidder + 1, size:] = np.maximum(table[bidder, size:], with_it)
    return table
