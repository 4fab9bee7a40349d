"""`advise`: requests in the queue, and settings of the site, that cost GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.output import JobId, Output
from slurmsched.cli.settings import config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmsched.config import Config
    from slurmsched.model import Snapshot
    from slurmsched.slurm.finding import Finding
    from slurmsched.survey.advice import Advice
    from slurmsched.survey.case import Case

OF_SITE = ("SelectTypeParameters", "AccountingStorageTRES", "GPU files")  # checks of doctor about GPUs


@output.command("advise")
@click.option("--user", metavar="NAME", default="", help="Only this user's jobs.")
@click.option("--job", type=JobId(), metavar="ID", help="Only this job, or this array.")
def command(out: Output, user: str, job: int | None) -> None:
    """Show requests of waiting and running jobs that cost GPU time, most GPU hours at stake first, with the option to
    write instead; then settings of the site that do. Reads only.

    Needs no rights beyond those of squeue and sinfo. Jobs that are alike are one line; --json has each.
    """
    from slurmsched.survey.advice import RULES, advice

    tree = config()
    case, findings, warnings = _read(tree, whole=not user and job is None)
    if job is not None:
        _find(case, job)
    found = [one for one in advice(case) if user in ("", one.user) and job in (None, *_ids(case, one))]
    if out.as_json:
        rules = [{"rule": one.name, "wrong": one.wrong, "why": one.why, "stake": one.stake} for one in RULES]
        out.json({"jobs": found, "rules": rules, "site": findings, "warnings": warnings})
        return
    _print_jobs(out, found)
    _print_site(out, findings)
    for warning in warnings:
        out.line(f"warning: {warning}", "warning")


def _find(case: Case, job: int) -> None:
    """Raises InputError for a job that is not there."""
    from slurmsched.errors import InputError

    jobs = case.snapshot.jobs
    if not ((jobs.job_id == job) | (jobs.array_job_id == job)).any():
        raise InputError(f"job {job} is not in the queue")


def _ids(case: Case, one: Advice) -> tuple[int, int]:
    """The job's id and that of its array."""
    jobs = case.snapshot.jobs
    row = int(jobs.job_id.searchsorted(one.job_id))
    return one.job_id, int(jobs.array_job_id[row])


def _read(tree: Config, *, whole: bool) -> tuple[Case, Sequence[Finding], Sequence[str]]:
    """The case, what of the site costs GPU time (only of a whole look), and warnings.

    Slurm's choice of GPUs is judged only where something depends on it: that may take seconds.
    """
    from dataclasses import replace

    from slurmsched.slurm.asked import read_asked
    from slurmsched.slurm.look import look
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.shares import pick_findings, read_checks
    from slurmsched.survey.case import Case
    from slurmsched.survey.judges import by_job

    snapshot = look(tree)
    asked = read_asked(open_commands(tree.slurm), snapshot.site)
    usual, warnings = _usual(tree, snapshot)
    case = Case(snapshot, asked, usual, preempted=_preempted(tree, snapshot))
    checks = read_checks(tree, snapshot) if whole or list(by_job(case)) else {}
    shares = {name: (forms[0].best_share, forms[1].best_share) for name, forms in checks.items()}
    findings = (*_findings(snapshot), *pick_findings(checks)) if whole else ()
    return replace(case, shares=shares), findings, (*snapshot.warnings, *warnings)


def _usual(tree: Config, snapshot: Snapshot) -> tuple[Any, tuple[str, ...]]:
    """How long jobs of those who wait ran, and a warning where that is not known."""
    from slurmsched.errors import SlurmError
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.usual import read_usual

    jobs = snapshot.jobs
    warnings: list[str] = []
    try:
        usual = read_usual(open_commands(tree.slurm), set(jobs.take(jobs.pending).user), warnings)
        return usual, tuple(warnings)
    except SlurmError as error:
        return {}, (f"time limits are not judged: {error}",)


def _preempted(tree: Config, snapshot: Snapshot) -> bool:
    """Whether a running job may be stopped: by slurmsched, or by Slurm's own preemption."""
    settings = snapshot.site.settings
    kind, mode = settings.get("PreemptType", ""), settings.get("PreemptMode", "OFF").upper()
    return tree.preemption.enabled or (kind not in ("", "(null)", "preempt/none") and mode != "OFF")


def _findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Those checks of doctor that are about GPUs and not well."""
    from slurmsched.slurm.checklist import checklist
    from slurmsched.slurm.probe import read_gres_conf

    found = checklist(snapshot.site, gres_conf=read_gres_conf(snapshot.site))
    return tuple(one for one in found if one.name in OF_SITE and not one.ok)


def _print_jobs(out: Output, found: Sequence[Advice]) -> None:
    from slurmsched.survey.advice import RULES

    if not found:
        out.line("no job asks for what costs GPU time", "ok")
        return
    alike: dict[tuple[str, str, str], list[Advice]] = {}
    for one in found:
        alike.setdefault((one.rule, one.user, one.change), []).append(one)
    rows = [(f"{sum(one.gpu_h for one in of):,.0f}", rule, user, _named(of), change)
            for (rule, user, change), of in alike.items()]  # fmt: skip
    rows.sort(key=lambda row: -float(row[0].replace(",", "")))
    out.table(("GPU h>", "rule", "user", "jobs", "write instead"), rows)
    out.line()
    broken = {one.rule for one in found}
    for rule in RULES:
        if rule.name in broken:
            _wrapped(out, f"{rule.name}: {rule.wrong}. {rule.why} GPU h: {rule.stake}.")


def _named(of: Sequence[Advice]) -> str:
    """ "12", "12 and 3 more"."""
    first = str(min(one.job_id for one in of))
    return first if len(of) == 1 else f"{first} and {len(of) - 1} more"


def _print_site(out: Output, findings: Iterable[Finding]) -> None:
    for one in findings:
        out.line()
        _wrapped(out, f"site: {one.name}: {one.detail}. {one.why} Change: {one.remedy}")


def _wrapped(out: Output, text: str) -> None:
    """A paragraph of at most 80 columns."""
    import textwrap

    for line in textwrap.wrap(text, 80, subsequent_indent="  ", break_on_hyphens=False):
        out.line(line)
