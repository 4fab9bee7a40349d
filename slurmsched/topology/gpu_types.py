"""GPUs of one node told apart by their GRES Types: the one thing of a request that says which of them a job gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.model.columns import Int64s, frozen
from slurmsched.placements.gpu_stock import bit_counts


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node whose GPUs have several Types. types: of each Slurm index."""

    types: tuple[str, ...]

    @property
    def gpus(self) -> int:
        return len(self.types)


@dataclass(frozen=True, slots=True)
class Sure:
    """A request by Type. request: normal form, "gpu:a_i0:2". mask: the worst set that Slurm can give for it, which has
    this rank."""

    request: str
    mask: int
    rank: int


def surest(types: Sequence[str], free: int, gpus: int, rank: Int64s, prefer: int = 0) -> Sure | None:
    """Of all ways to name Types for so many free GPUs the one whose worst outcome is best; None if too few are free.

    Which GPUs of a Type a job gets is Slurm's choice, so every set that a request allows counts. Of equals the one
    that gives `prefer` for certain, then that of fewest Types. free: mask. rank: (2**G,) int64, higher is better.
    prefer: one of the best free sets of so many (a mask), 0 = none is known. Source: ours.
    """
    cuts = tuple(dict.fromkeys(types))
    if prefer and all(prefer & (mine := int(_mask(types, cut))) in (0, free & mine) for cut in cuts):
        return Sure(_request(types, prefer), prefer, int(rank[prefer]))
    sets = _sets(len(types), gpus)
    sets = sets[sets & ~np.int64(free) == 0]
    if not len(sets):
        return None
    counts = np.column_stack([bit_counts(sets & _mask(types, cut)) for cut in cuts])
    way = np.unique(counts, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((sets, rank[sets], way))
    first = order[np.append(True, np.diff(way[order]) > 0)]  # the worst set of each way
    other, many = sets[first] != prefer, (counts[first] > 0).sum(axis=1)
    best = int(sets[first[np.lexsort((sets[first], many, other, -rank[sets[first]]))[0]]])
    return Sure(_request(types, best), best, int(rank[best]))


def _request(types: Sequence[str], gpus: int) -> str:
    """The normal form that asks for as many of each Type as the set (a mask) has."""
    counts = Counter(name for g, name in enumerate(types) if gpus >> g & 1)
    return ",".join(f"gpu:{name}:{count}" for name, count in sorted(counts.items()))


def best_share(types: Sequence[str], rank: Int64s) -> float:
    """Share of the states (set of free GPUs, size of two and more) in which the surest request gives a best set."""
    found: Counter[bool] = Counter()
    for free in range(1 << len(types)):
        for gpus in range(2, free.bit_count() + 1):
            sure, sets = surest(types, free, gpus, rank), _sets(len(types), gpus)
            found[sure is not None and sure.rank == rank[sets[sets & ~np.int64(free) == 0]].max()] += 1
    return found[True] / max(1, found.total())


@lru_cache(maxsize=64)
def _sets(gpus: int, size: int) -> Int64s:
    """Every set of so many of a node's GPUs, as masks."""
    masks = np.arange(1 << gpus, dtype=np.int64)
    return frozen(masks[bit_counts(masks) == size], np.int64)


def _mask(types: Sequence[str], one: str) -> np.int64:
    return np.int64(sum(1 << g for g, name in enumerate(types) if name == one))
