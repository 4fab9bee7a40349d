"""Shockwave's market: a belief about batch sizes to come, fair ends, and how many rounds of a window each job buys.

Source: Zheng et al. (Shockwave), NSDI '23, and its released code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.estimators.throughput_table import job_kind, throughput, throughput_table
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.model.ordering import arrival_s

REGIMES_KEY = "regimes"  # in a carry
Seen = dict[str, float]  # batch size, as text -> share of the job done with it


@dataclass(frozen=True, slots=True, eq=False)
class RemainingWork:
    """By row of jobs, (N,).

    done: share of the job, 0 to 1.
    remaining_s: expected run time to come [s], at least 1.
    made_s: run time of what is done.
    pace_s: run time of the whole job at the mean pace so far.
    carry: what was seen.
    """

    done: Floats
    remaining_s: Floats
    made_s: Floats
    pace_s: Floats
    carry: Mapping[str, Any]


def remaining_work(snapshot: Snapshot, whole_s: Floats, table: str, reference: str) -> RemainingWork:
    """What is left of each job. whole_s: (N,) run time of the whole job at its present batch size [s].

    A job may have K batch sizes (hint `batches`). Each is expected to take 1 / K of the job. That belief weighs as much
    as one whole job, and the observed shares are added to it. A job without the hint keeps its batch size. A job
    without the hint `progress` has done the share of its run time that it ran.

    table: throughputs; None = all batch sizes are equally fast.
    reference: the GPU type of the table; "" = all batch sizes are equally fast.
    Source: Zheng et al. (Shockwave), NSDI '23, for the Dirichlet posterior over regimes, as in its released code.
    """
    jobs, known = snapshot.jobs, _remembered_regimes(snapshot)
    columns = np.zeros((4, len(jobs)))
    kept: list[Seen] = []
    for row in range(len(jobs)):
        hints, gpus = parse_hints(jobs.comment[row]), int(jobs.gpus[row])
        done = hints.progress
        if done is None:
            done = min(float(jobs.executed_s[row] / whole_s[row]), 1.0) if whole_s[row] > 0 else 0.0
        seen = _observed(known.get(_key(snapshot, row), {}), str(hints.batch or 0), done)
        whole_by = _durations(hints, gpus, float(whole_s[row]), table, reference)
        columns[:, row] = done, *_expected(seen, whole_by, done)
        kept.append(seen)
    share, remaining_s, made_s, pace_s = columns
    return RemainingWork(share, remaining_s, made_s, pace_s, _carry(snapshot, kept))


def _expected(seen: Seen, whole_by: dict[str, float], done: float) -> tuple[float, float, float]:
    """Run time still to come, run time made, and of the whole job at the pace so far [s].

    whole_by: batch size -> run time of the whole job with it.
    """
    share = np.array([seen.get(batch, 0.0) for batch in whole_by])
    whole_s = np.array(list(whole_by.values()))
    belief = (1.0 / len(whole_s) + share) / (1.0 + share.sum())
    to_come = np.maximum(belief - share, 0.0)
    to_come = to_come / to_come.sum() if to_come.sum() > 0 else np.full(len(share), 1.0 / len(share))
    made_s = float((share * whole_s).sum())
    pace_s = made_s / done if done > 0 and made_s > 0 else float(whole_s[0])
    return max((1.0 - done) * float((to_come * whole_s).sum()), 1.0), made_s, max(pace_s, 1.0)


def _observed(before: Seen, batch: str, done: float) -> Seen:
    """The shares done by batch size, what came since the last look being the present one's."""
    new = done - sum(before.values())
    return before if new <= 0 else {**before, batch: before.get(batch, 0.0) + new}


def _durations(hints: Hints, gpus: int, whole_s: float, table: str, reference: str) -> dict[str, float]:
    """Batch size -> run time of the whole job with it [s], the present one first."""
    now = hints.batch or 0
    sizes = [now, *(each for each in hints.batches or () if each != now)]
    rates = {each: _samples_per_s(hints.model or "", each, gpus, table, reference) for each in sizes}
    return {str(each): whole_s * rates[now] / rate for each, rate in rates.items() if rate > 0} or {str(now): whole_s}


def _samples_per_s(model: str, batch: int, gpus: int, table: str, reference: str) -> float:
    if not table:
        return 1.0
    found = throughput(throughput_table(table).get(reference, {}), job_kind(model, batch), gpus)
    return found * max(batch, 1)


def _key(snapshot: Snapshot, row: int) -> str:
    return f"{snapshot.jobs.job_id[row]} {arrival_s(snapshot.jobs)[row]!r}"


def _remembered_regimes(snapshot: Snapshot) -> Mapping[str, Seen]:
    found = snapshot.carry.get(REGIMES_KEY)
    return found if isinstance(found, Mapping) else {}


def _carry(snapshot: Snapshot, kept: list[Seen]) -> dict[str, Any]:
    here = np.flatnonzero(~snapshot.jobs.finished)
    return {REGIMES_KEY: {_key(snapshot, row): kept[row] for row in here.tolist() if kept[row]}}


