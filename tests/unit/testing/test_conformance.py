"""Conformance checks find what they promise to find: one bad plug-in a rule."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pytest

from slurmsched.model import Estimates, JobChanges, Labels, Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.ordering import ordered
from slurmsched.policies.fifo import Fifo
from slurmsched.protocols import Estimator, Policy
from slurmsched.testing import NonconformingError, check_estimator, check_policy


@dataclass
class Unfrozen:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Fifo().rank(snapshot)


@dataclass(frozen=True)
class ReadsClock:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs, snapshot.jobs.submit_s - time.time()))


@dataclass(frozen=True)
class ReadsDate:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs, snapshot.jobs.submit_s - datetime.now().timestamp()))


@dataclass(frozen=True)
class DrawsLots:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(np.argsort([random.random() for _ in range(len(snapshot.jobs))]))


@dataclass(frozen=True)
class DrawsNumpyLots:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(np.random.permutation(len(snapshot.jobs)))


@dataclass(frozen=True)
class KeepsState:
    seen: list[int] = field(default_factory=list)

    def rank(self, snapshot: Snapshot) -> Ranking:
        self.seen.append(len(snapshot.jobs))
        return Ranking(ordered(snapshot.jobs), why={"calls": np.full(len(snapshot.jobs), len(self.seen))})


@dataclass(frozen=True)
class WritesColumn:
    def rank(self, snapshot: Snapshot) -> Ranking:
        snapshot.jobs.gpus.flags.writeable = True
        snapshot.jobs.gpus[:] += 1
        return Fifo().rank(snapshot)


@dataclass(frozen=True)
class BreaksTiesByRow:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(np.argsort(snapshot.jobs.gpus, kind="stable"))


@dataclass(frozen=True)
class LeavesJobsOut:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs)[: len(snapshot.jobs) // 2])


@dataclass(frozen=True)
class SaysNan:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), why={"start_s": snapshot.jobs.start_s})


@dataclass(frozen=True)
class SaysTooMuch:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), why={"total": np.zeros(3)})


@dataclass(frozen=True)
class FailsOnEmpty:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs, snapshot.jobs.gpus - snapshot.jobs.gpus.max()))


@dataclass(frozen=True)
class ReturnsList:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return list(range(len(snapshot.jobs)))  # type: ignore[return-value]


@dataclass(frozen=True)
class CarriesArray:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), carry={"ids": snapshot.jobs.job_id})


@dataclass(frozen=True)
class CarriesTuple:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs), carry={"ids": tuple(snapshot.jobs.job_id.tolist())})


@dataclass(frozen=True)
class TrustsCarry:
    def rank(self, snapshot: Snapshot) -> Ranking:
        seen = snapshot.carry["seen"] if snapshot.carry else 0
        return Ranking(ordered(snapshot.jobs), carry={"seen": seen + 1})


@dataclass(frozen=True)
class OneType:
    def rank(self, snapshot: Snapshot) -> Ranking:
        parts = [f"gpu:v100:{gpus}" for gpus in snapshot.jobs.gpus.tolist()]
        return Ranking(ordered(snapshot.jobs), changes=JobChanges(gpus_by_type=Labels.of(parts)))


@dataclass(frozen=True)
class OneMore:
    def rank(self, snapshot: Snapshot) -> Ranking:
        parts = [f"gpu:k80:1,gpu:v100:{gpus}" for gpus in snapshot.jobs.gpus.tolist()]
        return Ranking(ordered(snapshot.jobs), changes=JobChanges(gpus_by_type=Labels.of(parts)))


@dataclass(frozen=True)
class CountsHours:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Ranking(ordered(snapshot.jobs, snapshot.jobs.submit_s % 3_600.0))


@dataclass(frozen=True)
class StartsOnTheHour:
    def rank(self, snapshot: Snapshot) -> Ranking:
        hour_s = np.full(len(snapshot.jobs), (snapshot.now_s // 3_600.0 + 1) * 3_600.0)
        return Ranking(ordered(snapshot.jobs), changes=JobChanges(start_s=hour_s))


@dataclass(frozen=True)
class ChangesOnTheHour:
    def rank(self, snapshot: Snapshot) -> Ranking:
        return Fifo().rank(snapshot)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        return (snapshot.now_s // 3_600.0 + 1) * 3_600.0


@dataclass(frozen=True)
class LosesTimes:
    """Its carry counts from the clock's zero, which shows at the second look."""

    def rank(self, snapshot: Snapshot) -> Ranking:
        hour = snapshot.carry.get("hour", 0)
        late = np.full(len(snapshot.jobs), float(hour) > 0)
        carry = {"hour": int(snapshot.now_s > 1e7)}
        return Ranking(ordered(snapshot.jobs, late), why={"late": late}, carry=carry)


