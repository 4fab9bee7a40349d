"""`doctor`: are this Slurm and this machine set up so that the levers work?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import ANSWER_NO, Output, read_config_sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmsched.slurm.doctor import CheckResult


@framework.examples(
    ("slurmsched doctor --all", "All checks, also those that passed."),
    ("slurmsched doctor --probe", "Also change and cancel a held test job."),
)
@framework.command("doctor")
@click.option("--probe", is_flag=True, help="Also submit a held job, change its nice and site factor, and cancel it.")
@click.option("--all", "everything", is_flag=True, help="Also show checks that passed.")
def command(out: Output, probe: bool, everything: bool) -> int:
    """Check Slurm, the queue and the files of slurmsched.

    Each check gives a verdict and the line to change. Exit code 10: slurmsched cannot work here yet.
    """
    from slurmsched.slurm.doctor.diagnosis import diagnose

    loaded = read_config_sources()
    found = diagnose(loaded.config, probe=probe, path=loaded.path)
    if out.as_json:
        out.json({"findings": found}, schema="doctor")
    else:
        show(out, found, everything=everything)
    return ANSWER_NO if any(finding.verdict == "fail" for finding in found) else 0


def show(out: Output, found: Sequence[CheckResult], *, everything: bool) -> None:
    """Findings as a table, with why for those that are not well, and how many there are of each."""
    shown = [finding for finding in found if everything or not finding.ok]
    if shown:
        rows = [(finding.verdict, finding.name, finding.detail, finding.remedy) for finding in shown]
        out.table(("verdict", "check", "found", "change"), rows)
    for finding in shown:
        if not finding.ok and finding.why:
            out.line(f"{finding.name}: {finding.why}")
    count = {verdict: sum(finding.verdict == verdict for finding in found) for verdict in ("ok", "warn", "fail")}
    out.line(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
