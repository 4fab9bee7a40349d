"""How well the slurmctld model repeats a recorded schedule: errors of the waits, and the order of starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes, in_size_class
from slurmsched.model.trace import Trace
from slurmsched.observe.html_page import TimeUnit, unit_for_jobs
from slurmsched.plain_text import pluralize

GOOD_ORDER, POOR_ORDER = 0.95, 0.80  # shares of pairs
GOOD_ERROR, POOR_ERROR = 0.05, 0.50  # of the mean wait
LEAST_WAIT_S = 60.0  # a mean wait below it is too short for an error in per cent to say anything
SMALL = 64  # rows of which all pairs are compared at once


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Waits from submission to first start [s]."""

    mean_s: float
    p50_s: float
    p95_s: float

    @classmethod
    def of(cls, wait_s: Floats) -> WaitFigures:
        p50_s, p95_s = np.percentile(wait_s, (50, 95)).tolist()
        return cls(float(wait_s.mean()), p50_s, p95_s)

    def figures(self) -> dict[str, float]:
        return {"mean_s": self.mean_s, "p50_s": self.p50_s, "p95_s": self.p95_s}


@dataclass(frozen=True, slots=True)
class BackTestRow:
    """Recorded and modelled starts of some jobs.

    pairs: of jobs with recorded starts a second or more apart.
    in_order: share of them that the model starts in the same order, NaN of none.
    """

    name: str
    jobs: int
    recorded: WaitFigures
    modelled: WaitFigures
    pairs: int
    in_order: float

    @classmethod
    def of(cls, name: str, submit_s: Floats, recorded_s: Floats, modelled_s: Floats) -> BackTestRow:
        pairs, agreeing = pairs_in_order(recorded_s, modelled_s)
        return cls(name, len(submit_s), WaitFigures.of(recorded_s - submit_s), WaitFigures.of(modelled_s - submit_s),
                   pairs, agreeing / pairs if pairs else np.nan)  # fmt: skip

    @property
    def mean_error(self) -> float | None:
        """Modelled mean wait over the recorded one, less one; None where hardly any job waited."""
        return self._error("mean_s")

    def _error(self, name: str) -> float | None:
        recorded, modelled = getattr(self.recorded, name), getattr(self.modelled, name)
        return modelled / recorded - 1 if recorded >= LEAST_WAIT_S else None

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        errors = {name.replace("_s", "_error"): self._error(name) for name in ("mean_s", "p50_s", "p95_s")}
        return {"name": self.name, "jobs": self.jobs, "recorded": self.recorded.figures(),
                "modelled": self.modelled.figures(), **errors, "pairs": self.pairs,
                "in_order": None if np.isnan(self.in_order) else self.in_order}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BackTest:
    """The recorded schedule beside Slurm alone in the model. whole: of all jobs that count and started in both."""

    whole: BackTestRow
    by_size: tuple[BackTestRow, ...]
    by_partition: tuple[BackTestRow, ...]
    without_start: int  # jobs that count, but started in one of the two only

    @property
    def rows(self) -> Sequence[BackTestRow]:
        return (self.whole, *self.by_size, *self.by_partition)

    @property
    def good(self) -> bool:
        """Whether the model repeats the history closely."""
        error = self.whole.mean_error
        return error is not None and abs(error) <= GOOD_ERROR and self.whole.in_order >= GOOD_ORDER

    @property
    def verdict(self) -> str:
        """How far to trust what the model says of other policies."""
        error, order = self.whole.mean_error, self.whole.in_order
        if error is None and self.whole.modelled.mean_s < LEAST_WAIT_S:
            return "hardly any job waited, in the record as in the model: there is little to compare policies by."
        if error is None or abs(error) > POOR_ERROR or order < POOR_ORDER:
            check = "Check the cluster, its partitions and the time limits (docs/fidelity.md)."
            return f"do not decide by the figures below: {self._found}. {check}"
        if self.good:
            return f"the model repeats this history well: {self._found}."
        return f"differences of less than {abs(error):.0%} between policies may be the model's: {self._found}."

    @property
    def _found(self) -> str:
        error = self.whole.mean_error
        wait = "jobs that hardly waited wait in the model" if error is None else f"the mean wait is off by {error:+.1%}"
        return f"{wait}, and {self.whole.in_order:.1%} of the pairs start in the recorded order"

    def figures(self) -> dict[str, Any]:
        """For JSON."""
        return {"jobs": self.whole.jobs, "without_start": self.without_start, "all": self.whole.figures(),
                "by_size": [row.figures() for row in self.by_size],
                "by_partition": [row.figures() for row in self.by_partition], "verdict": self.verdict}  # fmt: skip


