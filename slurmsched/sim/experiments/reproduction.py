"""Published tables of other simulators: what they say, our replays of their rows, and the verdicts."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import slurmsched
from slurmsched.errors import InputError
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import FairnessFigures, JobTenants, jct_alone_s
from slurmsched.observe.survey.power_saving import PowerRules, power_saving_of_runs
from slurmsched.sim.experiments.gpu_sharing import AT_PCT, shared_gpu_figures
from slurmsched.sim.experiments.replay_request import RECORDED_PHYSICS, ReplayRequest
from slurmsched.sim.experiments.replay_result import ReplayResult
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import shipped_trace

_FOLDER = (Path(slurmsched.__file__).parents[1] / "slurmsched/sim/experiments/published/fifo.toml").parent
# half of the last digit that the sources print
PRECISION = {
    "avg_jct_s": 0.005, "p50_jct_s": 0.05, "p95_jct_s": 0.05, "p99_jct_s": 0.05, "makespan_s": 0.5, "preemptions": 0.0,
    "jct_ratio": 0.005, "wait_ratio": 0.005, "makespan_ratio": 0.005, "fairness_ratio": 0.005,
    "met_ratio": 0.005, "missed_ratio": 0.05,
    "use_gain_pct": 0.05, "worst_rho": 0.0005, "unfair_pct": 0.005,
    **{f"{what}_{pct}_pct": 0.0005 for what in ("allocated", "fragments") for pct in AT_PCT},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published replay. What it leaves open its table says.

    trace: of those shipped.
    jobs: only this number of first jobs; 0 = all.
    cluster, policy, placement, backfill, physics: as `slurmsched replay` takes them.
    against: the policy that a claim compares with. Figures are then ratios: its figure over that of `policy`. They are
        mean JCT, mean wait, makespan, deadlines missed (none counts as one), and rho of the tenant with the worst.
        Without tenants rho is the largest slowdown of a job. Deadlines met are those of `policy` over the other's.
    sharing: a workload of requests of parts of GPUs (experiments.gpu_sharing), placed `runs` times.
    power: the figure is what powering idle nodes down by a forecast gains (survey.power_saving), not of the replay.
    settings: fields of PublishedSettings.
    parameters: of the policy, besides those of its text; `against` has none.
    against_placement: the placement that a claim compares with, under the same policy.
    tolerance_pct: allowed difference of any figure, those in loose_pct excepted [%].
    slow: takes long, so that tests leave it to `slurmsched reproduce`.
    differs: why ours may lie outside; then the row need not hold.
    absent: why it is not replayed at all.
    beside: what else to know.
    label: the policies of a claim, where the table has several claims of this trace on this cluster.
    Figures are named as in the JSON of `slurmsched replay`; a range of two peers is a pair.
    """

    table: str
    source: str
    trace: str = ""
    cluster: str = ""
    policy: str = ""
    against: str = ""
    against_placement: str = ""
    power: bool = False
    sharing: str = ""
    runs: int = 0
    jobs: int = 0
    placement: str = "count"
    backfill: str = ""
    physics: str = RECORDED_PHYSICS
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tolerance_pct: float = 0.0
    loose_pct: Mapping[str, float] = field(default_factory=dict)
    slow: bool = False
    differs: str = ""
    absent: str = ""
    beside: str = ""
    label: str = ""
    figures: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def request(self) -> ReplayRequest:
        """What to replay."""
        return ReplayRequest(cluster=self.cluster, policy=self.policy, placement=self.placement, backfill=self.backfill,
                       settings=self.settings, physics=self.physics, parameters=self.parameters)  # fmt: skip

    @property
    def words(self) -> dict[str, Any]:
        """The settings that are not the default ones, by name."""
        words = {
            "policy": self.policy,
            "against": self.against or self.against_placement,
            "jobs": self.jobs,
            "runs": self.runs,
            "placement": self.placement,
            "backfill": self.backfill,
            "physics": "" if self.physics == RECORDED_PHYSICS else self.physics,
        }
        words |= {name: _claims(value) for name, value in self.parameters.items()} | dict(self.settings)
        return {
            name: value
            for name, value in words.items()
            if value not in ("", "count") and (value or name not in ("jobs", "runs"))
        }

    def tolerance_of(self, figure: str) -> float:
        """Allowed difference of a figure [%]."""
        return self.loose_pct.get(figure, self.tolerance_pct)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """Rows of one discipline or simulator. mean_tolerance_pct: of the rows' mean JCT; 0 = not asked."""

    name: str
    title: str
    source: str
    rows: tuple[PublishedRow, ...]
    mean_tolerance_pct: float = 0.0
    note: str = ""


