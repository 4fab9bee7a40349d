"""`report`: waits, use of the GPUs, cost and fairness of a span of time, as tables or as a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, read_config, refuse_folder
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Snapshot
    from slurmsched.observe.html_page import PageSheet


@framework.examples(("slurmsched report --since 30d --page report.html", "A page about the last 30 days."))
@framework.command("report")
@click.option(
    "--since", metavar="DURATION", default="7d", show_default=True, help="Length of the period that ends now."
)
@click.option("--page", "page", type=click.Path(dir_okay=False, path_type=Path),
              help="Write tables and plots to this HTML page.")  # fmt: skip
@click.option(
    "--no-sacct", is_flag=True, help="Do not read accounting; use the ledger's jobs, which have no user names."
)
def command(out: Output, since: str, page: Path | None, no_sacct: bool) -> None:
    """Report waits, GPU use, preemptions, placement and fairness.

    Waits are given by job size and by tenant. Jobs that ended are read from sacct, one call per day of history. If
    sacct cannot be read, the ledger's jobs are used. Reads only.
    """
    from slurmsched.logs import configure
    from slurmsched.model.durations import duration_s
    from slurmsched.observe.report.report_figures import report_figures
    from slurmsched.observe.report.report_input import read_report_input

    configure("warning")
    refuse_folder(page)
    until_s = time.time()
    try:
        since_s = until_s - duration_s(since)
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    config = read_config()
    of = read_report_input(config, lambda: _now(config), since_s, until_s, ask_sacct=not no_sacct)
    made = report_figures(of)
    if page is not None:
        from slurmsched.observe.html_page import write_html
        from slurmsched.observe.report.report_page import report_page

        write_html(page, report_page(of, made))
    if out.as_json:
        out.json(made | {"page": str(page.resolve()) if page else None})
        return
    _print(out, made)
    if page is not None:
        out.line(f"Page: {page.resolve()}")


def _now(config: Config) -> Snapshot:
    from slurmsched.daemon import cycle_parts

    with cycle_parts.open_cycle_parts(config, apply=False, read_only=True) as parts:
        return parts.read()


def _print(out: Output, made: dict[str, Any]) -> None:
    from slurmsched.observe.report.report_page import assumed_line, text_sheets

    held = "" if made["utilisation"] is None else f", {100 * made['utilisation']:.1f} % of the GPUs"
    started = pluralize(made["started"], "job")
    out.line(f"{started} started; {made['gpu_hours']:,.0f} GPU hours held{held} (by {made['source']})")
    out.line(assumed_line(made))
    for text in made["unread"]:
        out.line(f"not known: {text}", "warning")
    for sheet in text_sheets(made):
        out.line()
        _table(out, sheet)


def _table(out: Output, sheet: PageSheet) -> None:
    first, *rest = sheet.columns
    rows = [(row.name, *(cell.text for cell in row.cells)) for row in sheet.rows]
    out.table((first, *(f"{name}>" for name in rest)), rows, title=sheet.caption)