def back_test(trace: Trace, outcomes: JobOutcomes) -> BackTest | None:
    """The recorded starts of the jobs that count beside those of `outcomes`; None where fewer than two started in both.

    outcomes: of Slurm alone in the model.
    """
    place = {job: row for row, job in enumerate(outcomes.job_id.tolist())}
    at = np.array([place.get(job, -1) for job in trace.job_id.tolist()], np.int64)
    modelled_s = np.append(outcomes.first_start_s, np.nan)[at]
    known = trace.counted & ~np.isnan(trace.start_s)
    both = known & ~np.isnan(modelled_s)
    if int(both.sum()) < 2:
        return None

    def row(name: str, chosen: Bools) -> BackTestRow:
        return BackTestRow.of(name, trace.submit_s[chosen], trace.start_s[chosen], modelled_s[chosen])

    return BackTest(
        row("all jobs", both), tuple(row(name, chosen) for name, chosen in _sizes(trace, both)),
        tuple(row(name, chosen) for name, chosen in _partitions(trace, both)), int(known.sum() - both.sum()),
    )  # fmt: skip


def _sizes(trace: Trace, both: Bools) -> Iterator[tuple[str, Bools]]:
    for name, least, most in SIZE_CLASSES:
        chosen = both & in_size_class(trace.gpus, least, most)
        if chosen.any():
            yield f"{name} GPU" if name == "1" else f"{name} GPUs", chosen


def _partitions(trace: Trace, both: Bools) -> Iterator[tuple[str, Bools]]:
    """None where there is only one."""
    names = [name for name in trace.partition.names if name and (both & trace.partition.isin([name])).any()]
    for name in names if len(names) > 1 else ():
        yield f"partition {name}", both & trace.partition.isin([name])


def pairs_in_order(recorded_s: Floats, modelled_s: Floats) -> tuple[int, int]:
    """Pairs of jobs that were recorded to start in different seconds, and how many of them the model starts in that
    order. (J,), (J,)."""
    second = np.floor(recorded_s)
    order = np.lexsort((-modelled_s, second))  # of one second: none counts as in order
    _, together = np.unique(second, return_counts=True)
    pairs = len(second) * (len(second) - 1) // 2 - int((together * (together - 1) // 2).sum())
    _, rank = np.unique(modelled_s[order], return_inverse=True)
    return pairs, _ascending_pairs(rank.astype(np.int64))


def _ascending_pairs(values: Int64s) -> int:
    """Pairs of places i < j with values[i] < values[j], by merging halves."""
    if len(values) <= SMALL:
        return int(np.triu(values[:, None] < values[None, :], 1).sum())
    half = len(values) // 2
    first_half = np.sort(values[:half])
    across = int(np.searchsorted(first_half, values[half:], side="left").sum())
    return across + _ascending_pairs(values[:half]) + _ascending_pairs(values[half:])


BACK_TEST_COLUMNS = ("jobs", "mean wait, recorded [{unit}]", "model [{unit}]", "error", "p50, recorded [{unit}]",
           "model [{unit}]", "p95, recorded [{unit}]", "model [{unit}]", "pairs in order")  # fmt: skip


def back_test_table(figures: Mapping[str, Any]) -> tuple[TimeUnit, list[tuple[str, ...]]]:
    """The unit of the times, and a row for all jobs, each size and each partition: the name, then BACK_TEST_COLUMNS.

    figures: of BackTest.figures.
    """
    rows = [figures["all"], *figures["by_size"], *figures["by_partition"]]
    unit = unit_for_jobs(max(figures["all"]["recorded"]["mean_s"], figures["all"]["modelled"]["mean_s"]))
    return unit, [_cells(row, unit) for row in rows]


def _cells(row: Mapping[str, Any], unit: TimeUnit) -> tuple[str, ...]:
    waits = [
        unit.text(row[schedule][name]) for name in ("mean_s", "p50_s", "p95_s") for schedule in ("recorded", "modelled")
    ]
    error = "-" if row["mean_error"] is None else f"{row['mean_error']:+.1%}"
    order = "-" if row["in_order"] is None else f"{row['in_order']:.1%}"
    return (row["name"], f"{row['jobs']:,}", *waits[:2], error, *waits[2:], order)


def back_test_lead(figures: Mapping[str, Any]) -> str:
    """What the table is of."""
    apart = figures["without_start"]
    others = f"; {pluralize(apart, 'job')} did not start in the model" if apart else ""
    return (
        f"Back-test: the recorded schedule beside Slurm alone in the model, {pluralize(figures['jobs'], 'job')}{others}"
    )
