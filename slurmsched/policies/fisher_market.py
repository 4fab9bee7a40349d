"""A volatile Fisher market over a window of rounds: how many rounds each job buys, and which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.solve import Programme, solve

BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])  # where the logarithm is told exactly, as in the released settings
ORIGIN = 1e-6  # whose logarithm stands for that of 0
WEIGHTIEST, ALMOST_OVER = 1e8, 100.0  # a bound (ours), and the power for jobs that would end within a round
GAP, NODES = 1e-3, 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What is for sale: rounds of round_s [s] on so many GPUs, from now_s on [Unix s].

    k: price of the longest rest. power: by which a job that is late weighs more. rho_max: how late one may be.
    """

    rounds: int
    gpus: float
    round_s: float
    now_s: float
    k: float
    power: float
    rho_max: float


@dataclass(frozen=True, slots=True, eq=False)
class Buyers:
    """One row a job, (N,). gpus: of its gang. done: share, 0 to 1. left_s, pace_s: as in regimes.Rest. fair_s: when it
    would have ended with its fair share [Unix s]. came_s: its submission [Unix s]."""

    gpus: Int64s
    done: Floats
    left_s: Floats
    pace_s: Floats
    fair_s: Floats
    came_s: Floats


def bought(buyers: Buyers, offer: Offer) -> tuple[Int64s, Floats]:
    """Rounds that each job buys (N,) int64, and its weight (N,).

    The mean of log(share done by the end of the window) less k times the longest rest is as high as can be, where no
    job takes longer than rho_max times its fair time. Where that cannot be kept, jobs that are late weigh
    ratio ** power. Both times count from the job's own submission, as the paper's finish-time fairness does.
    Ours: whole numbers of rounds instead of one variable a round, which tells rounds of one job apart for nothing; and
    the submission, since the released code divides times from the start of its trace.
    """
    share = min(1.0, offer.gpus / len(buyers.gpus))
    weight = np.ones(len(buyers.gpus))
    rounds = _solved(buyers, offer, weight, _spare_s(buyers, offer, share))
    if rounds is None:
        took_s, fair_s = offer.now_s - buyers.came_s, buyers.fair_s - buyers.came_s
        ratio = (took_s + buyers.left_s / share) / np.maximum(fair_s, 1.0)
        power = np.where(buyers.left_s < offer.round_s, ALMOST_OVER, offer.power)
        with np.errstate(over="ignore"):
            weight = np.where(ratio > offer.rho_max, np.minimum(ratio**power, WEIGHTIEST), 1.0)
        rounds = _solved(buyers, offer, weight, None)
    return (np.zeros(len(weight), np.int64) if rounds is None else rounds), weight


def timetable(rounds: Int64s, buyers: Buyers, offer: Offer, weight: Floats, held: Bools) -> list[list[int]]:
    """Rows of the jobs of each round of the window.

    A job that must run in every round left comes first, then the weightier one, one that runs already (held), the one
    with the longest rest. What is left of a round goes to the others in that order; the paper has the longest rest
    alone, and the order of rounds as the solver finds them where no job is late.
    """
    left, made = rounds.copy(), []
    runs = held
    for at in range(offer.rounds):
        must = left >= offer.rounds - at
        order = np.lexsort((np.arange(len(left)), -buyers.left_s, ~runs, -weight, ~must, left <= 0))
        chosen, free = list[int](), int(offer.gpus)
        for row in order.tolist():
            if buyers.gpus[row] <= free:
                chosen.append(row)
                free -= int(buyers.gpus[row])
        runs = np.isin(np.arange(len(left)), chosen)
        left = left - (runs & (left > 0))
        made.append(chosen)
    return made


def _spare_s(buyers: Buyers, offer: Offer, share: float) -> Floats:
    """Run time that may be left after the window if a job is to end in time (N,), below 0 if it cannot."""
    end_s = offer.now_s + offer.rounds * offer.round_s
    return (offer.rho_max * (buyers.fair_s - buyers.came_s) - (end_s - buyers.came_s)) * share


def _solved(buyers: Buyers, offer: Offer, weight: Floats, spare_s: Floats | None) -> Int64s | None:
    """Rounds of each job, None if there is no solution.

    Variables: rounds, run time in them, a part of each of BASES, and the longest rest.
    """
    from scipy import sparse

    count, bases = len(buyers.gpus), len(BASES)
    if spare_s is not None and (spare_s < 0).any():
        return None
    one, none = sparse.eye_array(count), sparse.csr_array((count, count))
    corner = sparse.csr_array((count, count * bases))
    last = sparse.csr_array((count, 1))
    at_most = [
        (sparse.hstack([buyers.gpus.reshape(1, -1) * 1.0, sparse.csr_array((1, count + count * bases + 1))]),
         [offer.gpus * offer.rounds]),
        (sparse.hstack([-offer.round_s * one, one, corner, last]), np.zeros(count)),
        (sparse.hstack([none, -one, corner, -np.ones((count, 1))]), -buyers.left_s),
    ]  # fmt: skip
    if spare_s is not None:
        at_most.append((sparse.hstack([none, -one, corner, last]), spare_s - buyers.left_s))
    of_job = sparse.kron(one, np.ones((1, bases)))
    equal = [
        (sparse.hstack([none, sparse.diags_array(-1 / buyers.pace_s), sparse.kron(one, BASES.reshape(1, -1)), last]),
         buyers.done),
        (sparse.hstack([none, none, of_job, last]), np.ones(count)),
    ]  # fmt: skip
    value = np.tile(np.log(np.maximum(BASES, ORIGIN)), count) * np.repeat(weight, bases) / (count * offer.rounds)
    cost = np.concatenate([np.zeros(2 * count), -value, [offer.k]])
    high = np.concatenate([np.full(count, float(offer.rounds)), np.full(count + count * bases + 1, np.inf)])
    whole = np.arange(len(cost)) < count
    found = solve(
        Programme(cost / max(float(weight.max()), 1.0), np.zeros(len(cost)), high,
                  sparse.vstack([rows for rows, _ in at_most]).tocsc(), np.concatenate([each for _, each in at_most]),
                  sparse.vstack([rows for rows, _ in equal]).tocsc(), np.concatenate([each for _, each in equal]),
                  whole), gap=GAP, nodes=NODES,
    )  # fmt: skip
    return None if found.x is None else np.round(found.x[:count]).astype(np.int64)
