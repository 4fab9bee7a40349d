"""Max-min fairness over GPU types: of jobs, or of two levels, first accounts by their entitlement, then their jobs.

Source: Narayanan et al. (Gavel), OSDI '20, water-filling and hierarchical policies, and its released code (c4fa400) for
weights and steps. Ours: the dual prices of the programme decide which jobs can rise no more (the paper: a mixed-integer
programme), and equal jobs are one row of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmsched.allocation import programmes
from slurmsched.allocation.programmes import SLACK, AllocationProblem
from slurmsched.allocation.solver import Programme, solve
from slurmsched.model.columns import Bools, Floats, Int64s

MOST_STEPS = 200  # of one allocation; what is then left goes where it adds most, in turn to the earlier first
NEGLIGIBLE = 1e-7  # a step, or a dual price, no larger than this is none


@dataclass(frozen=True, slots=True, eq=False)
class AccountWeights:
    """What each account is entitled to, and how its jobs share that.

    weight: (A,) what each is entitled to.
    in_turn: (A,) bool, its jobs are served in the order of rows, one after the other; those of the others share by
        their weights.
    """

    weight: Floats
    in_turn: Bools


def max_min(problem: AllocationProblem) -> Floats:
    """Max-min fairness of jobs by their weights: the least level is as high as can be, then that of those that can
    still have more, and so on. (N, T)."""
    one = replace(problem, account=np.zeros(len(problem.gpus), np.int64))
    return water_filled(one, AccountWeights(np.ones(1), np.zeros(1, np.bool_)))


def water_filled(problem: AllocationProblem, accounts: AccountWeights) -> Floats:
    """Shares (N, T): all levels rise together, each job's by its part of its account's weight; who can rise no more
    keeps its level, and its part goes to the others of its account.

    A job's level is its throughput times its GPUs over what an equal split would give it. Jobs that are alike rise as
    one; the last programme has a row for each, so that few have shares of several types, as moves cost restarts.
    """
    worth = programmes.throughput_weight(replace(problem, weight=np.ones(len(problem.gpus))))
    first, kind, count = _alike(problem, accounts)
    few = _fewer_types(problem.take(first))
    few = replace(few, gpus=few.gpus * count, weight=few.weight * count)
    gain = few.speed * (count * worth[first])[:, None]
    level, full = _levels(few, accounts, gain)
    turn = np.where(accounts.in_turn[few.account] & ~full, 1.0 + np.cumsum(~full[::-1])[::-1], 1.0)
    gain = problem.speed * (worth * turn[kind])[:, None]
    return programmes.max_weighted_sum(problem, gain, (level / count * turn)[kind] * (1 - SLACK))


def _levels(problem: AllocationProblem, accounts: AccountWeights, gain: Floats) -> tuple[Floats, Bools]:
    """The level of each row, and whether it can rise no more. (K,), (K,)."""
    most = gain.max(axis=1, initial=0.0)
    level, full = np.zeros(len(gain)), most <= 0
    for _ in range(MOST_STEPS):
        rise = _rise(problem, accounts, ~full)
        if not rise.any():
            break
        step, then, tight = _step(problem, gain, level, rise)
        if (then[tight] >= most[tight] * (1 - SLACK)).any():
            level = _filled_levels(problem, accounts, gain, level, full)
            full |= level >= most * (1 - SLACK)
            continue
        level, full = then, full | tight
        if step <= NEGLIGIBLE and not _can_raise(problem, gain, level, ~full):
            break
    return level, full


def _filled_levels(
    problem: AllocationProblem, accounts: AccountWeights, gain: Floats, level: Floats, full: Bools
) -> Floats:
    """The levels when as many rows as can be, one after the other, have all of their time, of which the first can. (K,)

    Their order is known beforehand: a few programmes tell how far it goes, where one for each would be hundreds.
    """
    path = _levels_without_capacity(problem, accounts, gain.max(axis=1), level, full)

    def at(place: int) -> tuple[bool, Floats]:
        step, then, _ = _step(problem, gain, level, path[place] - level)
        return step >= 1 - NEGLIGIBLE, np.minimum(then, path[place])

    low, high, ahead = 0, len(path), 1
    found = at(0)[1]
    while high - low > 1:
        place = low + max(min(ahead, (high - low) // 2), 1)
        can, then = at(place)
        if can:
            low, found, ahead = place, then, 2 * ahead
        else:
            high, ahead = place, max(ahead // 2, 1)
    return found


def _levels_without_capacity(
    problem: AllocationProblem, accounts: AccountWeights, most: Floats, level: Floats, full: Bools
) -> list[Floats]:
    """The levels whenever a row has all of its time, as if there were GPUs for all. (K,) each."""
    path, level, full = list[Floats](), level.copy(), full.copy()
    while (rise := _rise(problem, accounts, ~full)).any():
        rises = rise > 0
        step = np.min((most - level)[rises] / rise[rises])
        level = np.minimum(level + max(step, 0.0) * rise, np.maximum(most, level))
        full |= rises & (level >= most * (1 - SLACK))
        path.append(level)
    return path


def _alike(problem: AllocationProblem, accounts: AccountWeights) -> tuple[Int64s, Int64s, Floats]:
    """Jobs between which nothing tells: the row of one of each kind, ascending, the kind of each job, and how many are
    of it. (K,), (N,), (K,). A job of an account that goes in turn is alone of its kind.
    """
    turn = np.where(accounts.in_turn[problem.account], np.arange(len(problem.gpus)), -1)
    table = np.column_stack([problem.gpus, problem.weight, problem.speed, problem.account, turn])
    _, first, kind, count = np.unique(table, axis=0, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[kind.ravel()], count[order].astype(np.float64)


def _fewer_types(problem: AllocationProblem) -> AllocationProblem:
    """With types on which every job is as fast as on another one as one type of the GPUs of both."""
    speed, place = np.unique(problem.speed, axis=1, return_inverse=True)
    capacity = np.bincount(place.ravel(), problem.capacity, speed.shape[1])
    return replace(problem, speed=speed, capacity=capacity.astype(np.float64))


def _rise(problem: AllocationProblem, accounts: AccountWeights, can: Bools) -> Floats:
    """By how much the level of each row rises in a step of 1: its part of its account's weight, of those that can.
    (K,), 1 in the mean of these, 0 = not at all."""
    row, account = np.arange(len(can)), problem.account
    foremost = np.full(len(accounts.weight), len(can))
    np.minimum.at(foremost, account[can], row[can])
    rises = can & (~accounts.in_turn[account] | (row == foremost[account]))
    own = np.where(rises, problem.weight, 0.0)
    total = np.bincount(account, own, len(accounts.weight))[account]
    rise = accounts.weight[account] * np.divide(own, total, out=np.zeros(len(own)), where=total > 0)
    return rise * rises.sum() / (rise.sum() or 1.0)


def _step(problem: AllocationProblem, gain: Floats, level: Floats, rise: Floats) -> tuple[float, Floats, Bools]:
    """The longest step by which all can rise, nobody falling, the levels then, and who can rise no more. (K,), (K,).

    A row that has a dual price is at the same level in every best point.
    """
    from scipy import sparse

    some = np.flatnonzero((rise > 0) | (level > 0))
    part, gain = problem.take(some), gain[some]
    possible, bound = programmes.capacity_rows(part)
    up = sparse.csr_array(rise[some][:, None])
    rows = sparse.block_array([[possible, None], [-programmes.gain_rows(gain), up]], format="csr")
    aim = np.append(np.zeros(gain.size), -1.0)
    high = np.append((part.speed > 0).ravel().astype(np.float64), np.inf)
    found = solve(Programme(aim, np.zeros(len(aim)), high, rows, np.append(bound, -level[some])))
    if found.x is None or found.price is None:
        return 0.0, level, rise > 0
    then, tight = level.copy(), np.zeros(len(rise), np.bool_)
    made = (found.x[:-1].reshape(gain.shape) * gain).sum(axis=1)
    then[some] = np.minimum(level[some] + float(found.x[-1]) * rise[some], made)
    tight[some] = rise[some] * found.price[len(bound) :] > NEGLIGIBLE
    return float(found.x[-1]), then, tight if tight.any() else rise > 0


def _can_raise(problem: AllocationProblem, gain: Floats, level: Floats, who: Bools) -> bool:
    """Whether any of these can have more while no job has less."""
    made = (programmes.max_weighted_sum(problem, gain, level * (1 - SLACK), who) * gain).sum(axis=1)
    return bool((made - level)[who].sum() > 10 * SLACK * max(level.sum(), 1.0))
