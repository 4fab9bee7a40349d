"""Linear programmes over the share of time that each job spends on each GPU type, and POP.

Source: Narayanan et al. (Gavel), OSDI '20, and its released code (c4fa400) for what the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from slurmsched.allocation.solver import Programme, bisect_least, solve
from slurmsched.model.columns import Bools, Floats, Int64s

S = TypeVar("S")
SLACK = 1e-6  # that a second programme leaves the first, relative
PRECISION = 1e-3  # of the least rho, relative


@dataclass(frozen=True, slots=True, eq=False)
class AllocationProblem:
    """One row a job, one column a GPU type.

    capacity: (T,) GPUs.
    gpus: (N,).
    speed: (N, T), 0 = cannot run.
    remaining_s: (N,) run time still to come on the reference type.
    elapsed_s: (N,) since submission.
    weight: (N,).
    isolated_s: (N,) isolated time of what is done, None = as long as since submission.
    account: (N,) a number for each account, where these share first; else empty.
    """

    capacity: Floats
    gpus: Floats
    speed: Floats
    remaining_s: Floats
    elapsed_s: Floats
    weight: Floats
    isolated_s: Floats | None = None
    account: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def take(self, rows: Int64s | Bools) -> AllocationProblem:
        """The problem of these jobs (a mask or indices), with all GPUs."""
        return AllocationProblem(
            self.capacity,
            self.gpus[rows],
            self.speed[rows],
            self.remaining_s[rows],
            self.elapsed_s[rows],
            self.weight[rows],
            None if self.isolated_s is None else self.isolated_s[rows],
            self.account[rows] if len(self.account) else self.account,
        )


def equal_split(problem: AllocationProblem) -> Floats:
    """Every type split alike among the jobs, whatever they ask for, a job being given no more than all its time. (N, T)

    Source: `proportional` of the released code.
    """
    return _capped_shares(np.tile(problem.capacity / max(len(problem.gpus), 1), (len(problem.gpus), 1)))


def isolated(problem: AllocationProblem) -> Floats:
    """What each job would have on its own part of the cluster: an equal split of every type, in gangs. (N, T)."""
    share = np.tile(problem.capacity / max(len(problem.gpus), 1), (len(problem.gpus), 1)) / problem.gpus[:, None]
    return _capped_shares(np.where(problem.speed > 0, share, 0.0))


def _capped_shares(share: Floats) -> Floats:
    """Shares of which no row has more than 1 in all."""
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def throughput_weight(problem: AllocationProblem) -> Floats:
    """What a job's throughput counts: its GPUs, over its weight and over what an equal split gives it. (N,)."""
    fair = (equal_split(problem) * problem.speed).sum(axis=1)
    return problem.gpus / (problem.weight * np.where(fair > 0, fair, 1.0))


def makespan(problem: AllocationProblem) -> Floats:
    """All jobs end as early as can be: the rate at which the slowest ends is as high as can be. (N, T)."""
    return _least_raised(problem, problem.speed / np.maximum(problem.remaining_s, 1.0)[:, None])


def finish_time_fairness(problem: AllocationProblem) -> Floats:
    """The largest rho, the time a job takes here over the time it would take isolated, is as low as can be. (N, T).

    Bisection over rho, a linear programme each. The isolated time is that of the whole job as things are now. Source:
    Gavel, after Mahajan et al. (Themis), NSDI '20.
    """
    return least_rho(problem, lambda worth: raise_least(problem, problem.speed * worth[:, None]))


def least_rho(problem: AllocationProblem, raised: Callable[[Floats], tuple[S, float]]) -> S:
    """Shares of the least rho. raised: shares whose least worth . throughput is as high as can be, and that level."""
    remaining_s, isolated_s = _whole_times(problem)
    found = {}

    def feasible(rho: float) -> bool:
        spare_s = rho * isolated_s - problem.elapsed_s
        if (spare_s <= 0).any():
            return False
        found[rho], level = raised(spare_s / remaining_s)
        return level >= 1 - 1e-9

    high = 1.0
    while not feasible(high) and high < 1e6:
        high *= 2
    return found[bisect_least(feasible, 0.0, high)]


def least_rho_of(
    problem: AllocationProblem, raised: Callable[[Floats], tuple[S, float]], made: Callable[[S], Floats]
) -> S:
    """As least_rho, to the same precision by fewer programmes, though not at the same of several best points: whatever
    shares are found at one rho have a rho of their own, below which the next is sought.

    made: the throughput of each job by such shares, (N,).
    """
    remaining_s, isolated_s = _whole_times(problem)

    def at(rho: float) -> tuple[S, float, bool]:
        shares, level = raised((rho * isolated_s - problem.elapsed_s) / remaining_s)
        own = (problem.elapsed_s + remaining_s / np.maximum(made(shares), 1e-12)) / isolated_s
        return shares, float(np.max(own)), level >= 1 - 1e-9

    low = float(np.max(problem.elapsed_s / isolated_s))
    best_of, high, _ = at(max(1.0, 2 * low))
    rho = high * (1 - PRECISION)
    while high - low > PRECISION * high:
        rho = max(rho, low * (1 + PRECISION / 2))
        shares, own, feasible = at(rho)
        if own < high:
            best_of, high = shares, own
        low = low if feasible else rho
        rho = (low + high) / 2
    return best_of


