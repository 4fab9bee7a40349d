"""`top`: the queue, the GPUs and what happens, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli import framework
from slurmsched.cli.framework import read_config

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.daemon.cycle_parts import CycleParts
    from slurmsched.observe.web.frame import Frame

LEAST_S = 2.0
MOST_ASKED = 100  # jobs a look that Slurm is asked about


@framework.examples(("slurmsched top -d 30s", "Update every 30 seconds."))
@click.command("top")
@click.option("--interval", "-d", metavar="DURATION", default="10s", show_default=True, help="Time between updates.")
def command(interval: str) -> None:
    """Show the queue, the GPUs and events on a terminal, live.

    Keys are those of htop; F1 lists them. An update costs Slurm as much as `slurmsched queue`, and Enter as much as
    `slurmsched explain`. Needs the extra `top`. Reads only.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.errors import ConfigError
    from slurmsched.logs import configure

    try:
        from slurmsched.observe.top_app import TopApp
    except ImportError as error:
        raise ConfigError("needs textual: pip install 'slurmsched[top]'") from error
    interval_s = seconds(interval)
    configure("error")
    tree = read_config()
    with open_cycle_parts(tree, apply=False, read_only=True, indices=True) as parts:
        TopApp(lambda: looked(tree, parts), interval_s).run()


def seconds(text: str) -> float:
    """An interval of LEAST_S or longer. Raises click.BadParameter."""
    from slurmsched.model.durations import duration_s

    try:
        return max(duration_s(text), LEAST_S)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}", param_hint="--interval") from error


def looked(tree: Config, parts: CycleParts, *, asked: int = MOST_ASKED, mode: str = "") -> Frame:
    """One look, as the pages of the daemon have it. asked: jobs that Slurm is asked about. mode: if not tree's."""
    from slurmsched.db.job_history import PAGE_S, LedgerPlace, past_of_job
    from slurmsched.observe.explain.explanation import preemption_outlook, run_time_terms
    from slurmsched.observe.web.frame import Frame
    from slurmsched.slurm.job_queries import PageQueries

    at = LedgerPlace.of(tree, PAGE_S)
    snapshot, plan = parts.look()
    return Frame(snapshot, plan, tree.lever.kind, mode or tree.mode, tree.policy.name,
                 past=lambda job_id, gpus: past_of_job(at, job_id, gpus),
                 ask=PageQueries(tree.slurm, snapshot, asked) if asked else None,
                 move=lambda row: preemption_outlook(snapshot, row, tree.preemption, tree.scope),
                 expected=lambda row: run_time_terms(parts.planner, snapshot, row))  # fmt: skip
