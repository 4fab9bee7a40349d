"""The HTML page of a report with its plots. It loads nothing from the network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, in_size_class
from slurmsched.observe.html_page import (
    FREE,
    LEAST_S,
    LIMIT,
    USED,
    PagePlot,
    PageSheet,
    PlotFigure,
    SheetCell,
    SheetRow,
    TimeAxis,
    TimeUnit,
    figure_html,
    logarithmic,
    rendered_page,
    size_label,
    size_styles,
    span_averages,
    unit_for_jobs,
    unit_for_span,
)
from slurmsched.observe.report.report_input import ReportedJobs, ReportInput
from slurmsched.plain_text import pluralize

MOST_BARS = 12


def waits_plot(of: ReportInput) -> PlotFigure:
    """Cumulative distributions of waits, a line a size class, on a logarithmic axis (below 1 s shown as 1 s)."""
    figure, jobs = PlotFigure("jobs [%]", x_axis=logarithmic("wait [h]")), of.jobs
    started = jobs.started_in(of.since_s, of.until_s)
    for name, least, most, style in size_styles():
        chosen = jobs.wait_s[started & in_size_class(jobs.gpus, least, most)]
        figure.distribution(size_label(name), np.maximum(chosen, LEAST_S) / 3600, style)
    return figure


def periods_plot(made: dict[str, Any], unit: TimeUnit) -> PlotFigure:
    """Mean wait, a bar a size class in every period."""
    figure = PlotFigure(f"mean wait [{unit.name}]", x_axis={"type": "category"})
    names = [period["name"] for period in made["periods"]]
    for size, _, _, (colour, _) in size_styles():
        means = [period["mean_s"][size] for period in made["periods"]]
        bars = [None if mean is None else mean / unit.seconds for mean in means]
        figure.bars(size_label(size), names, bars, colour)
    return figure


def use_plot(of: ReportInput) -> PlotFigure:
    """GPUs held over time, and how many there are now."""
    span_s = of.until_s - of.since_s
    axis = TimeAxis(unit_for_span(span_s), of.since_s)
    figure, mean = (
        PlotFigure("GPUs", x_axis=axis.settings),
        span_averages(*_steps(of.jobs, of.since_s, of.until_s), span_s),
    )
    figure.line("held", (USED, "solid"), y=mean.tolist(), fill="tozeroy", **axis.middles(span_s))
    if of.gpus:
        figure.line("all GPUs now", (LIMIT, "dash"), x=[axis.at(0.0), axis.at(span_s)], y=[of.gpus] * 2)
    return figure


def _steps(jobs: ReportedJobs, since_s: float, until_s: float) -> tuple[Floats, Floats]:
    """Times from since_s on [s], and GPUs held from each on. Both (T,), times ascending, the first 0."""
    begin_s = np.clip(jobs.held_s, since_s, until_s) - since_s
    end_s = np.clip(np.where(jobs.ended, jobs.end_s, until_s), since_s, until_s) - since_s
    times_s = np.concatenate([[0.0], begin_s, end_s])
    change = np.concatenate([[0.0], jobs.held_gpus, -jobs.held_gpus]).astype(np.float64)
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.maximum(np.cumsum(change[order]), 0.0)


def tenants_plot(rows: list[dict[str, Any]], unit: TimeUnit) -> PlotFigure:
    """Mean waits of the tenants with most GPU time; before and after where slurmsched began to write meanwhile."""
    shown, figure = rows[:MOST_BARS], PlotFigure(f"mean wait [{unit.name}]", x_axis={"type": "category"})
    split = any(row["before_s"] is not None for row in rows)
    series = (("before_s", "before", FREE), ("after_s", "with slurmsched", USED)) if split else (
        ("mean_s", "mean wait", USED),)  # fmt: skip
    for key, name, colour in series:
        values = [None if row[key] is None else row[key] / unit.seconds for row in shown]
        figure.bars(name, [row["name"] for row in shown], values, colour)
    return figure


def ratios_plot(of: ReportInput) -> PlotFigure:
    """How many jobs got which part of the best links, in tenths."""
    counts, _ = np.histogram([row.ratio for row in of.placements], bins=np.linspace(0, 1, 11))
    figure = PlotFigure("jobs", x_axis={"title": {"text": "links got over the best"}, "type": "category"})
    figure.bars("jobs", [f"{low}-{low + 10} %" for low in range(0, 100, 10)], counts.tolist(), USED)
    return figure


# The page

Shown = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One heading of the page, with a sentence, plots and tables."""

    title: str
    lead: str
    plots: tuple[PagePlot, ...] = ()
    sheets: tuple[PageSheet, ...] = ()