def table_names() -> list[str]:
    """Names of all tables, ascending."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def published_table(name: str) -> PublishedTable:
    """A table by name. Raises InputError for an unknown one, naming those there are."""
    if name not in table_names():
        raise InputError(f"no published table called {name!r}; there are {', '.join(table_names())}")
    return _parsed_table(name, tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8")))


def published_tables(wanted: Sequence[str] = ()) -> Iterator[PublishedTable]:
    """The tables of these names, all without any."""
    yield from map(published_table, wanted or table_names())


def _parsed_table(name: str, found: dict[str, Any]) -> PublishedTable:
    of_table = {key: found.pop(key) for key in ("title", "mean_tolerance_pct", "note") if key in found}
    rows = tuple(_row(name, {**found, **row}) for row in found.pop("rows"))
    return PublishedTable(name=name, source=found["source"], rows=_labelled(rows), **of_table)


def _labelled(rows: Sequence[PublishedRow]) -> tuple[PublishedRow, ...]:
    """The rows, with a label where claims of the same trace and cluster differ in their policies alone."""
    claims = Counter(_row_place(row) for row in rows)
    return tuple(replace(row, label=_policies(row)) if claims[_row_place(row)] > 1 else row for row in rows)


def _policies(row: PublishedRow) -> str:
    """Names of the policies of a claim that is replayed."""
    if row.absent or not (row.against or row.against_placement):
        return ""
    return " against ".join(text.partition(":")[0] for text in (row.policy, row.against) if text)


def _row_place(row: PublishedRow) -> tuple[str, str, bool]:
    return row.trace, row.cluster, bool(row.absent)


def _row(name: str, found: dict[str, Any]) -> PublishedRow:
    known = {spec.name for spec in fields(PublishedRow)}
    figures = {key: _pair(value) for key, value in found.items() if key in PRECISION}
    unknown = found.keys() - known - figures.keys()
    if unknown:
        raise InputError(f"table {name}: row of {found.get('trace')}: unknown key {min(unknown)!r}")
    return PublishedRow(table=name, figures=figures, **{key: value for key, value in found.items() if key in known})


def _claims(value: Any) -> Any:
    """A parameter in words: a plug-in by its name and parameters."""
    return " ".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, dict) else value


def _pair(value: Any) -> tuple[float, float]:
    low, high = value if isinstance(value, list) else (value, value)
    return float(low), float(high)


# Replays of the rows.

EQUAL, WITHIN, DIFFERS = "equal", "within", "differs"
_RANK = (EQUAL, WITHIN, DIFFERS)


@dataclass(frozen=True, slots=True)
class FigureComparison:
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
class TableResult:
    """A row with ours beside it. trace_digest: "" if it was not replayed."""

    row: PublishedRow
    trace_digest: str = ""
    comparisons: tuple[FigureComparison, ...] = ()

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
        return {"table": row.table, "source": row.source, "trace": row.trace or row.sharing,
                "trace_digest": self.trace_digest, "cluster": row.cluster, "settings": row.words, "figures": figures,
                "beside": row.beside, "verdict": self.verdict, "holds": self.holds}  # fmt: skip


def row_result(row: PublishedRow) -> TableResult:
    """A row replayed, if it can be."""
    if row.absent:
        return TableResult(row)
    if row.sharing:
        return TableResult(row, "", _compared(row, shared_gpu_figures(row.sharing, row.placement, row.runs)))
    trace = shipped_trace(row.trace).first(row.jobs) if row.jobs else shipped_trace(row.trace)
    replayed = ReplaySession(trace, row.request).run()
    ours: Mapping[str, float] = replayed.figures
    if row.power:
        ours = {"use_gain_pct": _use_gain_pct(replayed)}
    elif row.against_placement:
        other = ReplaySession(trace, replace(row.request, placement=row.against_placement)).run()
        ours = _ratios(row, trace, other, replayed)
    elif row.against:
        other = ReplaySession(trace, replace(row.request, policy=row.against, parameters={})).run()
        ours = _ratios(row, trace, other, replayed)
    return TableResult(row, replayed.trace_digest, _compared(row, ours))


def _use_gain_pct(replayed: ReplayResult) -> float:
    """What powering nodes down would have gained in node use [points]."""
    runs, gpus = replayed.runs, replayed.config["nodes"]
    each = sum(gpus) / len(gpus)
    return power_saving_of_runs(runs.start_s, runs.end_s, runs.gpus, len(gpus), each, PowerRules()).use_gain_pct


def _ratios(row: PublishedRow, trace: Trace, other: ReplayResult, ours: ReplayResult) -> dict[str, float]:
    """What the other policy's figures are over ours."""
    figure_of = {"jct_ratio": "avg_jct_s", "wait_ratio": "avg_wait_s", "makespan_ratio": "makespan_s"}
    made = {name: other.figures[of] / ours.figures[of] for name, of in figure_of.items() if name in row.figures}
    met = [float(each.figures.get("deadlines_met", np.nan)) for each in (other, ours)]
    if "met_ratio" in row.figures:
        made["met_ratio"] = met[1] / met[0]
    if "missed_ratio" in row.figures:
        missed = [max(round((1 - each) * ours.figures["deadlines"]), 1) for each in met]
        made["missed_ratio"] = missed[0] / missed[1]
    if "fairness_ratio" in row.figures:
        made["fairness_ratio"] = _worst(trace, other) / _worst(trace, ours)
    return made