# The fair end of each job.

FAIR_END_KEY = "fair"  # in a carry
MOMENTUM = 0.9  # weight of the mean over time against the latest value, as released
_FAIR_END_COLUMNS = ("sum", "since_s", "last_s", "at_s")


@dataclass(frozen=True, slots=True, eq=False)
class FairEnds:
    """When jobs would end with their fair share.

    fair_s: (N,) [Unix s].
    carry: to take back at the next look.
    """

    fair_s: Floats
    carry: Mapping[str, Any]


def fair_ends(snapshot: Snapshot, active: Bools, remaining: RemainingWork) -> FairEnds:
    """The fair end of each job: its submission, and its run time over its share of the GPUs then.

    The share is that of one job among those active, at most one GPU; it is told anew when jobs come or end. The mean
    over the time for which each value stood counts 9 parts of 10, the latest value the rest.
    Source: Zheng et al. (Shockwave), NSDI '23, as in its released code.
    """
    jobs, now_s = snapshot.jobs, snapshot.now_s
    carried: Any = snapshot.carry.get(FAIR_END_KEY)
    carried = carried if isinstance(carried, Mapping) and "jobs" in carried else {"jobs": None, "columns": {}}
    known = recall(jobs, carried["columns"], _FAIR_END_COLUMNS)
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.closed].sum())
    share = min(1.0, gpus / max(int(active.sum()), 1)) if gpus else 1.0
    here = sorted(jobs.job_id[active].tolist())
    value_s = (remaining.made_s + remaining.remaining_s) / share
    new = np.isnan(known["at_s"])
    latest_s = value_s if carried["jobs"] != here else np.where(new, value_s, known["last_s"])
    stood_s = np.where(new, 0.0, now_s - known["at_s"])
    total = np.where(new, 0.0, known["sum"] + stood_s * known["last_s"])
    since_s = np.where(new, 0.0, known["since_s"] + stood_s)
    mean_s = np.divide(total, since_s, out=latest_s.copy(), where=since_s > 0)
    columns = dict(zip(_FAIR_END_COLUMNS, (total, since_s, latest_s, np.full(len(jobs), now_s)), strict=True))
    carry = {FAIR_END_KEY: {"jobs": here, "columns": dict(remembered(jobs, columns))}}
    return FairEnds(arrival_s(jobs) + MOMENTUM * mean_s + (1 - MOMENTUM) * latest_s, carry)


# A volatile Fisher market over a window of rounds.

BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])  # where the logarithm is told exactly, as in the released settings
ORIGIN = 1e-6  # whose logarithm stands for that of 0
WEIGHTIEST, ALMOST_OVER = 1e8, 100.0  # a bound (ours), and the power for jobs that would end within a round
MOST_TRIES = 32  # longest rests that are tried at a time


@dataclass(frozen=True, slots=True, eq=False)
class RoundOffer:
    """What is for sale: rounds of round_s [s] on that many GPUs, from now_s on [Unix s].

    k: price of the longest rest.
    power: by which a job that is late weighs more.
    rho_max: how late one may be.
    """

    rounds: int
    gpus: float
    round_s: float
    now_s: float
    k: float
    power: float
    rho_max: float


@dataclass(frozen=True, slots=True, eq=False)
class RoundBuyers:
    """One row a job, (N,).

    gpus: of its gang.
    done: share, 0 to 1.
    remaining_s, pace_s: as in RemainingWork.
    fair_s: when it would have ended with its fair share [Unix s].
    came_s: its submission [Unix s].
    """

    gpus: Int64s
    done: Floats
    remaining_s: Floats
    pace_s: Floats
    fair_s: Floats
    came_s: Floats


def buy_rounds(buyers: RoundBuyers, offer: RoundOffer) -> tuple[Int64s, Floats]:
    """Rounds that each job buys (N,) int64, and its weight (N,).

    The goal is the mean of log(share done by the end of the window) less k times the longest rest. It is as high as
    possible with no job over rho_max times its fair time. Where that is impossible, late jobs weigh ratio ** power.
    Both times count from the job's own submission, as the paper's finish-time fairness does.
    Ours:
    - Whole numbers of rounds. One variable for each round would tell rounds of a job apart to no purpose.
    - Times since the submission. The released code has times since the start of its trace.
    - No solver, see _solved.
    """
    share = min(1.0, offer.gpus / len(buyers.gpus))
    weight = np.ones(len(buyers.gpus))
    rounds = _solved(buyers, offer, weight, _spare_s(buyers, offer, share))
    if rounds is None:
        took_s, fair_s = offer.now_s - buyers.came_s, buyers.fair_s - buyers.came_s
        ratio = (took_s + buyers.remaining_s / share) / np.maximum(fair_s, 1.0)
        power = np.where(buyers.remaining_s < offer.round_s, ALMOST_OVER, offer.power)
        with np.errstate(over="ignore"):
            weight = np.where(ratio > offer.rho_max, np.minimum(ratio**power, WEIGHTIEST), 1.0)
        rounds = _solved(buyers, offer, weight, None)
    return (np.zeros(len(weight), np.int64) if rounds is None else rounds), weight


