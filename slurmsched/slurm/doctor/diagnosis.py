"""All checks of `slurmsched doctor`: Slurm's settings, its queue, and our own files."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from slurmsched.config import Config
from slurmsched.db.ledger_store import open_store
from slurmsched.db.operation_log import operations_on_record
from slurmsched.errors import LedgerError, SlurmError, SlurmschedError
from slurmsched.model.snapshot import Site
from slurmsched.planning.priorities.priority_weights import lost_weights, weight_notes
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.doctor.settings_checks import check_settings
from slurmsched.slurm.doctor.site_checks import (
    check_clock_offset,
    check_files,
    check_queue,
    check_rights,
    gres_conf_text,
    probe_job,
    read_job_submit,
    read_qos_thresholds,
    service_user,
)
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.scontrol_tables import end_by_hand, foreign_names, orphan_names, read_reservations
from slurmsched.slurm.site import installation_tag, own_name, read_site
from slurmsched.tier_spec import read_tiers

NEEDS_OPERATOR = ("admin level", "PrivateData", "write levers")


def diagnose(config: Config, *, probe: bool = False, path: Path | None = None) -> tuple[CheckResult, ...]:
    """Results for the settings, for reading and writing, for the queue, and for our files.

    For users other than the service user, missing write rights are a warning only.

    probe: also submit a held job, change it and cancel it.
    path: the configuration file, None = built-in defaults.
    Raises SlurmError if slurmctld does not answer.
    """
    commands = open_commands(config.slurm)
    user = service_user(config)
    found = (
        _plugins(config),
        *_of_slurm(config, commands),
        *_of_queue(config),
        check_clock_offset(commands, time.time()),
    )
    found = (*found, _operations(config, commands))
    if own_name() not in ("root", user):
        found = tuple(_for_onlooker(finding, user) for finding in found)
    return (*found, *check_files(config, path), *(probe_job(commands) if probe else ()))


def _plugins(config: Config) -> CheckResult:
    """Whether policy, placement and estimator load with their configuration."""
    from slurmsched.planning.planner import Planner

    why = "Without them no cycle can start."
    names = [config.policy.name, config.placement.name, *([config.estimator.name] if config.estimator else [])]
    try:
        Planner.from_config(config)
    except SlurmschedError as error:
        return CheckResult(
            "plug-ins", "fail", str(error), why, "see the message; `slurmsched policy` lists the policies"
        )
    return CheckResult("plug-ins", "ok", ", ".join(names), why)


def _of_slurm(config: Config, commands: Commands) -> tuple[CheckResult, ...]:
    site = read_site(commands)
    settings = check_settings(
        site,
        lever=config.lever.kind,
        writes_per_s=config.pace.writes_per_s,
        preemption=config.preemption.enabled,
        node_lists=config.placement.places,
        shares=config.lever.share,
        gres_conf=gres_conf_text(site),
        qos_thresholds=read_qos_thresholds(commands, site),
        job_submit=read_job_submit(site),
    )
    return (*settings, *kept_weights(config, site), *check_rights(commands, site))


def kept_weights(config: Config, site: Site) -> tuple[CheckResult, ...]:
    """One finding for each priority weight that stops counting under this configuration; one that is well if none."""
    tiers, why = read_tiers(config.policy.tiers), "What a weight promised to users ends with it; tiers keep it."
    lost = lost_weights(site.settings, tiers)
    if not lost:
        return (CheckResult("weights kept", "ok", ", ".join(config.policy.tiers) or "no weight is set", why),)
    notes = weight_notes(site.settings, tiers)
    return tuple(CheckResult("weights kept", "warn", note, why, "policy.tiers  # slurmsched.toml; docs/tiers.md")
                 for note in notes)  # fmt: skip


def _operations(config: Config, commands: Commands) -> CheckResult:
    """Operations under way, and reservations of slurmsched that belong to none of them."""
    why = "A reservation that belongs to no operation on record blocks its nodes until it ends."
    try:
        operations = operations_on_record(config)
        kept, tag = read_reservations(commands), installation_tag(config)
    except (SlurmError, LedgerError) as error:
        return CheckResult("operations", "warn", str(error), why, "see the message")
    if orphans := orphan_names(kept, operations, tag):
        return CheckResult("operations", "warn", f"orphans: {', '.join(orphans)}", why, end_by_hand(orphans[0]))
    others = foreign_names(kept, operations, tag)
    remark = f"; of another slurmsched: {', '.join(others)}" if others else ""
    return CheckResult("operations", "ok", f"{len(operations)} under way, no orphans{remark}", why)


def _of_queue(config: Config) -> tuple[CheckResult, ...]:
    try:
        with closing(open_reader(config.slurm, indices=False)) as reader:
            snapshot = reader.read()
        with closing(open_store(config, read_only=True)) as store:
            return check_queue(config, store.recall(snapshot))
    except (SlurmError, LedgerError) as error:
        why = "A cycle needs the whole queue and the ledger; without them it does nothing."
        return (CheckResult("whole snapshot", "fail", str(error), why, "see the message"),)


def _for_onlooker(finding: CheckResult, user: str) -> CheckResult:
    if finding.verdict != "fail" or finding.name not in NEEDS_OPERATOR:
        return finding
    return replace(finding, verdict="warn", remedy=f"nothing, if you only look; run doctor as {user}")
