"""Checks of rights, queue and our own files: whether Slurm lets us read and write, and who can change what."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from slurmsched.config import Config, ScopeConfig
from slurmsched.db import database as engines
from slurmsched.db.override_log import OverrideLog
from slurmsched.errors import LedgerError, SlurmError, UnreadableError
from slurmsched.model import Snapshot
from slurmsched.model.snapshot import Rights, Site
from slurmsched.passwords import holds_password, url_without_password
from slurmsched.paths import owner, standing_folder
from slurmsched.plain_text import pluralize, pluralize_of
from slurmsched.planning.priorities.priority_fields import PRIORITY_FIELDS
from slurmsched.planning.priorities.priority_values import base_values
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.site import operator_line, own_name

READS = (
    ("jobs", ("squeue", "-h", "-t", "running", "-o", "%A"), "Without the queue there is nothing to order."),
    ("priorities", ("sprio", "-h", "-w"), "Priorities decide which values are written."),
    ("slurmctld's load", ("sdiag",), "Nothing is written while slurmctld is busy."),
)
RECORDS = ("earlier runs", ("sacct", "-X", "-n", "-S", "now-1minutes", "-o", "JobID"),
           "Service of runs before a requeue comes from sacct.")  # fmt: skip
TINY = ("--parsable", "-H", "-J", "slurmsched-probe", "-N", "1", "-n", "1", "-t", "1", "-o", "/dev/null")


def check_rights(commands: Commands, site: Site) -> tuple[CheckResult, ...]:
    """Whether everything can be read, and whether the user may write. Changes nothing."""
    findings = [_attempt(f"read {name}", why, partial(commands.run, *command)) for name, command, why in READS]
    if site.accounts_in_slurmdbd:
        name, command, why = RECORDS  # without an answer cycles go on and ask again
        findings.append(_attempt(f"read {name}", why, partial(commands.run, *command), otherwise="warn"))
    return (*findings, _may_write(site))


def probe_job(commands: Commands, options: Sequence[str] = ()) -> tuple[CheckResult, ...]:
    """Whether levers and comment of a job can be written. Submits a tiny held job and always cancels it.

    options: more options of sbatch, such as ("-p", "gpu", "-A", "staff").
    """
    try:
        job_id = _submitted(commands.run("sbatch", *TINY, *options, "--wrap", "true"))
    except SlurmError as error:
        return (
            CheckResult("probe: submit", "fail", str(error), "The other probes need a job.", "sbatch -H --wrap true"),
        )
    try:
        steps = tuple(_steps(commands, job_id))
    finally:
        done = _attempt("probe: cancel", "The probe removes its job.", partial(commands.run, "scancel", job_id))
    return (*steps, done)


def gres_conf_text(site: Site) -> str | None:
    """Text of gres.conf beside slurm.conf; None if it cannot be read on this host."""
    conf = site.settings.get("SLURM_CONF", "")
    try:
        return (Path(conf).parent / "gres.conf").read_text(encoding="utf-8", errors="replace") if conf else None
    except OSError:
        return None


def read_job_submit(site: Site) -> tuple[str, ...]:
    """Texts of job_submit.lua beside slurm.conf and of the site's script that ours calls."""
    found, conf = list[str](), site.settings.get("SLURM_CONF", "")
    for name in ("job_submit.lua", "job_submit_site.lua") if conf else ():
        try:
            found.append((Path(conf).parent / name).read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            break  # only ours calls the site's script
        except OSError:
            found.append("")  # it exists, but we may not read it
    return tuple(found)


def read_qos_thresholds(commands: Commands, site: Site) -> dict[str, int]:
    """MinPrioThres of each QOS that has one; empty if slurmdbd is missing, down or has no such field."""
    if not site.accounts_in_slurmdbd:
        return {}
    try:
        rows = commands.run("sacctmgr", "-nP", "show", "qos", "format=name,minpriothres").splitlines()
    except SlurmError:
        return {}
    pairs = (row.partition("|") for row in rows)
    return {name: int(value) for name, _, value in pairs if value.isdecimal() and int(value) > 0}


def _submitted(answer: str) -> str:
    """The job id that sbatch printed. Raises UnreadableError, since scontrol accepts an empty id."""
    job_id = answer.partition(";")[0].strip()
    if not job_id.isdecimal():
        raise UnreadableError("sbatch printed no job id", text=answer)
    return job_id


def _steps(commands: Commands, job_id: str) -> Iterator[CheckResult]:
    def update(word: str) -> Callable[[], str]:
        return lambda: commands.run("scontrol", "update", f"JobId={job_id}", word)

    def shown(code: str, wanted: str) -> Callable[[], str]:
        return lambda: _check_same(commands.run("squeue", "-h", "-j", job_id, "-o", code).strip(), wanted)

    levers = "Jobs are ordered by their nice or site factor; a negative nice needs Operator."
    notes = "Messages for users are put into the comment of their job."
    yield _attempt("probe: nice=-1", levers, update("Nice=-1"))
    yield _attempt("probe: nice reads back", levers, shown("%y", "-1"))
    yield _attempt("probe: site factor=1", levers, update("SiteFactor=1"))
    yield _attempt("probe: comment set", notes, update("Comment=slurmsched"))
    yield _attempt("probe: comment reads back", notes, shown("%k", "slurmsched"))
    yield _attempt("probe: comment cleared", notes, update("Comment="))


def _check_same(found: str, wanted: str) -> str:
    if found != wanted:
        raise SlurmError(f"squeue shows {found!r}, {wanted!r} was written: a job_submit plug-in may change it")
    return found


def _may_write(site: Site) -> CheckResult:
    remedy = operator_line(site.user)
    if not site.accounts_in_slurmdbd:
        remedy = "without slurmdbd only SlurmUser and root may write; run as SlurmUser, or add slurmdbd"
    detail = f"{site.user} is {site.rights.name.capitalize()}"
    ok = site.rights >= Rights.OPERATOR
    why = "Other users' jobs, negative nice and site factors need Operator."
    return CheckResult("write levers", "ok" if ok else "fail", detail, why, "" if ok else remedy)


def _attempt(name: str, why: str, action: Callable[[], str], otherwise: str = "fail") -> CheckResult:
    try:
        action()
    except SlurmError as error:
        return CheckResult(
            name, otherwise, str(error), why, "see the message: rights, a plug-in, or a daemon that is away"
        )
    return CheckResult(name, "ok", "works", why)


# Checks of the queue.

SKEW_S = 5.0  # difference of the two clocks above which run times are wrong
MOST_JOBS_SHOWN = 5  # jobs that a result names
NO_LEDGER = "without memory"  # beginning of the warning that the ledger could not be read


def check_queue(config: Config, snapshot: Snapshot) -> tuple[CheckResult, ...]:
    """Checks of scope and levers. snapshot: with the columns of the ledger."""
    return (
        _scope(config.scope, snapshot),
        _gpus_in_scope(config.scope, snapshot),
        _levers(config, snapshot),
        *_other_lever(config, snapshot),
    )


def check_clock_offset(commands: Commands, own_s: float) -> CheckResult:
    """Compares slurmctld's clock with ours. own_s: our clock [Unix s]."""
    why = "Attained service of running jobs is our time minus slurmctld's start times."
    try:
        shown = re.search(r"^sdiag output at .*\((\d+)\)", commands.run("sdiag"), re.MULTILINE)
    except SlurmError as error:
        return CheckResult("clock", "warn", str(error), why, "sdiag")
    if shown is None:
        return CheckResult(
            "clock", "warn", "sdiag does not show slurmctld's time", why, "compare `date` on both machines"
        )
    skew_s = own_s - float(shown[1])
    verdict = "warn" if abs(skew_s) > SKEW_S else "ok"
    detail = f"{skew_s:+.0f} s from slurmctld's"
    return CheckResult("clock", verdict, detail, why, "timedatectl set-ntp true" if verdict == "warn" else "")


def _scope(scope: ScopeConfig, snapshot: Snapshot) -> CheckResult:
    why = "A job is managed only if all its partitions are named."
    known = dict(zip(snapshot.partitions.name, snapshot.partitions.nodes.tolist(), strict=True))
    missing = [name for name in scope.partitions if name not in known and name != "*"]
    empty = [name for name in scope.partitions if known.get(name) == 0]
    if not scope.partitions:
        return CheckResult("scope.partitions", "warn", "empty: no job is managed", why, f"partitions = {[*known]}")
    if missing:
        return CheckResult("scope.partitions", "fail", f"Slurm has no {', '.join(missing)}", why, f"one of {[*known]}")
    if empty:
        return CheckResult("scope.partitions", "warn", f"{', '.join(empty)}: no nodes", why, "Nodes= in slurm.conf")
    return CheckResult("scope.partitions", "ok", ", ".join(scope.partitions), why)


def _gpus_in_scope(scope: ScopeConfig, snapshot: Snapshot) -> CheckResult:
    """GPUs of all nodes and of those in scope."""
    why = "slurmsched orders jobs for the GPUs that Slurm has."
    change = "slurm.conf: GresTypes=gpu and Gres=gpu:8 on the nodes; gres.conf: Name=gpu File=/dev/nvidia[0-7]"
    nodes, listed = snapshot.nodes, frozenset(scope.partitions)
    total, without = int(nodes.gpus.sum()), "warn" if not scope.gpu_jobs_only else "fail"
    if not total:
        return CheckResult("GPUs", without, f"none on {pluralize(len(nodes), 'node')}", why, change)
    all_ = not listed or "*" in listed
    serves = nodes.partitions.map(lambda text: all_ or not listed.isdisjoint(text.split(",")), np.bool_)
    here = int(nodes.gpus[serves].sum())
    if not here:
        return CheckResult(
            "GPUs", without, f"none in scope, {total} elsewhere", why, "scope.partitions: those with GPUs"
        )
    used = int((nodes.gpus[serves] > 0).sum())
    return CheckResult("GPUs", "ok", f"{pluralize(here, 'GPU')} on {pluralize(used, 'node')}", why)


def _levers(config: Config, snapshot: Snapshot) -> CheckResult:
    """Large values that are not on record: another tool or a user set them."""
    jobs, lever = snapshot.jobs, config.lever
    why = "Two programs that write the same lever undo each other's order."
    large = jobs.pending & (np.abs(PRIORITY_FIELDS[lever.kind].now(jobs)) >= lever.floor)
    rows = np.flatnonzero(large & ~jobs.written)
    name = f"others' {lever.kind}"
    if not len(rows):
        return CheckResult(name, "ok", f"{pluralize(int(large.sum()), 'large value')}, all on record", why)
    waiting = int(jobs.pending.sum())
    detail = pluralize_of(len(rows), waiting, "waiting job", "has", "have")
    detail += f" {lever.floor} or more, up or down, and no record: "
    detail += ", ".join(map(str, jobs.job_id[rows[:MOST_JOBS_SHOWN]].tolist())) + (
        ", ..." if len(rows) > MOST_JOBS_SHOWN else ""
    )
    if any(warning.startswith(NO_LEDGER) for warning in snapshot.warnings):
        return CheckResult(name, "warn", detail, why, "run doctor as a user who may read the ledger")
    return CheckResult(name, "warn", detail, why, "find out who sets it: users with --nice, or another tool to stop")


def _other_lever(config: Config, snapshot: Snapshot) -> tuple[CheckResult, ...]:
    """A warning if waiting jobs still have our values of the other lever, which is no longer written."""
    try:
        records = OverrideLog(config.ledger.journal).priorities(lenient=True)
    except LedgerError:
        return ()  # an unreadable journal has a result of its own
    others = tuple(record for record in records if record.field != config.lever.kind)
    remaining = base_values(replace(snapshot, overrides=others)).actions
    if not remaining:
        return ()
    detail = f"{config.lever.kind}, but waiting jobs have a {others[0].field} of ours: "
    detail += ", ".join(str(action.job_id) for action in remaining[:MOST_JOBS_SHOWN]) + (
        ", ..." if len(remaining) > MOST_JOBS_SHOWN else ""
    )
    why = "Slurm adds both levers, so the order is that of neither."
    return (CheckResult("lever.kind", "warn", detail, why, "stop the daemon, slurmsched undo --apply, start it"),)


# Checks of our own files.

SERVICE_USER = "slurmsched"  # made by site-configs/sysusers


def service_user(config: Config) -> str:
    """The user that runs the cycles: owner of the lock's folder, else the user slurmsched, else our own."""
    folder = config.ledger.lock.absolute().parent
    if folder.is_dir() and owner(folder) != "root":
        return owner(folder)
    try:
        return pwd.getpwnam(SERVICE_USER).pw_name
    except KeyError:
        return own_name()


def check_files(config: Config, path: Path | None) -> tuple[CheckResult, ...]:
    """Checks of user, ledger, journal, lock, stop file and configuration file (None = built-in defaults)."""
    user = service_user(config)
    return (
        *_as_root(user),
        _ledger(config, user),
        _writable("journal", config.ledger.journal, user, "Every write is put on record there before it is sent."),
        _writable("lock", config.ledger.lock, user, "It prevents two cycles from writing at once."),
        _stop_file(config.cycle.stop_file),
        _config_file(config, path, user),
    )


def _as_root(user: str) -> tuple[CheckResult, ...]:
    """A warning for root. root may do everything, so its results say nothing about the service user."""
    if os.geteuid() != 0:
        return ()
    why = "root may do more than the user of daemon and cron. Run doctor as that user to check its rights and files."
    if user != "root":
        return (CheckResult("who looks", "warn", "root", why, f"runuser -u {user} -- slurmsched doctor"),)
    made = "systemd-sysusers, systemd-tmpfiles and sacctmgr as in docs/install.md, User and rights"
    return (CheckResult("who looks", "warn", f"root; there is no user {SERVICE_USER} yet", why, made),)


def _ledger(config: Config, user: str) -> CheckResult:
    why = "It keeps attained service and what users chose."
    try:
        file = engines.sqlite_file(config.ledger.url)
        if file is not None:
            found = _writable("ledger", file, user, why)
            if not found.ok or not file.exists():
                return found
        return CheckResult("ledger", "ok", engines.describe_database(config.ledger.address), why)
    except LedgerError as error:
        return CheckResult("ledger", "fail", str(error), why, "ledger.url: see docs/ledger.md")
    except ValueError:  # its text may hold a password
        detail = f"ledger.url {url_without_password(config.ledger.url)} is not an SQLAlchemy URL"
        return CheckResult("ledger", "fail", detail, why, "ledger.url: see docs/ledger.md")


def _writable(name: str, path: Path, user: str, why: str) -> CheckResult:
    """Whether we can create, read and replace this file. For users other than the service user: a warning only."""
    folder, me = standing_folder(path), own_name()
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        return CheckResult(name, "fail", f"{path}: its file system is mounted read-only", why, "mount -o remount,rw")
    if disk.f_blocks and not disk.f_bavail:
        return CheckResult(name, "fail", f"{path}: its disk is full", why, "free some space")
    if os.access(folder, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.R_OK | os.W_OK)):
        return CheckResult(name, "ok", f"{path} can be written", why)
    if me != user:
        return CheckResult(
            name, "warn", f"{me} may not write {path}", why, f"tick, daemon and undo: run them as {user}"
        )
    made = folder == path.absolute().parent
    remedy = f"chown -R {user} {folder}" if made else f"install -d -o {user} -m 0750 {path.parent}"
    return CheckResult(name, "fail", f"{user} may not write {path}", why, remedy)


