"""Parts of the HTML pages: units of time, tables, plots, and templates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

import slurmsched
from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.observe.page_colours import colour_css
from slurmsched.paths import draft_of, dropped
from slurmsched.plain_text import escape_terminal


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


# Sortable tables and plots.


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
