"""Which deadline jobs can have the leases they need in time, and who has one now: Chronus's packing.

Leases far ahead are counted in blocks, so that a plan of days has few columns: in a block no job has more leases than
it is long, and all together no more GPUs than there are. Source: Gao et al. (Chronus), SoCC '21, for the packing by a
mixed-integer programme or greedily; blocks are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.solve import Programme, solve

SINGLE = 8  # leases ahead that are counted one by one
FIRM = 1_000.0  # of a job that was promised its deadline before, against 1 of one that was not
SOON = 1e-3  # price of a GPU of the last block: earlier leases are better
NODES = 200  # of the search tree; what is best by then is taken


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """By deadline job. gpus, needed: (A,) GPUs, and leases to come. within: (A,) whole leases before the deadline.
    firm: (A,) bool, its deadline was promised."""

    gpus: Int64s
    needed: Int64s
    within: Int64s
    firm: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """admitted: (A,) bool. now: (A,) bool, has the lease that begins now. proven: False where the search was cut."""

    admitted: Bools
    now: Bools
    proven: bool = True


def blocks(leases: int) -> Int64s:
    """Lengths of blocks that cover so many leases: single ones, then each twice as long as the one before. (B,)."""
    lengths = [1] * min(max(leases, 1), SINGLE)
    while sum(lengths) < leases:
        lengths.append(2 * lengths[-1])
    return np.array(lengths, np.int64)


def most_leases(demand: Demand, length: Int64s) -> Int64s:
    """Leases of each block that end before each deadline. (A, B) int64."""
    begin = np.cumsum(length) - length
    return np.clip(demand.within[:, None] - begin, 0, length)


def greedy(demand: Demand, capacity: int) -> Packing:
    """Jobs one after the other, those promised first, then by slack and fewest GPUs, each in its earliest leases."""
    length = blocks(int(demand.within.max(initial=1)))
    most, free = most_leases(demand, length), capacity * length
    admitted, now = np.zeros((2, len(demand.gpus)), np.bool_)
    slack = demand.within - demand.needed
    for job in np.lexsort((np.arange(len(slack)), demand.gpus, slack, ~demand.firm)).tolist():
        room = np.minimum(most[job], free // demand.gpus[job])
        if room.sum() < demand.needed[job]:
            continue
        taken = np.clip(demand.needed[job] - (np.cumsum(room) - room), 0, room)
        free = free - taken * demand.gpus[job]
        admitted[job], now[job] = True, taken[0] > 0
    return Packing(admitted, now)


def best(demand: Demand, capacity: int) -> Packing:
    """As many jobs as can be, those promised before all, by a mixed-integer programme over leases by job and block."""
    length = blocks(int(demand.within.max(initial=1)))
    found = solve(_programme(demand, length, capacity), gap=1e-4, nodes=NODES)
    if found.x is None:
        return greedy(demand, capacity)
    count = len(demand.gpus)
    leases = np.round(found.x[count:]).reshape(count, len(length))
    return Packing(found.x[:count] > 0.5, leases[:, 0] > 0, found.status == "optimal")


def _programme(demand: Demand, length: Int64s, capacity: int) -> Programme:
    """Over whether each job is admitted (A,), then its leases in each block (A x B)."""
    from scipy import sparse

    count, width = len(demand.gpus), len(length)
    cells = np.arange(count * width)
    job, block = np.divmod(cells, width)
    gpus = demand.gpus[job].astype(np.float64)
    in_block = sparse.csr_array((gpus, (block, count + cells)), shape=(width, count * (1 + width)))
    whole = sparse.hstack([sparse.diags_array(-demand.needed.astype(np.float64)),
                           sparse.csr_array((np.ones(len(cells)), (job, cells)))]).tocsr()  # fmt: skip
    late: Floats = SOON * gpus * block / max(width, 1) / max(float(gpus.sum()), 1.0)
    cost = np.concatenate([-np.where(demand.firm, FIRM, 1.0), late])
    high = np.concatenate([np.ones(count), most_leases(demand, length).ravel()]).astype(np.float64)
    return Programme(
        cost, np.zeros(len(cost)), high, in_block, (capacity * length).astype(np.float64), whole, np.zeros(count),
        np.ones(len(cost), np.bool_),
    )  # fmt: skip
