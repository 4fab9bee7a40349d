"""`power`: nodes that could be powered down, now and in a replay. Nothing is ever powered down here."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import FILE, CommandGroup, Output, read_config
from slurmsched.cli.replay_options import read_trace, replay_options, trace_options, warn_of_parts
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.daemon.ended_jobs import EndedRuns
    from slurmsched.model import Snapshot
    from slurmsched.observe.survey.power_saving import PowerAdvice, PowerRules, PowerSaving

_SETTINGS = (
    click.option("--horizon", "horizon_s", default=10_800.0, show_default=True, metavar="SECONDS",
                 help="Power a node down only if it will not be needed for this time."),
    click.option("--hold", "hold_s", default=3_600.0, show_default=True, metavar="SECONDS",
                 help="In a replay: also, it was not needed for this time before."),
    click.option("--quantile", default=0.9, show_default=True,
                 help="Share of past rises in demand at this time of day that must be covered."),
    click.option("--buffer", default=2, show_default=True, help="Additional nodes that stay up."),
    click.option("--boot", "boot_s", default=300.0, show_default=True, metavar="SECONDS",
                 help="Time that a node takes to boot."),
)  # fmt: skip
HISTORY_S = 60.0  # longest time accounting is asked for, where no file of the past is there


def _settled(function: Any) -> Any:
    """The fields of power_saving.PowerRules as options."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@click.group("power", cls=CommandGroup)
def command() -> None:
    """Find idle nodes that could be powered down.

    Uses a forecast of demand. No node is ever changed.
    """


@framework.examples(("slurmsched power advise", "Idle nodes that will not be needed."))
@framework.with_command(command, "advise")
@_settled
def advise(out: Output, **settings: Any) -> None:
    """List idle nodes that will probably not be needed.

    The forecast is made from the GPU jobs in accounting. GPUs that pending jobs request count as needed. Reads
    only.
    """
    from slurmsched.model.hostlists import fold_hostlist
    from slurmsched.observe.survey.power_saving import PowerRules, demand_until_now, power_advice
    from slurmsched.slurm.reader import read_cluster_once

    power, tree = PowerRules(**settings), read_config()
    snapshot = read_cluster_once(tree)
    runs, warnings = _ended_runs(tree, snapshot)
    used = demand_until_now(snapshot, runs.start_s, runs.end_s, runs.gpus, tree.past.days)
    found = power_advice(snapshot, used, power)
    nodes = fold_hostlist(found.nodes) if found.nodes else ""
    if out.as_json:
        out.json({"nodes": found.nodes, "hostlist": nodes, "idle": found.idle, "waiting_gpus": found.waiting,
                  "rise_gpus": found.rise, "why": found.why,
                  "warnings": (*snapshot.warnings, *warnings)}, schema="power")  # fmt: skip
        return
    _print_advice(out, found, nodes, power)
    for warning in (*snapshot.warnings, *warnings):
        out.line(f"warning: {warning}", "warning")


def _print_advice(out: Output, found: PowerAdvice, nodes: str, power: PowerRules) -> None:
    """How many nodes could go, and by which command; or why none. nodes: as a hostlist."""
    if found.nodes:
        out.line(f"{len(found.nodes)} of {pluralize(found.idle, 'idle node')} could be powered down: {nodes}", "ok")
        rise = pluralize(round(found.rise), "GPU")
        out.line(f"demand may rise by {rise} within {power.horizon_s / 3600:g} h, waiting jobs ask for "
                 f"{found.waiting}, {pluralize(power.buffer, 'node stays', 'nodes stay')} up besides")  # fmt: skip
        out.line(f"by hand, where the site has power saving: scontrol update nodename={nodes} state=power_down")
    else:
        out.line(f"no node should be powered down: {found.why}")


