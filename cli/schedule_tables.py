"""Tables that `replay`, `compare` and `sweep` share: the back-test, and one job under each schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurmsched.cli.framework import Output
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model.trace import RecordedTrace


def show_back_test(out: Output, figures: Mapping[str, Any]) -> None:
    """The recorded schedule beside the model's, and how far to trust the rest."""
    from slurmsched.sim.experiments.back_test import BACK_TEST_COLUMNS, back_test_lead, back_test_table

    unit, rows = back_test_table(figures)
    out.line(back_test_lead(figures))
    out.table(("", *(f"{name.format(unit=unit.name)}>" for name in BACK_TEST_COLUMNS)), rows)
    out.line(f"Trust: {figures['verdict']}")
    out.line()


def show_job(out: Output, rows: Sequence[Mapping[str, Any]], recorded: RecordedTrace) -> None:
    """One job, a row a schedule."""
    from slurmsched.observe.html_page import SECONDS
    from slurmsched.sim.traces.trace_selection import clock_text

    job, origin_s = rows[0], recorded.origin_s if recorded.origin_s == recorded.origin_s else 0.0
    who = ", ".join(f"{name} {job[name]}" for name in ("user", "account", "partition", "qos") if job[name])
    out.line(f"Job {job['job_id']}: {pluralize(job['gpus'], 'GPU')}{', ' if who else ''}{who}")

    def clock(at_s: float | None) -> str:
        return "-" if at_s is None else clock_text(at_s - origin_s, recorded, seconds=True)

    names = ("submit_s", "eligible_s", "start_s", "end_s")
    out.table(
        ("schedule", "submit", "eligible", "start", "end", "wait [s]>", "nodes>", "node list"),
        [(row["schedule"], *(clock(row[name]) for name in names), SECONDS.text(row["wait_s"]), row["nodes"],
          row["node_list"]) for row in rows],
    )  # fmt: skip
    out.line()
