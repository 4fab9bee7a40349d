"""One look at a cluster, with no ledger and no rights beyond those of squeue and sinfo."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from slurmsched.config import Config
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.reservations import read_reservations
from slurmsched.slurm.wiring import Wiring


def look(config: Config, *, reservations: bool = False) -> Snapshot:
    """The cluster now with its topology; nothing of what the ledger remembers.

    reservations: whether Slurm's are read too. GPU indices are those that nodes show; jobs are not asked one by one.
    Raises SlurmError when the cluster cannot be read whole.
    """
    with closing(open_reader(config.slurm, indices=False)) as reader:
        reader.begin()  # Slurm's commands run while the rest is made
        commands = open_commands(config.slurm)
        wiring = Wiring(config.topology, commands)
        snapshot = wiring(reader.read())
    return replace(snapshot, reservations=read_reservations(commands)) if reservations else snapshot
