"""What the shell offers for a value: plug-ins, and jobs, users and partitions of Slurm as they are now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import click

TIMEOUT_S = 2.0  # a shell that waits longer for Slurm would seem to hang
_PLAIN = re.compile(r"[\w.+@\[\]-]+")  # what a shell takes as it is
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def plugins(*kinds: str) -> Completer:
    """Names of the plug-ins of these kinds."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from slurmsched.registry import KINDS, plugin_names

        return _matching((name for kind in kinds or KINDS for name in plugin_names(kind)), incomplete)

    return complete


def complete_published_tables(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the published tables."""
    from slurmsched.sim.experiments.reproduction import table_names

    return _matching(table_names(), incomplete)


def squeue(letter: str) -> Completer:
    """Values in the queue by squeue's letter, such as "i" for job ids; the last of a list that commas separate."""
    return lambda context, _parameter, incomplete: _complete_last_word(
        incomplete, _printed(context, "squeue", "-h", "-o", f"%{letter}")
    )


def partitions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Partitions of the cluster; the last of a list that commas separate."""
    return _complete_last_word(incomplete, _printed(context, "sinfo", "-h", "-o", "%R"))


def nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Nodes of the cluster."""
    return _matching(_printed(context, "sinfo", "-h", "-N", "-o", "%N"), incomplete)


def _complete_last_word(incomplete: str, values: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{value}" for value in _matching(values, last)]


def _matching(values: Iterable[str], incomplete: str) -> list[str]:
    return sorted({value for value in values if value.startswith(incomplete) and _PLAIN.fullmatch(value)})


def _printed(context: click.Context, *command: str) -> list[str]:
    """Lines that a command of Slurm prints; none where it cannot be run or the configuration is wrong."""
    from slurmsched.config_file import config_path, load_config
    from slurmsched.errors import SlurmschedError
    from slurmsched.slurm.reader import open_commands

    try:
        slurm = load_config(config_path(context.find_root().params.get("config"))).slurm
        commands = open_commands(slurm.model_copy(update={"timeout_s": TIMEOUT_S}))
        return commands.run(*command).split()
    except SlurmschedError:
        return []
