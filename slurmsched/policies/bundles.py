"""What a job may have in a round: GPUs of one type, or of two at once, in one of its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s
from slurmsched.policies.timetable import Sizes

PARTS = (0.25, 0.5, 0.75)  # of a gang on the first of two types
MOST_PAIRS = 6  # of types; all of four


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Choices of each job. gpus: (N, C, T) GPUs of each type. pace: (N, C) speed by the size over that at the size it
    asks for. speed: (N, C) by the types over that on the best one; 0 = it cannot have this."""

    gpus: Floats
    pace: Floats
    speed: Floats

    def with_more(self, other: Bundles) -> Bundles:
        """These choices, then the others."""
        pairs = ((self.gpus, other.gpus), (self.pace, other.pace), (self.speed, other.speed))
        return Bundles(*(np.concatenate(pair, axis=1) for pair in pairs))


def on_one(speed: Floats, sizes: list[Sizes]) -> Bundles:
    """Each size on each type, the sizes of a type side by side. speed: (N, T)."""
    gpus, pace = _options(sizes)
    jobs, types = speed.shape
    each = np.broadcast_to(gpus[:, None, :], (jobs, types, gpus.shape[1])).reshape(jobs, -1)
    column = np.repeat(np.arange(types), gpus.shape[1])
    made = np.zeros((jobs, each.shape[1], types))
    made[:, np.arange(each.shape[1]), column] = each
    return Bundles(made, np.tile(pace, types), speed[:, column] * (np.tile(pace, types) > 0))


def on_two(speed: Floats, sizes: list[Sizes], may: Bools, efficiency: Floats, nodes: Int32s) -> Bundles:
    """Each size on two types at once, a quarter, a half or three quarters of it on the first; what nobody can have left
    out.

    Its speed is its efficiency times the sum of what its GPUs do each, of which each counts as if all were of its type.
    A gang that asks for several nodes has whole ones of each type. Of more than MOST_PAIRS pairs of types those count
    whose speeds, over all jobs, are nearest. speed: (N, T). may: (N, T), where each may be on it together with another
    type. efficiency, nodes: (N,).
    """
    gpus, pace = _options(sizes)
    by_type, rates = [np.zeros((0, *gpus.shape, speed.shape[1]))], [np.zeros((0, *gpus.shape))]
    for one, other in _pairs(speed):
        both = (may[:, one] & may[:, other])[:, None] & (gpus > 1) & (pace > 0)
        for part in PARTS:
            made = np.zeros((1, *gpus.shape, speed.shape[1]))
            made[0, :, :, one], made[0, :, :, other] = gpus * part, gpus * (1 - part)
            rate = efficiency * (part * speed[:, one] + (1 - part) * speed[:, other])
            by_type.append(made)
            whole = (gpus * part % 1 == 0) & ((nodes < 2) | (nodes * part % 1 == 0))[:, None]
            rates.append((rate[:, None] * (both & whole))[None])
    every, rate = np.moveaxis(np.concatenate(by_type), 1, 2), np.moveaxis(np.concatenate(rates), 1, 2)
    some = rate.any(axis=2)  # (B, K) parts and sizes that somebody can have
    paces = np.broadcast_to(pace.T, rate.shape)
    return Bundles(every[some].swapaxes(0, 1), paces[some].T, rate[some].T)


def _pairs(speed: Floats) -> list[tuple[int, int]]:
    """Columns of each two types of which GPUs may be held at once."""
    mean = np.log(np.maximum(speed, 1e-3)).mean(axis=0)
    pairs = list(combinations(range(speed.shape[1]), 2))
    return sorted(pairs, key=lambda pair: (abs(mean[pair[0]] - mean[pair[1]]), pair))[:MOST_PAIRS]


def _options(sizes: list[Sizes]) -> tuple[Floats, Floats]:
    """GPUs and speed of each job's sizes, of speed 0 where it has no more. (N, K), (N, K)."""
    most = max(len(each.gpus) for each in sizes)
    gpus, pace = np.ones((len(sizes), most)), np.zeros((len(sizes), most))
    for row, each in enumerate(sizes):
        gpus[row, : len(each.gpus)], pace[row, : len(each.gpus)] = each.gpus, each.speed
    return gpus, pace
