"""`power`: nodes that could be powered down, now and in a replay. Nothing is ever powered down here."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import output
from slurmsched.cli.groups import Group
from slurmsched.cli.output import Output
from slurmsched.cli.replay_options import replaying
from slurmsched.cli.settings import config
from slurmsched.cli.trace_files import FILE, read_whole, reading
from slurmsched.words import some

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.model import Snapshot
    from slurmsched.model.columns import Floats
    from slurmsched.survey.power import Power, Saved

_SETTINGS = (
    click.option("--horizon", "horizon_s", default=10_800.0, show_default=True, metavar="SECONDS",
                 help="A node goes only if it is not expected to be needed for so long."),
    click.option("--hold", "hold_s", default=3_600.0, show_default=True, metavar="SECONDS",
                 help="And only if that was so for so long; in a replay."),
    click.option("--quantile", default=0.9, show_default=True,
                 help="Share of past rises of demand at this time of the day that must be covered."),
    click.option("--buffer", default=2, show_default=True, help="Nodes that stay up beyond that."),
    click.option("--boot", "boot_s", default=300.0, show_default=True, metavar="SECONDS",
                 help="How long a node takes to come back."),
)  # fmt: skip
HISTORY_S = 60.0  # longest time accounting is asked for, where no file of the past is there


def _settled(function: Any) -> Any:
    """The fields of survey.power.Power as options."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@click.group("power", cls=Group)
def command() -> None:
    """Which idle nodes could be powered down, by a forecast of demand; nothing is done to any node."""


@output.with_command(command, "advise")
@_settled
def advise(out: Output, **settings: Any) -> None:
    """Name the idle nodes that are not expected to be needed. Reads only.

    Demand is forecast from the GPU jobs that accounting knows; what waiting jobs ask for counts as needed.
    """
    from slurmsched.model.hostlist import fold
    from slurmsched.slurm.look import look
    from slurmsched.survey.power import Power, power_advice

    power, tree = Power(**settings), config()
    snapshot = look(tree)
    used, warnings = _used(tree, snapshot)
    found = power_advice(snapshot, used, power)
    nodes = fold(found.nodes) if found.nodes else ""
    if out.as_json:
        out.json({"nodes": found.nodes, "hostlist": nodes, "idle": found.idle, "waiting_gpus": found.waiting,
                  "rise_gpus": found.rise, "why": found.why,
                  "warnings": (*snapshot.warnings, *warnings)})  # fmt: skip
        return
    if found.nodes:
        out.line(f"{len(found.nodes)} of {some(found.idle, 'idle node')} could be powered down: {nodes}", "ok")
        rise = some(round(found.rise), "GPU")
        out.line(f"demand may rise by {rise} within {power.horizon_s / 3600:g} h, waiting jobs ask for "
                 f"{found.waiting}, {some(power.buffer, 'node stays', 'nodes stay')} up besides")  # fmt: skip
        out.line(f"by hand, where the site has power saving: scontrol update nodename={nodes} state=power_down")
    else:
        out.line(f"no node should be powered down: {found.why}")
    for warning in (*snapshot.warnings, *warnings):
        out.line(f"warning: {warning}", "warning")


def _used(tree: Config, snapshot: Snapshot) -> tuple[Floats, tuple[str, ...]]:
    """GPUs in use by step of the last weeks, from accounting and the queue; and what could not be read."""
    import numpy as np

    from slurmsched.daemon.past import open_past
    from slurmsched.survey.power import demand

    past = open_past(tree.model_copy(update={"past": tree.past.model_copy(update={"per_cycle_s": HISTORY_S})}),
                     keep=False)  # fmt: skip
    told, runs, now_s = past(replace(snapshot, warnings=())), past.runs, snapshot.now_s
    jobs = snapshot.jobs.take(snapshot.jobs.running & (snapshot.jobs.gpus > 0))
    start_s, end_s = np.append(runs.start_s, jobs.start_s), np.append(runs.end_s, np.full(len(jobs), now_s))
    begin_s = max(float(runs.end_s.min(initial=now_s)), now_s - tree.past.days * 86_400)
    return demand(start_s, end_s, np.append(runs.gpus, jobs.gpus).astype(np.float64), begin_s, now_s), told.warnings


@output.with_command(command, "replay")
@click.argument("trace", type=FILE)
@reading
@replaying
@click.option("--policy", default="fifo", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
              help="As in slurmsched replay.")  # fmt: skip
@_settled
def replay(
    out: Output, trace: Path, kind: str, pairs: tuple[str, ...], strict: bool, backfill: str | None, horizon_s: float,
    hold_s: float, quantile: float, buffer: int, boot_s: float, **words: Any,
) -> None:  # fmt: skip
    """Replay TRACE, and tell what powering nodes down would have saved and cost.

    Jobs count as packed onto the fewest nodes. The schedule is that of a cluster that is always up: a start that finds
    too few nodes up is counted, and its delay added up, and not replayed.
    """
    from slurmsched.logs import configure
    from slurmsched.replay.request import Request
    from slurmsched.replay.run import Session
    from slurmsched.survey.power import Power, of_runs

    configure("warning")
    power = Power(horizon_s, hold_s, quantile, buffer, boot_s)
    session = Session(read_whole(trace, kind, pairs, strict).trace, Request(backfill=backfill or "", **words))
    runs, gpus = session.run().runs, session.described.gpus
    each = sum(gpus) / len(gpus)
    _show(out, power, lambda power: of_runs(runs.start_s, runs.end_s, runs.gpus, len(gpus), each, power))


@output.with_command(command, "series")
@click.argument("file", type=FILE)
@_settled
def series(out: Output, file: Path, **settings: Any) -> None:
    """Tell the same of FILE, a CSV of `time`, `active` and `total` nodes, as a monitoring system writes it."""
    from slurmsched.replay.node_series import read_series
    from slurmsched.survey.power import Power, saved

    active, total = read_series(file)
    _show(out, Power(**settings), lambda power: saved(active, total, power))


def _show(out: Output, power: Power, figures: Any) -> None:
    """By forecast beside every idle node at once."""
    plain = replace(power, forecast=False)
    made: list[tuple[str, Saved]] = [("forecast", figures(power)), ("all that are idle", figures(plain))]
    if out.as_json:
        told = {name.replace(" ", "_"): {**asdict(each), "use_gain_pct": each.use_gain_pct} for name, each in made}
        out.json({"power": power, **told})
        return
    columns = ("lets go", "node h off>", "%>", "use + points>", "nodes woken>", "short steps>", "late starts>",
               "delay h>")  # fmt: skip
    out.table(columns, [(name, *_cells(each)) for name, each in made])


def _cells(saved: Saved) -> tuple[str, ...]:
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
