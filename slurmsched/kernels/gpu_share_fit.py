"""Requests of parts of a GPU, or of several whole ones on one node: which node and GPUs each gets by a rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slurmsched.kernels._jit import kernel, kernel_part
from slurmsched.model.columns import Bools, Floats, Int64s

# Rules; see placements.gpu_shares.
FRAGMENTS, BEST_FIT, DOT_PRODUCT, PACKING, CLUSTERING, RANDOM = range(6)
WHOLE, TOP = 1000, 100  # thousandths of a GPU; the best score
NO_ROOM, STALE, BLOCK = -1, -2, 64  # no score; a best score that is to be found again; nodes that share one


class ShareRequests(NamedTuple):
    """Kinds of requests. (K,) each.

    gpus: on one node, 0 = none.
    gpu_milli: part of each [1/1000]; below 1000 only where gpus is 1.
    cpus, memory_mib: of the request.
    fits: (K, T) bool, GPU types that it may have.
    """

    gpus: Int64s
    gpu_milli: Int64s
    cpus: Floats
    memory_mib: Floats
    fits: Bools


class SharedNodes(NamedTuple):
    """Nodes with what is free on them, which requests take. (N,) each.

    free: (N, G) thousandths of each GPU, 0 where there is none.
    gpus: how many it has.
    gpu_type: row of its type.
    held: (N, G + 1) requests of that many whole GPUs that run there; in column 0 those of parts.
    most: (2,) CPUs and thousandths of GPUs of the largest node, by which some rules measure.
    """

    free: Int64s
    gpus: Int64s
    cpus: Floats
    memory_mib: Floats
    gpu_type: Int64s
    held: Int64s
    most: Floats


class ShareScores(NamedTuple):
    """What each kind of request scores on each node, as long as nothing changes there.

    score: (K, N) 0 to 100, -1 = no room.
    best: (K, B) the best of each block of BLOCK nodes.
    gpu: (K, N) GPU index of a part, by FRAGMENTS.
    seen: (K,) changes that are counted, -1 = nothing is.
    changed: the node of each change, of which there were `changes[0]`.
    mark: (N,) the last change of it.
    fragment: (N,) thousandths of GPUs that no typical request can use, as expected.
    """

    score: NDArray[np.int16]
    best: NDArray[np.int16]
    gpu: NDArray[np.int8]
    seen: Int64s
    changed: Int64s
    changes: Int64s
    mark: Int64s
    fragment: Floats


def most_frequent(count: Int64s | Floats, pct: float) -> tuple[Int64s, Floats]:
    """Rows of the most frequent kinds that make up this share of all, and how probable each is; of equals the first.

    count: (K,) of each kind. pct: above 0 and at most 100. Source: FGD, section 3.2.
    """
    order = np.argsort(-count, kind="stable")
    order = order[: int(np.searchsorted(np.cumsum(count[order]), pct / 100 * count.sum())) + 1]
    return order, count[order] / count[order].sum()


# Over 30 lines: a third is signature and docstring.
@kernel
def place_shares(
    wanted: Int64s, requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests, weight: Floats, rule: int,
    draws: Floats,
) -> tuple[Int64s, Int64s, Int64s, Floats]:  # fmt: skip
    """Place requests one after another; none ever leaves, and one that fits nowhere is passed over.

    wanted: (M,) the kind of each. typical: requests that are to be expected, weight: (Q,) how probable each is.
    draws: (M, 2) numbers drawn from 0 to 1, used by RANDOM alone. Changes what is free on the nodes. Returns (M,) node
    row, -1 = none; (M,) GPU mask; and after each request the thousandths of GPUs that are free, and that are
    fragments: of no use to a typical request. Of nodes that score the same the first is taken.
    Source: Weng et al. (FGD), USENIX ATC '23, sections 3 and 4; the rounding of scores is that of its simulator.
    """
    count = wanted.size
    node, mask = np.full(count, -1), np.zeros(count, np.int64)
    free_milli, fragment_milli = np.empty(count, np.int64), np.empty(count)
    scores = _no_scores(requests, nodes, typical, weight, count)
    free, fragments = nodes.free.sum(), scores.fragment.sum()
    for i in range(count):
        k = wanted[i]
        _update_state(scores, k, requests, nodes, typical, weight, rule)
        score, best = scores.score[k], scores.best[k]
        n = _any_of(score, best, draws[i, 0]) if rule == RANDOM else _first_best(score, best)
        if n >= 0:
            node[i], mask[i] = n, _chosen_gpus(scores, k, n, requests, nodes, rule, draws[i, 1])
            before = scores.fragment[n]
            _take(requests, k, nodes, n, mask[i])
            scores.fragment[n] = node_fragments(nodes, n, typical, weight)
            fragments += scores.fragment[n] - before
            free -= requests.gpus[k] * requests.gpu_milli[k]
            scores.changed[scores.changes[0]], scores.mark[n] = n, scores.changes[0]
            scores.changes[0] += 1
        free_milli[i], fragment_milli[i] = free, fragments
    return node, mask, free_milli, fragment_milli


@kernel_part
def _no_scores(
    requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests, weight: Floats, most: int
) -> ShareScores:
    kinds, size = requests.gpus.size, nodes.gpus.size
    fragment = np.empty(size)
    for n in range(size):
        fragment[n] = node_fragments(nodes, n, typical, weight)
    return ShareScores(
        np.full((kinds, size), NO_ROOM, np.int16), np.full((kinds, -(-size // BLOCK)), STALE, np.int16),
        np.zeros((kinds, size), np.int8), np.full(kinds, -1),
        np.empty(most + 1, np.int64), np.zeros(1, np.int64), np.full(size, -1), fragment,
    )  # fmt: skip


@kernel_part
def node_fragments(nodes: SharedNodes, n: int, typical: ShareRequests, weight: Floats) -> float:
    """Thousandths of free GPUs of a node that a typical request cannot use, as expected. typical, weight: (Q,).

    All that is free, where the request asks for no GPU or does not fit; else the GPUs with less than its part free.
    Source: FGD, section 3.2.
    """
    free, lost = nodes.free[n], 0.0
    total = free.sum()
    if total == 0:
        return 0.0
    for q in range(weight.size):
        room, small = 0, 0
        for g in range(nodes.gpus[n]):
            if free[g] >= typical.gpu_milli[q]:
                room += 1
            else:
                small += free[g]
        fits = typical.gpus[q] > 0 and typical.fits[q, nodes.gpu_type[n]]
        fits = fits and room >= typical.gpus[q] and nodes.cpus[n] >= typical.cpus[q]
        lost += weight[q] * (small if fits else total)
    return lost


@kernel_part
def _update_state(
    scores: ShareScores, k: int, requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests, weight: Floats,
    rule: int,
) -> None:  # fmt: skip
    """Score the nodes anew that changed since this kind was looked at; all of them the first time."""
    rows, best = _changed_since(scores, k), scores.best[k]
    before = scores.score[k][rows]
    _score(scores, k, rows, requests, nodes, typical, weight, rule)
    for i in range(rows.size):
        if scores.score[k, rows[i]] != before[i]:
            best[rows[i] // BLOCK] = STALE
    for n in rows:
        if best[n // BLOCK] == STALE:
            best[n // BLOCK] = _best_of(scores.score[k, n // BLOCK * BLOCK : (n // BLOCK + 1) * BLOCK], rule)
    scores.seen[k] = scores.changes[0]


@kernel_part
def _changed_since(scores: ShareScores, k: int) -> Int64s:
    """Nodes that changed since this kind was looked at, all of them the first time. (R,)."""
    if scores.seen[k] < 0:
        return np.arange(scores.mark.size)
    rows, found = np.empty(scores.changes[0] - scores.seen[k], np.int64), 0
    for change in range(scores.seen[k], scores.changes[0]):
        n = scores.changed[change]
        if scores.mark[n] == change:  # it did not change again later
            rows[found] = n
            found += 1
    return rows[:found]


@kernel_part
def _best_of(score: NDArray[np.int16], rule: int) -> int:
    """The best score of some nodes; for RANDOM how many of them have room. score: (R,)."""
    best, room = NO_ROOM, 0
    for n in range(score.size):
        best = max(best, score[n])
        room += 1 if score[n] != NO_ROOM else 0
    return room if rule == RANDOM else best


@kernel_part
def _with_room(requests: ShareRequests, k: int, nodes: SharedNodes, rows: Int64s) -> Int64s:
    """Those of the nodes on which a request of this kind fits now. rows: (R,)."""
    gpus, milli, cpus, memory_mib = requests.gpus[k], requests.gpu_milli[k], requests.cpus[k], requests.memory_mib[k]
    free, free_cpus, free_mib, of_type = nodes.free, nodes.cpus, nodes.memory_mib, nodes.gpu_type
    found, count = np.empty(rows.size, np.int64), 0
    for n in rows:
        if free_cpus[n] < cpus or free_mib[n] < memory_mib:
            continue
        room = 0
        for g in range(nodes.gpus[n]):
            room += 1 if free[n, g] >= milli else 0
        if gpus == 0 or (room >= gpus and requests.fits[k, of_type[n]]):
            found[count] = n
            count += 1
    return found[:count]


@kernel_part
def _score(
    scores: ShareScores, k: int, rows: Int64s, requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests,
    weight: Floats, rule: int,
) -> None:  # fmt: skip
    """Score a kind on some nodes by the rule. rows: (R,). The rules take all nodes at once: a call costs more than a
    score."""
    score, fits = scores.score[k], _with_room(requests, k, nodes, rows)
    score[rows] = NO_ROOM
    if rule == FRAGMENTS:
        _by_fragments(scores, requests, k, nodes, fits, typical, weight)
    elif rule in (BEST_FIT, DOT_PRODUCT):
        _by_vectors(score, requests, k, nodes, fits, rule)
    elif rule == PACKING:
        _by_packing(score, requests, k, nodes, fits)
    elif rule == CLUSTERING:
        _by_clustering(score, requests, k, nodes, fits)
    else:
        score[fits] = 0


@kernel_part
def _by_fragments(
    scores: ShareScores, requests: ShareRequests, k: int, nodes: SharedNodes, rows: Int64s, typical: ShareRequests,
    weight: Floats,
) -> None:  # fmt: skip
    """How much fewer fragments there are afterwards, and the GPU of a part for which that is the most."""
    gpus, milli, cpus = requests.gpus[k], requests.gpu_milli[k], requests.cpus[k]
    for n in rows:
        free, before, best, gpu = nodes.free[n], scores.fragment[n], -1, 0
        nodes.cpus[n] -= cpus
        if gpus == 1 and milli < WHOLE:
            for g in range(nodes.gpus[n]):
                if free[g] < milli or _seen_before(free, g):
                    continue
                free[g] -= milli
                gain = _share_of_top(before - node_fragments(nodes, n, typical, weight))
                free[g] += milli
                if gain > best:
                    best, gpu = gain, g
        else:
            mask = _whole_gpus(free, gpus)
            _change(free, mask, -milli)
            best = _share_of_top(before - node_fragments(nodes, n, typical, weight))
            _change(free, mask, milli)
        nodes.cpus[n] += cpus
        scores.score[k, n], scores.gpu[k, n] = best, gpu


@kernel_part
def _seen_before(free: Int64s, gpu: int) -> bool:
    found = False
    for g in range(gpu):
        found = found or free[g] == free[gpu]
    return found


@kernel_part
def _share_of_top(fewer: float) -> int:
    """A gain in thousandths of GPUs as 0 to 100, 50 = none."""
    return int(TOP / (1.0 + np.exp(-fewer / WHOLE)))


@kernel_part
def _by_vectors(
    score: NDArray[np.int16], requests: ShareRequests, k: int, nodes: SharedNodes, rows: Int64s, rule: int
) -> None:
    """By CPUs and GPUs as shares of the largest node: what stays free (best fit), or the dot product of what is free
    and what is asked for; little is good. A node that has more than the largest, since its CPUs are not counted, is as
    that one."""
    most_cpus, most_milli, cpus = nodes.most[0], nodes.most[1], requests.cpus[k]
    asked = float(requests.gpus[k] * requests.gpu_milli[k])
    for n in rows:
        free, free_cpus = float(nodes.free[n].sum()), nodes.cpus[n]
        if rule == BEST_FIT:
            stays = min((free_cpus - cpus) / most_cpus, 1.0) * 0.5
            score[n] = int((1.0 - (stays + (free - asked) / most_milli * 0.5)) * TOP)
        else:
            product = min(free_cpus / most_cpus, 1.0) * min(cpus / most_cpus, 1.0)
            score[n] = int(TOP * (1.0 - (product + free / most_milli * (asked / most_milli)) / 2))


@kernel_part
def _by_packing(score: NDArray[np.int16], requests: ShareRequests, k: int, nodes: SharedNodes, rows: Int64s) -> None:
    """GPUs in use first, the fullest; then free GPUs of nodes in use; then free nodes. 0 without GPUs."""
    gpus, milli = requests.gpus[k], requests.gpu_milli[k]
    for n in rows:
        free, size, idle = nodes.free[n], nodes.gpus[n], 0
        for g in range(size):
            idle += 1 if free[g] == WHOLE else 0
        spare = WHOLE if gpus == 0 or milli == WHOLE else free[_tightest(free, size, milli)]
        if gpus == 0:
            score[n] = 0
        elif idle == size:
            score[n] = max(TOP // 3 - idle, idle)
        elif spare == WHOLE:
            score[n] = max(TOP // 2 - gpus, TOP // 3)
        else:
            score[n] = max(TOP - spare * 100 // WHOLE // 10, TOP // 2)


@kernel_part
def _by_clustering(score: NDArray[np.int16], requests: ShareRequests, k: int, nodes: SharedNodes, rows: Int64s) -> None:
    """Nodes where only requests of this size run, then those where such run too, then free ones, then others; of each
    sort the fullest. 0 without GPUs."""
    gpus, most = requests.gpus[k], np.int64(nodes.most[1])
    own = gpus if requests.gpu_milli[k] == WHOLE else 0
    for n in rows:
        held, sizes = nodes.held[n], 0
        for size in range(held.size):
            sizes += 1 if held[size] > 0 else 0
        band = (3 if sizes == 1 else 2) if held[own] > 0 else (1 if sizes == 0 else 0)
        score[n] = 0 if gpus == 0 else TOP // 4 * (most - nodes.free[n].sum()) // most + TOP // 4 * band


@kernel_part
def _first_best(score: NDArray[np.int16], best: NDArray[np.int16]) -> int:
    """The first of the highest scores, -1 if no node has room."""
    top, found = best.max(), 0
    if top == NO_ROOM:
        return -1
    while best[found] < top:
        found += 1
    found *= BLOCK
    while score[found] < top:
        found += 1
    return found


@kernel_part
def _any_of(score: NDArray[np.int16], best: NDArray[np.int16], draw: float) -> int:
    """One of the nodes with room, each as probable; -1 if there is none. best: how many have it in each block."""
    total = best.sum()
    if total == 0:
        return -1
    at, block = int(draw * total), 0
    while at >= best[block]:
        at -= best[block]
        block += 1
    n = block * BLOCK
    while at > 0 or score[n] == NO_ROOM:
        at -= 1 if score[n] != NO_ROOM else 0
        n += 1
    return n


@kernel_part
def _chosen_gpus(
    scores: ShareScores, k: int, n: int, requests: ShareRequests, nodes: SharedNodes, rule: int, draw: float
) -> int:
    """The GPU mask: the first that are free whole; of a part the fullest that has it, but for two rules."""
    free, milli = nodes.free[n], requests.gpu_milli[k]
    if requests.gpus[k] == 0:
        return 0
    if milli == WHOLE:
        return _whole_gpus(free, requests.gpus[k])
    if rule == FRAGMENTS:
        return 1 << scores.gpu[k, n]
    if rule == RANDOM:
        rows = np.flatnonzero(free >= milli)
        return 1 << rows[int(draw * rows.size)]
    return 1 << _tightest(free, nodes.gpus[n], milli)


@kernel_part
def _tightest(free: Int64s, gpus: int, milli: int) -> int:
    """The GPU with the least free of those that have so much; the first of equals; -1 if none has."""
    best = -1
    for g in range(gpus):
        if free[g] >= milli and (best < 0 or free[g] < free[best]):
            best = g
    return best


@kernel_part
def _whole_gpus(free: Int64s, gpus: int) -> int:
    """Mask of the first that many GPUs that are free whole."""
    mask, missing = 0, gpus
    for g in range(free.size):
        if missing > 0 and free[g] == WHOLE:
            mask |= 1 << g
            missing -= 1
    return mask


@kernel_part
def _change(free: Int64s, mask: int, milli: int) -> None:
    for g in range(free.size):
        if mask >> g & 1:
            free[g] += milli


@kernel_part
def _take(requests: ShareRequests, k: int, nodes: SharedNodes, n: int, mask: int) -> None:
    """Take what the request gets on the node."""
    _change(nodes.free[n], mask, -requests.gpu_milli[k])
    nodes.cpus[n] -= requests.cpus[k]
    nodes.memory_mib[n] -= requests.memory_mib[k]
    if requests.gpus[k] > 0:
        nodes.held[n, requests.gpus[k] if requests.gpu_milli[k] == WHOLE else 0] += 1
