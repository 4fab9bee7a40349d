"""Allocations as the released simulators compute them, where the paper leaves a choice open.

- An interior-point solver ends near the analytic center of all best points.
- A job may get time on a type on which it cannot run.
- The makespan is bisected to 5 %.
Source: the released code of Narayanan et al. (Gavel, c4fa400) and of Zheng et al. (Shockwave, 8a44f4a), solved by ECOS
there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.allocation import programmes
from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.allocation.solver import analytic_center
from slurmsched.model.columns import Floats

NEAR = 1e-4  # how far below the best, relative, the face begins whose middle is taken
LONGEST_S, SHORTEST_S, PRECISE = 1e6, 100.0, 1.05  # of the bisection of the makespan


def max_min(problem: AllocationProblem) -> Floats:
    """The least throughput, as programmes.throughput_weight counts it, is as high as can be; the middle of such points.
    (N, T)"""
    gain = problem.speed * programmes.throughput_weight(problem)[:, None]
    _, level = programmes.raise_least(problem, gain, everywhere=True)
    return _middle(problem, gain, np.full(len(gain), level * (1 - NEAR)))


def makespan(problem: AllocationProblem) -> Floats:
    """Shares at which all jobs end within a makespan that is at most 5 % above the least one. (N, T)."""
    gain = problem.speed / np.maximum(problem.remaining_s, 1.0)[:, None]
    _, rate = programmes.raise_least(problem, gain, everywhere=True)
    low_s, high_s, least_s = SHORTEST_S, LONGEST_S, 1.0 / max(rate, 1e-12)
    while PRECISE * low_s < high_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if middle_s >= least_s else (middle_s, high_s)
    return _middle(problem, gain, np.full(len(gain), 1.0 / high_s))


def sum_throughput(problem: AllocationProblem) -> Floats:
    """As programmes.sum_throughput, in the middle of all best points. (N, T)."""
    from scipy import sparse

    best = programmes.sum_throughput(problem)
    floor = float((best * problem.speed).sum()) * (1 - NEAR)
    rows, bound = _all_rows(problem)
    aim = sparse.csr_array(-problem.speed.reshape(1, -1))
    found = analytic_center(sparse.vstack([rows, aim]), np.append(bound, -floor))
    return best if found is None else _shares(problem, found)


def finish_time_fairness(problem: AllocationProblem) -> Floats:
    """As programmes.finish_time_fairness, in the middle of all shares that keep the least rho. (N, T)."""
    best = programmes.finish_time_fairness(problem)
    rate = np.maximum((best * problem.speed).sum(axis=1), 1e-12)
    alone = np.maximum((isolated(problem) * problem.speed).sum(axis=1), 1e-12)
    before_s = problem.elapsed_s if problem.isolated_s is None else problem.isolated_s
    isolated_s = before_s + problem.remaining_s / alone
    rho = float(np.max((problem.elapsed_s + problem.remaining_s / rate) / isolated_s))
    spare_s = np.maximum(rho * isolated_s - problem.elapsed_s, 1.0)
    found = _middle(problem, problem.speed, problem.remaining_s / spare_s * (1 - NEAR))
    return found if found.any() else best


def isolated(problem: AllocationProblem) -> Floats:
    """As programmes.isolated, on types on which a job cannot run too. (N, T)."""
    return programmes.isolated(
        AllocationProblem(
            problem.capacity,
            problem.gpus,
            np.ones(problem.speed.shape),
            problem.remaining_s,
            problem.elapsed_s,
            problem.weight,
        )
    )


def _middle(problem: AllocationProblem, gain: Floats, floor: Floats) -> Floats:
    """The middle of all shares with gain . share at or above its floor for each job. (N, T). floor: (N,)."""
    from scipy import sparse

    jobs, types = gain.shape
    rows, bound = _all_rows(problem)
    of_job = sparse.csr_array((-gain.ravel(), (np.repeat(np.arange(jobs), types), np.arange(jobs * types))))
    scale = np.maximum(np.abs(gain).max(axis=1), 1e-12)
    found = analytic_center(
        sparse.vstack([rows, sparse.diags_array(1 / scale) @ of_job]), np.append(bound, -floor / scale)
    )
    return isolated(problem) if found is None else _shares(problem, found)


def _all_rows(problem: AllocationProblem) -> tuple[Any, Floats]:
    """What can be, and that no share is below 0."""
    from scipy import sparse

    rows, bound = programmes.capacity_rows(problem)
    cells = problem.speed.size
    return sparse.vstack([rows, -sparse.eye_array(cells)]).tocsr(), np.append(bound, np.zeros(cells))


def _shares(problem: AllocationProblem, found: Floats) -> Floats:
    return np.clip(found.reshape(problem.speed.shape), 0.0, 1.0)
