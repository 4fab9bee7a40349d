"""`top`: the queue, the GPUs and what happens, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slurmsched.cli.settings import config

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.daemon.assemble import Parts
    from slurmsched.web.frame import Frame

LEAST_S = 2.0
MOST_ASKED = 100  # jobs a look that Slurm is asked about


@click.command("top")
@click.option(
    "--interval", "-d", metavar="DURATION", default="10s", show_default=True, help="From one look to the next."
)
def command(interval: str) -> None:
    """Show the queue with levels, every GPU, and preemptions, starts and ends as they happen. Reads only.

    Keys are those of htop; F1 tells them. A look costs Slurm what `slurmsched queue` does, and Enter what
    `slurmsched explain` asks. Needs the extra `top`.
    """
    from slurmsched.daemon.assemble import assembled
    from slurmsched.errors import ConfigError
    from slurmsched.logs import configure

    try:
        from slurmsched.top.app import Top
    except ImportError as error:
        raise ConfigError("needs textual: pip install 'slurmsched[top]'") from error
    interval_s = seconds(interval)
    configure("error")
    tree = config()
    with assembled(tree, apply=False, read_only=True, indices=True) as parts:
        Top(lambda: looked(tree, parts), interval_s).run()


def seconds(text: str) -> float:
    """An interval of LEAST_S or longer. Raises click.BadParameter."""
    from slurmsched.model.durations import duration_s

    try:
        return max(duration_s(text), LEAST_S)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}", param_hint="--interval") from error


def looked(tree: Config, parts: Parts) -> Frame:
    """One look, as the pages of the daemon have it."""
    from slurmsched.db.job_history import PAGE_S, Place, past
    from slurmsched.explain.expected import expected
    from slurmsched.explain.moving import moving
    from slurmsched.slurm.page_facts import PageFacts
    from slurmsched.web.frame import Frame

    at = Place.of(tree, PAGE_S)
    snapshot, plan = parts.look()
    return Frame(snapshot, plan, tree.lever.kind, tree.mode, tree.policy.name,
                 past=lambda job_id, gpus: past(at, job_id, gpus),
                 ask=PageFacts(tree.slurm, snapshot, MOST_ASKED),
                 move=lambda row: moving(snapshot, row, tree.preemption, tree.scope),
                 expected=lambda row: expected(parts.planner, snapshot, row))  # fmt: skip
