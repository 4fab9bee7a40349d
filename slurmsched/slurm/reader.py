"""Opens the adapter that a configuration names."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from slurmsched.config import Slurm
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands


class Reader(Protocol):
    """A way to read a cluster. name: as in the configuration."""

    name: str

    def begin(self) -> None:
        """Start what the next read will wait for; other work may go on meanwhile."""
        ...

    def read(self) -> Snapshot:
        """The cluster now, without what only the ledger knows. Raises SlurmError when it cannot be read whole."""
        ...

    def doubt_rights(self) -> None:
        """Ask for our rights again at the next read: Slurm refused a write for want of them."""
        ...

    def close(self) -> None:
        """End every process of this reader."""
        ...


def open_commands(settings: Slurm) -> Commands:
    """Slurm's commands as configured."""
    return Commands(settings.bin_dir, settings.conf, settings.timeout_s)


def open_reader(settings: Slurm, *, indices: bool = True) -> Reader:
    """The reader as configured. auto: pyslurm where it is installed and of the cluster's release, else the commands.

    indices: False asks for no GPU indices of running jobs (see around.Around).
    """
    commands = open_commands(settings)
    if settings.adapter == "pyslurm" or (settings.adapter == "auto" and pyslurm_fits(commands)):
        from slurmsched.slurm.pyslurm_reader import PyslurmReader

        return PyslurmReader(commands, indices=indices)
    from slurmsched.slurm.cli_reader import CliReader

    return CliReader(commands, indices=indices)


def pyslurm_fits(commands: Commands) -> bool:
    """Whether pyslurm is installed and of the same major and minor release as Slurm. pyslurm is not imported."""
    try:
        ours = version("pyslurm")
    except PackageNotFoundError:
        return False
    return _release(ours) == _release(commands.run("squeue", "--version").rpartition(" ")[2])


def _release(text: str) -> list[int]:
    """Major and minor: "26.05.5" and "26.5.0" are of one release."""
    return [int(part) for part in re.findall(r"\d+", text)[:2]]
