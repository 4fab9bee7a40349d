"""`mig`: jobs that would fit into a part of a GPU, and how to cut GPUs for them. Nothing is ever cut here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, read_config
from slurmsched.cli.listing import JobFilter, filtered
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.observe.mig_plan import MigPlan

SHOWN = 10  # jobs in the table


@framework.examples(
    ("slurmsched mig", "What the jobs of now would need."),
    ("slurmsched mig --memory a100=80 --margin 0.5", "For GPUs of 80 GB, with half as much again as was measured."),
)
@framework.command("mig")
@filtered("user", "account", "partition", "qos")
@click.option(
    "--margin",
    type=float,
    default=0.25,
    show_default=True,
    help="What a device must have beyond the measured use, as a share of it.",
)
@click.option(
    "--memory", "sizes", multiple=True, metavar="TYPE=GB", help="Memory of GPUs of this type; may be repeated."
)
def command(out: Output, keeps: JobFilter, margin: float, sizes: tuple[str, ...]) -> None:
    """List jobs that fit into a MIG device, and layouts of GPUs for them.

    Looks at jobs of one GPU that run or wait. What a job needs is known from its hints gpu_part and gpu_mem, from
    its measured use, or from that of jobs alike. Shows the commands that cut the GPUs of an empty node.

    Reads only. Never changes a GPU or a node.
    """
    from slurmsched.observe.advice_input import read_running_gpu_use
    from slurmsched.observe.gpu_profiles import read_profiles
    from slurmsched.observe.mig_plan import MeasuredNeeds, MigRules, layout_commands, mig_plans
    from slurmsched.slurm.reader import read_cluster_once

    config = read_config()
    rules = MigRules.of(config.lever, margin, dict(_size(text) for text in sizes))
    profiles = read_profiles(Path(config.measured_use.profiles)) if config.measured_use.profiles else {}
    snapshot = read_cluster_once(config)
    use, warnings = read_running_gpu_use(config, snapshot)
    plans = mig_plans(snapshot, MeasuredNeeds(use, profiles), rules, keeps)
    warnings = (*snapshot.warnings, *warnings)
    if out.as_json:
        rows = [{"gpu_type": plan.gpu_type, "memory_gb": plan.memory_gb, "guessed": plan.guessed,
                 "one_gpu_jobs": plan.one_gpu_jobs, "not_known": plan.not_known, "jobs": plan.jobs,
                 "gpus": plan.gpus, "layouts": [{"gpus": gpus, "devices": each} for gpus, each in plan.layouts],
                 "nodes": plan.nodes, "commands": dict(layout_commands(plan))} for plan in plans]  # fmt: skip
        out.json({"types": rows, "warnings": warnings}, schema="mig")
        return
    if not plans:
        out.line("no job of one GPU is known that would fit into a MIG device of its GPU", "ok")
    for plan in plans:
        _show(out, plan, layout_commands(plan))
    out.notes((), warnings)


def _size(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not equals or not name or not size.isdecimal():
        raise click.BadParameter(f"{text!r} is not TYPE=GB, such as a100=80", param_hint="--memory")
    return name, int(size)


def _show(out: Output, plan: MigPlan, commands: list[tuple[str, list[str]]]) -> None:
    known = f"{plan.memory_gb} GB by its name; --memory {plan.gpu_type}=GB says otherwise"
    out.line(f"{plan.gpu_type}: {known if plan.guessed else f'{plan.memory_gb} GB'}")
    whole = plan.one_gpu_jobs - plan.not_known - len(plan.jobs)
    out.line(f"{pluralize(plan.one_gpu_jobs, 'job')} of one GPU: {len(plan.jobs)} would fit into a MIG device, "
             f"{whole} need the whole GPU, of {plan.not_known} it is not known")  # fmt: skip
    if not plan.jobs:
        out.line("Measure the use of GPUs (docs/measured-use.md), or let users write gpu_part and gpu_mem.")
        out.line()
        return
    rows = [(job.profile, job.job_id, job.user, "runs" if job.running else "waits", f"{100 * job.part:.0f} %",
             f"{job.memory_gb:g}", job.known_by) for job in plan.jobs[:SHOWN]]  # fmt: skip
    out.table(("profile", "job>", "user", "now", "computing>", "GB>", "known by"), rows)
    if len(plan.jobs) > SHOWN:
        out.line(f"... and {len(plan.jobs) - SHOWN} more (--json has all)")
    out.line(f"{pluralize(plan.gpus, 'GPU')} in place of {len(plan.jobs)}:")
    for gpus, devices in plan.layouts:
        out.line(f"  {pluralize(gpus, 'GPU')} with {', '.join(f'{n} x {name}' for name, n in devices.items())}")
    if plan.nodes:
        out.line("On these nodes, once no job runs there (drain them first, and change Gres= in slurm.conf after it):")
    else:
        out.line("No node that is up has GPUs of this type alone, uncut.")
    for node, (name, lines) in zip(plan.nodes, commands, strict=True):
        out.line(f"  {name} ({node.state})")
        for line in lines:
            out.line(f"    {line}")
    out.line()
