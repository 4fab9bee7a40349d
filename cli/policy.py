"""`policy`: what policies, placements and estimators there are, their parameters, and training of those that learn."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import FILE, CommandGroup, Output, read_config, refuse_folder
from slurmsched.cli.listing import Choice, Column, Listing, listed


@click.group("policy", cls=CommandGroup)
def command() -> None:
    """List, describe and train policies, placements and estimators."""


LISTING = Listing(
    (
        Column("kind", "kind_shown", "kind"),
        Column("name", "name", "name", "j"),
        Column("family", "family", "family"),
        Column("summary", "summary", "summary"),
    )
)


@framework.examples(("slurmsched policy list", "All plug-ins."))
@framework.with_command(command, "list")
@listed(LISTING)
def list_all(out: Output, choice: Choice) -> None:
    """List all plug-ins, including the site's own."""
    from slurmsched import registry

    found = [registry.plugin_row(kind, name) for kind in registry.KINDS for name in registry.plugin_names(kind)]
    rows = LISTING.ordered(found, choice.sort)
    if out.as_json:
        out.json({"plugins": rows}, schema="plugins")
    else:
        LISTING.show(out, rows, choice)


@framework.examples(("slurmsched policy show gittins --site", "Gittins, and what this site lacks for it."))
@framework.with_command(command, "show")
@click.argument("name", shell_complete=completers.plugins())
@click.option("--site", is_flag=True, help="Also ask Slurm, and show what this site lacks for it.")
@click.option("--kind", default="", metavar="KIND", help="Kind of plug-in, such as physics, if several have this name.")
def show_policy(out: Output, name: str, site: bool, kind: str) -> None:
    """Describe the plug-in NAME and its parameters.

    Shows what it does, what it needs from Slurm, and its parameters with defaults and ranges.
    """
    from slurmsched import registry

    found = _kind_of(name, kind)
    plugin = registry.load_plugin(found, name)
    about = _about(plugin)
    if site and about is not None:
        about["given"], about["lacking"], about["off"] = _at_site(name, plugin)
    parameters = [(spec.name, _default(spec)) for spec in dataclasses.fields(plugin)]
    allowed = _ranges(plugin)
    if out.as_json:
        record = {"kind": found, "name": name, "text": inspect.getdoc(plugin), "parameters": dict(parameters)}
        record["ranges"] = allowed
        out.json(record if about is None else {**record, "card": about})
        return
    out.line(f"{name} ({registry.KINDS[found]})")
    out.line()
    out.line(inspect.getdoc(plugin) or "")
    for heading, texts in _headings(about or {}):
        out.line()
        out.line(heading)
        for text in texts:
            out.line(f"  {text}")
    if parameters:
        out.line()
        out.table(("parameter", "default", "range"), [(*each, allowed.get(each[0], "")) for each in parameters])


def _kind_of(name: str, kind: str) -> str:
    """The first kind that has a plug-in of this name. kind: the only one to look at, "" = all. Raises ConfigError."""
    from slurmsched import registry
    from slurmsched.errors import ConfigError

    chosen = [each for each, one in registry.KINDS.items() if kind in ("", each, one)]
    if not chosen:
        near = registry.nearest(kind, registry.KINDS)
        raise ConfigError(f"no kind {kind!r}{near}; known: {', '.join(registry.KINDS)}")
    names_of = {each: registry.plugin_names(each) for each in chosen}
    for each, names in names_of.items():
        if name in names:
            return each
    near = registry.nearest(name, [every for names in names_of.values() for every in names])
    known = "; ".join(f"{each}: {', '.join(names)}" for each, names in names_of.items())
    raise ConfigError(f"no plug-in {name!r}{near}; known {known}")


