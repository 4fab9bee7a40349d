"""`topology quality`: how good the GPUs were that jobs got, beside the best they could have had."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import config
from slurmsched.words import some

Row = Mapping[str, Any]


def register(group: click.Group) -> None:
    """Add the command to `topology`."""

    @output.with_command(group, "quality")
    @click.option("--since", default="1d", show_default=True, metavar="DURATION", help="Jobs that started so long ago "
                  "or later.")  # fmt: skip
    @click.option(
        "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Most misses shown; 0: all."
    )
    def quality(out: Output, since: str, limit: int) -> None:
        """Tell how good the GPUs were that jobs got: bandwidth got, over the best possible when they started.

        From the ledger of a running daemon. Jobs on nodes of unknown wiring, and those of one GPU, are not in it.
        """
        from slurmsched.db.reports import placements

        rows = placements(config().ledger.address, time.time() - _seconds(since))
        missed = [row for row in rows if row["note"]]
        shown = missed[:limit] if limit else missed
        if out.as_json:
            out.json({"since_s": _seconds(since), "jobs": list(summed(rows)), "missed": shown})
            return
        out.table(("jobs of", "pinned", "jobs>", "best>", "mean ratio>", "worst>"), list(map(_cells, summed(rows))))
        if shown:
            out.table(("job>", "started", "nodes", "GPUs>", "ratio>", "missed"), [_missed(row) for row in shown])
        if len(shown) < len(missed):
            out.line(f"... and {len(missed) - len(shown)} more (--limit 0 shows all)")


def summed(rows: Sequence[Row]) -> Iterable[dict[str, Any]]:
    """Jobs by number of GPUs and by whether they were pinned: how many, the share that got the best, mean and worst."""
    for gpus, pinned in sorted({(row["gpus"], bool(row["pinned"])) for row in rows}):
        ratios = [row["ratio"] for row in rows if (row["gpus"], bool(row["pinned"])) == (gpus, pinned)]
        best = sum(row["gpus"] == gpus and bool(row["pinned"]) == pinned and not row["note"] for row in rows)
        yield {"gpus": gpus, "pinned": pinned, "jobs": len(ratios), "best_share": best / len(ratios),
               "mean_ratio": sum(ratios) / len(ratios), "worst_ratio": min(ratios)}  # fmt: skip


def _cells(row: Row) -> tuple[Any, ...]:
    return (some(row["gpus"], "GPU"), "yes" if row["pinned"] else "no", row["jobs"], f"{row['best_share']:.1%}",
            f"{row['mean_ratio']:.3f}", f"{row['worst_ratio']:.3f}")  # fmt: skip


def _missed(row: Row) -> tuple[Any, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["start_s"]))
    return row["job_id"], started, row["nodes"], row["gpus"], f"{row['ratio']:.3f}", row["note"]


def _seconds(text: str) -> float:
    from slurmsched.errors import InputError
    from slurmsched.model.durations import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise InputError(f"--since {text} {error}") from None
