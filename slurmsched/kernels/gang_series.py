"""Many gangs one after another, as `linked` chooses each: nodes are kept in lists by their free GPUs, so that a choice
looks at the lists and not at every node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.kernels.gang_fit import SetTables, best_nodes, bit_count, near_cells, part_of, room_of
from slurmsched.model.columns import Bools, Floats, Int64s

LEAST = -(1 << 62)


class GangSeries(NamedTuple):
    """What gangs ask for, in their order. (M,) each.

    gpus, nodes: asked for; of 0 GPUs it gets none.
    size: most GPUs of a node that it may have.
    pool: its row of the usable nodes.
    cpus_per_gpu, mib_per_gpu: beside each GPU.
    """

    gpus: Int64s
    nodes: Int64s
    size: Int64s
    pool: Int64s
    cpus_per_gpu: Floats
    mib_per_gpu: Floats


class FreeCluster(NamedTuple):
    """What is free, changed as gangs take it, and what stays as it is.

    free: (N,) masks.
    cpus, memory_mib: (N,), infinity = not counted.
    usable: (P, N) bool.
    node_class: (N,) row of its class in the tables, -1 = unknown.
    """

    free: Int64s
    cpus: Floats
    memory_mib: Floats
    usable: Bools
    node_class: Int64s


class CellRanges(NamedTuple):
    """The fields of fabric_cells.FabricCells of the same names."""

    order: Int64s
    low: Int64s
    high: Int64s
    level: Int64s
    lowest: Int64s
    above: Int64s
    place: Int64s


class FreeLists(NamedTuple):
    """Nodes in lists of those of one class with the same free GPUs; of unknown classes with as many.

    head: (L,) the first node of each list, -1 = empty.
    after, before: (N,) neighbours in the list.
    listed: (N,) list of the node, -1 = none: nothing is free there.
    used: the first `used_lists[0]` are the lists that are not empty.
    spot: (L,) where each is in `used`.
    idle: (C + 1,) free GPUs of the nodes whose lowest cell it is.
    """

    head: Int64s
    after: Int64s
    before: Int64s
    listed: Int64s
    used: Int64s
    spot: Int64s
    used_lists: Int64s
    idle: Int64s


class CellRoom(NamedTuple):
    """For the gangs of one kind.

    at_least: (C, G + 1) nodes of each cell that have room for that many GPUs.
    total: (C,) sum of the room.
    known: 1 while they hold.
    """

    at_least: Int64s
    total: Int64s
    known: Int64s


# Over 30 lines: one loop over gangs with the state that all share.
@kernel
def serve_series(
    asks: GangSeries, cluster: FreeCluster, cells: CellRanges, tables: SetTables, unused: int, stops: bool
) -> tuple[int, Int64s, Int64s, Int64s]:
    """GPUs for each gang, whole or not at all, in their order: what `linked` chooses for each by what is free then.

    unused: GPUs that are free or held by jobs that may have to go. A larger gang is passed over.
    stops: end at the first other gang that does not fit.
    Changes the free GPUs, CPUs and memory of the cluster.
    Returns the number of gangs that were looked at, (M,) the number of nodes of each, and the rows and GPU masks of
    these nodes: one gang after another, ascending by node. Source: slurmsched; the choices are those of gang_fit's
    kernels.
    """
    gangs, most = asks.gpus.size, 0
    for i in range(gangs):
        if asks.gpus[i] > 0:
            most += -(-asks.gpus[i] // part_of(asks.gpus[i], asks.nodes[i], asks.size[i]))
    nodes, masks, count = np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(gangs, np.int64)
    lists, room = _lists(cluster, cells, tables), _no_room(cluster, cells)
    near = np.zeros(cluster.free.size, np.int64)
    kind, given = -1, 0  # kind: the gang for which `room` was counted
    for i in range(gangs):
        if asks.gpus[i] == 0 or asks.gpus[i] > unused:
            continue
        part = part_of(asks.gpus[i], asks.nodes[i], asks.size[i])
        if part >= asks.gpus[i]:
            nodes[given] = _one_node(asks, i, cluster, cells, lists, tables)
            count[i] = 1 if nodes[given] >= 0 else 0
        else:
            if kind < 0 or room.known[0] == 0 or not _same_kind(asks, kind, i):
                _count_room(asks, i, cluster, cells, room)
                kind = i
            found = _several_nodes(asks, i, part, cluster, cells, room, near, tables)
            count[i] = found.size
            nodes[given : given + found.size] = found
        if count[i] == 0 and stops:
            return i, count, nodes[:given], masks[:given]
        _give(asks, i, part, kind, nodes, masks, given, count[i], cluster, cells, lists, room, tables)
        given += count[i]
        unused -= asks.gpus[i] if count[i] > 0 else 0
    return gangs, count, nodes[:given], masks[:given]


@kernel_part
def _same_kind(asks: GangSeries, one: int, other: int) -> bool:
    """Whether a node has the same room for both gangs."""
    beside = asks.cpus_per_gpu[one] == asks.cpus_per_gpu[other] and asks.mib_per_gpu[one] == asks.mib_per_gpu[other]
    return asks.pool[one] == asks.pool[other] and beside


@kernel_part
def _room(asks: GangSeries, i: int, cluster: FreeCluster, n: int) -> int:
    """GPUs of a node that the gang can have: see gang_fit.headroom."""
    if not cluster.usable[asks.pool[i], n] or cluster.free[n] == 0:
        return 0
    beside = asks.cpus_per_gpu[i], asks.mib_per_gpu[i]
    return room_of(bit_count(cluster.free[n]), cluster.cpus[n], cluster.memory_mib[n], beside[0], beside[1])


@kernel_part
def _lists(cluster: FreeCluster, cells: CellRanges, tables: SetTables) -> FreeLists:
    """The lists of all nodes as they are now."""
    nodes, kinds = cluster.free.size, tables.rank.size + 65
    lists = FreeLists(
        np.full(kinds, -1), np.full(nodes, -1), np.full(nodes, -1), np.full(nodes, -1), np.empty(nodes + 1, np.int64),
        np.full(kinds, -1), np.zeros(1, np.int64), np.zeros(cells.low.size + 1, np.int64),
    )  # fmt: skip
    for n in range(nodes):
        if cluster.free[n] != 0:
            _enlist(n, cluster, lists, tables)
            lists.idle[cells.lowest[n]] += bit_count(cluster.free[n])
    return lists


@kernel_part
def _enlist(n: int, cluster: FreeCluster, lists: FreeLists, tables: SetTables) -> None:
    """Put a node with free GPUs into the list of them."""
    c, free = cluster.node_class[n], cluster.free[n]
    at = tables.set_at[c] + free if c >= 0 else tables.rank.size + bit_count(free)
    lists.listed[n], lists.after[n], lists.before[n] = at, lists.head[at], -1
    if lists.head[at] >= 0:
        lists.before[lists.head[at]] = n
    else:
        lists.spot[at] = lists.used_lists[0]
        lists.used[lists.used_lists[0]] = at
        lists.used_lists[0] += 1
    lists.head[at] = n


@kernel_part
def _strike(n: int, lists: FreeLists) -> None:
    """Take a node out of its list."""
    at, after, before = lists.listed[n], lists.after[n], lists.before[n]
    lists.listed[n] = -1
    if after >= 0:
        lists.before[after] = before
    if before >= 0:
        lists.after[before] = after
        return
    lists.head[at] = after
    if after < 0:
        lists.used_lists[0] -= 1
        last = lists.used[lists.used_lists[0]]
        lists.used[lists.spot[at]], lists.spot[last] = last, lists.spot[at]


@kernel_part
def _worth(free: int, c: int, gpus: int, tables: SetTables) -> tuple[int, int]:
    """How good the best set of so many of these free GPUs is and how full it leaves the node, and the harm it does."""
    if c < 0:
        return -bit_count(free), 0
    taken = np.int64(tables.best[tables.best_at[c] + free * tables.width[c] + gpus])
    value = tables.rank[tables.set_at[c] + taken]
    harm = tables.worth[tables.set_at[c] + free] - tables.worth[tables.set_at[c] + (free & ~taken)]
    return value * 64 - bit_count(free), harm


# Over 30 lines: the criteria of a choice, one after another.
@kernel_part
def _one_node(
    asks: GangSeries, i: int, cluster: FreeCluster, cells: CellRanges, lists: FreeLists, tables: SetTables
) -> int:
    """The node that gang_fit.best_nodes would choose of all for a gang on one, -1 if none has room."""
    gpus, used = asks.gpus[i], lists.used_lists[0]
    key, harm = np.full(used, LEAST), np.zeros(used, np.int64)
    for spot in range(used):
        n = lists.head[lists.used[spot]]
        if bit_count(cluster.free[n]) >= gpus:
            key[spot], harm[spot] = _worth(cluster.free[n], cluster.node_class[n], gpus, tables)
    best, best_idle, best_harm = -1, np.int64(0), np.int64(0)
    while best < 0:
        top = key.max() if used else LEAST
        if top == LEAST:
            return -1
        for spot in range(used):
            if key[spot] != top:
                continue
            key[spot] = LEAST
            n = lists.head[lists.used[spot]]
            while n >= 0:
                if _room(asks, i, cluster, n) >= gpus:
                    idle = lists.idle[cells.lowest[n]] if cells.lowest[n] >= 0 else np.int64(0)
                    nearer = idle == best_idle and (
                        harm[spot] < best_harm or (harm[spot] == best_harm and cells.place[n] < cells.place[best])
                    )
                    if best < 0 or idle < best_idle or nearer:
                        best, best_idle, best_harm = n, idle, harm[spot]
                n = lists.after[n]
    return best


@kernel_part
def _no_room(cluster: FreeCluster, cells: CellRanges) -> CellRoom:
    most = 0
    for n in range(cluster.free.size):
        most = max(most, bit_count(cluster.free[n]))
    return CellRoom(
        np.zeros((cells.low.size, most + 1), np.int64), np.zeros(cells.low.size, np.int64), np.zeros(1, np.int64)
    )


@kernel_part
def _count_room(asks: GangSeries, i: int, cluster: FreeCluster, cells: CellRanges, room: CellRoom) -> None:
    """Count the room of every cell for gangs of this kind."""
    at_least, last = room.at_least, cells.low.size - 1
    at_least[:], room.total[:], room.known[0] = 0, 0, 1
    for n in range(cluster.free.size):
        have = _room(asks, i, cluster, n)
        home = cells.lowest[n] if cells.lowest[n] >= 0 else last
        at_least[home, have] += 1
        room.total[home] += have
    for c in range(last):  # the last, which is the cluster, is above all others
        at_least[cells.above[c]] += at_least[c]
        room.total[cells.above[c]] += room.total[c]
    for c in range(last + 1):
        for gpus in range(at_least.shape[1] - 2, -1, -1):
            at_least[c, gpus] += at_least[c, gpus + 1]


# Over 30 lines: a third is signature and docstring.
@kernel_part
def _several_nodes(
    asks: GangSeries, i: int, part: int, cluster: FreeCluster, cells: CellRanges, room: CellRoom, near: Int64s,
    tables: SetTables,
) -> Int64s:  # fmt: skip
    """Nodes of a gang of several: those of `part` GPUs, then the one of the rest. Empty if it does not fit.

    near: (N,) zeros, and zeros again afterwards.
    """
    parts, rest, none = asks.gpus[i] // part, asks.gpus[i] % part, np.empty(0, np.int64)
    cell = _tightest(room, cells, part, parts, rest)
    if cell < 0:
        return none
    among = cells.order[cells.low[cell] : cells.high[cell]]
    have = np.empty(among.size, np.int64)
    for k in range(among.size):
        have[k] = _room(asks, i, cluster, among[k])
    kept = near_cells(among, have, cells.lowest, cells.low.size, part, parts, rest)
    near[among] = np.where(kept, have, 0)
    found = best_nodes(cluster.free, near, among, cells.lowest, cells.low.size, cluster.node_class, tables, part, parts)
    if rest > 0 and found.size == parts:
        near[found] = 0
        last = best_nodes(cluster.free, near, among, cells.lowest, cells.low.size, cluster.node_class, tables, rest, 1)
        if last.size == 0:
            near[among] = have
            near[found] = 0
            last = best_nodes(
                cluster.free, near, among, cells.lowest, cells.low.size, cluster.node_class, tables, rest, 1
            )
        found = np.append(found, last)
    near[among] = 0
    return found if found.size == parts + (rest > 0) else none


@kernel_part
def _tightest(room: CellRoom, cells: CellRanges, part: int, parts: int, rest: int) -> int:
    """As gang_fit.tightest_cell, by what is counted."""
    best, best_level, best_spare = -1, np.int64(0), np.int64(0)
    if part >= room.at_least.shape[1]:
        return best
    for c in range(cells.low.size):
        fits = room.at_least[c, part] >= parts and (rest == 0 or room.at_least[c, rest] >= parts + 1)
        level, spare = cells.level[c], room.total[c]
        if fits and (best < 0 or level < best_level or (level == best_level and spare < best_spare)):
            best, best_level, best_spare = c, level, spare
    return best


# Over 30 lines: half is signature; every part of the state follows what is given.
@kernel_part
def _give(
    asks: GangSeries,
    i: int,
    part: int,
    kind: int,
    nodes: Int64s,
    masks: Int64s,
    first: int,
    count: int,
    cluster: FreeCluster,
    cells: CellRanges,
    lists: FreeLists,
    room: CellRoom,
    tables: SetTables,
) -> None:
    """Take the GPUs of a gang on nodes[first : first + count]; the GPU mask of each is written, ascending by node."""
    whole = asks.gpus[i] // part
    for k in range(count):
        n, free = nodes[first + k], cluster.free[nodes[first + k]]
        gpus = min(part, asks.gpus[i]) if k < whole else asks.gpus[i] % part
        before = _room(asks, kind, cluster, n) if kind >= 0 else 0
        c = cluster.node_class[n]
        taken = _lowest(free, gpus)
        if c >= 0:
            taken = np.int64(tables.best[tables.best_at[c] + free * tables.width[c] + gpus])
        masks[first + k] = taken
        _strike(n, lists)
        cluster.free[n] = free & ~taken
        cluster.cpus[n] -= asks.cpus_per_gpu[i] * gpus
        cluster.memory_mib[n] -= asks.mib_per_gpu[i] * gpus
        if cluster.free[n] != 0:
            _enlist(n, cluster, lists, tables)
        lists.idle[cells.lowest[n]] -= gpus
        if kind >= 0:
            _less_room(n, before, _room(asks, kind, cluster, n), cells, room)
    turn = np.argsort(nodes[first : first + count])
    nodes[first : first + count] = nodes[first : first + count][turn]
    masks[first : first + count] = masks[first : first + count][turn]


@kernel_part
def _less_room(n: int, before: int, after: int, cells: CellRanges, room: CellRoom) -> None:
    """Count that a node has less room now, in all its cells."""
    c = cells.lowest[n] if cells.lowest[n] >= 0 else cells.low.size - 1
    while c >= 0:
        room.total[c] -= before - after
        for gpus in range(after + 1, before + 1):
            room.at_least[c, gpus] -= 1
        c = cells.above[c]


@kernel_part
def _lowest(free: int, gpus: int) -> int:
    """The lowest that many of a free set."""
    others = free
    for _ in range(gpus):
        others &= others - 1
    return free & ~others