def report_page(of: ReportInput, made: dict[str, Any]) -> str:
    """The page as text. made: of figures(of)."""
    unit, number = _unit(made), itertools.count()
    parts = [_waits(of, made, unit, number), _tenants(made, unit, number), _use(of, made, number), _operations(made),
             _placement(of, made, number)]  # fmt: skip
    return rendered_page(
        "report.html.j2", title=f"{made['cluster'] or 'Report'}, {day(made['since_s'])} to {day(made['until_s'])}",
        lead=_lead(made), unread=made["unread"], key=_key_figures(made, unit), parts=[part for part in parts if part],
    )  # fmt: skip


def text_sheets(made: dict[str, Any]) -> list[PageSheet]:
    """The tables that a terminal has room for. made: of figures."""
    unit = _unit(made)
    tenants = [_tenant_sheet(made, name, unit) for name in ("accounts", "users") if _has_names(made[name])]
    return [_sizes(made, unit), _periods(made, unit), *tenants, *_measured_sheets(made)]


def _unit(made: dict[str, Any]) -> TimeUnit:
    """For waits, those so far included."""
    means = [found["mean_s"] for found in (made["waits"]["all"], (made["waiting"] or {}).get("all")) if found]
    return unit_for_jobs(max(means, default=0.0))


def day(unix_s: float) -> str:
    """A time to the minute, in UTC."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"


def _lead(made: dict[str, Any]) -> str:
    switched = f" It began to write at {day(made['switched_s'])}." if made["switched_s"] else ""
    return f"{assumed_line(made)}. Policy {made['policy']}.{switched}"


def assumed_line(made: dict[str, Any]) -> str:
    """The assumptions of the figures, in one line. made: of figures."""
    return f"Assumed: {'; '.join(made['assumptions'])}"


def _key_figures(made: dict[str, Any], unit: TimeUnit) -> list[tuple[str, str]]:
    every, fair, cost = made["waits"]["all"] or {}, made["fairness"] or {}, made["operations"]["done"]
    return [
        (f"{made['started']:,}", "jobs started"),
        (_time(unit)(every.get("p50_s")) + f" {unit.name}", "median wait"),
        (f"{_percent(made['utilisation'])} %", "of the GPUs held"),
        (f"{sum(one['gpus'] for one in made['stranded']):,}", "GPUs stranded now"),
        (f"{cost['lost_gpu_s'] / 3600:,.1f} h", "GPU time lost by requeues"),
        (_number(fair.get("jain_slowdown"), ".3f"), f"Jain's index of slowdown, by {fair.get('of', 'tenant')}"),
    ]  # fmt: skip


def _waits(of: ReportInput, made: dict[str, Any], unit: TimeUnit, number: Iterator[int]) -> ReportSection:
    found = ", ".join(f"{size}: {_time(unit)(one['mean_s'] if one else None)} {unit.name}"
                     for size, one in made["waits"].items())  # fmt: skip
    drawn: tuple[PagePlot, ...] = ()
    if made["started"]:
        drawn = (
            _plot("Wait", "Share of jobs that wait no longer, by GPUs held; less than 1 s is shown as 1 s.",
                  f"Mean wait by GPUs: {found}", waits_plot(of), number),
            _plot("Wait over time", "Mean wait of the jobs that started in each period.",
                  "The table of periods has the same figures", periods_plot(made, unit), number),
        )  # fmt: skip
    return ReportSection("How long jobs waited", _switch(made), drawn, (_sizes(made, unit), _periods(made, unit)))


def _sizes(made: dict[str, Any], unit: TimeUnit) -> PageSheet:
    """Of the jobs that started, and of those that wait now, how long so far."""
    names = [f"{name} [{unit.name}]" for name in ("mean", "median", "90 %", "longest")]
    times = [(key, _time(unit)) for key in ("mean_s", "p50_s", "p90_s", "longest_s")]
    more = [("jobs", _count), ("p50_s", _time(unit)), ("longest_s", _time(unit))] if made["waiting"] else []
    rows = [
        SheetRow(size, (*_cells(found or {"jobs": 0}, [("jobs", _count), *times]),
                   *_cells((made["waiting"] or {}).get(size) or {"jobs": 0}, more)))
        for size, found in made["waits"].items()
    ]  # fmt: skip
    heads = ("wait now", f"their median [{unit.name}]", f"longest [{unit.name}]") if more else ()
    return PageSheet("Wait by GPUs held", ("GPUs", "jobs", *names, *heads), tuple(rows))


def _switch(made: dict[str, Any]) -> str:
    return ("Before slurmsched began to write, and since. Other things may have changed too." if made["switched_s"]
            and made["periods"][0]["name"] == "before" else "By GPUs held, and over time (UTC).")  # fmt: skip


def _periods(made: dict[str, Any], unit: TimeUnit) -> PageSheet:
    names = [f"{size} [{unit.name}]" for size, *_ in SIZE_CLASSES]
    columns = ("from", "jobs", *names, f"all [{unit.name}]", f"90 % of all [{unit.name}]", "GPUs held [%]")
    rows = []
    for one in made["periods"]:
        means = [_cell(one["mean_s"][size], _time(unit)) for size in (*(size for size, *_ in SIZE_CLASSES), "all")]
        rows.append(SheetRow(one["name"], (_cell(one["jobs"], _count), *means, _cell(one["p90_s"], _time(unit)),
                                      _cell(one["utilisation"], _percent))))  # fmt: skip
    return PageSheet("Mean wait by GPUs held, and use of the GPUs, over time", columns, tuple(rows))


def _tenants(made: dict[str, Any], unit: TimeUnit, number: Iterator[int]) -> ReportSection | None:
    sheets = tuple(_tenant_sheet(made, name, unit) for name in ("accounts", "users") if _has_names(made[name]))
    if not sheets:
        return None
    rows = made["accounts"] if _has_names(made["accounts"]) else made["users"]
    fair = made["fairness"] or {}
    lead = "Most GPU time first."
    if fair:
        worst = f" (largest: {fair['max_rho_tenant']})" if fair["max_rho_tenant"] else ""
        lead += (f" Over {pluralize(fair['jobs'], 'job')} that began and ended here, by {fair['of']}: "
                 f"Jain's index of slowdown {_number(fair['jain_slowdown'], '.3f')}, "
                 f"rho mean {_number(fair['mean_rho'], '.2f')}, max "
                 f"{_number(fair['max_rho'], '.2f')}{worst}.")  # fmt: skip
    drawn = _plot("Wait by tenant", "Of those with most GPU time.", "The table below has the same figures",
                  tenants_plot(rows, unit), number)  # fmt: skip
    return ReportSection("Tenants and fairness", lead, (drawn,), sheets)


def _has_names(rows: Sequence[dict[str, Any]]) -> bool:
    return any(row["name"] != "(unknown)" for row in rows)


def _tenant_sheet(made: dict[str, Any], of: str, unit: TimeUnit) -> PageSheet:
    time = _time(unit)
    shown: list[tuple[str, str, Shown]] = [
        ("jobs", "jobs", _count), ("gpu_hours", "GPU hours", lambda value: _number(value, ",.1f")),
        ("share", "of GPU time [%]", _percent), ("mean_s", f"wait mean [{unit.name}]", time),
        ("p90_s", f"wait 90 % [{unit.name}]", time),
    ]  # fmt: skip
    if any(row["before_s"] is not None for row in made[of]):
        shown += [("before_s", f"mean before [{unit.name}]", time), ("after_s", f"mean with [{unit.name}]", time)]
    keys = [(key, form) for key, _, form in shown]
    rows = tuple(SheetRow(row["name"], _cells(row, keys)) for row in made[of])
    return PageSheet(of.capitalize(), (of.rstrip("s"), *(name for _, name, _ in shown)), rows)


def _measured_sheets(made: dict[str, Any]) -> list[PageSheet]:
    """Use of the GPU hours by accounts, users and GPU types; none if it is not measured."""
    found = made["gpu_use"] or {}
    columns: list[tuple[str, str, Shown]] = [
        ("jobs", "jobs", _count), ("gpu_h", "GPU hours", lambda value: _number(value, ",.1f")),
        ("use", "used [%]", _percent), ("unused_gpu_h", "unused GPU hours", lambda value: _number(value, ",.1f")),
    ]  # fmt: skip
    keys = [(key, form) for key, _, form in columns]
    return [
        PageSheet(f"Use of GPUs by {by}, measured", (by, *(name for _, name, _ in columns)),
                  tuple(SheetRow(row[by], _cells(row, keys)) for row in found[f"{by}s"]))
        for by in ("account", "user", "type") if found.get(f"{by}s")
    ]  # fmt: skip


def _use(of: ReportInput, made: dict[str, Any], number: Iterator[int]) -> ReportSection:
    columns = ("type", "GPUs", "idle", "after a boot", "stranded", "allocated", "draining", "down", "unknown",
               "whole nodes idle", "linked sets")  # fmt: skip
    names = ("gpus", "free", "boot", "stranded", "used", "drained", "down", "unread", "whole_nodes")
    keys = [(key, _count) for key in names]
    types = tuple(SheetRow(one["name"], (*_cells(one, keys), SheetCell(sets(one), sets(one)))) for one in made["types"])
    stuck = tuple(
        SheetRow(one["node"], (_cell(one["gpus"], _count), SheetCell(one["cause"], one["cause"]), _owners(one)))
        for one in made["stranded"]
    )
    sheets = []
    if types:
        sheets.append(PageSheet("GPUs now, and how they lie apart", columns, types))
    if stuck:
        sheets.append(PageSheet("Stranded GPUs", ("node", "GPUs", "taken", "by"), stuck))
    sheets += _measured_sheets(made)
    lead = f"{made['gpu_hours']:,.0f} GPU hours held" + (
        f" of {made['gpus'] * (made['until_s'] - made['since_s']) / 3600:,.0f}." if made["gpus"] else "."
    )
    found = f"GPUs held: {_percent(made['utilisation'])} %"
    drawn = _plot("GPUs held", "Averaged over equal spans of time.", found, use_plot(of), number, wide=True)
    return ReportSection("Use of the GPUs", lead, (drawn,), tuple(sheets))


def sets(one: dict[str, Any]) -> str:
    """ "2x8, 1x4, 3 nodes unknown"; "-" where none is free."""
    known = [f"{nodes}x{gpus}" for gpus, nodes in one["linked_sets"].items()]
    return ", ".join([*known, *([f"{one['unknown_sets']} unknown"] if one["unknown_sets"] else [])]) or "-"


def _owners(one: dict[str, Any]) -> SheetCell:
    text = "; ".join(f"job {job['job_id']} of {job['user']}: {job['cpus']:g} CPUs, {job['memory_gib']:.1f} GiB, "
                     f"{pluralize(job['gpus'], 'GPU')}" for job in one["holders"])  # fmt: skip
    return SheetCell(text or "jobs that are not shown", text)


def _operations(made: dict[str, Any]) -> ReportSection | None:
    operations = made["operations"]
    if not operations["rows"] and not any(operations["would_have"].values()):
        return None
    columns = ("operation", "begun", "for job", "user", "GPUs", "stage", "victims", "GPU hours lost", "GPU hours idle")
    keys: list[tuple[str, Shown]] = [
        ("begun_s", day), ("job_id", str), ("user", str), ("gpus", _count), ("stage", str), ("victims", _count),
        ("lost_gpu_s", _hours), ("idle_gpu_s", _hours),
    ]  # fmt: skip
    rows = tuple(SheetRow(f"{row['purpose']} {row['operation']}", _cells(row, keys)) for row in operations["rows"])
    lead = _cost("", operations["done"])
    if any(operations["would_have"].values()):
        lead += " " + _cost("A dry-run would have made ", operations["would_have"])
    return ReportSection(
        "Preemptions and gang reservations", lead, (), (PageSheet("The latest", columns, rows),) if rows else ()
    )


def _cost(before: str, cost: dict[str, Any]) -> str:
    kept = pluralize(cost["gang_reservations"], "gang reservation")
    made = f"{before}{pluralize(cost['preemptions'], 'preemption')} and {kept}"
    return f"{made}, {_hours(cost['lost_gpu_s'])} GPU hours of work lost, {_hours(cost['idle_gpu_s'])} held idle."


def _hours(gpu_s: float) -> str:
    return f"{gpu_s / 3600:,.1f}"


def _placement(of: ReportInput, made: dict[str, Any], number: Iterator[int]) -> ReportSection | None:
    placed = made["placement"]
    if not placed["sizes"]:
        return None
    keys = [("jobs", _count), ("mean_ratio", _percent), ("missed", _count), ("pinned", _count)]
    sizes = PageSheet("Links got, by GPUs", ("GPUs", "jobs", "of the best, mean [%]", "missed better", "pinned"),
                  tuple(SheetRow(one["gpus"], _cells(one, keys)) for one in placed["sizes"]))  # fmt: skip
    some: list[tuple[str, Shown]] = [
        ("start_s", day),
        ("gpus", _count),
        ("nodes", str),
        ("ratio", _percent),
        ("note", str),
    ]
    missed = PageSheet("Jobs that missed most", ("job", "started", "GPUs", "nodes", "of the best [%]", "better"),
                   tuple(SheetRow(str(one["job_id"]), _cells(one, some)) for one in placed["missed"]))  # fmt: skip
    drawn = _plot("Placement quality", "Jobs of several GPUs by the part of the best links that they got.",
                  "The tables below have the figures", ratios_plot(of), number)  # fmt: skip
    return ReportSection("How well GPUs were linked", "Of jobs of several GPUs, at their start.", (drawn,),
                (sizes, missed) if missed.rows else (sizes,))  # fmt: skip


def _plot(
    title: str, caption: str, alt: str, figure: PlotFigure, number: Iterator[int], *, wide: bool = False
) -> PagePlot:
    return PagePlot(title, caption, alt, figure_html(figure, next(number)), wide)


def _cells(row: dict[str, Any], keys: Sequence[tuple[str, Shown]]) -> tuple[SheetCell, ...]:
    return tuple(_cell(row.get(key), shown) for key, shown in keys)


def _cell(value: Any, shown: Shown) -> SheetCell:
    return SheetCell("-", "") if value is None else SheetCell(shown(value), value)


def _count(value: Any) -> str:
    return f"{value:,}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _time(unit: TimeUnit) -> Shown:
    return unit.text
