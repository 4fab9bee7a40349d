"""Which jobs may hold GPUs, and how many GPUs there are to give: one pass each over jobs, allocations and nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.kernels.gang_fit import bit_count
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


# Single GPUs.


class JobColumns(NamedTuple):
    """Columns of the jobs. (J,) each. holds: whether it holds GPUs."""

    job_id: Int64s
    holds: Bools
    gpus: Int32s
    cpus: Int32s
    memory_mib: Floats


class AllocationColumns(NamedTuple):
    """Columns of the allocations. (A,) each.

    node: row, -1 = none of these.
    whole: GPUs without MIG devices.
    """

    job_id: Int64s
    node: Int64s
    gpus: Int32s
    whole: Int32s
    mask: Int64s


class NodeColumns(NamedTuple):
    """Columns of the nodes. (N,) each.

    mask_used: GPUs held, as Slurm shows them.
    whole: all its GPUs that are not cut into MIG devices.
    """

    closed: Bools
    gpus: Int32s
    gpus_used: Int32s
    mask_used: Int64s
    whole: Int64s


class HolderSets(NamedTuple):
    """One entry a holding job and node, by row of the job, then of the node; as resources.placeable_gpus has them.

    first, entries: (J,) where those of each job begin, and how many they are.
    """

    row: Int64s
    node: Int64s
    mask: Int64s
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats
    first: Int64s
    entries: Int64s


@kernel(plain_below=512)
def placeable_masks(node_of: Int64s, allocations: AllocationColumns, nodes: NodeColumns) -> tuple[Int64s, Bools]:
    """GPUs of each node that jobs of the snapshot hold or may get, and where it is not shown which are held.

    node_of: allocations.node. Returns masks, of nodes of the second kind the lowest so many, and flags: (N,) each.
    """
    size = nodes.gpus.size
    visible, counted, blind = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.bool_)
    for a in range(node_of.size):
        n = node_of[a]
        if n >= 0:
            visible[n] |= allocations.mask[a]
            counted[n] += allocations.whole[a]
            blind[n] = blind[n] or bit_count(allocations.mask[a]) != allocations.gpus[a]
    masks = np.empty(size, np.int64)
    for n in range(size):
        used, whole = nodes.mask_used[n], nodes.whole[n]
        if blind[n] or bit_count(used) != nodes.gpus_used[n] or (used | visible[n]) & ~whole != 0:
            blind[n] = True
            given = counted[n] if nodes.closed[n] else nodes.gpus[n] - max(nodes.gpus_used[n] - counted[n], 0)
            masks[n] = (np.int64(1) << np.int64(given)) - 1
        else:
            masks[n] = visible[n] if nodes.closed[n] else whole & ~(used & ~visible[n])
    return masks, blind


@kernel(plain_below=512)
def holder_sets(node_of: Int64s, allocations: AllocationColumns, jobs: JobColumns, blind: Bools) -> HolderSets:
    """What holding jobs hold. Entries of one job and node are made one.

    node_of: allocations.node. On blind nodes bits are dealt out in the order of job ids.
    """
    by_id = _ascending(jobs.job_id)
    row = _holder_rows(node_of, allocations.job_id, jobs, by_id)
    count = np.zeros(jobs.job_id.size, np.int64)
    for a in range(row.size):
        if row[a] >= 0:
            count[row[a]] += 1
    first = np.cumsum(count) - count
    order, filled = np.empty(count.sum(), np.int64), np.zeros(count.size, np.int64)
    for a in range(row.size):  # by row, then node
        if row[a] >= 0:
            place = first[row[a]] + filled[row[a]]
            while place > first[row[a]] and node_of[order[place - 1]] > node_of[a]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = a
            filled[row[a]] += 1
    return _merged(order, row, node_of, allocations, jobs, by_id, blind)


@kernel_part
def _ascending(job_id: Int64s) -> Int64s:
    """Rows by ascending id. They mostly are already."""
    for j in range(1, job_id.size):
        if job_id[j] <= job_id[j - 1]:
            return np.argsort(job_id)
    return np.arange(job_id.size)


@kernel_part
def _holder_rows(node_of: Int64s, holder: Int64s, jobs: JobColumns, by_id: Int64s) -> Int64s:
    """Row of the holding job of each allocation on a known node, -1 where there is none."""
    row = np.full(holder.size, -1, np.int64)
    for a in range(holder.size):
        low, high = 0, by_id.size
        while low < high:
            middle = (low + high) // 2
            if jobs.job_id[by_id[middle]] < holder[a]:
                low = middle + 1
            else:
                high = middle
        if low < by_id.size and node_of[a] >= 0 and jobs.job_id[by_id[low]] == holder[a] and jobs.holds[by_id[low]]:
            row[a] = by_id[low]
    return row


# Over 30 lines: a third is signature.
@kernel_part
def _merged(
    order: Int64s,
    row: Int64s,
    node_of: Int64s,
    allocations: AllocationColumns,
    jobs: JobColumns,
    by_id: Int64s,
    blind: Bools,
) -> HolderSets:
    """The entries in this order, those of one job and node made one."""
    kept = order.copy()  # an allocation of each entry
    mask, gpus = np.zeros(order.size, np.int64), np.zeros(order.size, np.int64)
    count, made = np.zeros(by_id.size, np.int64), 0
    for a in order:
        if made == 0 or row[kept[made - 1]] != row[a] or node_of[kept[made - 1]] != node_of[a]:
            kept[made] = a
            count[row[a]] += 1
            made += 1
        mask[made - 1] |= allocations.mask[a]
        gpus[made - 1] += allocations.gpus[a]
    first, before = np.cumsum(count) - count, np.zeros(blind.size, np.int64)
    for j in by_id:
        for k in range(first[j], first[j] + count[j]):
            n = node_of[kept[k]]
            if blind[n]:
                mask[k] = ((np.int64(1) << gpus[k]) - 1) << before[n]
                before[n] += gpus[k]
    rows, nodes = np.empty(made, np.int64), np.empty(made, np.int64)
    cpus, memory_mib = np.empty(made, np.float64), np.empty(made, np.float64)
    for k in range(made):
        rows[k], nodes[k] = row[kept[k]], node_of[kept[k]]
        share = gpus[k] / max(jobs.gpus[rows[k]], 1)
        cpus[k], memory_mib[k] = jobs.cpus[rows[k]] * share, jobs.memory_mib[rows[k]] * share
    return HolderSets(rows, nodes, mask[:made], gpus[:made], cpus, memory_mib, first, count)
