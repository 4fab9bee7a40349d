"""`doctor`: are this Slurm and this machine set up so that the levers work?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import output
from slurmsched.cli.output import Output
from slurmsched.cli.settings import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmsched.slurm.finding import Finding


@output.command("doctor")
@click.option("--probe", is_flag=True, help="Also try the levers on a held job of slurmsched's own, then cancel it.")
@click.option("--all", "everything", is_flag=True, help="Show what is well too.")
def command(out: Output, probe: bool, everything: bool) -> int:
    """Check the site's Slurm, queue and slurmsched's files, each with a verdict and the line to change.

    Exit code 3 if something keeps slurmsched from working, else 0.
    """
    from slurmsched.slurm.doctor import findings

    told = settings()
    found = findings(told.config, probe=probe, path=told.path)
    if out.as_json:
        out.json(found)
    else:
        show(out, found, everything=everything)
    return 3 if any(finding.verdict == "fail" for finding in found) else 0


def show(out: Output, found: Sequence[Finding], *, everything: bool) -> None:
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
