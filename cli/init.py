"""`init`: a first configuration for this site, in dry-run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import ANSWER_NO, Output
from slurmsched.plain_text import escape_terminal

if TYPE_CHECKING:
    from slurmsched.config import SlurmConfig
    from slurmsched.sim.experiments.site_history import HistoryProposal
    from slurmsched.slurm.doctor import CheckResult
    from slurmsched.slurm.site import DiscoveredSite


@framework.examples(
    ("slurmsched init --stdout", "Print a first configuration."),
    ("slurmsched init --history 30", "Propose policy and tiers by the site's own jobs of 30 days."),
    ("slurmsched init -p gpu", "Write one that manages partition gpu."),
)
@framework.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    metavar="NAME",
    help="Partitions to manage. Default: all with GPUs.",
)
@click.option("--run-as", "user", default="slurmsched", show_default=True, help="The user that slurmsched will run as.")
@click.option("--history", "days", type=click.IntRange(1, 366), metavar="DAYS",
              help="Compare policies on the jobs of these last days, from accounting, and propose one.")  # fmt: skip
@click.option("--stdout", "only_print", is_flag=True, help="Print the configuration; write no file.")
def command(
    out: Output, file: Path | None, partitions: tuple[str, ...], user: str, days: int | None, only_print: bool
) -> int:  # fmt: skip
    """Examine this site and write a first configuration.

    Writes a commented configuration in dry-run mode to FILE, then runs doctor with it. FILE is by default that of
    --config, else /etc/slurmsched/slurmsched.toml. An existing file is not changed. Exit code 10: slurmsched cannot
    work here yet.

    With --history, policies are compared on the site's own jobs, in the model of slurmctld. FILE then has the table of
    waits, who loses most, and the proposed policy and tiers. This reads accounting, and may take an hour for a large
    site.
    """
    from slurmsched.config_file import load_config
    from slurmsched.config_text import first_config
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.site import discover_site

    settings = load_config(None).slurm
    found = discover_site(open_commands(settings))
    chosen = _chosen_partitions(found, partitions)
    proposal, unchecked = _proposal(found, settings, days) if days else (None, "")
    text = first_config(
        found, chosen, bin_dir=settings.bin_dir, conf=settings.conf, proposal=proposal, unchecked=unchecked
    )
    if only_print:
        out.line(text.rstrip())
        return 0
    path = _configuration_path(file)
    _write_new_file(path, text)
    findings = _examined(path)
    if out.as_json:
        out.json({"file": path, "partitions": chosen, "operator": _operator(found, user), "findings": findings,
                  "proposal": proposal, "unchecked": unchecked or None})  # fmt: skip
    else:
        _tell(out, path, _operator(found, user), findings)
    return ANSWER_NO if any(finding.verdict == "fail" for finding in findings) else 0


def _proposal(found: DiscoveredSite, settings: SlurmConfig, days: int) -> tuple[HistoryProposal | None, str]:
    """What the site's own history speaks for; else None, and why it could not be compared."""
    from slurmsched.errors import SlurmschedError
    from slurmsched.planning.priorities.priority_weights import proposed_tiers
    from slurmsched.sim.experiments.site_history import site_proposal
    from slurmsched.slurm.reader import open_commands

    workers = len(os.sched_getaffinity(0))
    try:
        tiers = proposed_tiers(found.settings)
        return site_proposal(open_commands(settings), tiers, days, workers, lambda ended: None), ""
    except SlurmschedError as error:
        framework.complain(f"--history: {error}")
        return None, f"Not checked on the jobs of this site: {' '.join(escape_terminal(str(error)).split())}"


def _chosen_partitions(found: DiscoveredSite, partitions: tuple[str, ...]) -> tuple[str, ...]:
    """The partitions asked for, or all with GPUs. Raises ConfigError where there are none."""
    from slurmsched.errors import ConfigError

    known = [one.name for one in found.partitions]
    if not known:
        raise ConfigError("no partition here has GPUs (gres/gpu in slurm.conf and gres.conf); nothing to order")
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        raise ConfigError(f"no partition with GPUs is named {', '.join(unknown)}; there are {', '.join(known)}")
    return partitions or tuple(known)


def _configuration_path(file: Path | None) -> Path:
    from slurmsched.config_file import SYSTEM_FILE

    given = click.get_current_context().find_root().params["config"]
    return file or (Path(given) if given else SYSTEM_FILE)


def _write_new_file(path: Path, text: str) -> None:
    """A new file, whole or not at all. Raises InputError where there is one already, or none can be made."""
    from slurmsched.errors import InputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError("already exists and was not changed; name another file", source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}; --stdout prints it", source=str(path)) from error


def _examined(path: Path) -> tuple[CheckResult, ...]:
    from slurmsched.config_file import load_config
    from slurmsched.slurm.doctor.diagnosis import diagnose

    return diagnose(load_config(path), path=path)


def _operator(found: DiscoveredSite, user: str) -> str:
    """The line that gives the user its rights; where no slurmdbd knows levels, what to do instead."""
    from slurmsched.slurm.site import operator_line

    return operator_line(user) if found.slurmdbd else f"no slurmdbd here: run slurmsched as {found.slurm_user}"


def _tell(out: Output, path: Path, operator: str, findings: tuple[CheckResult, ...]) -> None:
    from slurmsched.cli.doctor import show

    out.line(f"{path} is written; look through it. Rights: {operator}")
    out.line("slurmsched doctor says:")
    show(out, findings, everything=False)
    out.line('Next: slurmsched plan shows what a cycle would write. Nothing is written before mode = "apply".')
