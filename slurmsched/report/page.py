"""The page of a report: one HTML file with its plots inside, which asks the network for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from slurmsched import __version__
from slurmsched.replay.metrics import SIZE_CLASSES
from slurmsched.replay.page import template
from slurmsched.replay.plots import html
from slurmsched.replay.sheets import Cell, Plot, Row, Sheet
from slurmsched.replay.units import Unit, of_jobs
from slurmsched.report import plots
from slurmsched.report.material import Material
from slurmsched.words import some

Shown = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Part:
    """A section."""

    title: str
    lead: str
    plots: tuple[Plot, ...] = ()
    sheets: tuple[Sheet, ...] = ()


def report_page(of: Material, made: dict[str, Any]) -> str:
    """The page as text. made: of figures(of)."""
    unit, number = _unit(made), itertools.count()
    parts = [_waits(of, made, unit, number), _tenants(made, unit, number), _use(of, made, number), _acts(made),
             _placement(of, made, number)]  # fmt: skip
    return template("report.html.j2").render(
        title=f"{made['cluster'] or 'Report'}, {day(made['since_s'])} to {day(made['until_s'])}",
        lead=_lead(made), unread=made["unread"], key=_key(made, unit), parts=[part for part in parts if part],
        version=__version__, plotly=get_plotlyjs(),
    )  # fmt: skip


def text_sheets(made: dict[str, Any]) -> list[Sheet]:
    """The tables that a terminal has room for. made: of figures."""
    unit = _unit(made)
    tenants = [_tenant_sheet(made, name, unit) for name in ("accounts", "users") if _named(made[name])]
    return [_sizes(made, unit), _periods(made, unit), *tenants]


def _unit(made: dict[str, Any]) -> Unit:
    """For waits, those so far included."""
    means = [told["mean_s"] for told in (made["waits"]["all"], (made["waiting"] or {}).get("all")) if told]
    return of_jobs(max(means, default=0.0))


def day(unix_s: float) -> str:
    """A time to the minute, in UTC."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"


def _lead(made: dict[str, Any]) -> str:
    whose = "Slurm's accounting" if made["source"] == "sacct" else "slurmsched's ledger"
    switched = f" It began to write at {day(made['switched_s'])}." if made["switched_s"] else ""
    return f"GPU jobs by {whose}; policy {made['policy']}.{switched}"


def _key(made: dict[str, Any], unit: Unit) -> list[tuple[str, str]]:
    every, fair, cost = made["waits"]["all"] or {}, made["fairness"] or {}, made["acts"]["done"]
    return [
        (f"{made['started']:,}", "jobs started"),
        (_time(unit)(every.get("p50_s")) + f" {unit.name}", "median wait"),
        (f"{_percent(made['utilisation'])} %", "of the GPUs held"),
        (f"{sum(one['gpus'] for one in made['stranded']):,}", "GPUs stranded now"),
        (f"{cost['lost_gpu_s'] / 3600:,.1f} h", "GPU time lost by requeues"),
        (_number(fair.get("jain_slowdown"), ".3f"), f"Jain's index of slowdown, by {fair.get('of', 'tenant')}"),
    ]  # fmt: skip


def _waits(of: Material, made: dict[str, Any], unit: Unit, number: Iterator[int]) -> Part:
    told = ", ".join(f"{size}: {_time(unit)(one['mean_s'] if one else None)} {unit.name}"
                     for size, one in made["waits"].items())  # fmt: skip
    drawn: tuple[Plot, ...] = ()
    if made["started"]:
        drawn = (
            _plot("Wait", "Share of jobs that wait no longer, by GPUs held; less than 1 s is shown as 1 s.",
                  f"Mean wait by GPUs: {told}", plots.waits(of), number),
            _plot("Wait over time", "Mean wait of the jobs that started in each period.",
                  "The table of periods has the same figures", plots.by_period(made, unit), number),
        )  # fmt: skip
    return Part("How long jobs waited", _switch(made), drawn, (_sizes(made, unit), _periods(made, unit)))


def _sizes(made: dict[str, Any], unit: Unit) -> Sheet:
    """Of the jobs that started, and of those that wait now, how long so far."""
    names = [f"{name} [{unit.name}]" for name in ("mean", "median", "90 %", "longest")]
    times = [(key, _time(unit)) for key in ("mean_s", "p50_s", "p90_s", "longest_s")]
    more = [("jobs", _count), ("p50_s", _time(unit)), ("longest_s", _time(unit))] if made["waiting"] else []
    rows = [
        Row(size, (*_cells(told or {"jobs": 0}, [("jobs", _count), *times]),
                   *_cells((made["waiting"] or {}).get(size) or {"jobs": 0}, more)))
        for size, told in made["waits"].items()
    ]  # fmt: skip
    heads = ("wait now", f"their median [{unit.name}]", f"longest [{unit.name}]") if more else ()
    return Sheet("Wait by GPUs held", ("GPUs", "jobs", *names, *heads), tuple(rows))