def _stop_file(path: Path) -> CheckResult:
    there = os.path.exists(path)  # noqa: PTH110 - a folder that may not be read is no error
    detail = f"{path} is there: nothing is written" if there else "not there"
    why = "While it is there tick and daemon write nothing."
    return CheckResult("stop file", "warn" if there else "ok", detail, why, f"rm {path}" if there else "")


def _config_file(config: Config, path: Path | None, user: str) -> CheckResult:
    why = "Whoever can write it decides what is written to Slurm. A password in it is for slurmsched only."
    if path is None:
        return CheckResult("configuration file", "ok", "built-in defaults", why)
    mode, belongs = path.stat().st_mode, owner(path)
    secret = holds_password(config.ledger.url) and mode & stat.S_IROTH
    verdict, detail, remedy = "ok", f"{path}, {stat.filemode(mode)}, of {belongs}", ""
    if mode & stat.S_IWOTH:
        verdict, remedy = "fail", f"chmod o-w {path}"
    elif secret:
        verdict, remedy = "warn", f"chgrp {user} {path} && chmod 0640 {path}"
        detail += ": everybody may read the password in ledger.url"
    elif belongs not in ("root", user, own_name()):
        verdict, remedy = "warn", f"chown root {path}"
    return CheckResult("configuration file", verdict, detail, why, remedy)
