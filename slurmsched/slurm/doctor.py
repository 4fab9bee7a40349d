"""Everything `slurmsched doctor` looks at: the Slurm that a configuration names, its queue, and our own files."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from slurmsched.config import Config
from slurmsched.db.acts import acts_on_record
from slurmsched.db.store import open_store
from slurmsched.errors import LedgerError, SlurmError, SlurmschedError
from slurmsched.slurm.checklist import checklist
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.finding import Finding
from slurmsched.slurm.own_files import file_findings, service_user
from slurmsched.slurm.probe import probe_job, probe_rights, read_gres_conf, read_job_submit, read_qos_thresholds
from slurmsched.slurm.queue_checks import clock_finding, queue_findings
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.reservations import ending, foreign_names, orphan_names, read_reservations
from slurmsched.slurm.site import own_name, read_site
from slurmsched.slurm.tag import tag_of

NEEDS_OPERATOR = ("admin level", "PrivateData", "write levers")


def findings(config: Config, *, probe: bool = False, path: Path | None = None) -> tuple[Finding, ...]:
    """The checklist, then what reading and writing need, the queue, and our files.

    probe: also submit a held job and cancel it. path: of the configuration file, None for built-in defaults. Somebody
    who is not the service user only looks: no rights are asked for. Raises SlurmError when slurmctld does not answer.
    """
    commands = open_commands(config.slurm)
    user = service_user(config)
    found = (_plugins(config), *_of_slurm(config, commands), *_of_queue(config), clock_finding(commands, time.time()))
    found = (*found, _acts(config, commands))
    if own_name() not in ("root", user):
        found = tuple(_to_onlooker(finding, user) for finding in found)
    return (*found, *file_findings(config, path), *(probe_job(commands) if probe else ()))


def _plugins(config: Config) -> Finding:
    """Whether policy, placement and estimator can be made as they are configured."""
    from slurmsched.planning.planner import Planner

    why = "Without them no cycle can begin."
    names = [config.policy.name, config.placement.name, *([config.estimator.name] if config.estimator else [])]
    try:
        Planner.from_config(config)
    except SlurmschedError as error:
        return Finding("plug-ins", "fail", str(error), why, "see the message; `slurmsched policy` lists the policies")
    return Finding("plug-ins", "ok", ", ".join(names), why)


def _of_slurm(config: Config, commands: Commands) -> tuple[Finding, ...]:
    site = read_site(commands)
    settings = checklist(
        site,
        lever=config.lever.kind,
        writes_per_s=config.pace.writes_per_s,
        preemption=config.preemption.enabled,
        node_lists=config.placement.places,
        gres_conf=read_gres_conf(site),
        qos_thresholds=read_qos_thresholds(commands, site),
        job_submit=read_job_submit(site),
    )
    return (*settings, *probe_rights(commands, site))


def _acts(config: Config, commands: Commands) -> Finding:
    """Acts under way, and reservations of ours that nobody has on record: they keep nodes for nothing."""
    why = "A reservation that no act on record knows keeps others off its nodes until its end."
    try:
        acts = acts_on_record(config)
        kept, tag = read_reservations(commands), tag_of(config)
    except (SlurmError, LedgerError) as error:
        return Finding("acts", "warn", str(error), why, "see the message")
    if left := orphan_names(kept, acts, tag):
        return Finding("acts", "warn", f"orphans: {', '.join(left)}", why, ending(left[0]))
    others = foreign_names(kept, acts, tag)
    told = f"; not of this slurmsched, left alone: {', '.join(others)}" if others else ""
    return Finding("acts", "ok", f"{len(acts)} under way, no orphans{told}", why)


def _of_queue(config: Config) -> tuple[Finding, ...]:
    try:
        with closing(open_reader(config.slurm, indices=False)) as reader:
            snapshot = reader.read()
        with closing(open_store(config, read_only=True)) as store:
            return queue_findings(config, store.recall(snapshot))
    except (SlurmError, LedgerError) as error:
        why = "A cycle reads the queue whole, with what is remembered of it, or does nothing."
        return (Finding("whole snapshot", "fail", str(error), why, "see the message"),)


def _to_onlooker(finding: Finding, user: str) -> Finding:
    if finding.verdict != "fail" or finding.name not in NEEDS_OPERATOR:
        return finding
    return replace(finding, verdict="warn", remedy=f"nothing for those who only look; run doctor as {user}")