def _ended_runs(tree: Config, snapshot: Snapshot) -> tuple[EndedRuns, tuple[str, ...]]:
    """Ended runs of GPU jobs in accounting; and a warning for each part that could not be read."""
    from slurmsched.daemon.ended_jobs import open_past

    tree = tree.model_copy(update={"past": tree.past.model_copy(update={"per_cycle_s": HISTORY_S})})
    past = open_past(tree, keep=False)
    learned = past(replace(snapshot, warnings=()))
    return past.runs, learned.warnings


@framework.examples(("slurmsched power replay trace.csv --cluster 20x8", "What a trace would have saved."))
@framework.with_command(command, "replay")
@click.argument("trace", type=FILE)
@trace_options
@replay_options
@click.option(
    "--policy",
    default="fifo",
    show_default=True,
    metavar="NAME[:PARAMETER=VALUE,...]",
    shell_complete=completers.plugins("policies"),
    help="As in `slurmsched replay`.",
)
@_settled
def replay_power(
    out: Output, trace: Path, kind: str, pairs: tuple[str, ...], strict: bool, backfill: str | None,
    model: Literal["ideal", "slurm"] | None, horizon_s: float, hold_s: float, quantile: float, buffer: int,
    boot_s: float, **words: Any,
) -> None:  # fmt: skip
    """Replay TRACE and show what powering down would have saved.

    Jobs are packed onto the fewest nodes. The replayed cluster is always up: a start that would have had to wait for
    nodes is counted with its delay, but it is not delayed in the replay.
    """
    from slurmsched.logs import configure
    from slurmsched.observe.survey.power_saving import PowerRules, power_saving_of_runs
    from slurmsched.sim.experiments.replay_request import ReplayRequest
    from slurmsched.sim.experiments.replay_session import ReplaySession

    configure("warning")
    power = PowerRules(horizon_s, hold_s, quantile, buffer, boot_s)
    recorded, request = (
        read_trace(trace, kind, pairs, strict),
        ReplayRequest(model=model or "ideal", backfill=backfill or "", **words),
    )
    session = ReplaySession(recorded.trace, request)
    warn_of_parts(trace, recorded, request)
    runs, gpus = session.run().runs, session.described.gpus
    each = sum(gpus) / len(gpus)
    _show(out, power, lambda power: power_saving_of_runs(runs.start_s, runs.end_s, runs.gpus, len(gpus), each, power))


@framework.examples(("slurmsched power series nodes.csv", "What a series of node counts would have saved."))
@framework.with_command(command, "series")
@click.argument("file", type=FILE)
@_settled
def series(out: Output, file: Path, **settings: Any) -> None:
    """Show what powering down would have saved for node counts in FILE.

    FILE is a CSV with the columns `time`, `active` and `total`, as monitoring systems write it.
    """
    from slurmsched.observe.survey.power_saving import PowerRules, power_saving, read_series

    active, total = read_series(file)
    _show(out, PowerRules(**settings), lambda power: power_saving(active, total, power))


def _show(out: Output, power: PowerRules, figures: Any) -> None:
    """By forecast beside every idle node at once."""
    plain = replace(power, forecast=False)
    made: list[tuple[str, PowerSaving]] = [("forecast", figures(power)), ("all that are idle", figures(plain))]
    if out.as_json:
        record = {name.replace(" ", "_"): {**asdict(each), "use_gain_pct": each.use_gain_pct} for name, each in made}
        out.json({"power": power, **record})
        return
    columns = ("lets go", "node h off>", "%>", "use + points>", "nodes woken>", "short steps>", "late starts>",
               "delay h>")  # fmt: skip
    out.table(columns, [(name, *_cells(each)) for name, each in made])


def _cells(saved: PowerSaving) -> tuple[str, ...]:
    share = 100 * saved.off_node_h / (saved.node_h or 1)
    late = ("-", "-") if saved.delayed is None else (f"{saved.delayed:,}", f"{saved.delay_s / 3_600:.1f}")
    return (
        f"{saved.off_node_h:,.0f}",
        f"{share:.1f}",
        f"{saved.use_gain_pct:.1f}",
        f"{saved.wake_ups:,}",
        f"{saved.short_steps:,}",
        *late,
    )
