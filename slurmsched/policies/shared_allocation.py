"""Programmes over the time of single jobs and of pairs of jobs on the same GPUs: Gavel's objectives with space sharing.

Source: Narayanan et al. (Gavel), OSDI '20: a variable for each job, each pair, and each type. Ours: groups of few
jobs, and that what the first programme leaves open goes where it adds most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.policies import allocation
from slurmsched.policies.allocation import SLACK, Problem
from slurmsched.policies.pairs import Pairs, best, possible, raise_least, worthwhile

GROUP = 128  # jobs of one programme, which has a variable for each pair and type
Shares = tuple[Floats, Floats]  # of jobs alone (N, T), of pairs (P, T)


class Shared(NamedTuple):
    """share: (N, T) of each job alone. shared: (P, T) of each of the pairs, which are by row of the problem."""

    share: Floats
    pairs: Pairs
    shared: Floats


def max_min(problem: Problem, pairs: Pairs) -> Shares:
    """The least throughput, as allocation.worth counts it, is as high as can be."""
    return _least_raised(problem, pairs, allocation.worth(problem))


def makespan(problem: Problem, pairs: Pairs) -> Shares:
    """As allocation.makespan."""
    return _least_raised(problem, pairs, 1.0 / np.maximum(problem.left_s, 1.0))


def finish_time_fairness(problem: Problem, pairs: Pairs) -> Shares:
    """As allocation.finish_time_fairness: rho is measured against the isolated time without sharing."""

    def raised(worth: Floats) -> tuple[Shares, float]:
        share, shared, level = raise_least(problem, pairs, worth)
        return (share, shared), level

    def made(shares: Shares) -> Floats:
        alone, shared = (shares[0] * problem.speed).sum(axis=1), pairs.speed * shares[1][:, :, None]
        for place, rows in enumerate((pairs.first, pairs.second)):
            alone += np.bincount(rows, shared[:, :, place].sum(axis=1), len(alone))
        return alone

    return allocation.least_rho_of(problem, raised, made)


def sum_throughput(problem: Problem, pairs: Pairs) -> Shares:
    """As allocation.sum_throughput."""
    found = best(problem, pairs, np.ones(len(problem.gpus)))
    return _without(problem, pairs, allocation.sum_throughput(problem)) if found is None else found


OBJECTIVES: Mapping[str, Callable[[Problem, Pairs], Shares]] = {
    "max-min": max_min,
    "las": max_min,
    "ftf": finish_time_fairness,
    "makespan": makespan,
    "sum-throughput": sum_throughput,
}


def allocated(
    objective: str, problem: Problem, kept: Callable[[Int64s, Int64s], Floats], most_jobs: int, seed: int
) -> Shared:
    """Shares of jobs and of the pairs that have any, in random groups of at most so many jobs and of GROUP.

    kept: of pairs of rows of the problem, see protocols.PairEstimator. The same seed gives the same groups.
    """
    jobs, types = problem.speed.shape
    groups = max(-(-jobs // min(most_jobs, GROUP)), 1)
    share, parts = np.zeros((jobs, types)), list[tuple[Pairs, Floats]]()
    for rows in np.array_split(np.random.default_rng(seed).permutation(jobs), groups):
        rows = np.sort(rows)
        part = replace(problem.take(rows), capacity=problem.capacity / groups)
        first, second = possible(part.gpus)
        pairs = worthwhile(part, first, second, kept(rows[first], rows[second]))
        share[rows], shared = OBJECTIVES[objective](part, pairs)
        some = (shared > SLACK).any(axis=1)
        parts.append((Pairs(rows[pairs.first[some]], rows[pairs.second[some]], pairs.speed[some]), shared[some]))
    columns = zip(*((pairs.first, pairs.second, pairs.speed, shared) for pairs, shared in parts), strict=True)
    first, second, speed, shared = (np.concatenate(column) for column in columns)
    return Shared(share, Pairs(first, second, speed), shared)


def _least_raised(problem: Problem, pairs: Pairs, worth: Floats) -> Shares:
    """The least of worth . throughput is as high as can be; with what is left over the sum of them too."""
    share, shared, level = raise_least(problem, pairs, worth)
    return best(problem, pairs, worth, level * (1 - SLACK)) or (share, shared)


def _without(problem: Problem, pairs: Pairs, share: Floats) -> Shares:
    return share, np.zeros(pairs.speed.shape[:2])
