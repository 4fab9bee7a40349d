"""Reads a cluster by Slurm's own commands, from 21.08 on: a few of them, all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.around import Around, abandon
from slurmsched.slurm.commands import Commands, Started, batches
from slurmsched.slurm.job_table import finish_jobs
from slurmsched.slurm.queue_table import queue_columns
from slurmsched.slurm.queue_text import (
    EXPANDED,
    fresh_mark,
    merge_rows,
    parse_queue,
    pending_arrays,
    queue_arguments,
    split_arrays,
    split_rows,
    unit_of,
)

STALE_S = 30.0  # commands begun longer ago than this are asked again


@dataclass(frozen=True, slots=True)
class _Begun:
    at_s: float
    mark: str
    started: dict[str, Started]


class CliReader:
    """Snapshots by squeue, sprio and scontrol. Between reads it remembers whether arrays wait.

    clock: Unix seconds. indices: as around.Around.
    """

    name = "cli"

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.time, *, indices: bool = True) -> None:
        self.commands = commands
        self._around = Around(commands, indices=indices)
        self._clock = clock
        self._arrays = False
        self._begun: _Begun | None = None

    def begin(self) -> None:
        """Start the commands now; the next `read` collects them. Raises SlurmUnreachableError."""
        if self._begun is None:
            mark = fresh_mark()
            wanted = {"squeue": ("squeue", *queue_arguments(mark))}
            if self._arrays:
                wanted["expanded"] = ("squeue", *EXPANDED)
            self._begun = _Begun(self._clock(), mark, self._around.start(wanted))

    def close(self) -> None:
        """End commands that were begun and not read."""
        if self._begun is not None:
            abandon(self._begun.started)
            self._begun = None

    def doubt_rights(self) -> None:
        """Ask for our rights again at the next read."""
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
            rows = self._rows(begun.mark, begun.started)
            columns = queue_columns(parse_queue(rows, unit_of(begun.mark), warnings), begun.at_s, warnings)
            return self._around.snapshot(begun.at_s, columns, begun.started, warnings)
        finally:
            abandon(begun.started)

    def _rows(self, mark: str, started: Mapping[str, Started]) -> Sequence[str]:
        """squeue's groups, with the records it folds into others in rows of their own."""
        rows = split_rows(started["squeue"].text(), mark)
        self._arrays = pending_arrays(rows)
        if not self._arrays:
            return rows
        expanded = started.get("expanded") or self.commands.start("squeue", *EXPANDED)
        hidden = split_arrays(expanded.text(), rows)
        if not hidden:
            return rows
        again = "".join(self.commands.run("squeue", *queue_arguments(mark, listed)) for listed in batches(hidden))
        return merge_rows(rows, split_rows(again, mark), hidden)


def read_few(commands: Commands, job_ids: Sequence[int], now_s: float, warnings: list[str]) -> Jobs:
    """These jobs as squeue shows them now, in ascending id, without what only other commands tell; those that left the
    queue are absent. Raises SlurmError."""
    mark = fresh_mark()
    text = "".join(_of_these(commands, mark, listed) for listed in batches(sorted(job_ids)))
    columns = queue_columns(parse_queue(split_rows(text, mark), unit_of(mark), warnings), now_s, warnings)
    columns.pop("tres")
    return finish_jobs(columns, warnings)


def _of_these(commands: Commands, mark: str, listed: str) -> str:
    """squeue's rows of a list of ids; "" where none of them is left."""
    try:
        return commands.run("squeue", *queue_arguments(mark, listed))
    except SlurmUnreachableError:
        raise
    except SlurmError as error:
        if "invalid job id" not in str(error).lower():
            raise
    return ""
