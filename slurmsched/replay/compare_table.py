"""The figures of a comparison as text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.metrics import SIZE_CLASSES
from slurmsched.replay.units import Unit, of_jobs


def unit_of(runs: Sequence[Mapping[str, Any]]) -> Unit:
    """The unit of the times of jobs in a table of these runs."""
    return of_jobs(max((run["avg_jct_s"] for run in runs if run["jobs"]), default=0.0))


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run. path: keys that lead to it. title: `{unit}` stands for that of times. form: of the text;
    "" for a time. scale: what to multiply by."""

    title: str
    path: tuple[str, ...]
    form: str = ""
    scale: float = 1.0

    def value(self, run: Mapping[str, Any]) -> float | None:
        """The figure as in the JSON, None if nothing is known."""
        found: Any = run
        for key in self.path:
            found = None if found is None else found[key]
        return None if found is None or found != found else found

    def text(self, run: Mapping[str, Any], unit: Unit) -> str:
        """The figure for people."""
        value = self.value(run)
        if value is None:
            return "-"
        return format(value * self.scale, self.form) if self.form else unit.text(value)

    def ratio(self, run: Mapping[str, Any]) -> float | None:
        """Over the figure of the first policy, None if that is not told."""
        found: float | None = run["ratio"].get(self.path[0]) if len(self.path) == 1 else None
        return found


def _sized(name: str) -> str:
    return f"{name} GPU" if name == "1" else f"{name} GPUs"


TIMES = (
    Measure("JCT mean [{unit}]", ("avg_jct_s",)), Measure("JCT p50 [{unit}]", ("p50_jct_s",)),
    Measure("JCT p95 [{unit}]", ("p95_jct_s",)), Measure("JCT p99 [{unit}]", ("p99_jct_s",)),
    Measure("wait mean [{unit}]", ("avg_wait_s",)),
)  # fmt: skip
WAITS = tuple(Measure(f"wait mean, {_sized(name)} [{{unit}}]", ("wait_by_gpus_s", name, "mean"))
              for name, _, _ in SIZE_CLASSES)  # fmt: skip
USE = (
    Measure("makespan [{unit}]", ("makespan_s",)), Measure("preemptions", ("preemptions",), ",.0f"),
    Measure("work lost [GPU h]", ("lost_gpu_h",), ",.1f"),
    Measure("GPU utilisation [%]", ("gpu_utilisation",), ".1f", 100.0),
)  # fmt: skip
FAIR = (
    Measure("Jain's index of slowdown", ("fairness", "jain_slowdown"), ".3f"),
    Measure("rho mean", ("fairness", "mean_rho"), ".2f"), Measure("rho max", ("fairness", "max_rho"), ".2f"),
)  # fmt: skip
TOOK = (Measure("jobs ended", ("jobs",), ",.0f"), Measure("replay took [s]", ("wall_s",), ".1f"))
SLOWDOWN = Measure("slowdown mean", ("mean_slowdown",), ".3f")  # where there is physics
DEADLINES = Measure("deadlines met [%]", ("deadlines_met",), ".1f", 100.0)  # where the trace tells any


def use(runs: Sequence[Mapping[str, Any]]) -> tuple[Measure, ...]:
    """The figures of USE, and slowdown and deadlines where all these runs have them."""
    more = (SLOWDOWN, DEADLINES)
    return (*USE, *(measure for measure in more if all(measure.path[0] in run for run in runs)))


def measures(runs: Sequence[Mapping[str, Any]]) -> tuple[Measure, ...]:
    """The figures that a table of these runs has."""
    return (*TIMES, *WAITS, *use(runs), *FAIR, *TOOK)


def rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row a measure, a cell a policy; behind a figure of another than the first policy its ratio to that one."""
    unit = unit_of(runs)
    made = []
    for measure in measures(runs):
        cells = [measure.text(runs[0], unit), *(_beside(measure, run, unit) for run in runs[1:])]
        made.append((measure.title.format(unit=unit.name), *cells))
    return made


def _beside(measure: Measure, run: Mapping[str, Any], unit: Unit) -> str:
    text, ratio = measure.text(run, unit), measure.ratio(run)
    return text if ratio is None else f"{text} ({times_text(ratio)})"


def times_text(ratio: float) -> str:
    """A ratio for people: "0.52x", "0.0040x"."""
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


CHANGE_COLUMNS = ("jobs", "GPU hours", "wait before [{unit}]", "wait after [{unit}]", "change [{unit}]")


def change_rows(changes: Sequence[Mapping[str, Any]], unit: Unit) -> list[tuple[str, ...]]:
    """Name, then the cells of CHANGE_COLUMNS, of the tenants in `gain` or `lose` of a run."""
    return [
        (change["tenant"] or "(unknown)", f"{change['jobs']:,}", f"{change['gpu_hours']:,.1f}",
         unit.text(change["wait_before_s"]), unit.text(change["wait_after_s"]),
         f"{change['change_s'] / unit.seconds:+,.2f}") for change in changes
    ]  # fmt: skip
