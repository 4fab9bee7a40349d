"""`reproduce`: published figures of other simulators, ours beside theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output

if TYPE_CHECKING:
    from slurmsched.replay.reproduce import Table
    from slurmsched.replay.reproduce_run import Result

DIFFERS = 3


@output.command("reproduce")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="Only name the tables there are.")
def command(out: Output, names: tuple[str, ...], listing: bool) -> int:
    """Replay published tables NAME... and set ours beside theirs; all tables without a NAME.

    The figure is the mean JCT; what else was published (percentiles, makespan, preemptions) is compared too. Traces,
    settings and sources come with slurmsched. Ends with 3 if a row that must hold does not.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.reproduce import tables

    configure("warning")
    chosen = list(tables(names))
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
    return DIFFERS if failed else 0


def _list(out: Output, tables: Iterable[Table]) -> None:
    if out.as_json:
        out.json([{"name": each.name, "title": each.title, "source": each.source, "rows": len(each.rows)}
                  for each in tables])  # fmt: skip
        return
    out.table(("name", "rows>", "what", "source"), [(each.name, len(each.rows), each.title, each.source)
                                                    for each in tables])  # fmt: skip


def _replayed(table: Table) -> list[Result]:
    """Its rows, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    from slurmsched.replay.reproduce_run import results

    return list(track(results(table), table.name, total=len(table.rows), console=Console(stderr=True), transient=True))


def _show(out: Output, table: Table, results: Iterable[Result]) -> None:
    from slurmsched.replay.reproduce_text import COLUMNS, cells, heading

    out.line()
    for line in heading(table):
        out.line(line)
    rows: list[Any] = [cells(result) for result in results]
    out.table(COLUMNS, rows)
