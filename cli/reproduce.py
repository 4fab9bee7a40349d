"""`reproduce`: published figures of other simulators, ours beside theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import ANSWER_NO, Output

if TYPE_CHECKING:
    from slurmsched.sim.experiments.reproduction import PublishedTable, TableResult


@framework.examples(("slurmsched reproduce --list", "The tables."))
@framework.command("reproduce")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completers.complete_published_tables)
@click.option("--list", "listing", is_flag=True, help="Only list the tables.")
def command(out: Output, names: tuple[str, ...], listing: bool) -> int:
    """Replay published tables and compare our figures with theirs.

    Without NAME: all tables. Compares the mean JCT, and whatever else was published (percentiles, makespan,
    preemptions). Traces, settings and sources are included. Exit code 10: a row that must agree does not.
    """
    from slurmsched.logs import configure
    from slurmsched.sim.experiments.reproduction import published_tables

    configure("warning")
    chosen = list(published_tables(names))
    if listing:
        _list(out, chosen)
        return 0
    made = [(table, _replayed(table)) for table in chosen]
    if out.as_json:
        out.json([result.record for _, results in made for result in results])
    else:
        for table, results in made:
            _show(out, table, results)
    failed = [result for _, results in made for result in results if not result.holds]
    for result in failed:
        where = " on ".join(filter(None, (result.row.trace, result.row.cluster)))
        click.echo(f"slurmsched: {result.row.table}: {where}: differs from the published figure", err=True)
    return ANSWER_NO if failed else 0


def _list(out: Output, tables: Iterable[PublishedTable]) -> None:
    if out.as_json:
        out.json([{"name": each.name, "title": each.title, "source": each.source, "rows": len(each.rows)}
                  for each in tables])  # fmt: skip
        return
    out.table(("name", "rows>", "what", "source"), [(each.name, len(each.rows), each.title, each.source)
                                                    for each in tables])  # fmt: skip


def _replayed(table: PublishedTable) -> list[TableResult]:
    """Its rows, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    from slurmsched.sim.experiments.reproduction import table_results

    return list(
        track(table_results(table), table.name, total=len(table.rows), console=Console(stderr=True), transient=True)
    )


def _show(out: Output, table: PublishedTable, results: Iterable[TableResult]) -> None:
    from slurmsched.sim.experiments.reproduction import RESULT_COLUMNS, result_cells, table_heading

    out.line()
    for line in table_heading(table):
        out.line(line)
    rows: list[Any] = [result_cells(result) for result in results]
    out.table(RESULT_COLUMNS, rows)
