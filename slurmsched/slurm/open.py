"""Builds the live cluster that a configuration describes."""

from __future__ import annotations

from functools import partial

from slurmsched.config import Config
from slurmsched.db.acts import HOUR_S, ActLog
from slurmsched.db.journal import Journal
from slurmsched.slurm.acting import Acting
from slurmsched.slurm.exclusive import Exclusive
from slurmsched.slurm.live_cluster import LiveCluster
from slurmsched.slurm.pace import Pace
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.reservations import read_reservations
from slurmsched.slurm.sacct import earlier_runs
from slurmsched.slurm.site import read_load
from slurmsched.slurm.wiring import Wiring
from slurmsched.slurm.writer import CommandWriter


def open_live(config: Config, *, apply: bool, heed_stop: bool = True, indices: bool = False) -> LiveCluster:
    """The Slurm of the configuration, its first read under way. apply: whether it may be written to, lock held.

    heed_stop: False for `undo`, which a stop file must not keep from giving values back.
    indices: as open_reader.

    Raises SlurmUnreachableError when Slurm's commands are not found.
    """
    commands = open_commands(config.slurm)
    reader = open_reader(config.slurm, indices=indices)
    reader.begin()
    return LiveCluster(
        reader,
        CommandWriter(commands),
        Journal(config.ledger.journal),
        Pace(config.pace, partial(read_load, commands)),
        apply=apply,
        recheck=Recheck(commands),
        reservations=partial(read_reservations, commands),
        acts_on=config.preemption.enabled or config.gangs.reserve,
        exclusive=Exclusive(commands),
        acting=Acting(ActLog(config.ledger.journal, keep_s=max(HOUR_S, config.acts.lease_s))),
        earlier_runs=partial(earlier_runs, commands),
        stop_file=config.cycle.stop_file if heed_stop else None,
        wiring=Wiring(config.topology, commands),
    )
