"""Space sharing: programmes over the time of single jobs and of pairs of jobs on the same GPUs.

Source: Narayanan et al. (Gavel), OSDI '20: a variable for each job, each pair, and each type. Ours: groups of few jobs,
and what the first programme leaves open goes where it adds most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from slurmsched.allocation import programmes
from slurmsched.allocation.programmes import SLACK, AllocationProblem
from slurmsched.allocation.solver import Programme, solve
from slurmsched.model.columns import Floats, Int64s
from slurmsched.plain_text import pluralize

SAMPLED = 96  # jobs of the programme of `gain`, which has a variable for each pair and type


@dataclass(frozen=True, slots=True, eq=False)
class JobPairs:
    """One row a pair.

    first, second: (P,) rows of the problem.
    speed: (P, T, 2) of each on a type beside the other, 0 for both where the pair is not to run.
    """

    first: Int64s
    second: Int64s
    speed: Floats


def possible_pairs(gpus: Floats) -> tuple[Int64s, Int64s]:
    """All pairs of jobs with the same number of GPUs, each once. (P,), (P,)."""
    first, second = np.triu_indices(len(gpus), 1)
    alike = gpus[first] == gpus[second]
    return first[alike].astype(np.int64), second[alike].astype(np.int64)


def worthwhile_pairs(problem: AllocationProblem, first: Int64s, second: Int64s, kept: Floats) -> JobPairs:
    """The pairs that do more together than in turns, on some type.

    kept: (P, T, 2) share of its speed alone that each keeps. Where both shares add up to at most 1, turns are at least
    as good for both, so that nothing is lost without the pair.
    """
    alone = np.stack([problem.speed[first], problem.speed[second]], axis=2)
    gains = (kept.sum(axis=2, keepdims=True) > 1) & np.all(alone > 0, axis=2, keepdims=True)
    speed = np.where(gains, kept * alone, 0.0)
    some = (speed > 0).any(axis=(1, 2))
    return JobPairs(first[some], second[some], speed[some])


@dataclass(frozen=True, slots=True, eq=False)
class TimeShares:
    """Shares of time of each job, and of each pair, on each GPU type.

    share: (N, T) of each job alone.
    shared: (P, T) of each of the pairs; None where no two jobs share.
    carry: what the policy is to remember of it.
    """

    share: Floats
    pairs: JobPairs | None = None
    shared: Floats | None = None
    carry: Mapping[str, Any] = field(default_factory=dict)


def speeds_together(kept: Floats, speed: Floats, first: Int64s, second: Int64s) -> Floats:
    """Speed of each of two jobs beside the other. (P, T, 2). kept: see worthwhile. speed: (N, T) alone."""
    return kept * np.stack([speed[first], speed[second]], axis=2)


def max_min_level(problem: AllocationProblem, pairs: JobPairs) -> tuple[Floats, Floats, float]:
    """Shares of time alone (N, T) and of pairs (P, T) whose least normalised throughput is as high as can be, and that
    level: 1 = what an equal split of all GPUs gives. Without pairs where the solver ends without a point.

    Source: Narayanan et al. (Gavel), OSDI '20, which has a variable for each combination of jobs.
    """
    return raise_least(problem, pairs, programmes.throughput_weight(problem))


def raise_least(problem: AllocationProblem, pairs: JobPairs, worth: Floats) -> tuple[Floats, Floats, float]:
    """As max_min, for the least of worth . throughput. worth: (N,)."""
    jobs = len(problem.gpus)
    rows, bound = _capacity_rows(problem, pairs)
    made = _throughput(problem, pairs, worth)
    no_level = _column(np.zeros(len(bound)))
    rows = _stacked([[rows, no_level], [-made, _column(np.ones(jobs))]])
    aim = np.append(np.zeros(made.shape[1]), -1.0)
    high = np.append(_variable_bounds(problem, pairs), np.inf)
    found = solve(Programme(aim, np.zeros(len(aim)), high, rows, np.append(bound, np.zeros(jobs))))
    if found.x is None:
        share, level = programmes.raise_least(problem, problem.speed * worth[:, None])
        return share, np.zeros(pairs.speed.shape[:2]), level
    return *_split(problem, pairs, found.x[:-1]), float(found.x[-1])


def max_sum_with_pairs(
    problem: AllocationProblem, pairs: JobPairs, worth: Floats, floor: float = 0.0
) -> tuple[Floats, Floats] | None:
    """Shares alone (N, T) and of pairs (P, T) of the highest sum of worth . throughput, none of which is below the
    floor; None where the solver ends without a point."""
    rows, bound = _capacity_rows(problem, pairs)
    made = _throughput(problem, pairs, worth)
    if floor > 0:
        rows, bound = _stacked([[rows], [-made]]), np.append(bound, np.full(len(worth), -floor))
    aim = -np.asarray(made.sum(axis=0)).ravel()
    found = solve(Programme(aim, np.zeros(len(aim)), _variable_bounds(problem, pairs), rows, bound))
    return None if found.x is None else _split(problem, pairs, found.x)


def _split(problem: AllocationProblem, pairs: JobPairs, x: Floats) -> tuple[Floats, Floats]:
    """The variables of single jobs (N, T) and of pairs (P, T)."""
    cells, x = problem.speed.size, np.clip(x, 0.0, 1.0)
    return x[:cells].reshape(problem.speed.shape), x[cells:].reshape(pairs.speed.shape[:2])


def _variable_bounds(problem: AllocationProblem, pairs: JobPairs) -> Floats:
    """The most of each variable: 1 where job or pair runs, else 0."""
    runs = np.concatenate([problem.speed.ravel() > 0, (pairs.speed > 0).all(axis=2).ravel()])
    return runs.astype(np.float64)


def _capacity_rows(problem: AllocationProblem, pairs: JobPairs) -> tuple[Any, Floats]:
    """Rows and bounds: no type gives more than it has, no job takes more than all its time."""
    from scipy import sparse

    types = problem.speed.shape[1]
    cells, type_of = np.arange(len(pairs.first) * types), np.tile(np.arange(types), len(pairs.first))
    room = sparse.csr_array((problem.gpus[pairs.first].repeat(types), (type_of, cells)), (types, len(cells)))
    time = _by_job(pairs, len(problem.gpus), np.ones(pairs.speed.shape))
    fits, bound = programmes.capacity_rows(problem)
    return _stacked([[fits, _stacked([[room], [time]])]]), bound


def _throughput(problem: AllocationProblem, pairs: JobPairs, worth: Floats) -> Any:
    """What each variable makes for each job, times what it is worth. (N, variables), sparse."""
    from scipy import sparse

    jobs, types = problem.speed.shape
    place = (np.repeat(np.arange(jobs), types), np.arange(jobs * types))
    alone = sparse.csr_array(((worth[:, None] * problem.speed).ravel(), place), (jobs, jobs * types))
    return _stacked([[alone, sparse.diags_array(worth) @ _by_job(pairs, jobs, pairs.speed)]])


def _stacked(blocks: list[list[Any]]) -> Any:
    """A matrix of these blocks, by rows; sparse."""
    from scipy import sparse

    return sparse.block_array(blocks, format="csr")


def _column(values: Floats) -> Any:
    """One column of a sparse matrix."""
    from scipy import sparse

    return sparse.csr_array(values[:, None])


def _by_job(pairs: JobPairs, jobs: int, value: Floats) -> Any:
    """What each pair and type, one column each, makes for each of its two jobs. value: (P, T, 2)."""
    from scipy import sparse

    types = value.shape[1]
    cells = np.arange(len(pairs.first) * types)
    rows = np.concatenate([pairs.first.repeat(types), pairs.second.repeat(types)])
    values = np.concatenate([value[:, :, 0].ravel(), value[:, :, 1].ravel()])
    return sparse.csr_array((values, (rows, np.tile(cells, 2))), (jobs, len(cells)))


def space_sharing_gain(problem: AllocationProblem, kept: Callable[[Int64s, Int64s], Floats], seed: int) -> str:
    """A note: how many times the throughput of the worst-off job would have with pairs.

    kept: speeds that pairs of rows of the problem keep, as in worthwhile_pairs.
    seed: if there are more than SAMPLED jobs, that many are drawn at random, with the same part of all GPUs.
    """
    jobs = len(problem.gpus)
    rows = np.sort(np.random.default_rng(seed).permutation(jobs)[:SAMPLED])
    part = replace(problem.take(rows), capacity=problem.capacity * len(rows) / max(jobs, 1))
    first, second = possible_pairs(part.gpus)
    pairs = worthwhile_pairs(part, first, second, kept(rows[first], rows[second]))
    _, before = programmes.raise_least(part, part.speed * programmes.throughput_weight(part)[:, None])
    _, shared, after = max_min_level(part, pairs)
    in_pairs = float((shared * part.gpus[pairs.first][:, None]).sum() / max(part.capacity.sum(), 1e-12))
    return (
        f"with two jobs on the same GPUs the worst-off job would have {after / max(before, 1e-12):.2f} times as much, "
        f"{in_pairs:.0%} of the GPU time in pairs ({pluralize(len(rows), 'job')} looked at); "
        "under Slurm they would ask for shards"
    )


# Gavel's objectives with space sharing.

GROUP = 128  # jobs of one programme, which has a variable for each pair and type
SharesOfJobsAndPairs = tuple[Floats, Floats]  # of jobs alone (N, T), of pairs (P, T)


class PairShares(NamedTuple):
    """Shares of time of each job and of each pair.

    share: (N, T) of each job alone.
    shared: (P, T) of each of the pairs, which are by row of the problem.
    """

    share: Floats
    pairs: JobPairs
    shared: Floats


def max_min(problem: AllocationProblem, pairs: JobPairs) -> SharesOfJobsAndPairs:
    """The least throughput, as programmes.throughput_weight counts it, is as high as can be."""
    return _least_raised(problem, pairs, programmes.throughput_weight(problem))


def makespan(problem: AllocationProblem, pairs: JobPairs) -> SharesOfJobsAndPairs:
    """As programmes.makespan."""
    return _least_raised(problem, pairs, 1.0 / np.maximum(problem.remaining_s, 1.0))


def finish_time_fairness(problem: AllocationProblem, pairs: JobPairs) -> SharesOfJobsAndPairs:
    """As programmes.finish_time_fairness: rho is measured against the isolated time without sharing."""

    def raised(worth: Floats) -> tuple[SharesOfJobsAndPairs, float]:
        share, shared, level = raise_least(problem, pairs, worth)
        return (share, shared), level

    def made(shares: SharesOfJobsAndPairs) -> Floats:
        alone, shared = (shares[0] * problem.speed).sum(axis=1), pairs.speed * shares[1][:, :, None]
        for place, rows in enumerate((pairs.first, pairs.second)):
            alone += np.bincount(rows, shared[:, :, place].sum(axis=1), len(alone))
        return alone

    return programmes.least_rho_of(problem, raised, made)


def sum_throughput(problem: AllocationProblem, pairs: JobPairs) -> SharesOfJobsAndPairs:
    """As programmes.sum_throughput."""
    found = max_sum_with_pairs(problem, pairs, np.ones(len(problem.gpus)))
    return _without_pairs(problem, pairs, programmes.sum_throughput(problem)) if found is None else found


OBJECTIVES: Mapping[str, Callable[[AllocationProblem, JobPairs], SharesOfJobsAndPairs]] = {
    "max-min": max_min,
    "las": max_min,
    "ftf": finish_time_fairness,
    "makespan": makespan,
    "sum-throughput": sum_throughput,
}


def allocate_with_pairs(
    objective: str, problem: AllocationProblem, kept: Callable[[Int64s, Int64s], Floats], most_jobs: int, seed: int
) -> PairShares:
    """Shares of jobs and of the pairs that have any, in random groups of at most that many jobs and of GROUP.

    kept: of pairs of rows of the problem, see protocols.PairEstimator. The same seed gives the same groups.
    """
    jobs, types = problem.speed.shape
    groups = max(-(-jobs // min(most_jobs, GROUP)), 1)
    share, parts = np.zeros((jobs, types)), list[tuple[JobPairs, Floats]]()
    for rows in np.array_split(np.random.default_rng(seed).permutation(jobs), groups):
        rows = np.sort(rows)
        part = replace(problem.take(rows), capacity=problem.capacity / groups)
        first, second = possible_pairs(part.gpus)
        pairs = worthwhile_pairs(part, first, second, kept(rows[first], rows[second]))
        share[rows], shared = OBJECTIVES[objective](part, pairs)
        some = (shared > SLACK).any(axis=1)
        parts.append((JobPairs(rows[pairs.first[some]], rows[pairs.second[some]], pairs.speed[some]), shared[some]))
    columns = zip(*((pairs.first, pairs.second, pairs.speed, shared) for pairs, shared in parts), strict=True)
    first, second, speed, shared = (np.concatenate(column) for column in columns)
    return PairShares(share, JobPairs(first, second, speed), shared)


def _least_raised(problem: AllocationProblem, pairs: JobPairs, worth: Floats) -> SharesOfJobsAndPairs:
    """The least of worth . throughput is as high as can be; with what is left over the sum of them too."""
    share, shared, level = raise_least(problem, pairs, worth)
    return max_sum_with_pairs(problem, pairs, worth, level * (1 - SLACK)) or (share, shared)


def _without_pairs(problem: AllocationProblem, pairs: JobPairs, share: Floats) -> SharesOfJobsAndPairs:
    return share, np.zeros(pairs.speed.shape[:2])