def _switch(made: dict[str, Any]) -> str:
    return ("Before slurmsched began to write, and since. Other things may have changed too." if made["switched_s"]
            and made["periods"][0]["name"] == "before" else "By GPUs held, and over time (UTC).")  # fmt: skip


def _periods(made: dict[str, Any], unit: Unit) -> Sheet:
    names = [f"{size} [{unit.name}]" for size, *_ in SIZE_CLASSES]
    columns = ("from", "jobs", *names, f"all [{unit.name}]", f"90 % of all [{unit.name}]", "GPUs held [%]")
    rows = []
    for one in made["periods"]:
        means = [_cell(one["mean_s"][size], _time(unit)) for size in (*(size for size, *_ in SIZE_CLASSES), "all")]
        rows.append(Row(one["name"], (_cell(one["jobs"], _count), *means, _cell(one["p90_s"], _time(unit)),
                                      _cell(one["utilisation"], _percent))))  # fmt: skip
    return Sheet("Mean wait by GPUs held, and use of the GPUs, over time", columns, tuple(rows))


def _tenants(made: dict[str, Any], unit: Unit, number: Iterator[int]) -> Part | None:
    sheets = tuple(_tenant_sheet(made, name, unit) for name in ("accounts", "users") if _named(made[name]))
    if not sheets:
        return None
    rows = made["accounts"] if _named(made["accounts"]) else made["users"]
    fair = made["fairness"] or {}
    lead = "Most GPU time first."
    if fair:
        worst = f" (largest: {fair['max_rho_tenant']})" if fair["max_rho_tenant"] else ""
        lead += (f" Over {some(fair['jobs'], 'job')} that began and ended here, by {fair['of']}: "
                 f"Jain's index of slowdown {_number(fair['jain_slowdown'], '.3f')}, "
                 f"rho mean {_number(fair['mean_rho'], '.2f')}, max "
                 f"{_number(fair['max_rho'], '.2f')}{worst}.")  # fmt: skip
    drawn = _plot("Wait by tenant", "Of those with most GPU time.", "The table below has the same figures",
                  plots.by_tenant(rows, unit), number)  # fmt: skip
    return Part("Tenants and fairness", lead, (drawn,), sheets)


def _named(rows: Sequence[dict[str, Any]]) -> bool:
    return any(row["name"] != "(unknown)" for row in rows)


def _tenant_sheet(made: dict[str, Any], of: str, unit: Unit) -> Sheet:
    time = _time(unit)
    shown: list[tuple[str, str, Shown]] = [
        ("jobs", "jobs", _count), ("gpu_hours", "GPU hours", lambda value: _number(value, ",.1f")),
        ("share", "of GPU time [%]", _percent), ("mean_s", f"wait mean [{unit.name}]", time),
        ("p90_s", f"wait 90 % [{unit.name}]", time),
    ]  # fmt: skip
    if any(row["before_s"] is not None for row in made[of]):
        shown += [("before_s", f"mean before [{unit.name}]", time), ("after_s", f"mean with [{unit.name}]", time)]
    keys = [(key, form) for key, _, form in shown]
    rows = tuple(Row(row["name"], _cells(row, keys)) for row in made[of])
    return Sheet(of.capitalize(), (of.rstrip("s"), *(name for _, name, _ in shown)), rows)


def _use(of: Material, made: dict[str, Any], number: Iterator[int]) -> Part:
    columns = ("type", "GPUs", "free", "after a boot", "stranded", "held", "drained", "down", "unknown",
               "whole nodes free", "linked free sets")  # fmt: skip
    names = ("gpus", "free", "boot", "stranded", "used", "drained", "down", "unread", "whole_nodes")
    keys = [(key, _count) for key in names]
    types = tuple(Row(one["name"], (*_cells(one, keys), Cell(sets(one), sets(one)))) for one in made["types"])
    stuck = tuple(Row(one["node"], (_cell(one["gpus"], _count), Cell(one["cause"], one["cause"]), _owners(one)))
                  for one in made["stranded"])  # fmt: skip
    sheets = []
    if types:
        sheets.append(Sheet("GPUs now, and how they lie apart", columns, types))
    if stuck:
        sheets.append(Sheet("Stranded GPUs", ("node", "GPUs", "taken", "by"), stuck))
    lead = f"{made['gpu_hours']:,.0f} GPU hours held" + (
        f" of {made['gpus'] * (made['until_s'] - made['since_s']) / 3600:,.0f}." if made["gpus"] else "."
    )
    told = f"GPUs held: {_percent(made['utilisation'])} %"
    drawn = _plot("GPUs held", "Averaged over equal spans of time.", told, plots.held(of), number, wide=True)
    return Part("Use of the GPUs", lead, (drawn,), tuple(sheets))