@dataclass(frozen=True)
class NotBoolean:
    preemptive = "sometimes"

    def rank(self, snapshot: Snapshot) -> Ranking:
        return Fifo().rank(snapshot)


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (Unfrozen(), "frozen"), (ReadsClock(), "pure"), (ReadsDate(), "pure"), (DrawsLots(), "pure"),
        (DrawsNumpyLots(), "repeatable"), (KeepsState(), "repeatable"), (WritesColumn(), "pure"),
        (BreaksTiesByRow(), "row order"), (LeavesJobsOut(), "total order"), (SaysNan(), "finite"),
        (SaysTooMuch(), "finite"), (FailsOnEmpty(), "accepts"), (ReturnsList(), "result"), (CarriesArray(), "carry"),
        (CarriesTuple(), "carry"), (TrustsCarry(), "accepts"), (NotBoolean(), "preemptive"),
        (OneType(), "changes"), (OneMore(), "changes"), (CountsHours(), "clock"), (StartsOnTheHour(), "clock"),
        (ChangesOnTheHour(), "clock"), (LosesTimes(), "clock"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_check_policy__finds_a_broken_rule(policy: Policy, rule: str) -> None:
    """Each policy breaks one rule, and the error names it."""
    with pytest.raises(NonconformingError) as caught:
        check_policy(policy)
    assert caught.value.rule == rule


@dataclass(frozen=True)
class Unlimited:
    def estimate(self, snapshot: Snapshot) -> Estimates:
        total_s = snapshot.jobs.time_limit_s
        return Estimates(total_s, np.zeros(len(total_s), np.int8), ("limit",))


@dataclass(frozen=True)
class WholeSeconds:
    def estimate(self, snapshot: Snapshot) -> Estimates:
        rows = len(snapshot.jobs)
        return Estimates(np.ones(rows, np.int64), np.zeros(rows, np.int8), ("one",))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Nameless:
    def estimate(self, snapshot: Snapshot) -> Estimates:
        rows = len(snapshot.jobs)
        return Estimates(np.ones(rows), np.ones(rows, np.int8), ("one",))


@dataclass(frozen=True)
class ByRow:
    def estimate(self, snapshot: Snapshot) -> Estimates:
        rows = len(snapshot.jobs)
        return Estimates(np.arange(rows, dtype=np.float64), np.zeros(rows, np.int8), ("row",))


@pytest.mark.parametrize(
    ("estimator", "rule"),
    [(Unlimited(), "finite"), (WholeSeconds(), "finite"), (Nameless(), "source"), (ByRow(), "row order")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_check_estimator__finds_a_broken_rule(estimator: Estimator, rule: str) -> None:
    """Each estimator breaks one rule, and the error names it."""
    with pytest.raises(NonconformingError) as caught:
        check_estimator(estimator)
    assert caught.value.rule == rule


def test_check_policy__takes_gangs_on_several_types() -> None:
    """In sum what each is to hold, whatever it asks for."""

    @dataclass(frozen=True)
    class Both:
        def rank(self, snapshot: Snapshot) -> Ranking:
            rows = len(snapshot.jobs)
            parts, five = Labels.constant("gpu:k80:2,gpu:v100:3", rows), np.full(rows, 5, np.int32)
            return Ranking(ordered(snapshot.jobs), changes=JobChanges(gpus=five, gpus_by_type=parts))

    assert check_policy(Both()) is None


def test_check_policy__takes_the_authors_own_snapshots() -> None:
    """Snapshots given are tried first: here one on which the policy fails and the built-in ones do not."""

    @dataclass(frozen=True)
    class FailsOnSeed:
        def rank(self, snapshot: Snapshot) -> Ranking:
            if snapshot.seed == 77:
                raise ZeroDivisionError
            return Fifo().rank(snapshot)

    from slurmsched.testing import mixed_snapshot

    assert check_policy(FailsOnSeed()) is None
    with pytest.raises(NonconformingError, match="ZeroDivisionError"):
        check_policy(FailsOnSeed(), [mixed_snapshot(4, seed=77)])
