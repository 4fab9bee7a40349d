"""Parts of the HTML pages: colours, units of time, tables, and templates."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

import slurmsched
from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.model.job_outcomes import SIZE_CLASSES
from slurmsched.paths import draft_of, dropped
from slurmsched.plain_text import escape_terminal

# Colours of every page: one set for light and one for dark, by the same names in plots, maps and text.

# Names of CSS variables. Seven lines of one plot differ also for colour-blind readers and stand out from the paper by
# 3:1; texts by 4.5:1 (tests/unit/observe/test_html_plots.py).
LIGHT = {
    "--ink": "#1a1a1a", "--soft": "#555555", "--line": "#d9d9d9", "--paper": "#ffffff", "--link": "#005a94",
    "--warn": "#b93407", "--held": "#0072b2", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#d9d9d9",
    "--series-0": "#1a1a1a", "--series-1": "#3399e1", "--series-2": "#b93407", "--series-3": "#0a747b",
    "--series-4": "#861ed0", "--series-5": "#113d6a", "--series-6": "#dc7b02",
}  # fmt: skip
DARK = {
    "--ink": "#e8e8e8", "--soft": "#b4b4b4", "--line": "#44484d", "--paper": "#16181b", "--link": "#7cc4f5",
    "--warn": "#ff8f66", "--held": "#1f6fa8", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#4a4a4a",
    "--series-0": "#e8e8e8", "--series-1": "#9cbaff", "--series-2": "#ff4c13", "--series-3": "#479e8e",
    "--series-4": "#c443fc", "--series-5": "#675d99", "--series-6": "#ffba28",
}  # fmt: skip
SERIES = tuple(name for name in LIGHT if name.startswith("--series-"))
DASHES = ("solid", "dot", "longdashdot", "dash", "dashdot", "longdash")  # they differ in grey print
SIZE_COLOURS = dict(
    zip((name for name, _, _ in SIZE_CLASSES), (SERIES[1], SERIES[3], SERIES[6], SERIES[2]), strict=True)
)
USED, FREE, LIMIT = SERIES[1], SERIES[3], SERIES[2]  # used, remaining, and total amounts

# Places in SERIES of the policies that most comparisons have; others have one by their name.
_USUAL = {"slurm": 0, "fifo": 0, "easy": 5, "discretized-las": 1, "srsf": 2, "srtf": 4, "sjf": 3, "gittins": 6}


def colour_css() -> str:
    """The variables, as CSS. Print is light; class "paper" on the root makes a dark screen light too."""
    light, dark = (" ".join(f"{name}: {colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
    at_night = f":root:not(.paper) {{ color-scheme: dark; {dark} }}"
    return f"""\
:root {{ color-scheme: light; {light} }}
@media screen and (prefers-color-scheme: dark) {{ {at_night} }}
"""


def policy_styles(policies: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dash of each line, by the names of the policies without parameters.

    A policy has the same colour on every page, unless another one of the page has it already. Up to seven lines have
    colours of their own. The first 42 differ in colour or dash.
    """
    used, made = list[int](), list[tuple[str, str]]()
    for name in policies:
        wanted = _USUAL.get(name, 1 + zlib.crc32(name.encode()) % (len(SERIES) - 1))
        order = [(wanted + step) % len(SERIES) for step in range(len(SERIES))]
        place = min(order, key=lambda each: (used.count(each), order.index(each)))
        made.append((SERIES[place], DASHES[(place + used.count(place)) % len(DASHES)]))
        used.append(place)
    return made


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time and its length [s]."""

    name: str
    seconds: float

    def text(self, seconds: float | None) -> str:
        """A time in this unit, "-" if unknown."""
        return "-" if seconds is None or seconds != seconds else f"{seconds / self.seconds:,.2f}"


SECONDS, HOURS, DAYS = TimeUnit("s", 1.0), TimeUnit("h", 3_600.0), TimeUnit("days", 86_400.0)


def unit_for_jobs(longest_mean_s: float) -> TimeUnit:
    """For times of jobs: hours if a mean reaches one."""
    return HOURS if longest_mean_s >= HOURS.seconds else SECONDS


def unit_for_span(span_s: float) -> TimeUnit:
    """For an axis of time: the largest unit of which the span holds three."""
    return next((unit for unit in (DAYS, HOURS) if span_s >= 3 * unit.seconds), SECONDS)


# Sortable tables.


@dataclass(frozen=True, slots=True)
class SheetCell:
    """One cell of a table of comparisons.

    value: what a column is sorted by, "" if nothing is known.
    ratio: over the first policy, "" if there is none.
    best: whether no other row of the column is better.
    """

    text: str
    value: float | str
    ratio: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class SheetRow:
    name: str
    cells: tuple[SheetCell, ...]


@dataclass(frozen=True, slots=True)
class PageSheet:
    """A table to sort; the first column holds names."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]


@dataclass(frozen=True, slots=True)
class PagePlot:
    """One plot of a page.

    alt: what it shows, for who cannot see it.
    pointed: whether a line below says what the pointer is on.
    """

    title: str
    caption: str
    alt: str
    html: str
    wide: bool = False
    pointed: bool = False


# Templates and files.

TEMPLATES, STATIC = (Path(slurmsched.__file__).parent / "observe" / name for name in ("templates", "static"))
SCRIPTS = ("plotly-basic.min.js", "plots.js", "sorting.js")


def write_html(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises InputError if it cannot be written."""
    draft = draft_of(path)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        dropped(draft)
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def rendered_page(name: str, /, **values: Any) -> str:
    """The page of a template of this package, with its style and scripts inside; markup in the values is escaped."""
    scripts = Markup("\n".join((STATIC / file).read_text(encoding="utf-8") for file in SCRIPTS))
    made = template(name).render(version=__version__, scripts=scripts, colours=Markup(colour_css()), **values)
    return made.encode("utf-8", "replace").decode()


def template(name: str) -> Template:
    """A template of this package, markup in its values escaped."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=safe_text
    ).get_template(name)


def safe_text(value: Any) -> Any:
    """A value of a template without characters that would turn the reading direction or move the cursor."""
    return escape_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value
