"""Jobs and sizes of an interval by a knapsack over GPUs, CPUs and memory: SMD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import JobSizes, sizes_of, thinned, without_curve
from slurmsched.allocation.job_times import active, cluster_gpus, remaining_or_unknown_s
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_ranking, too_large, too_large_note
from slurmsched.allocation.solver import Programme, solve
from slurmsched.estimators.requested_time import Hint
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.model import PolicyFamily, PolicyInfo, PolicyInput, PolicyLever, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, Part, Period, SlotCount, check_ranges
from slurmsched.protocols import Estimator, SpeedEstimator

LEAST_S = 1.0  # a job that is about to end counts as so long from its end


@dataclass(frozen=True, slots=True)
class Smd:
    """Each interval starts the waiting jobs, each at one of its sizes, whose sum of speed over time left is best.

    The sum is bounded by the free GPUs, CPUs and memory. It is a knapsack of several resources and one choice a job. A
    linear programme solves it in fractions, which are rounded at random several times. The best rounding that fits
    counts. Jobs and larger sizes that fit beside it are added. Jobs keep their size until they end. A job with hints
    min_gpus and max_gpus may have any size between them.
    interval_s: time between two choices [s].
    roundings: how often the fractions are rounded.
    most_jobs: most jobs of one programme, the earliest; others wait.
    serial: share of a job's work that more GPUs do not speed up (Amdahl's law).
    speeds: a table of throughputs by number of GPUs replaces Amdahl's law.
    estimator: source of expected run times, at the size that a job asks for.
    Raises ConfigError for a parameter out of range.
    Source: Yu et al. (SMD), INFOCOM '21. Ours: a job is its GPUs, so each ratio is known for each size, and no search
    over ratios is needed. The utility of a job is the inverse of the time that it has left.
    """

    preemptive: ClassVar[bool] = False
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.ELASTIC,
        "Yu et al.: SMD, INFOCOM 2021",
        left_out=(
            "Parameter servers: a job is its GPUs.",
            "The model of a network's layers: scaling is by `speeds`.",
        ),
        needs=(PolicyInput.DURATION, PolicyInput.SIZES, PolicyInput.SPEED),
        uses=(PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.START),
        packages=("scipy",),
        criteria={"given_gpus": "given {} GPUs"},
    )

    interval_s: Period = 60.0
    roundings: SlotCount = 16
    most_jobs: Count = 300
    serial: Part = 0.02
    speeds: SpeedEstimator = field(default_factory=EqualSpeeds)
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)

    def rank(self, snapshot: Snapshot) -> Ranking:
        who, before, large = active(snapshot), SizeRound.of(snapshot, "smd"), too_large(snapshot)
        if before.over(snapshot):
            given, number = self._given(snapshot, who & ~large), int(snapshot.carry.get("smd_rounds", 0)) + 1
            before = before.begun(snapshot, given, self.interval_s)
        else:
            number = int(snapshot.carry.get("smd_rounds", 0))
        order = ordered(snapshot.jobs, before.given == 0)
        notes = without_curve(snapshot, who, self.speeds) + too_large_note(large)
        ranking = size_ranking(snapshot, order, before, notes)
        return Ranking(order, ranking.why, {**ranking.carry, "smd_rounds": number}, notes, ranking.changes)

    def _given(self, snapshot: Snapshot, who: Bools) -> Int64s:
        """GPUs of each job from now on. (N,)."""
        now = gpus_now(snapshot)
        made = np.where(who, now, 0)
        rows = ordered(snapshot.jobs)
        rows = rows[(who & (now == 0))[rows]][: self.most_jobs]
        if not len(rows):
            return made
        total = max(cluster_gpus(snapshot), 1)
        sizes = [thinned(each) for each in sizes_of(snapshot, rows.tolist(), self.serial, self.speeds, total)]
        left_s = np.maximum(remaining_or_unknown_s(self.estimator, snapshot)[rows], LEAST_S)
        use = [_resources(snapshot, row, each) for row, each in zip(rows.tolist(), sizes, strict=True)]
        worth = [each.speed / run_s for each, run_s in zip(sizes, left_s.tolist(), strict=True)]
        chance = np.random.default_rng((abs(snapshot.seed), int(snapshot.carry.get("smd_rounds", 0))))
        free = _free(snapshot, now)
        chosen = rounded(shares(worth, use, free), worth, use, free, self.roundings, chance)
        chosen = with_more(chosen, worth, use, free)
        made[rows] = [each.gpus[at] if at >= 0 else 0 for each, at in zip(sizes, chosen.tolist(), strict=True)]
        return made

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When jobs may start next [Unix s]; infinity if there are no jobs."""
        return SizeRound.next_s(snapshot, ranking, "smd")