def _whole_times(problem: AllocationProblem) -> tuple[Floats, Floats]:
    """Run time still to come, at least a second, and isolated time of the whole job. (N,), (N,) [s]."""
    alone = np.maximum((isolated(problem) * problem.speed).sum(axis=1), 1e-12)
    remaining_s = np.maximum(problem.remaining_s, 1.0)
    before_s = problem.elapsed_s if problem.isolated_s is None else problem.isolated_s
    return remaining_s, before_s + remaining_s / alone


def sum_throughput(problem: AllocationProblem) -> Floats:
    """The sum of all speeds is as high as can be; some jobs may get nothing. (N, T)."""
    return max_weighted_sum(problem, problem.speed)


def cost(problem: AllocationProblem, prices: Sequence[float]) -> Floats:
    """The sum of speeds per price is as high as can be. (N, T).

    prices: (T,) of a GPU in an hour. Ours: the paper has the ratio of the sums, which one pair of job and type meets.
    """
    return max_weighted_sum(problem, problem.speed / (np.asarray(prices) * problem.gpus[:, None]))


def first_come(problem: AllocationProblem) -> Floats:
    """Jobs in their order, each for all time on its fastest type with room. (N, T).

    A job that finds no room ends the list. Source: the released code; the paper has it as a linear programme.
    """
    share, free_gpus = np.zeros(problem.speed.shape), problem.capacity.copy()
    for row in np.lexsort((np.arange(len(problem.gpus)), -problem.elapsed_s)).tolist():
        speed = np.where(free_gpus >= problem.gpus[row], problem.speed[row], 0.0)
        if not speed.any():
            break
        best = int(np.lexsort((-free_gpus, -speed))[0])
        share[row, best] = 1.0
        free_gpus[best] -= problem.gpus[row]
    return share


def _least_raised(problem: AllocationProblem, gain: Floats) -> Floats:
    """The least of gain . share is as high as can be; with what is left over the sum of them too. (N, T).

    The second step is ours: the first alone leaves the shares of jobs that are not the least undecided.
    """
    _, level = raise_least(problem, gain)
    return max_weighted_sum(problem, gain, np.full(len(gain), level * (1 - SLACK)))


def raise_least(problem: AllocationProblem, gain: Floats, everywhere: bool = False) -> tuple[Floats, float]:
    """Shares (N, T) whose least gain . share is as high as can be, and that level.

    everywhere: a job may have a share of a type on which it cannot run.
    """
    from scipy import sparse

    jobs, types = gain.shape
    possible, bound = capacity_rows(problem)
    rows = sparse.vstack([
        sparse.hstack([possible, sparse.csr_array((len(bound), 1))]),
        sparse.hstack([-gain_rows(gain), sparse.csr_array(np.ones((jobs, 1)))]),
    ]).tocsr()  # fmt: skip
    aim = np.zeros(jobs * types + 1)
    aim[-1] = -1.0
    may = np.ones(gain.shape) if everywhere else problem.speed > 0
    high = np.append(may.ravel().astype(np.float64), np.inf)
    solution = solve(Programme(aim, np.zeros(len(aim)), high, rows, np.append(bound, np.zeros(jobs))))
    if solution.x is None:
        return isolated(problem), 0.0
    return np.clip(solution.x[:-1].reshape(gain.shape), 0.0, 1.0), float(solution.x[-1])


def max_weighted_sum(
    problem: AllocationProblem, gain: Floats, floor: Floats | None = None, who: Bools | None = None
) -> Floats:
    """Shares (N, T) of the highest sum of gain . share, of which none is below its floor. floor: (N,).

    who: (N,) jobs of the sum; all without it.
    """
    from scipy import sparse

    rows, bound = capacity_rows(problem)
    if floor is not None:
        rows, bound = sparse.vstack([rows, -gain_rows(gain)]).tocsr(), np.append(bound, -floor)
    high = (problem.speed > 0).ravel().astype(np.float64)
    aim = gain if who is None else np.where(who[:, None], gain, 0.0)
    solution = solve(Programme(-aim.ravel(), np.zeros(len(high)), high, rows, bound))
    return isolated(problem) if solution.x is None else np.clip(solution.x.reshape(gain.shape), 0.0, 1.0)


def gain_rows(gain: Floats) -> Any:
    """Rows that sum gain . share of each job. (N, N * T), sparse."""
    from scipy import sparse

    jobs, types = gain.shape
    return sparse.csr_array((gain.ravel(), (np.repeat(np.arange(jobs), types), np.arange(jobs * types))))


def capacity_rows(problem: AllocationProblem) -> tuple[object, Floats]:
    """Rows and bounds of what can be: no type gives more than it has, no job has more than all its time."""
    from scipy import sparse

    jobs, types = problem.speed.shape
    cell = np.arange(jobs * types)
    by_type = sparse.csr_array((np.repeat(problem.gpus, types), (np.tile(np.arange(types), jobs), cell)))
    by_job = sparse.csr_array((np.ones(len(cell)), (np.repeat(np.arange(jobs), types), cell)))
    return sparse.vstack([by_type, by_job]).tocsr(), np.append(problem.capacity, np.ones(jobs))


# POP: several small allocations.


def solve_in_groups(
    programme: Callable[[AllocationProblem], Floats], problem: AllocationProblem, groups: int, seed: int
) -> Floats:
    """Shares (N, T) that the programme gives each of that many random groups of jobs with an equal part of all GPUs.

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
