"""Reads a cluster by Slurm's own commands, from 21.08 on: a few of them, all at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from slurmsched.errors import SlurmError
from slurmsched.model.columns import Bools
from slurmsched.model.jobs import Jobs
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.model.states import JobState
from slurmsched.slurm.commands import Commands, Started, failure
from slurmsched.slurm.details import Held
from slurmsched.slurm.job_table import HOLDING, build_allocations, finish_jobs, priority_columns, put_held
from slurmsched.slurm.node_text import parse_nodes, parse_partitions
from slurmsched.slurm.queue_table import queue_columns
from slurmsched.slurm.queue_text import (
    EXPANDED,
    PRIORITIES,
    Priorities,
    fresh_mark,
    merge_rows,
    parse_priorities,
    parse_queue,
    pending_arrays,
    queue_arguments,
    split_arrays,
    split_rows,
)
from slurmsched.slurm.site import make_site, parse_settings, read_rights

RIGHTS_S = 3600.0  # our admin level is asked for again after this long
_AROUND = {
    "nodes": ("scontrol", "-o", "-d", "show", "node"),
    "partitions": ("scontrol", "-o", "show", "partition"),
    "config": ("scontrol", "show", "config"),
    "sprio": ("sprio", *PRIORITIES),
}


class CliReader:
    """Snapshots by squeue, sprio and scontrol.

    Between reads it remembers which GPUs a run holds (they do not change while it goes on), whether
    arrays wait, and our rights.
    """

    name = "cli"

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self._held = Held(commands)
        self._arrays = False
        self._multifactor = True
        self._rights: tuple[float, Rights] | None = None
        self._begun: tuple[str, dict[str, Started]] | None = None

    def begin(self) -> None:
        """Start the commands now; the next `read` collects them. Raises SlurmUnreachableError."""
        if self._begun is None:
            self._begun = (mark := fresh_mark()), self._start(mark)

    def close(self) -> None:
        """End commands that were begun and not read."""
        if self._begun is not None:
            for command in self._begun[1].values():
                command.abandon()
            self._begun = None

    def read(self) -> Snapshot:
        """The cluster now. Raises SlurmError when it cannot be read whole."""
        self.begin()
        assert self._begun is not None
        mark, commands = self._begun
        self._begun = None
        with ExitStack() as stack:
            for command in commands.values():
                stack.enter_context(command)
            return self._collect(mark, commands)

    def _start(self, mark: str) -> dict[str, Started]:
        wanted = {"squeue": ("squeue", *queue_arguments(mark)), **_AROUND}
        if not self._multifactor:
            del wanted["sprio"]
        if self._arrays:
            wanted["expanded"] = ("squeue", *EXPANDED)
        started: dict[str, Started] = {}
        try:
            for name, (program, *arguments) in wanted.items():
                started[name] = self.commands.start(program, *arguments)
        except SlurmError:
            for command in started.values():
                command.abandon()
            raise
        return started

    def _collect(self, mark: str, commands: dict[str, Started]) -> Snapshot:
        warnings: list[str] = []
        flat = self._rows(mark, commands)
        now_s = time.time()
        site = self._site(commands["config"].text())
        columns = queue_columns(parse_queue(flat), now_s, warnings)
        _join_priorities(columns, self._priorities(commands.get("sprio"), site))
        holds = _holds_gpus(columns)
        details = self._held.read(columns, holds)
        put_held(columns, details, holds)
        columns["cron"] = self._held.cron_jobs(columns, site)
        jobs: Jobs = finish_jobs(columns, warnings)
        return Snapshot(
            now_s=now_s,
            jobs=jobs,
            nodes=parse_nodes(commands["nodes"].text(), warnings),
            partitions=parse_partitions(commands["partitions"].text()),
            allocations=build_allocations(details, warnings),
            site=site,
            warnings=tuple(warnings),
        )

    def _rows(self, mark: str, commands: dict[str, Started]) -> Sequence[str]:
        """squeue's fields, with the records it folds into others in rows of their own."""
        flat = split_rows(commands["squeue"].text(), mark)
        self._arrays = pending_arrays(flat)
        if not self._arrays:
            return flat
        expanded = commands.get("expanded") or self.commands.start("squeue", *EXPANDED)
        hidden = split_arrays(expanded.text(), flat)
        if not hidden:
            return flat
        again = self.commands.run("squeue", *queue_arguments(mark, hidden))
        return merge_rows(flat, split_rows(again, mark), hidden)

    def _priorities(self, sprio: Started | None, site: Site) -> Priorities:
        """sprio's table; none where priorities have no factors (sprio then refuses)."""
        self._multifactor = site.multifactor
        if sprio is None or not site.multifactor:
            return Priorities.none()
        status, out, err = sprio.finish()
        if status:
            raise failure("sprio", status, err or out)
        return parse_priorities(out)

    def _site(self, config: str) -> Site:
        settings = parse_settings(config)
        now_s = time.monotonic()
        if self._rights is None or now_s - self._rights[0] > RIGHTS_S:
            self._rights = now_s, read_rights(self.commands, settings)
        return make_site(settings, self._rights[1])


def _join_priorities(columns: dict[str, Any], priorities: Priorities) -> None:
    found = priority_columns(columns["job_id"], priorities)
    waits = (columns["state"] & int(JobState.PENDING)) != 0
    found["pinned"] = columns["pinned"] | (found["pinned"] & waits)
    columns.update(found)


def _holds_gpus(columns: dict[str, Any]) -> Bools:
    """Rows that may hold GPUs now. (N,) bool."""
    wants = (columns["gpus"] + columns["mig_devices"] + columns["shards"]) > 0
    return ((columns["state"] & int(HOLDING)) != 0) & wants
