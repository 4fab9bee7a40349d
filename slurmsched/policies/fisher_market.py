"""A volatile Fisher market over a window of rounds: how many rounds each job buys, and which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s

BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])  # where the logarithm is told exactly, as in the released settings
ORIGIN = 1e-6  # whose logarithm stands for that of 0
WEIGHTIEST, ALMOST_OVER = 1e8, 100.0  # a bound (ours), and the power for jobs that would end within a round
MOST_TRIES = 32  # longest rests that are tried at a time


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
    Ours: whole numbers of rounds instead of one variable a round, which tells rounds of one job apart for nothing; the
    submission, since the released code divides times from the start of its trace; and no solver (see _solved).
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
    """Rounds of each job, None if not all can be in time.

    For a given longest rest each job must have so many rounds; the others go one after the other to where a round adds
    most per GPU. The longest rest of the highest sum is searched for. Every value falls from round to round, so that
    this is the best but for a part of the last gang; and unlike with a solver that stops near the best, equal choices
    are decided by rule: fewer rounds first, then the job that comes first.
    """
    least = np.zeros(len(buyers.gpus), np.int64)
    if spare_s is not None:
        if (spare_s < 0).any():
            return None
        least = _rounds_for(buyers.left_s - spare_s, offer)
    market = _Market.of(buyers, offer, weight)
    steps = np.arange(offer.rounds + 1) * offer.round_s
    rests = np.unique(np.maximum(buyers.left_s[:, None] - steps, 0.0).round(6))
    found: dict[int, tuple[float, Int64s | None]] = {}

    def at(place: int) -> float:
        if place not in found:
            rounds = market.sold(np.maximum(least, _rounds_for(buyers.left_s - rests[place], offer)))
            found[place] = (-np.inf if rounds is None else market.worth(rounds), rounds)
        return found[place][0]

    low, high = 0, len(rests) - 1
    while True:
        tried = np.unique(np.linspace(low, high, MOST_TRIES).astype(np.int64)).tolist()
        best = max(tried, key=lambda place: (round(at(place), 12), place))
        if len(tried) > high - low:
            return found[best][1]
        where = tried.index(best)
        low, high = tried[max(where - 1, 0)], tried[min(where + 1, len(tried) - 1)]


def _rounds_for(run_s: Floats, offer: Offer) -> Int64s:
    """Rounds that hold so much run time. (N,)."""
    return np.maximum(np.ceil(run_s / offer.round_s - 1e-9), 0.0).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Market:
    """gain: (N, R) what each further round of a job adds. order: (N * R,) of these cells, best per GPU first."""

    buyers: Buyers
    offer: Offer
    gain: Floats
    order: Int64s

    @classmethod
    def of(cls, buyers: Buyers, offer: Offer, weight: Floats) -> _Market:
        steps = np.arange(offer.rounds + 1) * offer.round_s
        run_s = np.minimum(steps, buyers.left_s[:, None])
        share = np.minimum(buyers.done[:, None] + run_s / buyers.pace_s[:, None], 1.0)
        value = np.interp(share, BASES, np.log(np.maximum(BASES, ORIGIN)))
        gain = np.diff(value, axis=1) * weight[:, None] / (len(weight) * offer.rounds)
        cells = np.arange(gain.size)
        per_gpu = (gain / np.maximum(buyers.gpus, 1)[:, None]).ravel()
        rank = np.log(per_gpu, out=np.full(gain.size, -np.inf), where=per_gpu > 0).round(9)  # as any machine has it
        return cls(buyers, offer, gain, np.lexsort((cells // offer.rounds, cells % offer.rounds, -rank)))

    def sold(self, least: Int64s) -> Int64s | None:
        """Rounds of each job, at least so many; None if there are not enough GPUs for these. (N,)."""
        rounds, gpus, count = least.copy(), self.buyers.gpus, self.offer.rounds
        free = int(self.offer.gpus * count) - int((least * gpus).sum())
        if free < 0 or (least > count).any():
            return None
        row, number = self.order // count, self.order % count
        row = row[(number >= least[row]) & (self.gain.ravel()[self.order] > 0)]
        whole = int(np.searchsorted(np.cumsum(gpus[row]), free, side="right"))
        rounds += np.bincount(row[:whole], minlength=len(rounds))
        free -= int(gpus[row[:whole]].sum())
        passed = set[int]()
        for job in row[whole:].tolist():
            if free <= 0:
                break
            if gpus[job] > free:
                passed.add(job)
            elif job not in passed:
                rounds[job] += 1
                free -= int(gpus[job])
        return rounds

    def worth(self, rounds: Int64s) -> float:
        """What these rounds add, less the price of the longest rest."""
        had = np.arange(self.offer.rounds) < rounds[:, None]
        rest_s = np.maximum(self.buyers.left_s - rounds * self.offer.round_s, 0.0)
        return float((self.gain * had).sum()) - self.offer.k * float(rest_s.max(initial=0.0))
