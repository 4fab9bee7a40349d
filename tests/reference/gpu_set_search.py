"""Naive twins of gpu_set_search.rings and gpu_set_search.best_sets: all orders of all sets."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np


def ring_links(weight: np.ndarray, order: tuple[int, ...]) -> list[int]:
    """Weights of the links around the ring."""
    return [int(weight[a, b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]


def ring_value(weight: np.ndarray, members: tuple[int, ...], by_smallest: bool = True) -> tuple[int, int]:
    """Smallest link (0 if not asked for) and sum of the best ring through the members; 0, 0 for one GPU."""
    if len(members) < 2:
        return 0, 0
    links = [ring_links(weight, (members[0], *rest)) for rest in permutations(members[1:])]
    return max((min(ring) if by_smallest else 0, sum(ring)) for ring in links)


def bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(64) if mask >> i & 1)


def subsets(mask: int, k: int) -> list[int]:
    return [sum(1 << g for g in chosen) for chosen in combinations(bits(mask), k)]


def best_sets(key: dict[int, tuple[int, ...]], value: dict[int, int], gpus: int) -> tuple[np.ndarray, np.ndarray]:
    """Best set of each free set and k, and the worth of each free set, by trying all."""
    best, worth = np.zeros((1 << gpus, gpus + 1), np.uint16), np.zeros(1 << gpus, np.int64)
    for free in range(1, 1 << gpus):
        for k in range(1, len(bits(free)) + 1):
            best[free, k] = max(subsets(free, k), key=lambda s: (*key[s], worth[free & ~s], -s))
            worth[free] += value[int(best[free, k])]
    return best, worth