def jobs_of_rounds(
    rounds: Int64s, buyers: RoundBuyers, offer: RoundOffer, weight: Floats, held: Bools
) -> list[list[int]]:
    """Rows of the jobs of each round of the window.

    The order of the jobs of a round:

    - first those that must run in every round that remains;
    - then by weight, the highest first;
    - then those that run already (held);
    - then by the time they still need, the longest first.

    What is free after that goes to the others in that order. The paper has the longest time alone. It takes the order
    of rounds as the solver finds it where no job is late.
    """
    remaining, made = rounds.copy(), []
    runs = held
    for at in range(offer.rounds):
        must = remaining >= offer.rounds - at
        order = np.lexsort((np.arange(len(remaining)), -buyers.remaining_s, ~runs, -weight, ~must, remaining <= 0))
        chosen, free = list[int](), int(offer.gpus)
        for row in order.tolist():
            if buyers.gpus[row] <= free:
                chosen.append(row)
                free -= int(buyers.gpus[row])
        runs = np.isin(np.arange(len(remaining)), chosen)
        remaining = remaining - (runs & (remaining > 0))
        made.append(chosen)
    return made


def _spare_s(buyers: RoundBuyers, offer: RoundOffer, share: float) -> Floats:
    """Run time that may be left after the window if a job is to end in time (N,), below 0 if it cannot."""
    end_s = offer.now_s + offer.rounds * offer.round_s
    return (offer.rho_max * (buyers.fair_s - buyers.came_s) - (end_s - buyers.came_s)) * share


def _solved(buyers: RoundBuyers, offer: RoundOffer, weight: Floats, spare_s: Floats | None) -> Int64s | None:
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
        least = _rounds_for(buyers.remaining_s - spare_s, offer)
    market = _RoundMarket.of(buyers, offer, weight)
    steps = np.arange(offer.rounds + 1) * offer.round_s
    rests = np.unique(np.maximum(buyers.remaining_s[:, None] - steps, 0.0).round(6))
    found: dict[int, tuple[float, Int64s | None]] = {}

    def at(place: int) -> float:
        if place not in found:
            rounds = market.sold(np.maximum(least, _rounds_for(buyers.remaining_s - rests[place], offer)))
            found[place] = (-np.inf if rounds is None else market.worth(rounds), rounds)
        return found[place][0]

    return found[_highest(at, len(rests))][1]


def _highest(at: Callable[[int], float], places: int) -> int:
    """The place in 0 .. places - 1 of the highest value of a function with one peak, the last of equal ones."""
    low, high = 0, places - 1
    while True:
        tried = np.unique(np.linspace(low, high, MOST_TRIES).astype(np.int64)).tolist()
        best: int = max(tried, key=lambda place: (round(at(place), 12), place))
        if len(tried) > high - low:
            return best
        where = tried.index(best)
        low, high = tried[max(where - 1, 0)], tried[min(where + 1, len(tried) - 1)]


def _rounds_for(run_s: Floats, offer: RoundOffer) -> Int64s:
    """Rounds that hold so much run time. (N,)."""
    return np.maximum(np.ceil(run_s / offer.round_s - 1e-9), 0.0).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _RoundMarket:
    """What rounds are worth to each job.

    gain: (N, R) what each further round of a job adds.
    order: (N * R,) of these cells, best per GPU first.
    """

    buyers: RoundBuyers
    offer: RoundOffer
    gain: Floats
    order: Int64s

    @classmethod
    def of(cls, buyers: RoundBuyers, offer: RoundOffer, weight: Floats) -> _RoundMarket:
        steps = np.arange(offer.rounds + 1) * offer.round_s
        run_s = np.minimum(steps, buyers.remaining_s[:, None])
        share = np.minimum(buyers.done[:, None] + run_s / buyers.pace_s[:, None], 1.0)
        value = np.interp(share, BASES, np.log(np.maximum(BASES, ORIGIN)))
        gain = np.diff(value, axis=1) * weight[:, None] / (len(weight) * offer.rounds)
        cells = np.arange(gain.size)
        per_gpu = (gain / np.maximum(buyers.gpus, 1)[:, None]).ravel()
        rank = np.log(per_gpu, out=np.full(gain.size, -np.inf), where=per_gpu > 0).round(9)  # as any machine has it
        return cls(buyers, offer, gain, np.lexsort((cells // offer.rounds, cells % offer.rounds, -rank)))

    def sold(self, least: Int64s) -> Int64s | None:
        """Rounds of each job, at least that many; None if there are not enough GPUs for these. (N,)."""
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
        rest_s = np.maximum(self.buyers.remaining_s - rounds * self.offer.round_s, 0.0)
        return float((self.gain * had).sum()) - self.offer.k * float(rest_s.max(initial=0.0))
