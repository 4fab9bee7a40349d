"""Opens the adapter that a configuration names."""

from __future__ import annotations

from typing import Protocol

from slurmsched.config import Slurm
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.cli_reader import CliReader
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pyslurm_reader import PyslurmReader


class Reader(Protocol):
    """A way to read a cluster. name: as in the configuration."""

    name: str

    def begin(self) -> None:
        """Start what the next read will wait for; other work may go on meanwhile."""
        ...

    def read(self) -> Snapshot:
        """The cluster now, without what only the ledger knows. Raises SlurmError when it cannot be read whole."""
        ...

    def close(self) -> None:
        """End every process of this reader."""
        ...


def open_commands(settings: Slurm) -> Commands:
    """Slurm's commands as configured."""
    return Commands(settings.bin_dir, settings.conf, settings.timeout_s)


def open_reader(settings: Slurm) -> Reader:
    """The reader as configured.

    auto takes the commands: they tell more than pyslurm, at less cost on every queue measured (docs/reading.md).
    """
    commands = open_commands(settings)
    return PyslurmReader(commands) if settings.adapter == "pyslurm" else CliReader(commands)
