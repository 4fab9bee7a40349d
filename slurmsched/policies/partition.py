"""POP: a large allocation as several small ones, each over a random part of the jobs and of every resource."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.policies.allocation import Problem


def partitioned(programme: Callable[[Problem], Floats], problem: Problem, groups: int, seed: int) -> Floats:
    """Shares (N, T) that the programme gives each of so many random groups of jobs with an equal part of all GPUs.

    A gang that is larger than its group's part is still given its share of time. The same seed gives the same groups.
    Source: Narayanan et al. (POP), SOSP '21.
    """
    jobs = len(problem.gpus)
    if groups <= 1:
        return programme(problem)
    share = np.zeros(problem.speed.shape)
    for rows in np.array_split(np.random.default_rng(seed).permutation(jobs), groups):
        part = problem.take(np.sort(rows))
        share[np.sort(rows)] = programme(replace(part, capacity=problem.capacity / groups))
    return share
