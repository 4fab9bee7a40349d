"""Space sharing: what two jobs on the same GPUs would gain, by a programme over single jobs and pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats, Int64s
from slurmsched.policies import allocation
from slurmsched.policies.allocation import Problem
from slurmsched.policies.solve import Programme, solve
from slurmsched.words import some

SAMPLED = 96  # jobs of the programme of `gain`, which has a variable for each pair and type


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """One row a pair. first, second: (P,) rows of the problem. speed: (P, T, 2) of each on a type beside the other, 0
    for both where the pair is not to run.
    """

    first: Int64s
    second: Int64s
    speed: Floats


def possible(gpus: Floats) -> tuple[Int64s, Int64s]:
    """All pairs of jobs with the same number of GPUs, each once. (P,), (P,)."""
    first, second = np.triu_indices(len(gpus), 1)
    alike = gpus[first] == gpus[second]
    return first[alike].astype(np.int64), second[alike].astype(np.int64)


def worthwhile(problem: Problem, first: Int64s, second: Int64s, kept: Floats) -> Pairs:
    """The pairs that do more together than in turns, on some type.

    kept: (P, T, 2) share of its speed alone that each keeps. Where both shares add up to at most 1, turns are at least
    as good for both, so that nothing is lost without the pair.
    """
    alone = np.stack([problem.speed[first], problem.speed[second]], axis=2)
    gains = (kept.sum(axis=2, keepdims=True) > 1) & np.all(alone > 0, axis=2, keepdims=True)
    speed = np.where(gains, kept * alone, 0.0)
    some = (speed > 0).any(axis=(1, 2))
    return Pairs(first[some], second[some], speed[some])


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """share: (N, T) of each job alone. shared: (P, T) of each of the pairs; None where no two jobs share. carry: what
    the policy is to remember of it."""

    share: Floats
    pairs: Pairs | None = None
    shared: Floats | None = None
    carry: Mapping[str, Any] = field(default_factory=dict)


def beside(kept: Floats, speed: Floats, first: Int64s, second: Int64s) -> Floats:
    """Speed of each of two jobs beside the other. (P, T, 2). kept: see worthwhile. speed: (N, T) alone."""
    return kept * np.stack([speed[first], speed[second]], axis=2)


def max_min(problem: Problem, pairs: Pairs) -> tuple[Floats, Floats, float]:
    """Shares of time alone (N, T) and of pairs (P, T) whose least normalised throughput is as high as can be, and that
    level: 1 = what an equal split of all GPUs gives. Without pairs where the solver ends without a point.

    Source: Narayanan et al. (Gavel), OSDI '20, which has a variable for each combination of jobs.
    """
    return raise_least(problem, pairs, allocation.worth(problem))


def raise_least(problem: Problem, pairs: Pairs, worth: Floats) -> tuple[Floats, Floats, float]:
    """As max_min, for the least of worth . throughput. worth: (N,)."""
    jobs = len(problem.gpus)
    rows, bound = _room(problem, pairs)
    made = _throughput(problem, pairs, worth)
    no_level = _column(np.zeros(len(bound)))
    rows = _stacked([[rows, no_level], [-made, _column(np.ones(jobs))]])
    aim = np.append(np.zeros(made.shape[1]), -1.0)
    high = np.append(_may(problem, pairs), np.inf)
    found = solve(Programme(aim, np.zeros(len(aim)), high, rows, np.append(bound, np.zeros(jobs))))
    if found.x is None:
        share, level = allocation.raise_least(problem, problem.speed * worth[:, None])
        return share, np.zeros(pairs.speed.shape[:2]), level
    return *_split(problem, pairs, found.x[:-1]), float(found.x[-1])


def best(problem: Problem, pairs: Pairs, worth: Floats, floor: float = 0.0) -> tuple[Floats, Floats] | None:
    """Shares alone (N, T) and of pairs (P, T) of the highest sum of worth . throughput, none of which is below the
    floor; None where the solver ends without a point."""
    rows, bound = _room(problem, pairs)
    made = _throughput(problem, pairs, worth)
    if floor > 0:
        rows, bound = _stacked([[rows], [-made]]), np.append(bound, np.full(len(worth), -floor))
    aim = -np.asarray(made.sum(axis=0)).ravel()
    found = solve(Programme(aim, np.zeros(len(aim)), _may(problem, pairs), rows, bound))
    return None if found.x is None else _split(problem, pairs, found.x)


def _split(problem: Problem, pairs: Pairs, x: Floats) -> tuple[Floats, Floats]:
    """The variables of single jobs (N, T) and of pairs (P, T)."""
    cells, x = problem.speed.size, np.clip(x, 0.0, 1.0)
    return x[:cells].reshape(problem.speed.shape), x[cells:].reshape(pairs.speed.shape[:2])


def _may(problem: Problem, pairs: Pairs) -> Floats:
    """The most of each variable: 1 where job or pair runs, else 0."""
    runs = np.concatenate([problem.speed.ravel() > 0, (pairs.speed > 0).all(axis=2).ravel()])
    return runs.astype(np.float64)


def _room(problem: Problem, pairs: Pairs) -> tuple[Any, Floats]:
    """Rows and bounds: no type gives more than it has, no job takes more than all its time."""
    from scipy import sparse

    types = problem.speed.shape[1]
    cells, type_of = np.arange(len(pairs.first) * types), np.tile(np.arange(types), len(pairs.first))
    room = sparse.csr_array((problem.gpus[pairs.first].repeat(types), (type_of, cells)), (types, len(cells)))
    time = _by_job(pairs, len(problem.gpus), np.ones(pairs.speed.shape))
    fits, bound = allocation.fits(problem)
    return _stacked([[fits, _stacked([[room], [time]])]]), bound


def _throughput(problem: Problem, pairs: Pairs, worth: Floats) -> Any:
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


def _by_job(pairs: Pairs, jobs: int, value: Floats) -> Any:
    """What each pair and type, one column each, makes for each of its two jobs. value: (P, T, 2)."""
    from scipy import sparse

    types = value.shape[1]
    cells = np.arange(len(pairs.first) * types)
    rows = np.concatenate([pairs.first.repeat(types), pairs.second.repeat(types)])
    values = np.concatenate([value[:, :, 0].ravel(), value[:, :, 1].ravel()])
    return sparse.csr_array((values, (rows, np.tile(cells, 2))), (jobs, len(cells)))


def gain(problem: Problem, kept: Callable[[Int64s, Int64s], Floats], seed: int) -> str:
    """How much more the job that fares worst would have with pairs, in words.

    kept: of pairs of rows of the problem, as in `worthwhile`. Of more jobs SAMPLED are drawn, with as large a part of
    all GPUs.
    """
    jobs = len(problem.gpus)
    rows = np.sort(np.random.default_rng(seed).permutation(jobs)[:SAMPLED])
    part = replace(problem.take(rows), capacity=problem.capacity * len(rows) / max(jobs, 1))
    first, second = possible(part.gpus)
    pairs = worthwhile(part, first, second, kept(rows[first], rows[second]))
    _, before = allocation.raise_least(part, part.speed * allocation.worth(part)[:, None])
    _, shared, after = max_min(part, pairs)
    in_pairs = float((shared * part.gpus[pairs.first][:, None]).sum() / max(part.capacity.sum(), 1e-12))
    return (
        f"with two jobs on the same GPUs who fares worst would have {after / max(before, 1e-12):.2f} times as much, "
        f"{in_pairs:.0%} of the GPU time in pairs ({some(len(rows), 'job')} looked at); "
        "under Slurm they would ask for shards"
    )
