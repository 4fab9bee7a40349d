"""`advise`: requests in the queue, and settings of the site, that cost GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import JobId, Output, read_config
from slurmsched.cli.listing import ALL_JOBS, Choice, Column, JobFilter, Listing, filtered, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmsched.observe.queue_rows import JobKeys
    from slurmsched.observe.survey.advice import Advice, AdviceInput
    from slurmsched.slurm.doctor import CheckResult

LISTING = Listing(
    (
        Column("hours", "gpu_h", "GPU h", number=True, text=lambda value: f"{value:,.0f}"),
        Column("rule", "rule", "rule"),
        Column("user username", "user", "user", "u"),
        Column("jobid", "job_id", "job", "i", number=True),
        Column("change", "change", "write instead"),
    )
)


@framework.examples(
    ("slurmsched advise --me", "What your own jobs could request instead."),
    ("slurmsched advise -j 4711", "What job 4711 could request instead."),
)
@framework.command("advise")
@filtered("user", "account", "partition", "qos")
@click.option(
    "-j",
    "--job",
    type=JobId(),
    metavar="ID",
    shell_complete=completers.squeue("A"),
    help="Only this job, or this array.",
)
@listed(LISTING)
def command(out: Output, keeps: JobFilter, job: int | None, choice: Choice) -> None:
    """List job requests and site settings that waste GPU time.

    For each request: the GPU hours at stake and the option to use instead. The most GPU hours come first. Similar
    jobs share one line; --json has each of them. Settings of the site follow.

    Needs no more rights than squeue and sinfo. Reads only.
    """
    from slurmsched.observe.advice_input import read_advice_input
    from slurmsched.observe.survey.advice import RULES, advice

    tree = read_config()
    case, findings, warnings = read_advice_input(tree, whole=keeps == ALL_JOBS and job is None)
    if job is not None:
        _find(case, job)
    found = [one for one in advice(case) if keeps(_keys(case, one)) and job in (None, *_ids(case, one))]
    if out.as_json:
        rules = [{"rule": one.name, "wrong": one.wrong, "why": one.why, "stake": one.stake} for one in RULES]
        out.json({"jobs": found, "rules": rules, "site": findings, "warnings": warnings}, schema="advise")
        return
    if choice.plain or choice.sort:
        LISTING.show(out, found, choice)
        out.notes((), warnings, plain=True)
        return
    _print_jobs(out, found)
    _print_site(out, findings)
    for warning in warnings:
        out.line(f"warning: {warning}", "warning")


def _find(case: AdviceInput, job: int) -> None:
    """Raises InputError for a job that is not there."""
    from slurmsched.errors import InputError

    jobs = case.snapshot.jobs
    if not ((jobs.job_id == job) | (jobs.array_job_id == job)).any():
        raise InputError(f"job {job} is not in the queue")


def _keys(case: AdviceInput, one: Advice) -> JobKeys:
    from slurmsched.observe.queue_rows import JobKeys

    jobs = case.snapshot.jobs
    return JobKeys.of(jobs, int(jobs.job_id.searchsorted(one.job_id)))


def _ids(case: AdviceInput, one: Advice) -> tuple[int, int]:
    """The job's id and that of its array."""
    jobs = case.snapshot.jobs
    row = int(jobs.job_id.searchsorted(one.job_id))
    return one.job_id, int(jobs.array_job_id[row])


def _print_jobs(out: Output, found: Sequence[Advice]) -> None:
    from slurmsched.observe.survey.advice import RULES, advice_groups

    if not found:
        out.line("no job request wastes GPU time", "ok")
        return
    rows = [
        (f"{one.gpu_h:,.0f}", one.rule, one.user, _ids_in_words(one.job_ids), one.change)
        for one in advice_groups(found)
    ]
    out.table(("GPU h>", "rule", "user", "jobs", "write instead"), rows)
    out.line()
    broken = {one.rule for one in found}
    for rule in RULES:
        if rule.name in broken:
            _wrapped(out, f"{rule.name}: {rule.wrong}. {rule.why} GPU h: {rule.stake}.")


def _ids_in_words(job_ids: Sequence[int]) -> str:
    """ "12", "12 and 3 more"."""
    first = str(job_ids[0])
    return first if len(job_ids) == 1 else f"{first} and {len(job_ids) - 1} more"


def _print_site(out: Output, findings: Iterable[CheckResult]) -> None:
    for one in findings:
        out.line()
        _wrapped(out, f"site: {one.name}: {one.detail}. {one.why} Change: {one.remedy}")


def _wrapped(out: Output, text: str) -> None:
    """A paragraph of at most 80 columns."""
    import textwrap

    for line in textwrap.wrap(text, 80, subsequent_indent="  ", break_on_hyphens=False):
        out.line(line)
