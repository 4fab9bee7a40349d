"""What a sweep says: its points with equal ones of other seeds joined, ranked, the undominated marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from slurmsched.errors import InputError
from slurmsched.replay.grid import AXES

# figure -> whether more of it is better
FIGURES: Mapping[str, bool] = {
    "avg_jct_s": False, "p50_jct_s": False, "p95_jct_s": False, "p99_jct_s": False, "avg_wait_s": False,
    "makespan_s": False, "preemptions": False, "lost_gpu_h": False, "gpu_utilisation": True, "mean_slowdown": False,
    "deadlines_met": True, "refused": False,
}  # fmt: skip
WORDS = tuple(name for name in (*AXES, "parameters") if name != "seed")
Row = Mapping[str, Any]


def ranked(rows: Iterable[Row], by: str = "avg_jct_s") -> list[dict[str, Any]]:
    """One row for the points that differ in their seed only, the best first.

    Each holds WORDS, jobs and FIGURES as means over `seeds` points (NaN: not known), and `pareto`: no other point of
    the same trace, cluster and model has both a lower avg_jct_s and as few preemptions, or as low and fewer. Points
    of different traces are ranked apart, in the order of the grid. Raises InputError for an unknown figure.
    """
    if by not in FIGURES:
        raise InputError(f"no figure {by!r}; a sweep is ranked by {', '.join(FIGURES)}")
    joined = [_mean(points) for points in _grouped(rows, WORDS)]
    for rivals in _grouped(joined, ("trace", "cluster", "model")):
        _mark(rivals)
    return [row for group in _grouped(joined, ("trace",)) for row in sorted(group, key=lambda row: _worth(row, by))]


def _grouped(rows: Iterable[Any], names: Iterable[str]) -> list[list[Any]]:
    """Rows that agree in these, in the order of their first."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(repr([row[name] for name in names]), []).append(row)
    return list(found.values())


def _mean(points: list[Row]) -> dict[str, Any]:
    figures = {name: [_number(point.get(name)) for point in points] for name in ("jobs", *FIGURES)}
    means = {name: math.fsum(values) / len(values) for name, values in figures.items()}
    return {name: points[0][name] for name in WORDS} | {"seeds": len(points)} | means | {"pareto": False}


def _mark(rivals: list[dict[str, Any]]) -> None:
    """Set `pareto`: one pass in order of JCT, since whoever comes later must preempt less than all before."""
    fewest = math.inf
    for equal in _grouped(sorted(rivals, key=lambda row: _worth(row, "avg_jct_s")), ("avg_jct_s",)):
        least = min(row["preemptions"] for row in equal)
        for row in equal:
            row["pareto"] = not math.isnan(row["avg_jct_s"]) and row["preemptions"] == least < fewest
        fewest = min(fewest, least)


def _worth(row: Row, by: str) -> tuple[bool, float]:
    """Sorts the best first, what is not known last."""
    value = row[by]
    return math.isnan(value), -value if FIGURES[by] else value


def _number(value: float | None) -> float:
    """A figure as kept: JSON has no NaN."""
    return math.nan if value is None else float(value)