def _headings(about: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The parts of it as people read them, empty ones left out."""
    titles = {"paper": "paper", "needs": "needs", "uses": "levers of Slurm", "on_slurm": "on Slurm",
              "left_out": "left out of the paper", "packages": "Python packages",
              "given": "this site gives", "off": "switched off here", "lacking": "this site lacks"}  # fmt: skip
    parts = [(title, [about[key]] if isinstance(about.get(key), str) else list(about.get(key, ())))
             for key, title in titles.items()]  # fmt: skip
    if about.get("lacking") == []:
        parts[-1] = (titles["lacking"], ["nothing"])
    return [part for part in parts if part[1]]


def _about(plugin: Any) -> dict[str, Any] | None:
    """What a policy says about itself as plain values, None for a plug-in that says nothing."""
    from slurmsched.model.policy_info import policy_info

    about = policy_info(plugin)
    if about is None:
        return None
    return {"family": str(about.family), "paper": about.paper, "needs": [str(need) for need in about.needs],
            "uses": [str(use) for use in about.uses], "on_slurm": list(about.on_slurm),
            "left_out": list(about.left_out), "packages": [_package(name) for name in about.packages]}  # fmt: skip


def _package(name: str) -> str:
    """A package of an extra, and how to install it if it is not there."""
    from slurmsched.extras import EXTRA_OF, is_installed

    return name if is_installed(name) else f"{name}, which is not installed: pip install 'slurmsched[{EXTRA_OF[name]}]'"


def _at_site(name: str, plugin: Any) -> tuple[list[str], list[str], list[str]]:
    """Of what the policy needs: what the live cluster gives that is not there from the start, and what it does not; of
    its levers those that the configuration keeps from Slurm."""
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.observe.survey.policy_inputs import available_inputs, disabled_levers, missing_inputs
    from slurmsched.registry import configured

    tree = read_config(plugins=False)
    if tree.policy.name != name:
        tree = tree.model_copy(update={"policy": type(tree.policy)(name=name)})
    configured(tree)
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        snapshot = parts.read()
    needs = plugin.about.needed(tree.policy.parameters)
    lacks = [*missing_inputs(snapshot, needs), *_tableless(tree.policy.parameters, needs)]
    return list(available_inputs(snapshot, needs)), lacks, list(disabled_levers(tree, plugin.about.uses))


def _tableless(parameters: dict[str, Any], needs: Sequence[str]) -> list[str]:
    """Whether speeds by GPU type are asked for and no table of them is configured."""
    from slurmsched.model import PolicyInput

    alike = parameters.get("speeds", "alike") in ("alike", {"name": "alike"})
    text = f"{PolicyInput.SPEED.value}: no table (policy.speeds), so that every type counts alike"
    return [text] if PolicyInput.SPEED in needs and alike else []


def _ranges(plugin: Any) -> dict[str, str]:
    """The ranges of its parameters as people read them, by name; none where its types cannot be read."""
    from slurmsched.model.parameters import parameter_ranges

    try:
        return {name: str(allowed) for name, allowed in parameter_ranges(plugin).items()}
    except (NameError, AttributeError, TypeError):  # a site's own, with types that only a checker knows
        return {}


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default is not dataclasses.MISSING:
        return spec.default
    return spec.default_factory() if spec.default_factory is not dataclasses.MISSING else None


@framework.examples(
    ("slurmsched policy train dl2 elastic.csv --cluster 16x4 --out dl2.json", "Weights for dl2."),
    (
        "slurmsched policy train harmony jobs.csv --cluster 16x4 --out harmony.json",
        "Weights for the placement harmony.",
    ),
)
@framework.with_command(command, "train")
@click.argument("name", shell_complete=completers.plugins())
@click.argument("trace", type=FILE)
@click.option("--out", "target", type=FILE, required=True, help="Write the weights to this file.")
@click.option("--cluster", default="auto", show_default=True, metavar="NxG|FILE|auto", help="As in replay.")
@click.option("--policy", metavar="NAME", help="As in replay.")
@click.option("--placement", metavar="NAME", help="As in replay.")
@click.option("--physics", metavar="NAME", help="As in replay.")
@click.option("--round", "round_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="As in replay.")
@click.option("--episodes", type=click.IntRange(min=0), default=40, show_default=True,
              help="Number of replays after the first, from which it learns by what its choices bring.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="As in replay.")
def train(
    out: Output, name: str, trace: Path, target: Path, episodes: int, seed: int, **words: Any
) -> None:  # fmt: skip
    """Train the network of NAME by replays of TRACE.

    NAME is the policy dl2 or the placement harmony, with parameters as in replay: dl2:speeds=goodput. The first replay
    teaches the simple rule, as NAME has it without weights. The others try choices, and keep what shortens the mean
    JCT. The same seed gives the same file. Nothing is asked of Slurm.

    For dl2 the trace needs jobs with the hints min_gpus and max_gpus. Defaults are --placement consolidated and
    --physics amdahl; --policy cannot be given.

    For harmony the trace needs models of jobs. Defaults are --policy fifo and --physics grouped:node_loss=0.44;
    --placement cannot be given.
    """
    from slurmsched.logs import configure
    from slurmsched.observe.html_page import write_html
    from slurmsched.registry import KINDS, make_plugin
    from slurmsched.sim.experiments.policy_training import check_trainable, training_request
    from slurmsched.sim.experiments.policy_training import train as trained
    from slurmsched.sim.experiments.replay_request import parse_policy
    from slurmsched.sim.traces.trace_io import load_trace

    configure("warning")
    refuse_folder(target)
    plugin, parameters = parse_policy(name)
    kind = check_trainable(plugin)
    request = training_request(plugin, seed, words)
    learner, found = make_plugin(kind, plugin, parameters), list[dict[str, float]]()

    def note(number: int, mean_jct_s: float) -> None:
        found.append({"replay": number, "avg_jct_s": mean_jct_s})
        if not out.as_json:
            out.line(f"replay {number}: mean JCT {mean_jct_s:,.0f} s")

    network = trained(load_trace(trace).trace, request, learner, episodes, seed, note)
    write_html(target, network.text())
    if out.as_json:
        out.json({"file": str(target.resolve()), "replays": found}, schema="train")
    else:
        out.line(f"{target.resolve()}: name it as weights of the {KINDS[kind]}", "ok")
