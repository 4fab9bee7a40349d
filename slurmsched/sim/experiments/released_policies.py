"""Policies as the programs that their authors released, where these differ from the paper.

The published figures were made with those programs, so the tables beside this module name these policies. A replay
takes them too, as `gavel-as-released`. They are not for a live site and `policy list` leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from slurmsched import registry
from slurmsched.allocation import programmes, rounds
from slurmsched.allocation.cpython_random import CPythonRandom
from slurmsched.allocation.finish_time import ISOLATED_KEY, isolated_so_far
from slurmsched.allocation.heterogeneity import HeterogeneousCluster
from slurmsched.allocation.programmes import AllocationProblem
from slurmsched.allocation.rounds import RoundRules, RoundState
from slurmsched.allocation.solver import analytic_center
from slurmsched.errors import ConfigError
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.allox import Allox
from slurmsched.policies.gandiva import Couples, Gandiva, draw_couples
from slurmsched.policies.gavel import OBJECTIVES, Gavel, Programme
from slurmsched.policies.gittins import Gittins

# Allocations as the released simulators compute them, where the paper leaves a choice open.
#
# - An interior-point solver ends near the analytic center of all best points.
# - A job may get time on a type on which it cannot run.
# - The makespan is bisected to 5 %.
# Source: the released code of Narayanan et al. (Gavel, c4fa400) and of Zheng et al. (Shockwave, 8a44f4a), solved by
# ECOS there.


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


# The policies.

WHOLE_STEPS = 0.05  # of a round, less than the longest steps of the public traces


@dataclass(frozen=True, slots=True)
class GavelAsReleased(Gavel):
    """Gavel as in its released simulator (c4fa400), where the paper leaves a choice open (docs/policies/gavel.md)."""

    objectives: ClassVar[Mapping[str, Programme]] = {
        **OBJECTIVES,
        "max-min": max_min,
        "las": max_min,
        "ftf": finish_time_fairness,
        "makespan": makespan,
        "sum-throughput": sum_throughput,
        "isolated": isolated,
    }

    def __post_init__(self) -> None:
        Gavel.__post_init__(self)
        if self.accounts:
            raise ConfigError("the released simulator has no accounts; use gavel", key="policy.accounts")

    def _rules(self) -> RoundRules:
        return _as_released(Gavel._rules(self))

    def _queues(self, snapshot: Snapshot, cluster: HeterogeneousCluster, book: RoundState) -> Int64s:
        return (
            rounds.fastest_first(cluster)
            if self.heterogeneity
            else shuffled_as_released(cluster, snapshot, book.rounds)
        )

    def _types_of(self, cluster: HeterogeneousCluster) -> Bools:
        return cluster.speed >= 0

    def _with_past(
        self, problem: AllocationProblem, rows: Int64s, snapshot: Snapshot, to_come_s: Floats, kept: dict[str, Any]
    ) -> AllocationProblem:
        """For `ftf`, the isolated time of finished work is summed up from one allocation to the next."""
        if self.objective != "ftf":
            return problem
        alone = np.ones(len(to_come_s))
        alone[rows] = (isolated(problem) * problem.speed).sum(axis=1)
        isolated_s, kept[ISOLATED_KEY] = isolated_so_far(snapshot, to_come_s, alone)
        return replace(problem, isolated_s=isolated_s[rows])


@dataclass(frozen=True, slots=True)
class AlloxAsReleased(Allox):
    """AlloX in the rounds of the simulators released with Gavel (c4fa400) and Shockwave (8a44f4a)."""

    def _rules(self) -> RoundRules:
        return _as_released(Allox._rules(self))


@dataclass(frozen=True, slots=True)
class GandivaAsReleased(Gandiva):
    """Gandiva's packing as in the released simulator of Gavel (c4fa400): pairs without speeds are drawn too.

    Such a pair gets time and does not run.
    """

    def _rules(self) -> RoundRules:
        return _as_released(Gandiva._rules(self))

    def _drawn(
        self, snapshot: Snapshot, cluster: HeterogeneousCluster, couples: Couples, rows: list[int], drawn: int
    ) -> tuple[Couples, int]:
        """drawn: random numbers used up so far; the count goes on from one allocation to the next."""
        random = CPythonRandom((snapshot.seed,), drawn)
        return couples | draw_couples(rows, cluster.gpus, random), random.count

    def _may_share(self, speed: Floats) -> Bools:
        return np.ones(speed.shape[:2], np.bool_)

    def _pays(self, shares: Floats, runs: Bools) -> Bools:
        pays: Bools = np.logical_and((shares > 0).all(axis=(1, 2)), shares.sum(axis=(1, 2)) >= 1.0)
        return pays


@dataclass(frozen=True, slots=True)
class GittinsAsReleased(Gittins):
    """Gittins with the index that the released simulator of Tiresias tabulates."""

    def _index(self, history: Floats, service: Floats) -> Floats:
        return released_index(history, service, self.delta_gpu_s)


def _as_released(rules: RoundRules) -> RoundRules:
    """A round is over when all have done their last whole step in it. Jobs wait for an allocation."""
    return replace(rules, early_s=WHOLE_STEPS * rules.round_s, newcomers_wait=True, first_reset_free=True)


RELEASED: Mapping[str, type[Any]] = {
    "allox-as-released": AlloxAsReleased,
    "gandiva-as-released": GandivaAsReleased,
    "gavel-as-released": GavelAsReleased,
    "gittins-as-released": GittinsAsReleased,
}


def load_policy(name: str) -> Any:
    """The class of a policy for a replay. Raises ConfigError for an unknown name."""
    return RELEASED.get(name) or registry.load_plugin("policies", name)


def make_policy(name: str, parameters: Mapping[str, Any]) -> Any:
    """The policy of a replay with its parameters. Raises ConfigError as registry.make_plugin."""
    return registry.build_plugin(load_policy(name), name, parameters)


def shuffled_as_released(cluster: HeterogeneousCluster, snapshot: Snapshot, begun: int) -> Int64s:
    """Columns in the order of chance that the released simulators draw for this round, from 0. (T,) int64.

    They shuffle the types, fastest first, with Python's own generator of seed + 5: its numbers are reproduced here.
    """
    fastest = rounds.fastest_first(cluster).tolist()
    draws = np.random.RandomState([snapshot.seed + 5])
    order = list(fastest)
    for _ in range(begun + 1):
        order = list(fastest)
        for last in range(len(order) - 1, 0, -1):
            place, bits = last + 1, (last + 1).bit_length()
            while place > last:
                place = int(draws.randint(0, 1 << 32, dtype=np.uint32)) >> (32 - bits)
            order[last], order[place] = order[place], order[last]
    return np.array(order, np.int64)


def released_index(history_gpu_s: Floats, attained_gpu_s: Floats, delta_gpu_s: float) -> Floats:
    """The index as Tiresias's released simulator tabulates it. (N,) [1 / GPU s], shapes as gittins_index.

    It differs from the paper's: taken 1 GPU s below the next sample above the attained service; service counts from 0,
    not from what is attained; the last sample never ends. Its integer division is left out.
    Source: simulator/run_sim.py of the released Tiresias, cal_r_gittins_index.
    """
    last = len(history_gpu_s) - 1
    summed = np.concatenate(([0.0], np.cumsum(history_gpu_s)))
    above = np.searchsorted(history_gpu_s, attained_gpu_s, side="right")
    from_gpu_s = history_gpu_s[np.minimum(above, last)] - 1.0
    above = np.searchsorted(history_gpu_s, from_gpu_s, side="right")
    beyond = np.minimum(np.searchsorted(history_gpu_s, from_gpu_s + delta_gpu_s, side="right"), last)
    ending = np.where(attained_gpu_s < history_gpu_s[-1], beyond - above, 0)
    served = summed[beyond] - summed[above] + delta_gpu_s * (len(history_gpu_s) - beyond)
    return np.divide(ending, served, out=np.zeros(len(attained_gpu_s)), where=ending > 0)
