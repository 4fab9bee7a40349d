"""What every reader asks Slurm's commands for, beside the jobs themselves, and the snapshot made of it all."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from slurmsched.errors import SlurmError
from slurmsched.model.columns import Bools
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.model.states import JobState
from slurmsched.slurm.commands import Commands, Started, failure
from slurmsched.slurm.details import Held
from slurmsched.slurm.held import told
from slurmsched.slurm.job_records import MOST_SINGLY
from slurmsched.slurm.job_table import (
    HOLDING,
    Details,
    build_allocations,
    finish_jobs,
    priority_columns,
    put_held,
    with_held,
)
from slurmsched.slurm.node_text import parse_nodes, parse_partitions
from slurmsched.slurm.queue_text import PRIORITIES, Priorities, parse_priorities
from slurmsched.slurm.site import SHOW_CONFIG, ask_rights, collect_settings, make_site

DOUBT_S = 60.0  # a doubt that Slurm did not share is not looked into again for so long
RIGHTS_S = 3600.0  # our admin level is asked for again after this long, where nothing is refused for want of it
_WANTED = {
    "nodes": ("scontrol", "-o", "-d", "show", "node"),
    "partitions": ("scontrol", "-ao", "show", "partition"),  # -a: hidden ones too, whose jobs squeue -a shows
    "config": SHOW_CONFIG,
    "sprio": ("sprio", *PRIORITIES),
}


class Around:
    """Nodes, partitions, settings, priority factors and held GPUs of one cluster.

    Between reads it remembers which GPUs a run holds (they do not change while it goes on), our rights,
    and whether priorities have factors.

    indices: whether each run is asked for the GPUs it holds, by index. Without, allocations come from the counts that
    squeue tells (see held.told): requests to slurmctld do not grow with the number of running jobs then.
    """

    def __init__(self, commands: Commands, *, indices: bool = True) -> None:
        self.commands = commands
        self._indices = indices
        self._held = Held(commands, MOST_SINGLY if indices else 1)
        self._multifactor = True
        self._rights = (-math.inf, Rights.USER)  # when Slurm told them, and what
        self._doubted, self._certain_s = False, -math.inf  # until when another doubt is not looked into

    def start(self, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Started]:
        """The given commands and ours, all running. Raises SlurmUnreachableError, and then none runs."""
        ours = {name: command for name, command in _WANTED.items() if name != "sprio" or self._multifactor}
        started: dict[str, Started] = {}
        try:
            for name, (program, *arguments) in {**wanted, **ours}.items():
                started[name] = self.commands.start(program, *arguments)
        except SlurmError:
            abandon(started)
            raise
        return started

    def doubt_rights(self) -> None:
        """Ask for our admin level again at the next read: Slurm refused a write for want of it."""
        self._doubted = time.monotonic() >= self._certain_s

    def snapshot(
        self, now_s: float, columns: dict[str, Any], started: Mapping[str, Started], warnings: list[str]
    ) -> Snapshot:
        """The snapshot of these job columns and of what the started commands say. Raises SlurmError."""
        site = self._site(collect_settings(started["config"]))
        warnings += _hidden(site)
        _join_priorities(columns, self._priorities(started.get("sprio"), site, warnings))
        holds = _holds_gpus(columns)
        tres = columns.pop("tres")
        details: Details = (
            self._held.read(columns, tres, holds, warnings) if self._indices else told(columns, tres, holds)
        )
        put_held(columns, details, holds)
        if self._indices:
            self._held.put_spread(columns)
        if "cron" not in columns:
            columns["cron"] = self._held.cron_jobs(columns, site)
        nodes, held = parse_nodes(started["nodes"].text(), warnings), build_allocations(details, warnings)
        return Snapshot(
            now_s=now_s,
            jobs=finish_jobs(columns, warnings),
            nodes=with_held(nodes, held, exact=self._indices),
            partitions=parse_partitions(started["partitions"].text(), warnings),
            allocations=held,
            site=site,
            warnings=tuple(warnings),
        )

    def _priorities(self, sprio: Started | None, site: Site, warnings: list[str]) -> Priorities:
        """sprio's table; none where priorities have no factors (sprio then refuses)."""
        self._multifactor = site.multifactor
        if sprio is None or not site.multifactor:
            return Priorities.none()
        status, out, err = sprio.finish()
        if status:
            raise failure("sprio", status, err or out)
        return parse_priorities(out, warnings)

    def _site(self, settings: Mapping[str, str]) -> Site:
        now_s = time.monotonic()
        if self._doubted or self._rights[1] < Rights.OPERATOR or now_s - self._rights[0] > RIGHTS_S:
            told = ask_rights(self.commands, settings)
            if told is not None:
                self._certain_s = now_s + DOUBT_S if self._doubted and told >= Rights.OPERATOR else -math.inf
                self._rights, self._doubted = (now_s, told), False
        return make_site(settings, self._rights[1])


def abandon(started: Mapping[str, Started]) -> None:
    """End those commands that nobody collected."""
    for command in started.values():
        command.abandon()


def _hidden(site: Site) -> list[str]:
    """A warning where Slurm leaves other users' jobs out of its answers, which it does without an error."""
    private = site.settings.get("PrivateData", "").split(",")
    if "jobs" not in private or site.rights >= Rights.OPERATOR:
        return []
    return [f"PrivateData=jobs hides other users' jobs from {site.user}, which needs the Operator right"]


def _join_priorities(columns: dict[str, Any], priorities: Priorities) -> None:
    found = priority_columns(columns["job_id"], priorities)
    waits = (columns["state"] & int(JobState.PENDING)) != 0
    found["pinned"] = columns["pinned"] | (found["pinned"] & waits)
    columns.update(found)


def _holds_gpus(columns: Mapping[str, Any]) -> Bools:
    """Rows that may hold GPUs now. (N,) bool."""
    wants = (columns["gpus"] + columns["mig_devices"] + columns["shards"]) > 0
    holds: Bools = ((columns["state"] & int(HOLDING)) != 0) & wants
    return holds
