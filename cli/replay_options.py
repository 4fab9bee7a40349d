"""The options that every command has that replays: which cluster, and what it is like."""

from __future__ import annotations

from typing import Any

import click

_OPTIONS = (
    click.option("--cluster", default="auto", show_default=True, metavar="NxG|FILE|auto",
                 help="20x8 is 20 nodes of 8 GPUs, 2x4:v100+4x4:p100 nodes of two types; FILE: TOML with [[nodes]] "
                      "tables, a slurm.conf, a folder with one, or a saved snapshot; auto: nodes of 8 GPUs, 80 % of "
                      "them busy while jobs come."),
    click.option("--model", type=click.Choice(["ideal", "slurm"]), default="ideal", show_default=True,
                 help="ideal: the plan is enacted at every event, at no cost; slurm: as slurmctld would."),
    click.option("--placement", default="count", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
                 help="count: nodes do not matter; consolidated: a gang on the fewest nodes; docs/placements."),
    click.option("--topology", default="", metavar="MACHINE|FILE",
                 help="ideal: how the GPUs of nodes are wired: a machine known by name such as dgx-1v, or a TOML file "
                      "with [topology] as in the configuration."),
    click.option("--physics", default="recorded", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
                 help="ideal: how fast a job runs on what it holds (docs/physics.md): recorded, spread, "
                      "topology-aware, mapa, gpu-types, tiers."),
    click.option("--backfill", type=click.Choice(["none", "easy", "conservative", "skip"]), default=None,
                 help="Who gets GPUs that the first waiting job cannot use: nobody, jobs that do not delay it, jobs "
                      "that delay none before them, any that fits. Default: as the policy's name says."),
    click.option("--round", "round_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
                 help="ideal: decide at multiples of it; 0: whenever something happens."),
    click.option("--restart-cost", "restart_cost_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
                 help="ideal: run time without progress after a preemption."),
    click.option("--requeue/--no-requeue", default=True, show_default=True,
                 help="slurm: whether a preemptive policy may requeue running jobs, or only order those that wait."),
    click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE",
                 callback=lambda _context, _option, pairs: _settings(pairs),
                 help="Any other setting of the cluster (docs/replay.md), such as node_gpus=8 or rpc_latency_s=0.02."),
    click.option("--history", default="", metavar="FILE",
                 help="GPU seconds that completed jobs needed, a CSV column; for gittins; or Tiresias's."),
    click.option("--past", default="", metavar="FILE",
                 help="A trace of jobs that ended before this one begins, for estimators that learn."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
                 help="Of everything that is left to chance."),
)  # fmt: skip


def replaying(function: Any) -> Any:
    """The fields of replay.request.Request but the policy, as options; `backfill` may be None."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def preempting(function: Any) -> Any:
    """The options `preempt` and `hints`."""
    taking = click.option("--preempt", is_flag=True,
                          help="slurm: take GPUs from running jobs as the daemon does, by [preemption], [acts] and "
                               "[gangs] of the configuration; without it a policy that preempts requeues whom it "
                               "likes.")  # fmt: skip
    told = click.option("--hints", default="", metavar="COMMENT",
                        help="With --preempt: comment of every job, such as 'slurmsched: preempt=yes "
                             "ckpt=USR2@120'.")  # fmt: skip
    return taking(told(function))


def sections(preempt: bool, hints: str) -> dict[str, Any] | None:
    """What of the configuration rules preemption; None without --preempt, which --hints needs."""
    if not preempt:
        if hints:
            raise click.UsageError("--hints goes with --preempt")
        return None
    from slurmsched.cli.settings import config
    from slurmsched.replay.preempting import SECTIONS

    tree = config()
    return {section: getattr(tree, section).model_dump() for section in SECTIONS}


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Settings by name. Raises UsageError for a text that is not NAME=VALUE."""
    from slurmsched.replay.request import value_of

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--setting {pair!r} is not NAME=VALUE")
        found[name.replace("-", "_")] = value_of(value)
    return found
