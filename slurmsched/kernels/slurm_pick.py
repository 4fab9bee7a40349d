"""Which GPUs of a node slurmctld gives a job once the job's cores are chosen: Slurm 24.05 and later.

Written from what select/cons_tres does (gres_select_filter.c), checked against 24.11.5 and 26.05.5; what is known
of each version is in docs/topology-slurm.md.
Arguments, the same in all: free: (G,) bool, GPUs no job holds. socket: (G,) int32, where a GPU's cores are, -1 = on
any socket. links: (G, G) int32, the Links rows of gres.conf, read only if `linked`: every GPU has a row.
cores: (S,) int32, the job's cores on each socket.
bound: GPUs of sockets without such cores are not given.
Each returns (G,) bool, the GPUs given; fewer than asked for if the node does not have them.
"""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Bools, Int32s

ANY = -1  # the socket of a GPU that is near every socket


@kernel
def sort_by_links(order: Int32s, score: Int32s) -> None:
    """Sort indices by score, the smallest first; equal ones keep their order, as in the C library's merge sort."""
    for i in range(1, order.size):
        g, j = order[i], i - 1
        while j >= 0 and score[order[j]] > score[g]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = g


@kernel
def take(
    s: int, need: int, free: Bools, socket: Int32s, links: Int32s, order: Int32s, score: Int32s, linked: bool,
    given: Bools,
) -> int:  # fmt: skip
    """Give up to `need` free GPUs of socket s in the order so far; how many were given.

    order, score: (G,) int32, changed: after each GPU the others gain its links and the order is sorted anew, the
    least linked first. Slurm then goes on at the second place of the new order, so the first is not looked at again.
    """
    i, left = 0, need
    while i < order.size and left > 0:
        g = order[i]
        i += 1
        if socket[g] != s or given[g] or not free[g]:
            continue
        given[g] = True
        left -= 1
        if linked:
            for other in range(order.size):
                if other != g and free[other]:
                    score[other] += links[g, other]
            sort_by_links(order, score)
            i = 1
    return need - left


@kernel
def share_of(cores: int, need: int, total: int, double: bool) -> int:
    """GPUs of a socket with so many of the job's `total` cores. double: as Slurm 26.05 reckons for requests by node.

    Else in floats: all requests in 24.11, those by job in both.
    """
    if double:
        return int(cores * (need / total))
    return int(np.float32(cores) * (np.float32(need) / np.float32(total)))


@kernel
def pick_per_node(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool,
    double: bool = False,
) -> Bools:  # fmt: skip
    """--gres=gpu:N and --gpus-per-node=N: by the share of the job's cores on each socket, then what is left.

    double: whether the shares are reckoned in doubles.
    """
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    total = cores.sum()
    left = need
    for s in range(cores.size):
        if cores[s] > 0:
            share = min(left, share_of(cores[s], need, total, double))
            left -= take(s, share, free, socket, links, order, score, linked, given)
    left -= take(ANY, left, free, socket, links, order, score, linked, given)
    for s in range(cores.size):
        if cores[s] > 0:
            left -= take(s, left, free, socket, links, order, score, linked, given)
    for s in range(cores.size):
        if cores[s] == 0 and not bound:
            left -= take(s, left, free, socket, links, order, score, linked, given)
    return given


@kernel
def pick_per_task(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, tasks: Int32s, each: int, bound: bool
) -> Bools:
    """--gpus-per-task=N: beside the tasks. tasks: (S,) int32, the job's tasks on each socket. each: GPUs of a task."""
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    left = tasks.sum() * each
    for s in range(tasks.size):
        if tasks[s] > 0:
            left -= take(s, min(left, tasks[s] * each), free, socket, links, order, score, linked, given)
    left -= take(ANY, left, free, socket, links, order, score, linked, given)
    for s in range(tasks.size):
        if not bound:
            left -= take(s, left, free, socket, links, order, score, linked, given)
    return given


@kernel
def pick_per_socket(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, each: int, bound: bool
) -> Bools:
    """--gpus-per-socket=N: so many on each socket that the job has cores on."""
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    left = (cores > 0).sum() * each
    for s in range(cores.size):
        if cores[s] > 0:
            left -= take(s, each, free, socket, links, order, score, linked, given)
    left -= take(ANY, left, free, socket, links, order, score, linked, given)
    for used in range(2):  # what is missing: from the job's sockets, then from the others
        for s in range(cores.size):
            if (cores[s] > 0) == (used == 0) and (used == 0 or not bound):
                left -= take(s, left, free, socket, links, order, score, linked, given)
    return given


@kernel
def pick_per_job(
    free: Bools, socket: Int32s, links: Int32s, linked: bool, cores: Int32s, need: int, bound: bool
) -> Bools:
    """--gpus=N on one node: all near the job's cores, less those that are linked least to the best linked one.

    Where those are too few, the rest comes from the other sockets, bound or not, the least linked first.
    """
    given, score = np.zeros(free.size, np.bool_), np.zeros(free.size, np.int32)
    order = np.arange(free.size).astype(np.int32)
    most = free.size if linked and need > 1 else need
    wish = 65534 if linked and need > 1 else need
    total = cores.sum()
    have = 0
    for s in range(cores.size):
        if cores[s] > 0 and have < most:
            share = min(wish - have, share_of(cores[s], wish, total, False))
            have += take(s, share, free, socket, links, order, score, False, given)
    have += take(ANY, max(0, most - have), free, socket, links, order, score, False, given)
    for s in range(cores.size):
        if cores[s] > 0 and have < most:
            have += take(s, most - have, free, socket, links, order, score, False, given)
    for s in range(cores.size):
        if cores[s] == 0 and have == 0 and not bound:
            have += take(s, 1, free, socket, links, order, score, False, given)
    if have > need:
        drop_least_linked(given, links, have - need)
    elif have < need:
        if linked:
            add_links(given, free, links, score)
            sort_by_links(order, score)
        for s in range(cores.size):
            have += take(s, need - have, free, socket, links, order, score, linked, given)
        take(ANY, need - have, free, socket, links, order, score, linked, given)
    return given


@kernel
def drop_least_linked(given: Bools, links: Int32s, excess: int) -> None:
    """Keep the first GPU of the best linked pair, and drop those with the fewest links to it, low index first."""
    best, most = -1, -1
    for i in range(given.size):
        for j in range(i + 1, given.size):
            if given[i] and given[j] and links[i, j] > most:
                best, most = i, links[i, j]
    for _ in range(excess if best >= 0 else 0):
        worst = -1
        for g in range(given.size):
            if g != best and given[g] and (worst < 0 or links[best, g] < links[best, worst]):
                worst = g
        given[worst] = False


@kernel
def add_links(given: Bools, free: Bools, links: Int32s, score: Int32s) -> None:
    """Give every free GPU the links it has with those given."""
    for g in range(given.size):
        for other in range(given.size):
            if given[g] and other != g and free[other]:
                score[other] += links[g, other]
