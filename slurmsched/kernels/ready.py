"""When nodes will hold what a job needs, as running jobs go: slurmctld's guess, without walking them for every try."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.nodes import holds, pick_nodes, shortest_run
from slurmsched.model.columns import Bools, Floats, Int64s

FIRST_WINDOW_S = 30.0  # within which running jobs are taken away together; doubles at each step
MOST_REMOVED = 200  # running jobs taken away between two tests


@kernel
def ready_nodes(
    free: Int64s,
    need: Int64s,
    order: Int64s,
    runs: int,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    ready: Int64s,
    by_ready: Int64s,
) -> int:
    """How many runs must be gone, in order of their ends, before each node holds `need`.

    free: (3, N). need: (3,). order: runs by expected end, `runs` of them. run_first, run_count: rows of held_node (H,)
    and held (H, 3) of each run. ready: (N,) is set, 0 = holds it now, runs + 1 = never. by_ready: (N,) is set to the
    nodes that ever do, soonest first. Returns how many do.
    """
    work, able = free.copy(), 0
    for n in range(ready.size):
        ready[n] = runs + 1
        if holds(free, need, n):
            ready[n], by_ready[able] = 0, n
            able += 1
    for i in range(runs):
        first = run_first[order[i]]
        for k in range(first, first + run_count[order[i]]):
            n = held_node[k]
            if ready[n] <= runs:
                continue
            for r in range(3):
                work[r, n] += held[k, r]
            if holds(work, need, n):
                ready[n], by_ready[able] = i + 1, n
                able += 1
    return able


@kernel
def runs_to_go(ready: Int64s, by_ready: Int64s, able: int, mask: Bools, nodes: int) -> int:
    """How many runs must be gone before so many nodes of mask (N,) are ready; -1 if that never is."""
    if nodes <= 0:
        return 0
    for k in range(able):
        if mask[by_ready[k]]:
            nodes -= 1
            if nodes == 0:
                return int(ready[by_ready[k]])
    return -1


@kernel
def touches(run: int, run_first: Int64s, run_count: Int64s, held_node: Int64s, mask: Bools) -> bool:
    """Whether the run holds a node of mask."""
    first = run_first[run]
    for k in range(first, first + run_count[run]):  # noqa: SIM110 (no generators in kernels)
        if mask[held_node[k]]:
            return True
    return False


@kernel
def tested_after(
    to_go: int,
    epoch: float,
    order_end: Floats,
    order: Int64s,
    runs: int,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    mask: Bools,
    begun: int,
    bound: float,
) -> tuple[int, float]:
    """How many runs are gone at slurmctld's first test that finds `to_go` of them gone, and the end of the last one.

    It takes those that hold nodes of mask away in windows of time, each twice as long as the one before, and tests
    after each; after more than MOST_REMOVED it goes on without a test. (0, infinite) if it never tests so late.
    order_end: (R,) ends by `order`. epoch: Unix time of 0 [s]. begun: runs that are gone before. bound: it takes none
    away that ends later.
    """
    window, edge, i = FIRST_WINDOW_S, -1.0, begun
    while i < runs and order_end[i] <= bound:
        gone, latest, following = 0, -1.0, np.inf
        while i < runs and order_end[i] <= bound:
            if not touches(order[i], run_first, run_count, held_node, mask):
                i += 1
                continue
            if edge < 0:
                edge = order_end[i] + (window - (order_end[i] + epoch) % window) if order_end[i] < np.inf else np.inf
            latest = order_end[i]
            gone += 1
            i += 1
            following = order_end[i] if i < runs else np.inf
            if following > edge + window or gone > MOST_REMOVED:
                break
        if latest < 0:
            break
        if gone > MOST_REMOVED:
            continue
        if i >= to_go:
            return i, latest
        if i < runs:
            window *= 2.0
            while following > edge + window and window < np.inf:
                window *= 2.0
    return 0, np.inf


@kernel
def last_end(
    order_end: Floats,
    order: Int64s,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    chosen: Int64s,
    begun: int,
    gone: int,
    otherwise: float,
) -> float:
    """The end of the last run that holds a node of chosen (N,), of those between begun and gone in order of their ends;
    `otherwise` if none does."""
    mask = chosen > 0
    for i in range(gone - 1, begun - 1, -1):
        if touches(order[i], run_first, run_count, held_node, mask):
            return float(order_end[i])
    return otherwise


@kernel
def pick_later(
    gone: int,
    free: Int64s,
    order: Int64s,
    run_first: Int64s,
    run_count: Int64s,
    held_node: Int64s,
    held: Int64s,
    ready: Int64s,
    mask: Bools,
    nodes: int,
    need: Int64s,
    last: Int64s,
    shortest: bool,
    chosen: Int64s,
) -> None:
    """The nodes of a job that fits when `gone` runs are gone, in chosen (N,) as pick_nodes sets it.

    ready: (N,) of `need`, or for a single node of `last`, which is what that gives.
    """
    if nodes == 1:
        chosen[:] = 0
        n = 0
        while not (mask[n] and ready[n] <= gone):
            n += 1
        n = shortest_run(ready, mask, gone) if shortest else n
        chosen[n] = 1 if (need == last).all() else 2
        return
    work = free.copy()
    for i in range(gone):
        first = run_first[order[i]]
        for k in range(first, first + run_count[order[i]]):
            for r in range(3):
                work[r, held_node[k]] += held[k, r]
    pick_nodes(work, mask, nodes, need, last, shortest, chosen)
