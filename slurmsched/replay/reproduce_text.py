"""Published tables in words, for the terminal and for docs/reproduced.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmsched.replay.reproduce import Table
from slurmsched.replay.reproduce_run import EQUAL, Comparison, Result

MEAN = "avg_jct_s"
COLUMNS = ("trace", "digest", "cluster", "theirs [s]>", "ours [s]>", "difference>", "other figures>", "verdict")


def heading(table: Table) -> Iterator[str]:
    """Title, source and what all rows share."""
    yield f"{table.name}: {table.title}"
    yield f"Theirs: {table.source}."
    for words in dict.fromkeys(settings(result.words) for result in table.rows if not result.absent):
        yield f"Settings: {words}."
    if table.note:
        yield table.note


def settings(words: dict[str, object]) -> str:
    """Settings as NAME=VALUE, in one line; a table of numbers by its name alone."""
    return ", ".join(f"{name}={_short(value)}" for name, value in words.items())


def cells(result: Result) -> tuple[str, ...]:
    """Trace, digest, cluster, theirs, ours, difference, furthest other figure, verdict."""
    row, first = result.row, next((each for each in result.comparisons if each.figure == MEAN), None)
    if row.against or row.power:
        return _claim_cells(result)
    verdict = f"{result.verdict} ({row.beside})" if row.beside else result.verdict
    told = _range(row.figures.get(MEAN, first.theirs if first else None))
    name = f"{row.trace}, {row.source}" if row.absent else row.trace
    if first is None:
        return (name, "", row.cluster, told, "", "", "", verdict)
    return (name, result.trace_digest, row.cluster, told, f"{first.ours:,.2f}", _percent(first),
            _furthest(each for each in result.comparisons if each is not first), verdict)  # fmt: skip


def _claim_cells(result: Result) -> tuple[str, ...]:
    """The same of a claim: each figure with its name, in the place of seconds."""
    row = result.row
    theirs = ", ".join(_claim(name, low) for name, (low, _) in row.figures.items())
    ours = ", ".join(_claim(each.figure, each.ours) for each in result.comparisons)
    off = ", ".join(_percent(each) for each in result.comparisons)
    where = f"{row.trace}, {row.source}" if row.absent else row.trace
    return (where, result.trace_digest, row.cluster, theirs, ours, off, "", result.verdict)


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


def _percent(figure: Comparison) -> str:
    return f"{round(figure.difference_pct, 2) + 0.0:+.2f} %"


def _furthest(others: Iterable[Comparison]) -> str:
    """The figure that is furthest from theirs, "equal" if none is off by more than its last digit."""
    found = list(others)
    off = [each for each in found if each.verdict != EQUAL]
    if not off:
        return EQUAL if found else ""
    worst = max(off, key=lambda each: abs(each.difference_pct))
    return f"{worst.figure} {_percent(worst)}"


def _short(value: object) -> str:
    return "a table by model" if isinstance(value, dict) else str(value)
