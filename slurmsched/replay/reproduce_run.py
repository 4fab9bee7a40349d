"""Ours beside theirs: the rows of published tables replayed, and the verdict on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from slurmsched.replay.fairness import Fairness, Tenants, jct_alone_s
from slurmsched.replay.replayed import Replayed
from slurmsched.replay.reproduce import PRECISION, Row, Table, shipped_trace
from slurmsched.replay.run import Session
from slurmsched.replay.traces import Trace
from slurmsched.survey.power import Power, of_runs

EQUAL, WITHIN, DIFFERS = "equal", "within", "differs"
_RANK = (EQUAL, WITHIN, DIFFERS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure. theirs: lowest and highest published. tolerance_pct: as the table allows [%]."""

    figure: str
    theirs: tuple[float, float]
    ours: float
    tolerance_pct: float

    @property
    def difference_pct(self) -> float:
        """Of ours from the nearest published value [%]."""
        nearest = min(max(self.ours, self.theirs[0]), self.theirs[1])
        return 100 * (self.ours / nearest - 1) if nearest else 100 * (self.ours - nearest)

    @property
    def verdict(self) -> str:
        low, high = self.theirs
        slack = PRECISION[self.figure] * (1 + 1e-6)
        if low == high and abs(self.ours - low) <= slack:
            return EQUAL
        return WITHIN if abs(self.difference_pct) <= self.tolerance_pct else DIFFERS


@dataclass(frozen=True, slots=True)
class Result:
    """A row with ours beside it. trace_digest: "" if it was not replayed."""

    row: Row
    trace_digest: str = ""
    comparisons: tuple[Comparison, ...] = ()

    @property
    def worst(self) -> str:
        """The worst verdict of its figures."""
        return max((each.verdict for each in self.comparisons), key=_RANK.index)

    @property
    def verdict(self) -> str:
        """`equal`, `within`, `differs` with its reason, or `not reproduced` with its own."""
        if self.row.absent:
            return f"not reproduced: {self.row.absent}"
        return f"{DIFFERS}: {self.row.differs}" if self.worst == DIFFERS and self.row.differs else self.worst

    @property
    def holds(self) -> bool:
        """Whether it is as it must be: no figure differs without a reason."""
        return bool(self.row.absent) or self.worst != DIFFERS or bool(self.row.differs)

    @property
    def record(self) -> dict[str, Any]:
        """Ready for JSON."""
        row = self.row
        figures = {
            each.figure: {"theirs": _single(each.theirs), "ours": each.ours, "difference_pct": each.difference_pct,
                          "tolerance_pct": each.tolerance_pct, "verdict": each.verdict}
            for each in self.comparisons
        }  # fmt: skip
        return {"table": row.table, "source": row.source, "trace": row.trace, "trace_digest": self.trace_digest,
                "cluster": row.cluster, "settings": row.words, "figures": figures, "beside": row.beside,
                "verdict": self.verdict, "holds": self.holds}  # fmt: skip


def result(row: Row) -> Result:
    """A row replayed, if it can be."""
    if row.absent:
        return Result(row)
    trace = shipped_trace(row.trace).first(row.jobs) if row.jobs else shipped_trace(row.trace)
    replayed = Session(trace, row.request).run()
    ours: Mapping[str, float] = replayed.figures
    if row.power:
        ours = {"use_gain_pct": _use_gain_pct(replayed)}
    elif row.against:
        other = Session(trace, replace(row.request, policy=row.against)).run()
        ours = _ratios(row, trace, other, replayed)
    return Result(row, replayed.trace_digest, _compared(row, ours))


def _use_gain_pct(replayed: Replayed) -> float:
    """What powering nodes down would have gained in node use [points]."""
    runs, gpus = replayed.runs, replayed.config["nodes"]
    each = sum(gpus) / len(gpus)
    return of_runs(runs.start_s, runs.end_s, runs.gpus, len(gpus), each, Power()).use_gain_pct


def _ratios(row: Row, trace: Trace, other: Replayed, ours: Replayed) -> dict[str, float]:
    """What the other policy's figures are over ours."""
    told = {"jct_ratio": "avg_jct_s", "wait_ratio": "avg_wait_s", "makespan_ratio": "makespan_s"}
    made = {name: other.figures[of] / ours.figures[of] for name, of in told.items() if name in row.figures}
    met = [float(each.figures.get("deadlines_met", np.nan)) for each in (other, ours)]
    if "met_ratio" in row.figures:
        made["met_ratio"] = met[1] / met[0]
    if "missed_ratio" in row.figures:
        missed = [max(round((1 - each) * ours.figures["deadlines"]), 1) for each in met]
        made["missed_ratio"] = missed[0] / missed[1]
    if "fairness_ratio" in row.figures:
        made["fairness_ratio"] = _worst(trace, other) / _worst(trace, ours)
    return made


def _worst(trace: Trace, replayed: Replayed) -> float:
    """rho of the tenant who fares worst, or the slowdown of the job that does, where no tenants are known."""
    tenants = Tenants.find(trace)
    alone_s = jct_alone_s(trace, tenants, sum(replayed.config["nodes"]))
    fair = Fairness.of(trace, tenants, alone_s, replayed.outcomes)
    return float(np.nanmax(fair.rho if len(fair.rho) else fair.slowdown))


def results(table: Table) -> Iterator[Result]:
    """Its rows replayed one after the other; in the end the mean over them, where the table asks for it."""
    made: list[Result] = []
    for row in table.rows:
        made.append(result(row))
        yield made[-1]
    if table.mean_tolerance_pct:
        yield _mean(table, made)


def _compared(row: Row, ours: Mapping[str, float]) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(figure, theirs, float(ours[figure]), row.tolerance_of(figure))
        for figure, theirs in row.figures.items()
    )


def _mean(table: Table, made: Sequence[Result]) -> Result:
    """The mean JCT over all rows, as one more row."""
    first = [each.comparisons[0] for each in made]
    theirs = fmean(each.theirs[0] for each in first)
    compared = Comparison("avg_jct_s", (theirs, theirs), fmean(each.ours for each in first), table.mean_tolerance_pct)
    row = Row(table.name, table.source, trace="mean of all", cluster=made[0].row.cluster, settings=made[0].row.words)
    return Result(row, "", (compared,))


def _single(pair: tuple[float, float]) -> float | list[float]:
    return pair[0] if pair[0] == pair[1] else list(pair)
