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
NO_ROOM, BLOCK = -1, 128  # no score; nodes whose best score is kept


class ShareRequests(NamedTuple):
    """Kinds of requests. (K,) each.

    gpus: on one node, 0 = none. gpu_milli: part of each [1/1000]; below 1000 only where gpus is 1. cpus, memory_mib:
    of the request. fits: (K, T) bool, GPU types that it may have.
    """

    gpus: Int64s
    gpu_milli: Int64s
    cpus: Floats
    memory_mib: Floats
    fits: Bools


class SharedNodes(NamedTuple):
    """Nodes with what is free on them, which requests take. (N,) each.

    free: (N, G) thousandths of each GPU, 0 where there is none. gpus: how many it has. gpu_type: row of its type. held:
    (N, G + 1) requests of that many whole GPUs that run there; in column 0 those of parts. most: (2,) CPUs and
    thousandths of GPUs of the largest node, by which some rules measure.
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

    score: (K, N) 0 to 100, -1 = no room. best: (K, B) the best of each block of BLOCK nodes. gpu: (K, N) GPU index of a
    part, by FRAGMENTS. seen: (K,) changes that are counted, -1 = nothing is. changed: the node of each change, of which
    there were `changes[0]`. mark: (N,) the last change of it. fragment: (N,) thousandths of GPUs that no typical
    request can use, as expected.
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
        _look_again(scores, k, requests, nodes, typical, weight, rule)
        n = _any_of(scores.score[k], draws[i, 0]) if rule == RANDOM else _first_best(scores.score[k], scores.best[k])
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
        np.full((kinds, size), NO_ROOM, np.int16), np.full((kinds, -(-size // BLOCK)), NO_ROOM, np.int16),
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
def _look_again(
    scores: ShareScores, k: int, requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests, weight: Floats,
    rule: int,
) -> None:  # fmt: skip
    """Score the nodes anew that changed since this kind was looked at."""
    if scores.seen[k] < 0:
        for n in range(nodes.gpus.size):
            _score(scores, k, n, requests, nodes, typical, weight, rule)
        for block in range(scores.best.shape[1]):
            _keep_best(scores, k, block)
    else:
        for change in range(scores.changes[0] - 1, scores.seen[k] - 1, -1):
            n = scores.changed[change]
            if scores.mark[n] == change:  # it did not change again later
                before = scores.score[k, n]
                _score(scores, k, n, requests, nodes, typical, weight, rule)
                if scores.score[k, n] > before or before == scores.best[k, n // BLOCK]:
                    _keep_best(scores, k, n // BLOCK)
    scores.seen[k] = scores.changes[0]


@kernel_part
def _keep_best(scores: ShareScores, k: int, block: int) -> None:
    score, best = scores.score[k], np.int16(NO_ROOM)
    for n in range(block * BLOCK, min((block + 1) * BLOCK, score.size)):
        best = max(best, score[n])
    scores.best[k, block] = best


@kernel_part
def has_room(requests: ShareRequests, k: int, nodes: SharedNodes, n: int) -> bool:
    """Whether a request of this kind fits on this node now."""
    if nodes.cpus[n] < requests.cpus[k] or nodes.memory_mib[n] < requests.memory_mib[k]:
        return False
    if requests.gpus[k] == 0:
        return True
    room = 0
    for g in range(nodes.gpus[n]):
        room += 1 if nodes.free[n, g] >= requests.gpu_milli[k] else 0
    return room >= requests.gpus[k] and requests.fits[k, nodes.gpu_type[n]]


@kernel_part
def _score(
    scores: ShareScores, k: int, n: int, requests: ShareRequests, nodes: SharedNodes, typical: ShareRequests,
    weight: Floats, rule: int,
) -> None:  # fmt: skip
    """Score a kind on a node by the rule."""
    scores.score[k, n] = NO_ROOM
    if not has_room(requests, k, nodes, n):
        return
    if rule == FRAGMENTS:
        scores.score[k, n], scores.gpu[k, n] = _by_fragments(scores.fragment[n], requests, k, nodes, n, typical, weight)
    elif rule in (BEST_FIT, DOT_PRODUCT):
        scores.score[k, n] = _by_vectors(requests, k, nodes, n, rule)
    elif rule == PACKING:
        scores.score[k, n] = _by_packing(requests, k, nodes, n)
    elif rule == CLUSTERING:
        scores.score[k, n] = _by_clustering(requests, k, nodes, n)
    else:
        scores.score[k, n] = 0


@kernel_part
def _by_fragments(
    before: float, requests: ShareRequests, k: int, nodes: SharedNodes, n: int, typical: ShareRequests, weight: Floats
) -> tuple[int, int]:
    """How much fewer fragments there are afterwards, and the GPU of a part for which that is the most."""
    free, milli = nodes.free[n], requests.gpu_milli[k]
    best, gpu = -1, 0
    nodes.cpus[n] -= requests.cpus[k]
    if requests.gpus[k] == 1 and milli < WHOLE:
        for g in range(nodes.gpus[n]):
            if free[g] < milli or _seen_before(free, g):
                continue
            free[g] -= milli
            score = _share_of_top(before - node_fragments(nodes, n, typical, weight))
            free[g] += milli
            if score > best:
                best, gpu = score, g
    else:
        mask = _whole_gpus(free, requests.gpus[k])
        _change(free, mask, -milli)
        best = _share_of_top(before - node_fragments(nodes, n, typical, weight))
        _change(free, mask, milli)
    nodes.cpus[n] += requests.cpus[k]
    return best, gpu


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
def _by_vectors(requests: ShareRequests, k: int, nodes: SharedNodes, n: int, rule: int) -> int:
    """By CPUs and GPUs as shares of the largest node: what stays free (best fit), or the dot product of what is free
    and what is asked for; little is good. A node that has more than the largest, since its CPUs are not counted, is as
    that one."""
    most_cpus, most_milli = nodes.most[0], nodes.most[1]
    asked = float(requests.gpus[k] * requests.gpu_milli[k])
    free = float(nodes.free[n].sum())
    if rule == BEST_FIT:
        stays = min((nodes.cpus[n] - requests.cpus[k]) / most_cpus, 1.0) * 0.5
        return int((1.0 - (stays + (free - asked) / most_milli * 0.5)) * TOP)
    product = min(nodes.cpus[n] / most_cpus, 1.0) * min(requests.cpus[k] / most_cpus, 1.0)
    return int(TOP * (1.0 - (product + free / most_milli * (asked / most_milli)) / 2))


@kernel_part
def _by_packing(requests: ShareRequests, k: int, nodes: SharedNodes, n: int) -> int:
    """GPUs in use first, the fullest; then free GPUs of nodes in use; then free nodes. 0 without GPUs."""
    free, idle, fresh, spare = nodes.free[n], 0, 0, 0
    for g in range(nodes.gpus[n]):
        idle += 1 if free[g] == WHOLE else 0
    if requests.gpus[k] == 0:
        return 0
    if idle == nodes.gpus[n]:
        return max(TOP // 3 - idle, idle)
    if requests.gpu_milli[k] == WHOLE:
        fresh = requests.gpus[k]
    else:
        spare = free[_tightest(free, nodes.gpus[n], requests.gpu_milli[k])]
        fresh = 1 if spare == WHOLE else 0
    if fresh > 0:
        return max(TOP // 2 - fresh, TOP // 3)
    return max(TOP - spare * 100 // WHOLE // 10, TOP // 2)


@kernel_part
def _by_clustering(requests: ShareRequests, k: int, nodes: SharedNodes, n: int) -> int:
    """Nodes where only requests of this size run, then those where such run too, then free ones, then others; of each
    sort the fullest. 0 without GPUs."""
    if requests.gpus[k] == 0:
        return 0
    held, sizes = nodes.held[n], 0
    for size in range(held.size):
        sizes += 1 if held[size] > 0 else 0
    same = held[requests.gpus[k] if requests.gpu_milli[k] == WHOLE else 0] > 0
    band = (3 if sizes == 1 else 2) if same else (1 if sizes == 0 else 0)
    most = np.int64(nodes.most[1])
    return TOP // 4 * (most - nodes.free[n].sum()) // most + TOP // 4 * band


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
def _any_of(score: NDArray[np.int16], draw: float) -> int:
    """One of the nodes with room, each as probable; -1 if there is none."""
    rows = np.flatnonzero(score != NO_ROOM)
    return rows[int(draw * rows.size)] if rows.size else -1


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
