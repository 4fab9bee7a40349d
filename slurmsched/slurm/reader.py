"""Reads a cluster: opens the reader that a configuration names, and reads by Slurm's own commands (21.08 and later)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from slurmsched.config import Config, SlurmConfig
from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import ON_NODES
from slurmsched.protocols import ClusterReader
from slurmsched.slurm.cluster_state import ClusterState, SprioUse, abandon
from slurmsched.slurm.commands import Commands, RunningCommand, argument_batches
from slurmsched.slurm.job_tables import finish_jobs, queue_columns
from slurmsched.slurm.scontrol_tables import SHOW_RESERVATIONS, read_reservations
from slurmsched.slurm.squeue import (
    ARRAY_TASK_ARGUMENTS,
    fresh_mark,
    merge_rows,
    parse_queue,
    pending_arrays,
    queue_arguments,
    split_arrays,
    split_rows,
    unit_of,
)
from slurmsched.slurm.topology_sources import SnapshotTopology


def open_commands(settings: SlurmConfig) -> Commands:
    """Slurm's commands as configured."""
    return Commands(settings.bin_dir, settings.conf, settings.timeout_s)


def open_reader(
    settings: SlurmConfig, *, indices: bool = True, sprio: SprioUse = "always", states: str = "all"
) -> ClusterReader:
    """The reader as configured.

    "auto" means pyslurm in a daemon, if it is installed and of the cluster's release, else the commands: a process of
    one cycle would wait for its import.

    indices: False, in a process of one cycle, does not read the GPU indices of running jobs (see ClusterState).
    sprio: see ClusterState.
    states: which jobs the commands read, see queue_arguments. pyslurm reads all, which takes no longer.
    """
    commands = open_commands(settings)
    by_commands = CommandReader(commands, indices=indices, sprio=sprio, states=states)
    if settings.adapter == "pyslurm" or (settings.adapter == "auto" and indices and pyslurm_fits(commands)):
        from slurmsched.slurm.pyslurm_reader import PyslurmReader

        return PyslurmReader(commands, by_commands, indices=indices, sprio=sprio)
    return by_commands


def pyslurm_fits(commands: Commands) -> bool:
    """Whether pyslurm is installed, of Slurm's major and minor release, and slurm.h is there.

    pyslurm is not imported.
    """
    try:
        ours = version("pyslurm")
    except PackageNotFoundError:
        return False
    from slurmsched.slurm.pyslurm_reader import slurm_header

    same = _release(ours) == _release(commands.run("squeue", "--version").rpartition(" ")[2])
    return same and slurm_header(commands).is_file()


def _release(text: str) -> list[int]:
    """Major and minor: "26.05.5" and "26.5.0" are of one release."""
    return [int(part) for part in re.findall(r"\d+", text)[:2]]


# One read of a cluster.


def read_cluster_once(
    config: Config, *, reservations: bool = False, priorities: bool = False, waiting: bool = True
) -> Snapshot:
    """The cluster now with its topology, without the columns of the ledger.

    GPU indices come from the nodes; the records of jobs are not read.

    reservations: whether Slurm's reservations are read too.
    priorities: whether sprio runs. Without it no job has a base priority or a site factor, and none is pinned by an
        operator.
    waiting: False where jobs that hold no nodes are not needed. They may be absent then.
    Raises SlurmError if the cluster cannot be read completely.
    """
    sprio: SprioUse = "always" if priorities else "never"
    states = "all" if waiting else ",".join(str(state.name) for state in ON_NODES)
    reader = open_reader(config.slurm, indices=False, sprio=sprio, states=states)
    with closing(reader), closing(open_commands(config.slurm)) as commands:
        wiring = SnapshotTopology(config.topology, commands)
        reader.begin()  # Slurm's commands run meanwhile
        wiring.begin()
        if reservations:
            commands.begin(*SHOW_RESERVATIONS)
        snapshot = reader.read()
        return wiring(replace(snapshot, reservations=read_reservations(commands)) if reservations else snapshot)


