"""Builds the live cluster that a configuration describes."""

from __future__ import annotations

from functools import partial

from slurmsched.config import Config
from slurmsched.db.journal import Journal
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.live_cluster import LiveCluster
from slurmsched.slurm.pace import Pace
from slurmsched.slurm.reader import open_reader
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.site import read_load
from slurmsched.slurm.writer import CommandWriter


def open_live(config: Config, *, apply: bool) -> LiveCluster:
    """The Slurm of the configuration. apply: whether it may be written to; hold the lock then.

    Raises SlurmUnreachableError when Slurm's commands are not found.
    """
    commands = Commands(config.slurm.bin_dir, config.slurm.conf, config.slurm.timeout_s)
    return LiveCluster(
        open_reader(config.slurm),
        CommandWriter(commands),
        Journal(config.ledger.journal),
        Pace(config.pace, partial(read_load, commands)),
        apply=apply,
        recheck=Recheck(commands),
    )