def _worst(trace: Trace, replayed: ReplayResult) -> float:
    """rho of the tenant who fares worst, or the slowdown of the job that does, where no tenants are known."""
    tenants = JobTenants.find(trace)
    alone_s = jct_alone_s(trace, tenants, sum(replayed.config["nodes"]))
    fair = FairnessFigures.of(trace, tenants, alone_s, replayed.outcomes)
    return float(np.nanmax(fair.rho if len(fair.rho) else fair.slowdown))


def table_results(table: PublishedTable) -> Iterator[TableResult]:
    """Its rows replayed one after the other; in the end the mean over them, where the table asks for it."""
    made: list[TableResult] = []
    for row in table.rows:
        made.append(row_result(row))
        yield made[-1]
    if table.mean_tolerance_pct:
        yield _mean_row(table, made)


def _compared(row: PublishedRow, ours: Mapping[str, float]) -> tuple[FigureComparison, ...]:
    return tuple(
        FigureComparison(figure, theirs, float(ours[figure]), row.tolerance_of(figure))
        for figure, theirs in row.figures.items()
    )


def _mean_row(table: PublishedTable, made: Sequence[TableResult]) -> TableResult:
    """The mean JCT over all rows, as one more row."""
    first = [each.comparisons[0] for each in made]
    theirs = fmean(each.theirs[0] for each in first)
    compared = FigureComparison(
        "avg_jct_s", (theirs, theirs), fmean(each.ours for each in first), table.mean_tolerance_pct
    )
    row = PublishedRow(
        table.name, table.source, trace="mean of all", cluster=made[0].row.cluster, settings=made[0].row.words
    )
    return TableResult(row, "", (compared,))


def _single(pair: tuple[float, float]) -> float | list[float]:
    return pair[0] if pair[0] == pair[1] else list(pair)


# The tables as text.

MEAN_TITLE = "avg_jct_s"
RESULT_COLUMNS = ("trace", "digest", "cluster", "theirs [s]>", "ours [s]>", "difference>", "other figures>", "verdict")


def table_heading(table: PublishedTable) -> Iterator[str]:
    """Title, source and what all rows share."""
    yield f"{table.name}: {table.title}"
    yield f"Theirs: {table.source}."
    for words in dict.fromkeys(table_settings(result.words) for result in table.rows if not result.absent):
        yield f"Settings: {words}."
    if table.note:
        yield table.note