# Reads a cluster by Slurm's own commands.

STALE_S = 30.0  # output of commands that were started longer ago is not used


@dataclass(frozen=True, slots=True)
class _Begun:
    at_s: float
    mark: str
    started: dict[str, RunningCommand]


class CommandReader:
    """Snapshots by squeue, sprio and scontrol.

    Between reads it remembers whether job arrays are pending.

    clock: gives Unix seconds.
    indices, sprio: see ClusterState.
    states: see queue_arguments.
    """

    name = "cli"

    def __init__(
        self,
        commands: Commands,
        clock: Callable[[], float] = time.time,
        *,
        indices: bool = True,
        sprio: SprioUse = "always",
        states: str = "all",
    ) -> None:
        self.commands = commands
        self._around = ClusterState(commands, indices=indices, sprio=sprio)
        self._states = states
        self._clock = clock
        self._arrays = False
        self._begun: _Begun | None = None

    def begin(self) -> None:
        """Start the commands now; the next `read` collects them. Raises SlurmUnreachableError."""
        if self._begun is None:
            mark = fresh_mark()
            wanted = {"squeue": ("squeue", *queue_arguments(mark, states=self._states))}
            if self._arrays:
                wanted["expanded"] = ("squeue", *ARRAY_TASK_ARGUMENTS)
            self._begun = _Begun(self._clock(), mark, self._around.start(wanted))

    def close(self) -> None:
        """End commands that `begin` started and no read collected."""
        if self._begun is not None:
            abandon(self._begun.started)
            self._begun = None

    def doubt_rights(self) -> None:
        """Read our rights again at the next read."""
        self._around.doubt_rights()

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        if self._begun is not None and self._clock() - self._begun.at_s > STALE_S:
            self.close()
        self.begin()
        begun, self._begun = self._begun, None
        assert begun is not None
        warnings: list[str] = []
        try:
            site = self._around.site(begun.started, warnings)
            rows = self._rows(begun.mark, begun.started)
            columns = queue_columns(parse_queue(rows, unit_of(begun.mark), warnings), begun.at_s, warnings)
            return self._around.snapshot(begun.at_s, columns, begun.started, site, warnings)
        finally:
            abandon(begun.started)

    def _rows(self, mark: str, started: Mapping[str, RunningCommand]) -> Sequence[str]:
        """The groups of squeue, with rows for the records that squeue hides in the row of their array."""
        rows = split_rows(started["squeue"].text(), mark)
        self._arrays = pending_arrays(rows)
        if not self._arrays:
            return rows
        expanded = started.get("expanded") or self.commands.start("squeue", *ARRAY_TASK_ARGUMENTS)
        hidden = split_arrays(expanded.text(), rows)
        if not hidden:
            return rows
        again = "".join(
            self.commands.run("squeue", *queue_arguments(mark, listed)) for listed in argument_batches(hidden)
        )
        return merge_rows(rows, split_rows(again, mark), hidden)


def read_few(commands: Commands, job_ids: Sequence[int], now_s: float, warnings: list[str]) -> Jobs:
    """These jobs as squeue shows them now, in ascending id; jobs that left the queue are absent.

    Columns that come from other commands hold their defaults. Raises SlurmError.
    """
    mark = fresh_mark()
    text = "".join(_of_these(commands, mark, listed) for listed in argument_batches(sorted(job_ids)))
    columns = queue_columns(parse_queue(split_rows(text, mark), unit_of(mark), warnings), now_s, warnings)
    columns.pop("tres")
    return finish_jobs(columns, warnings)


def _of_these(commands: Commands, mark: str, listed: str) -> str:
    """The rows of squeue for a comma list of ids; "" if none of them is in the queue."""
    try:
        return commands.run("squeue", *queue_arguments(mark, listed))
    except SlurmUnreachableError:
        raise
    except SlurmError as error:
        if "invalid job id" not in str(error).lower():
            raise
    return ""
