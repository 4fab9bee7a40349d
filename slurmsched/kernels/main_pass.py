"""One pass of slurmctld's main scheduler."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.nodes import pick_nodes, take_nodes, use_limits, within_limits
from slurmsched.model.columns import Bools, Floats, Int64s


@kernel
def main_pass(
    free: Int64s,
    open_nodes: Bools,
    completing: Bools,
    usable: Bools,
    pool: Int64s,
    members: Bools,
    part: Int64s,
    nodes: Int64s,
    need: Int64s,
    last: Int64s,
    pinned: Bools,
    array: Int64s,
    limit: Int64s,
    amount: Floats,
    room: Floats,
    depth: int,
    now: float,
    limit_s: Floats,
    block: Floats,
    blocked: Bools,
    shortest: bool,
) -> Int64s:
    """Which jobs start, and where. (K, 3) int64: job, node, kind, as take_nodes gives them, in order of start.

    Jobs come in the order they are tested. free: (3, N) int64, open_nodes: (N,) bool and room: (L,) float64 are
    changed. completing: (N,) bool, nodes that start nothing now. usable: (P, N) bool, nodes of each pool; pool: (J,)
    row of it. members: (Q, N) bool nodes of partitions; part: (J,). nodes: (J,); need, last: (J, 3). pinned: (J,) bool,
    bound to the nodes of its pool. array: (J,) id of the array it is a task of, 0 = none. limit, amount: (J, K).
    depth: records tested at most.
    limit_s: (J,) time limits [s]; a job may not run into a block: (B, 2) begin and end [s] of times in which nodes of
    blocked (B, N) are closed. The first job of a partition that does not fit blocks it, and its nodes for all that
    follow; one bound to nodes blocks those only; one that a limit stops, or that asks for more nodes than are open,
    blocks nobody. shortest: see pick_nodes. Source: Slurm's src/slurmctld/job_scheduler.c.
    """
    taken, given, used = np.zeros(open_nodes.size, np.int64), np.empty((64, 3), np.int64), 0
    failed, mask = np.zeros(members.shape[0], np.bool_), np.empty(open_nodes.size, np.bool_)
    rejected, tested = 0, 0
    for j in range(nodes.size):
        if array[j] > 0:
            if array[j] == rejected:
                continue
            rejected = array[j]
        if tested > depth:
            break
        tested += 1
        if failed[part[j]] or not within_limits(room, limit[j], amount[j]):
            continue
        mask[:] = open_nodes & usable[pool[j]]
        for b in range(block.shape[0]):
            if block[b, 0] < now + limit_s[j] and block[b, 1] > now:
                mask &= ~blocked[b]
        if mask.sum() < nodes[j]:
            continue
        mask &= ~completing
        if pick_nodes(free, mask, nodes[j], need[j], last[j], shortest, taken):
            if used + nodes[j] > given.shape[0]:
                given = np.concatenate((given, np.empty((used + nodes[j], 3), np.int64)))
            used = take_nodes(free, need[j], last[j], taken, j, given, used)
            use_limits(room, limit[j], amount[j])
            rejected = 0
            continue
        if pinned[j]:
            open_nodes &= ~usable[pool[j]]
        else:
            failed[part[j]] = True
            open_nodes &= ~members[part[j]]
    return given[:used].copy()