def sets(one: dict[str, Any]) -> str:
    """ "2x8, 1x4, 3 nodes unknown"; "-" where none is free."""
    known = [f"{nodes}x{gpus}" for gpus, nodes in one["linked_sets"].items()]
    return ", ".join([*known, *([f"{one['unknown_sets']} unknown"] if one["unknown_sets"] else [])]) or "-"


def _owners(one: dict[str, Any]) -> Cell:
    text = "; ".join(f"job {job['job_id']} of {job['user']}: {job['cpus']:g} CPUs, {job['memory_gib']:.1f} GiB, "
                     f"{some(job['gpus'], 'GPU')}" for job in one["holders"])  # fmt: skip
    return Cell(text or "jobs that are not shown", text)


def _acts(made: dict[str, Any]) -> Part | None:
    acts = made["acts"]
    if not acts["rows"] and not any(acts["would_have"].values()):
        return None
    columns = ("act", "begun", "for job", "user", "GPUs", "stage", "victims", "GPU hours lost", "GPU hours idle")
    keys: list[tuple[str, Shown]] = [
        ("begun_s", day), ("job_id", str), ("user", str), ("gpus", _count), ("stage", str), ("victims", _count),
        ("lost_gpu_s", _hours), ("idle_gpu_s", _hours),
    ]  # fmt: skip
    rows = tuple(Row(f"{row['purpose']} {row['act']}", _cells(row, keys)) for row in acts["rows"])
    lead = _cost("", acts["done"])
    if any(acts["would_have"].values()):
        lead += " " + _cost("A dry-run would have made ", acts["would_have"])
    return Part("Preemptions and promises", lead, (), (Sheet("The latest", columns, rows),) if rows else ())


def _cost(before: str, cost: dict[str, Any]) -> str:
    made = f"{before}{some(cost['preemptions'], 'preemption')} and {some(cost['promises'], 'promise')}"
    return f"{made}, {_hours(cost['lost_gpu_s'])} GPU hours of work lost, {_hours(cost['idle_gpu_s'])} held idle."


def _hours(gpu_s: float) -> str:
    return f"{gpu_s / 3600:,.1f}"


def _placement(of: Material, made: dict[str, Any], number: Iterator[int]) -> Part | None:
    placed = made["placement"]
    if not placed["sizes"]:
        return None
    keys = [("jobs", _count), ("mean_ratio", _percent), ("missed", _count), ("pinned", _count)]
    sizes = Sheet("Links got, by GPUs", ("GPUs", "jobs", "of the best, mean [%]", "missed better", "pinned"),
                  tuple(Row(one["gpus"], _cells(one, keys)) for one in placed["sizes"]))  # fmt: skip
    some: list[tuple[str, Shown]] = [
        ("start_s", day),
        ("gpus", _count),
        ("nodes", str),
        ("ratio", _percent),
        ("note", str),
    ]
    missed = Sheet("Jobs that missed most", ("job", "started", "GPUs", "nodes", "of the best [%]", "better"),
                   tuple(Row(str(one["job_id"]), _cells(one, some)) for one in placed["missed"]))  # fmt: skip
    drawn = _plot("Placement quality", "Jobs of several GPUs by the part of the best links that they got.",
                  "The tables below have the figures", plots.ratios(of), number)  # fmt: skip
    return Part("How well GPUs were linked", "Of jobs of several GPUs, at their start.", (drawn,),
                (sizes, missed) if missed.rows else (sizes,))  # fmt: skip


def _plot(title: str, caption: str, alt: str, figure: go.Figure, number: Iterator[int], *, wide: bool = False) -> Plot:
    return Plot(title, caption, alt, html(figure, next(number)), wide)


def _cells(row: dict[str, Any], keys: Sequence[tuple[str, Shown]]) -> tuple[Cell, ...]:
    return tuple(_cell(row.get(key), shown) for key, shown in keys)


def _cell(value: Any, shown: Shown) -> Cell:
    return Cell("-", "") if value is None else Cell(shown(value), value)


def _count(value: Any) -> str:
    return f"{value:,}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _time(unit: Unit) -> Shown:
    return unit.text