def _resources(snapshot: Snapshot, row: int, sizes: JobSizes) -> Floats:
    """GPUs, CPUs and memory [MiB] of a job at each size; the latter two grow with its GPUs. (K, 3)."""
    jobs = snapshot.jobs
    part = sizes.gpus / max(int(jobs.gpus[row]), 1)
    return np.column_stack([sizes.gpus, part * float(jobs.cpus[row]), part * float(jobs.memory_mib[row])])


def _free(snapshot: Snapshot, now: Int64s) -> Floats:
    """GPUs that no job holds, and CPUs and memory [MiB] not in use on open nodes; infinity where not known. (3,)."""
    nodes = snapshot.nodes
    opened = ~nodes.closed
    cpus, memory = ((have - used)[opened].sum() if have.any() else np.inf for have, used in
                    ((nodes.cpus, nodes.cpus_used), (nodes.memory_mib, nodes.memory_used_mib)))  # fmt: skip
    return np.array([cluster_gpus(snapshot) - int(now.sum()), cpus, memory], np.float64)


def shares(worth: Sequence[Floats], use: Sequence[Floats], free: Floats) -> list[Floats]:
    """Fraction of each size of each job in the best sum of worth, at most one in all of a job. (K,) each.

    worth: of each size. use: (K, R) of each size. free: (R,). Without a solution all are 0.
    """
    from scipy.sparse import csr_matrix, vstack

    owner = np.repeat(np.arange(len(worth)), [len(each) for each in worth])
    value, taken = np.concatenate(worth), np.concatenate(use)
    one_each = csr_matrix((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(len(worth), len(owner)))
    bounded = np.isfinite(free)
    rows = vstack([one_each, csr_matrix(taken[:, bounded].T)])
    most = np.concatenate([np.ones(len(worth)), np.maximum(free[bounded], 0.0)])
    high = np.where((taken <= free).all(axis=1), 1.0, 0.0)
    found = solve(Programme(-value / max(float(value.max()), 1e-12), np.zeros(len(owner)), high, rows, most)).x
    every = np.zeros(len(owner)) if found is None else np.clip(found, 0.0, 1.0)
    return np.split(every, np.cumsum([len(each) for each in worth])[:-1])


def rounded(
    share: Sequence[Floats],
    worth: Sequence[Floats],
    use: Sequence[Floats],
    free: Floats,
    times: int,
    chance: np.random.Generator,
) -> Int64s:
    """Row of each job's size, -1 for none: each drawn by its fractions; of those that fit the one of most worth. (J,).

    Of a draw that does not fit, jobs are left out from the last on until it does.
    """
    best, most = np.full(len(share), -1, np.int64), -1.0
    for _ in range(times):
        drawn = np.array([_drawn(each, point) for each, point in zip(share, chance.random(len(share)), strict=True)])
        remaining, total, kept = free.copy(), 0.0, np.full(len(share), -1, np.int64)
        for job in np.flatnonzero(drawn >= 0).tolist():
            if (use[job][drawn[job]] <= remaining + 1e-9).all():
                remaining, kept[job] = remaining - use[job][drawn[job]], drawn[job]
                total += float(worth[job][drawn[job]])
        if total > most:
            best, most = kept, total
    return best


def _drawn(share: Floats, point: float) -> int:
    """The size at this point of the fractions, -1 beyond them."""
    at = int(np.searchsorted(np.cumsum(share), point, side="right"))
    return at if at < len(share) else -1


def with_more(chosen: Int64s, worth: Sequence[Floats], use: Sequence[Floats], free: Floats) -> Int64s:
    """The choices, and beside them what fits: again and again the job or larger size that adds most worth. (J,)."""
    made, owner = chosen.copy(), np.repeat(np.arange(len(worth)), [len(each) for each in worth])
    begins = np.cumsum([0, *(len(each) for each in worth)])
    value, taken = np.concatenate(worth), np.concatenate(use)
    while True:
        at, has = np.where(made >= 0, begins[:-1] + made, 0), (made >= 0)[:, None]
        now, held = np.where(made >= 0, value[at], 0.0), np.where(has, taken[at], 0.0)
        remaining = free - held.sum(axis=0)
        gain = np.where((taken - held[owner] <= remaining + 1e-9).all(axis=1), value - now[owner], 0.0)
        if not gain.any() or gain.max() <= 1e-12:
            return made
        best = int(gain.argmax())
        made[owner[best]] = best - begins[owner[best]]
