"""`snapshot`: keep what a cycle may know in one file, and plan from it elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import FILE, CommandGroup, Output, clock, read_config, refuse_folder
from slurmsched.cli.plan import show_plan
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.observe.snapshot_file import SavedSnapshot


@click.group("snapshot", cls=CommandGroup)
def command() -> None:
    """Save what a cycle reads, and run a cycle on it.

    For support, and to try another policy.
    """


@framework.examples(("slurmsched snapshot save site.snapshot --anonymise", "A snapshot without names."))
@framework.with_command(command, "save")
@click.argument("file", type=FILE)
@click.option("--anonymise", is_flag=True, help="Replace all names and free text by keyed hashes.")
@click.option(
    "--key-file",
    type=FILE,
    help="With --anonymise: file of the key; created if missing. The same key gives the same names.",
)
def save_snapshot(out: Output, file: Path, anonymise: bool, key_file: Path | None) -> None:
    """Write the current snapshot and the policy's settings to FILE.

    Also records what `plan` shows now. FILE contains no secrets: of slurm.conf only what scheduling depends on, and
    of the configuration only policy, estimator, scope, lever and pace. Reads only; any user may run it.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.observe.anonymiser import TraceAnonymiser, anonymised_snapshot, new_key, read_key
    from slurmsched.observe.snapshot_file import saved_snapshot, write_snapshot

    if key_file and not anonymise:
        raise click.UsageError("--key-file needs --anonymise")
    refuse_folder(file)
    tree = read_config()
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        held = saved_snapshot(*parts.look(), tree)
    if anonymise:
        held = anonymised_snapshot(held, TraceAnonymiser(read_key(key_file) if key_file else new_key()))
    write_snapshot(file, held)
    if out.as_json:
        out.json({"file": str(file.resolve()), **_about(held), "bytes": file.stat().st_size})
    else:
        out.line(f"{file.resolve()}: {_title(held)}; {file.stat().st_size / 1e3:,.0f} kB", "ok")


@framework.examples(("slurmsched snapshot run site.snapshot --policy srsf", "The plan of another policy."))
@framework.with_command(command, "run")
@click.argument("file", type=FILE)
@click.option(
    "--policy",
    metavar="NAME[:PARAMETER=VALUE,...]",
    shell_complete=completers.plugins("policies"),
    help="Use this policy in place of the one in FILE.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Most changes to show; 0: all."
)
def run(out: Output, file: Path, policy: str | None, limit: int) -> None:
    """Show what a cycle would write for the snapshot in FILE.

    Uses the settings in FILE, unless `slurmsched --config` names a configuration. Needs neither Slurm nor the
    ledger.
    """
    from slurmsched.errors import ConfigError
    from slurmsched.observe.snapshot_file import plan_digest, read_snapshot
    from slurmsched.planning.planner import Planner

    held = read_snapshot(file)
    tree = _settings(held, policy)
    try:
        planner = Planner.from_config(tree)
    except ConfigError as error:
        if policy is None and tree is held.config:
            raise ConfigError(error.message, key=error.key, source=str(file)) from error
        raise
    plan = planner.plan(held.snapshot)
    same = plan_digest(plan) == held.plan
    warnings = (*held.snapshot.warnings, *(f"{name} is of a newer slurmsched: left out" for name in held.left_out))
    snapshot = replace(held.snapshot, warnings=warnings)
    assumed = _assumptions(held, tree, policy)
    about = _about(held) | {"same_plan": same, "assumptions": assumed}
    if not out.as_json:
        out.line(_title(held))
        out.line(f"Assumed: {'; '.join(assumed)}")
    show_plan(out, snapshot, plan, tree.lever.kind, limit, about=about)
    if not out.as_json:
        out.line(f"the plan is {'that' if same else 'not that'} of the cycle when it was saved")


def _settings(held: SavedSnapshot, policy: str | None) -> Config:
    """The configuration that --config names, else the file's own; --policy over either."""
    from slurmsched.sim.experiments.replay_request import parse_policy

    named = click.get_current_context().find_root().params["config"]
    tree = read_config(plugins=False) if named else held.config
    if policy is None:
        return tree
    name, parameters = parse_policy(policy)
    return tree.model_copy(update={"policy": type(tree.policy)(name=name, **parameters)})


def _assumptions(held: SavedSnapshot, tree: Config, policy: str | None) -> list[str]:
    """What the plan rests on, as text, in the order of the line that `compare` has: model, preemption, limits,
    window."""
    preempts = "as configured" if tree.preemption.enabled else "off"
    unlimited = int((~(held.snapshot.jobs.time_limit_s < inf) & held.snapshot.jobs.pending).sum())
    limits = f"{pluralize(unlimited, 'waiting job')} without a time limit" if unlimited else "time limits as requested"
    return [
        "model: none, one cycle; when jobs would start is not predicted", f"preemption: {preempts}", limits,
        f"the queue of {clock(held.snapshot.now_s)}; policy {policy or tree.policy.name}",
    ]  # fmt: skip


def _about(held: SavedSnapshot) -> dict[str, Any]:
    snapshot, made = held.snapshot, {"anonymised": held.anonymised, "made_by": held.made_by}
    counts = {"jobs": len(snapshot.jobs), "nodes": len(snapshot.nodes)}
    return {"digest": snapshot.digest, "now_s": snapshot.now_s} | counts | made


def _title(held: SavedSnapshot) -> str:
    snapshot = held.snapshot
    counts = f"{pluralize(len(snapshot.jobs), 'job')}, {pluralize(len(snapshot.nodes), 'node')}"
    made = f"{'anonymised ' if held.anonymised else ''}by slurmsched {held.made_by}"
    return f"snapshot {snapshot.digest} of {snapshot.site.cluster}, {clock(snapshot.now_s)}, {counts}, {made}"
