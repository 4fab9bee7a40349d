"""`snapshot`: keep what a cycle may know in one file, and plan from it elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output, clock, refuse_folder
from slurmsched.cli.plan import plan_tree, print_plan
from slurmsched.cli.settings import config
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.replay.snapshot_file import Saved

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("snapshot", cls=Group)
def command() -> None:
    """All that a cycle may know, in one file: for support, and to try another policy on it."""


@output.with_command(command, "save")
@click.argument("file", type=FILE)
@click.option("--anonymise", is_flag=True, help="Every name of the site, and all free text, as keyed hashes.")
@click.option("--key-file", type=FILE, help="With --anonymise: made if it is not there; the same key, the same names.")
def save(out: Output, file: Path, anonymise: bool, key_file: Path | None) -> None:
    """Write the live snapshot as FILE, with the policy's settings and a mark of what `plan` shows now.

    Reads only; any user may run it. No secrets are in it: of slurm.conf only what scheduling depends on, of the
    configuration only policy, estimator, scope, lever and pace.
    """
    from slurmsched.daemon.assemble import assembled
    from slurmsched.replay.anonymise import Anonymiser, new_key, read_key
    from slurmsched.replay.snapshot_file import saved, write_snapshot
    from slurmsched.replay.snapshot_hide import hidden

    if key_file and not anonymise:
        raise click.UsageError("--key-file goes with --anonymise")
    refuse_folder(file)
    tree = config()
    with assembled(tree, apply=False, read_only=True) as parts:
        held = saved(*parts.look(), tree)
    if anonymise:
        held = hidden(held, Anonymiser(read_key(key_file) if key_file else new_key()))
    write_snapshot(file, held)
    if out.as_json:
        out.json({"file": str(file.resolve()), **_about(held), "bytes": file.stat().st_size})
    else:
        out.line(f"{file.resolve()}: {_title(held)}; {file.stat().st_size / 1e3:,.0f} kB", "ok")


@output.with_command(command, "run")
@click.argument("file", type=FILE)
@click.option("--policy", metavar="NAME[:PARAMETER=VALUE,...]", help="In place of the file's own.")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Most changes shown; 0: all.")
def run(out: Output, file: Path, policy: str | None, limit: int) -> None:
    """Show what a cycle would write that finds what FILE holds. Needs neither Slurm nor ledger.

    The settings are those of the file, unless `slurmsched --config` names others.
    """
    from slurmsched.errors import ConfigError
    from slurmsched.planning.planner import Planner
    from slurmsched.replay.snapshot_file import plan_digest, read_snapshot

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
    if out.as_json:
        out.json(_about(held) | {"same_plan": same} | plan_tree(snapshot, plan, tree.lever.kind, limit))
        return
    out.line(_title(held))
    print_plan(out, snapshot, plan, tree.lever.kind, limit)
    out.line(f"the plan is {'that' if same else 'not that'} of the cycle when it was saved")


def _settings(held: Saved, policy: str | None) -> Config:
    """The configuration that --config names, else the file's own; --policy over either."""
    from slurmsched.replay.request import parse_policy

    named = click.get_current_context().find_root().params["config"]
    tree = config() if named else held.config
    if policy is None:
        return tree
    name, parameters = parse_policy(policy)
    return tree.model_copy(update={"policy": type(tree.policy)(name=name, **parameters)})


def _about(held: Saved) -> dict[str, Any]:
    snapshot, told = held.snapshot, {"anonymised": held.anonymised, "made_by": held.made_by}
    counts = {"jobs": len(snapshot.jobs), "nodes": len(snapshot.nodes)}
    return {"digest": snapshot.digest, "now_s": snapshot.now_s} | counts | told


def _title(held: Saved) -> str:
    snapshot = held.snapshot
    counts = f"{some(len(snapshot.jobs), 'job')}, {some(len(snapshot.nodes), 'node')}"
    made = f"{'anonymised ' if held.anonymised else ''}by slurmsched {held.made_by}"
    return f"snapshot {snapshot.digest} of {snapshot.site.cluster}, {clock(snapshot.now_s)}, {counts}, {made}"
