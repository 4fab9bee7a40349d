"""`report`: waits, use of the GPUs, cost and fairness of a span of time, as tables or as a page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output, refuse_folder
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.replay.sheets import Sheet


@output.command("report")
@click.option("--since", metavar="DURATION", default="7d", show_default=True, help="From so long ago until now.")
@click.option("-o", "--out", "page", type=click.Path(dir_okay=False, path_type=Path),
              help="Write tables and plots as an HTML page.")  # fmt: skip
@click.option("--no-sacct", is_flag=True, help="Ask accounting for nothing: the ledger's jobs, which name no users.")
def command(out: Output, since: str, page: Path | None, no_sacct: bool) -> None:
    """Report waits by size and tenant, use, stranded GPUs, preemptions, placement and fairness. Reads only.

    Jobs that ended are those of sacct, one call a day, where it can be asked; else of the ledger.
    """
    from slurmsched.logs import configure
    from slurmsched.model.durations import duration_s
    from slurmsched.report.figures import figures
    from slurmsched.report.material import gathered

    configure("warning")
    refuse_folder(page)
    until_s = time.time()
    try:
        since_s = until_s - duration_s(since)
    except ValueError as error:
        raise click.BadParameter(f"{since!r} {error}", param_hint="--since") from error
    of = gathered(config(), since_s, until_s, ask_sacct=not no_sacct)
    made = figures(of)
    if page is not None:
        from slurmsched.replay.page import write_whole
        from slurmsched.report.page import report_page

        write_whole(page, report_page(of, made))
    if out.as_json:
        out.json(made | {"page": str(page.resolve()) if page else None})
        return
    _print(out, made)
    if page is not None:
        out.line(f"Page: {page.resolve()}")


def _print(out: Output, made: dict[str, Any]) -> None:
    from slurmsched.report.page import text_sheets

    held = "" if made["utilisation"] is None else f", {100 * made['utilisation']:.1f} % of the GPUs"
    started = some(made["started"], "job")
    out.line(f"{started} started; {made['gpu_hours']:,.0f} GPU hours held{held} (by {made['source']})")
    for text in made["unread"]:
        out.line(f"not known: {text}", "warning")
    for sheet in text_sheets(made):
        out.line()
        _table(out, sheet)


def _table(out: Output, sheet: Sheet) -> None:
    first, *rest = sheet.columns
    rows = [(row.name, *(cell.text for cell in row.cells)) for row in sheet.rows]
    out.table((first, *(f"{name}>" for name in rest)), rows, title=sheet.caption)
