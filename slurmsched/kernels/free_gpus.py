"""Which jobs may hold GPUs, and how many GPUs there are to give: one pass each over jobs, allocations and nodes."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s


@kernel(plain_below=512)
def standing_of(
    state: Int64s,
    priority: Int64s,
    eligible_s: Floats,
    now_s: float,
    flags: tuple[int, int, int],
    standing: Int64s,
) -> None:
    """2 for a job that holds GPUs, 1 for one that may start, 0 for the others, written to standing (N,).

    state: (N,).
    flags: of the states pending, holding, completing.
    priority: 0 = held by somebody.
    eligible_s: when it may start, NaN = any time.
    """
    pending, holding, completing = flags
    for j in range(state.size):
        standing[j] = 0
        if state[j] & completing:
            continue
        if state[j] & holding:
            standing[j] = 2
        elif state[j] & pending and priority[j] != 0 and not eligible_s[j] > now_s:
            standing[j] = 1


@kernel(plain_below=512)
def wanted_of(job_id: Int64s, standing: Int64s, asked: Int32s, holder: Int64s, gpus: Int32s) -> Int64s:
    """GPUs each job holds, or asks for if it may start; 0 for the others. (N,) int64.

    job_id: (N,), holder: (A,) job id of each allocation, both ascending.
    asked: (N,).
    gpus: (A,) held.
    standing: as standing_of.
    """
    wanted = np.zeros(job_id.size, np.int64)
    for j in range(job_id.size):
        if standing[j] == 1:
            wanted[j] = asked[j]
    j = 0
    for a in range(holder.size):
        while j < job_id.size and job_id[j] < holder[a]:
            j += 1
        if j < job_id.size and job_id[j] == holder[a] and standing[j] == 2:
            wanted[j] += gpus[a]
    return wanted


@kernel(plain_below=512)
def givable(closed: Bools, capacity: Int32s, used: Int32s, node: Int64s, gpus: Int32s) -> Int64s:
    """GPUs of each node that jobs of the snapshot hold or may get. (N,) int64.

    closed: (N,) takes no new job.
    capacity, used: (N,) GPUs.
    node: (A,) row of each allocation's node, -1 = none of these.
    gpus: (A,).
    What is used and not allocated belongs to holders unseen.
    """
    visible = np.zeros(capacity.size, np.int64)
    for a in range(node.size):
        if node[a] >= 0:
            visible[node[a]] += gpus[a]
    given = np.zeros(capacity.size, np.int64)
    for n in range(capacity.size):
        given[n] = visible[n] if closed[n] else capacity[n] - max(used[n] - visible[n], 0)
    return given
