"""Published tables of other simulators' figures: what they say, of which input, and under which settings of ours."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

from slurmsched.errors import InputError
from slurmsched.replay.request import RECORDED, Request
from slurmsched.replay.traces import Trace, read_trace

_FOLDER = files("slurmsched.replay") / "reproduced"
# half of the last digit that the sources print
PRECISION = {
    "avg_jct_s": 0.005, "p50_jct_s": 0.05, "p95_jct_s": 0.05, "p99_jct_s": 0.05, "makespan_s": 0.5, "preemptions": 0.0,
    "jct_ratio": 0.005, "wait_ratio": 0.005, "makespan_ratio": 0.005, "fairness_ratio": 0.005,
    "met_ratio": 0.005, "missed_ratio": 0.05,
    "use_gain_pct": 0.05, "worst_rho": 0.0005, "unfair_pct": 0.005,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One published replay. What it leaves open its table says.

    trace: of those shipped; jobs: only so many that come first, 0 = all. cluster, policy, placement, backfill, physics:
    as `slurmsched replay` takes them. against: the policy that a claim compares with; figures are then ratios, its
    figure over that of `policy`: mean JCT, mean wait, makespan, deadlines missed (none counts as one), and rho of the
    tenant who fares worst (the slowdown of the job that does, where no tenants are known). Deadlines met are those of
    `policy` over the other's.
    power: the figure is what powering idle nodes down by a forecast gains (survey.power), and not of the replay itself.
    settings: fields of IdealModel. parameters: of the policy, besides those of its text.
    tolerance_pct: allowed difference of any figure, those in loose_pct excepted [%].
    differs: why ours may lie outside; then the row need not hold. absent: why it is not replayed at all. beside: what
    else to know.
    Figures are named as in the JSON of `slurmsched replay`; a range of two peers is a pair.
    """

    table: str
    source: str
    trace: str = ""
    cluster: str = ""
    policy: str = ""
    against: str = ""
    power: bool = False
    jobs: int = 0
    placement: str = "count"
    backfill: str = ""
    physics: str = RECORDED
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tolerance_pct: float = 0.0
    loose_pct: Mapping[str, float] = field(default_factory=dict)
    differs: str = ""
    absent: str = ""
    beside: str = ""
    figures: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """What to replay."""
        return Request(cluster=self.cluster, policy=self.policy, placement=self.placement, backfill=self.backfill,
                       settings=self.settings, physics=self.physics, parameters=self.parameters)  # fmt: skip

    @property
    def words(self) -> dict[str, Any]:
        """The settings that are not the default ones, by name."""
        words = {"policy": self.policy, "against": self.against, "jobs": self.jobs, "placement": self.placement,
                 "backfill": self.backfill, "physics": "" if self.physics == RECORDED else self.physics}  # fmt: skip
        words |= {name: _told(value) for name, value in self.parameters.items()} | dict(self.settings)
        return {
            name: value for name, value in words.items() if value not in ("", "count") and (value or name != "jobs")
        }

    def tolerance_of(self, figure: str) -> float:
        """Allowed difference of a figure [%]."""
        return self.loose_pct.get(figure, self.tolerance_pct)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one discipline or simulator. mean_tolerance_pct: of the rows' mean JCT; 0 = not asked."""

    name: str
    title: str
    source: str
    rows: tuple[Row, ...]
    mean_tolerance_pct: float = 0.0
    note: str = ""


def names() -> list[str]:
    """Names of all tables, ascending."""
    return sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml"))


def table(name: str) -> Table:
    """A table by name. Raises InputError for an unknown one, naming those there are."""
    if name not in names():
        raise InputError(f"no published table called {name!r}; there are {', '.join(names())}")
    return _parsed(name, tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8")))


def tables(wanted: Sequence[str] = ()) -> Iterator[Table]:
    """The tables of these names, all without any."""
    yield from map(table, wanted or names())


@lru_cache(maxsize=8)
def shipped_trace(name: str) -> Trace:
    """A trace that came with slurmsched; sources and licences are in traces/README.md."""
    return read_trace(files("slurmsched.replay") / "traces" / f"{name}.csv.gz")


def _parsed(name: str, found: dict[str, Any]) -> Table:
    of_table = {key: found.pop(key) for key in ("title", "mean_tolerance_pct", "note") if key in found}
    rows = tuple(_row(name, {**found, **row}) for row in found.pop("rows"))
    return Table(name=name, source=found["source"], rows=rows, **of_table)


def _row(name: str, found: dict[str, Any]) -> Row:
    known = {spec.name for spec in fields(Row)}
    figures = {key: _pair(value) for key, value in found.items() if key in PRECISION}
    unknown = found.keys() - known - figures.keys()
    if unknown:
        raise InputError(f"table {name}: row of {found.get('trace')}: unknown key {min(unknown)!r}")
    return Row(table=name, figures=figures, **{key: value for key, value in found.items() if key in known})


def _told(value: Any) -> Any:
    """A parameter in words: a plug-in by its name and parameters."""
    return " ".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, dict) else value


def _pair(value: Any) -> tuple[float, float]:
    low, high = value if isinstance(value, list) else (value, value)
    return float(low), float(high)
