"""Tries what slurmsched needs of Slurm: by questions only, or with a held job of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model.snapshot import Rights, Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.finding import Finding, operator_line

READS = (
    ("jobs", ("squeue", "-h", "-t", "running", "-o", "%A"), "Without the queue there is nothing to order."),
    ("priorities", ("sprio", "-h", "-w"), "Priorities decide where a job must be put."),
    ("slurmctld's load", ("sdiag",), "Writing stops while slurmctld is busy."),
)
RECORDS = ("earlier runs", ("sacct", "-X", "-n", "-S", "now-1minutes", "-o", "JobID"),
           "Service attained before a requeue comes from sacct.")  # fmt: skip
TINY = ("--parsable", "-H", "-J", "slurmsched-probe", "-N", "1", "-n", "1", "-t", "1", "-o", "/dev/null")


def probe_rights(commands: Commands, site: Site) -> tuple[Finding, ...]:
    """Whether everything can be read, and whether the user may write. Submits and changes nothing."""
    findings = [_attempt(f"read {name}", why, partial(commands.run, *command)) for name, command, why in READS]
    if _accounted(site):
        name, command, why = RECORDS  # without an answer cycles go on, and ask again
        findings.append(_attempt(f"read {name}", why, partial(commands.run, *command), otherwise="warn"))
    return (*findings, _may_write(site))


def probe_job(commands: Commands, options: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Whether levers and comment of a job can be written: submits a tiny held job and cancels it in any case.

    options: more of sbatch's options, such as ("-p", "gpu", "-A", "staff").
    """
    try:
        job_id = _submitted(commands.run("sbatch", *TINY, *options, "--wrap", "true"))
    except SlurmError as error:
        return (Finding("probe: submit", "fail", str(error), "The other probes need a job.", "sbatch -H --wrap true"),)
    try:
        steps = tuple(_steps(commands, job_id))
    finally:
        done = _attempt("probe: cancel", "The probe leaves nothing behind.", partial(commands.run, "scancel", job_id))
    return (*steps, done)


def read_gres_conf(site: Site) -> str | None:
    """Text of gres.conf beside slurm.conf; None if it cannot be read from here."""
    conf = site.settings.get("SLURM_CONF", "")
    try:
        return (Path(conf).parent / "gres.conf").read_text(encoding="utf-8", errors="replace") if conf else None
    except OSError:
        return None


def read_job_submit(site: Site) -> tuple[str, ...]:
    """Text of job_submit.lua beside slurm.conf, and of the site's script that ours calls; what can be read."""
    found, conf = list[str](), site.settings.get("SLURM_CONF", "")
    for name in ("job_submit.lua", "job_submit_site.lua") if conf else ():
        try:
            found.append((Path(conf).parent / name).read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            break  # without ours nobody calls the site's
        except OSError:
            found.append("")  # there, and not for us
    return tuple(found)


def read_qos_thresholds(commands: Commands, site: Site) -> dict[str, int]:
    """MinPrioThres of each QOS that has one; empty where slurmdbd is absent, away or knows no such field."""
    if not _accounted(site):
        return {}
    try:
        rows = commands.run("sacctmgr", "-nP", "show", "qos", "format=name,minpriothres").splitlines()
    except SlurmError:
        return {}
    pairs = (row.partition("|") for row in rows)
    return {name: int(value) for name, _, value in pairs if value.isdecimal() and int(value) > 0}


def _submitted(answer: str) -> str:
    """The job id that sbatch printed. Raises UnreadableError: scontrol takes an empty id for success."""
    job_id = answer.partition(";")[0].strip()
    if not job_id.isdecimal():
        raise UnreadableError("sbatch printed no job id", text=answer)
    return job_id


def _steps(commands: Commands, job_id: str) -> Iterator[Finding]:
    def update(word: str) -> Callable[[], str]:
        return lambda: commands.run("scontrol", "update", f"JobId={job_id}", word)

    def shown(code: str, wanted: str) -> Callable[[], str]:
        return lambda: _same(commands.run("squeue", "-h", "-j", job_id, "-o", code).strip(), wanted)

    levers = "Jobs are ordered by their nice or site factor; a negative nice needs Operator."
    notes = "A job's comment can carry messages to its user."
    yield _attempt("probe: nice=-1", levers, update("Nice=-1"))
    yield _attempt("probe: nice reads back", levers, shown("%y", "-1"))
    yield _attempt("probe: site factor=1", levers, update("SiteFactor=1"))
    yield _attempt("probe: comment set", notes, update("Comment=slurmsched"))
    yield _attempt("probe: comment reads back", notes, shown("%k", "slurmsched"))
    yield _attempt("probe: comment cleared", notes, update("Comment="))


def _same(found: str, wanted: str) -> str:
    if found != wanted:
        raise SlurmError(f"squeue shows {found!r}, {wanted!r} was written: a job_submit plug-in may change it")
    return found


def _may_write(site: Site) -> Finding:
    remedy = operator_line(site.user)
    if not _accounted(site):
        remedy = "without slurmdbd only SlurmUser and root may write; run as SlurmUser, or add slurmdbd"
    detail = f"{site.user} is {site.rights.name.capitalize()}"
    ok = site.rights >= Rights.OPERATOR
    why = "Other users' jobs, negative nice and site factors need Operator."
    return Finding("write levers", "ok" if ok else "fail", detail, why, "" if ok else remedy)


def _attempt(name: str, why: str, action: Callable[[], str], otherwise: str = "fail") -> Finding:
    try:
        action()
    except SlurmError as error:
        return Finding(name, otherwise, str(error), why, "see the message: rights, a plug-in, or a daemon that is away")
    return Finding(name, "ok", "works", why)


def _accounted(site: Site) -> bool:
    return site.settings.get("AccountingStorageType", "").endswith("slurmdbd")
