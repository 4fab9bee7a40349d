"""A partial-allocation auction over bid tables: what each bidder gains by each number of GPUs."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Floats, Int64s

_STEP = 1e-9  # of a gain; less is rounding


def auction(gains: Floats, gpus: Int64s, offered: int) -> tuple[Int64s, Floats]:
    """Which of its bids each bidder wins, (B,), -1 for none, and the part of a lease that it keeps, (B,) in (0, 1].

    gains: (B, K), by how much log(1 / rho) of a bidder grows by each of its bids; one that is not above 0 is no bid.
    gpus: (B, K) GPUs of each bid, at least 1. Of several that are equally good the first bid counts.
    The product of all 1 / rho is made largest, exactly, by dynamic programming over the GPUs offered. A winner keeps
    the product of the others' values with it over that without it, which is the hidden payment of the mechanism.
    Source: Cole et al., EC '13, as used by Mahajan et al. (Themis), NSDI '20. Taking the payment from
    the length of the lease, since a gang is whole, is ours.
    """
    gains = np.rint(gains / _STEP)  # sums of whole numbers are exact, so that ties are ties in any order
    below = _best(gains, gpus, offered)
    above = _best(gains[::-1], gpus[::-1], offered)[::-1]
    wins, part, left = np.full(len(gains), -1, np.int64), np.ones(len(gains)), offered
    for bidder in range(len(gains) - 1, -1, -1):
        for bid in np.flatnonzero((gains[bidder] > 0) & (gpus[bidder] <= left)).tolist():
            then = left - int(gpus[bidder, bid])
            if below[bidder, then] + gains[bidder, bid] == below[bidder + 1, left] > below[bidder, left]:
                wins[bidder], left = bid, then
                break
    best = below[-1, offered]
    for bidder in np.flatnonzero(wins >= 0).tolist():
        without = float(np.max(below[bidder] + above[bidder + 1][::-1]))
        part[bidder] = np.exp(min(best - gains[bidder, wins[bidder]] - without, 0.0) * _STEP)
    return wins, part


def _best(gains: Floats, gpus: Int64s, offered: int) -> Floats:
    """Largest sum of gains of the first b bidders on c GPUs. (B + 1, offered + 1)."""
    table = np.zeros((len(gains) + 1, offered + 1))
    for bidder, (row, sizes) in enumerate(zip(gains.tolist(), gpus.tolist(), strict=True)):
        table[bidder + 1] = table[bidder]
        for gain, size in zip(row, sizes, strict=True):
            if size <= offered and gain > 0:
                with_it = table[bidder, : offered + 1 - size] + gain
                table[bidder + 1, size:] = np.maximum(table[bidder + 1, size:], with_it)
    return table