def table_settings(words: dict[str, object]) -> str:
    """Settings as NAME=VALUE, in one line; a table of numbers by its name alone."""
    return ", ".join(f"{name}={_short_value(value)}" for name, value in words.items())


def result_cells(result: TableResult) -> tuple[str, ...]:
    """Trace, digest, cluster, theirs, ours, difference, furthest other figure, verdict."""
    row, first = result.row, next((each for each in result.comparisons if each.figure == MEAN_TITLE), None)
    if row.against or row.against_placement or row.power:
        return _claim_cells(result)
    if row.sharing:
        return _sharing_cells(result)
    verdict = f"{result.verdict} ({row.beside})" if row.beside else result.verdict
    theirs = _range(row.figures.get(MEAN_TITLE, first.theirs if first else None))
    name = f"{row.trace}, {row.source}" if row.absent else row.trace
    if first is None:
        return (name, "", row.cluster, theirs, "", "", "", verdict)
    return (name, result.trace_digest, row.cluster, theirs, f"{first.ours:,.2f}", _percent(first),
            _furthest(each for each in result.comparisons if each is not first), verdict)  # fmt: skip


def _claim_cells(result: TableResult) -> tuple[str, ...]:
    """The same of a claim: each figure with its name, in the place of seconds."""
    row = result.row
    theirs = ", ".join(_claimed(name, *pair) for name, pair in row.figures.items())
    ours = ", ".join(_claim(each.figure, each.ours) for each in result.comparisons)
    off = ", ".join(_percent(each) for each in result.comparisons)
    where = f"{row.trace}, {row.source}" if row.absent else ", ".join(filter(None, (row.trace, row.label)))
    return (where, result.trace_digest, row.cluster, theirs, ours, off, "", result.verdict)


def _sharing_cells(result: TableResult) -> tuple[str, ...]:
    """The same where the figures are shares of GPUs: those at 100 %, and the furthest in standard deviations."""
    row, shown = result.row, ("allocated_100_pct", "fragments_100_pct")
    theirs = {each.figure: fmean(each.theirs) for each in result.comparisons}
    ours = {each.figure: each.ours for each in result.comparisons}
    off = {name: (ours[name] - theirs[name]) / (row.figures[name][1] - theirs[name]) for name in ours}
    furthest = max(off, key=lambda name: abs(off[name]))
    texts = [" and ".join(f"{of[name]:.2f} %" for name in shown) for of in (theirs, ours)]
    return (f"{row.sharing}, {row.placement}", "", row.cluster, *texts, "", f"{furthest} {off[furthest]:+.1f} sd",
            result.verdict)  # fmt: skip


def _claimed(figure: str, low: float, high: float) -> str:
    """One claim, or a range of them."""
    return _claim(figure, low) if low == high else f"{_claim(figure, low).removesuffix(' x')} to {high:.2f} x"


def _claim(figure: str, value: float) -> str:
    """A ratio as "jct 1.30 x", a gain in per cent as "use gain 13.0 points"."""
    if figure.endswith("_pct"):
        return f"{figure.removesuffix('_pct').replace('_', ' ')} {value:.1f} points"
    return f"{figure.removesuffix('_ratio')} {value:.2f} x"


def _range(published: tuple[float, float] | None) -> str:
    if published is None:
        return ""
    low, high = published
    return f"{low:,.2f}" if low == high else f"{low:,.2f} to {high:,.2f}"


def _percent(figure: FigureComparison) -> str:
    return f"{round(figure.difference_pct, 2) + 0.0:+.2f} %"


def _furthest(others: Iterable[FigureComparison]) -> str:
    """The figure that is furthest from theirs, "equal" if none is off by more than its last digit."""
    found = list(others)
    off = [each for each in found if each.verdict != EQUAL]
    if not off:
        return EQUAL if found else ""
    worst = max(off, key=lambda each: abs(each.difference_pct))
    return f"{worst.figure} {_percent(worst)}"


def _short_value(value: object) -> str:
    return "a table by model" if isinstance(value, dict) else str(value)
