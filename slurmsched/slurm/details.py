"""Which GPUs running jobs hold, and which jobs are of scrontab: only `scontrol -d show job` tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.gres import Gres, parse_gres
from slurmsched.model.snapshot import Site
from slurmsched.model.states import JobState
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.held import told
from slurmsched.slurm.job_records import (
    DETAIL,
    LONGEST_REST,
    MOST_SINGLY,
    NOT_KNOWN,
    JobRecord,
    Retries,
    Spread,
    ask_jobs,
)
from slurmsched.slurm.job_table import Parts, expand_hosts, named_jobs

_LIVES = JobState.PENDING | JobState.RUNNING | JobState.SUSPENDED
_Mark = tuple[Any, ...]


class Held:
    """Remembers what each run holds, so that a cycle asks only for runs that are new or were resized.

    most_singly: jobs asked for by id in one go; for more, all jobs are printed at once. A job whose record is in doubt
    is asked for again after 1, 2, 4 ... 64 reads.
    """

    def __init__(self, commands: Commands, most_singly: int = MOST_SINGLY) -> None:
        self._commands = commands
        self._most_singly = most_singly
        self._known: dict[int, tuple[_Mark, Parts, Spread]] = {}
        self._doubts: dict[int, tuple[_Mark, int, int]] = {}  # what the run looked like, tries, read of the next try
        self._reads = 0
        self._cron: dict[tuple[int, float], bool] = {}
        self._cron_retries = Retries()

    def read(self, columns: Mapping[str, Any], tres: Labels, holds: Bools, warnings: list[str]) -> dict[int, Parts]:
        """By job the hostlists it holds and the gres text of each of these nodes, for the rows of `holds`.

        tres: (N,) AllocTRES of each row, its GPUs and shards only. Of a job in doubt the counts that squeue tells,
        without indices. Raises SlurmError.
        """
        self._reads += 1
        rows = {int(columns["job_id"][row]): row for row in np.flatnonzero(holds).tolist()}
        marks = {job: _mark(columns, row) for job, row in rows.items()}
        self._known = {job: known for job, known in self._known.items() if known[0] == marks.get(job)}
        self._doubts = {job: doubt for job, doubt in self._doubts.items() if doubt[0] == marks.get(job)}
        missing = [job for job in marks if job not in self._known and self._due(job)]
        if missing:
            self._ask(sorted(missing, key=self._tries), columns, tres, rows, marks)
        warnings += _warning(self._doubts)
        doubts = np.zeros(len(holds), np.bool_)
        doubts[[rows[job] for job in self._doubts]] = True
        return {job: parts for job, (_, parts, _) in self._known.items()} | told(columns, tres, doubts)

    def put_spread(self, columns: dict[str, Any]) -> None:
        """The columns of what the jobs read last ask for by --switches and --segment; -1 where that is in doubt."""
        ids = np.asarray(columns["job_id"], np.int64)
        wishes = {job: spread for job, (_, _, spread) in self._known.items() if any(spread)}
        wishes |= dict.fromkeys(self._doubts, NOT_KNOWN)
        for place, name in enumerate(("switches", "segment_nodes")):
            columns[name] = np.zeros(len(ids), np.int32)
            for job, spread in wishes.items():
                columns[name][ids == job] = spread[place]

    def _due(self, job: int) -> bool:
        return job not in self._doubts or self._doubts[job][2] <= self._reads

    def _tries(self, job: int) -> int:
        return self._doubts[job][1] if job in self._doubts else 0

    def _ask(
        self,
        jobs: list[int],
        columns: Mapping[str, Any],
        tres: Labels,
        rows: Mapping[int, int],
        marks: dict[int, _Mark],
    ) -> None:
        names = {job: columns["name"][rows[job]] for job in jobs}
        answer = ask_jobs(self._commands, names, len(columns["job_id"]), self._most_singly)
        doubtful = set(answer.doubtful)
        for job, record in answer.records.items():
            row = rows[job]
            try:
                parts = held_parts(record, columns["user"][row], columns["node_list"][row], tres[row])
            except UnreadableError:
                doubtful.add(job)
            else:
                self._doubts.pop(job, None)
                self._known[job] = (marks[job], parts, record.spread)
        for job in doubtful:
            tries = self._tries(job) + 1
            self._doubts[job] = (marks[job], tries, self._reads + min(1 << min(tries - 1, 10), LONGEST_REST))

    def cron_jobs(self, columns: Mapping[str, Any], site: Site) -> Bools:
        """Which rows are scrontab's, and those of which that is in doubt. (N,) bool.

        Only where the site offers scrontab is anything asked.
        """
        cron = np.zeros(len(columns["job_id"]), np.bool_)
        if "enable" not in site.settings.get("ScronParameters", ""):
            self._cron = {}
            return cron
        lives = (columns["state"] & int(_LIVES)) != 0
        late = np.flatnonzero(lives & columns["batch"] & (columns["eligible_s"] > columns["submit_s"])).tolist()
        keys = {row: (int(columns["job_id"][row]), float(columns["submit_s"][row])) for row in late}
        self._cron = {key: self._cron[key] for key in keys.values() if key in self._cron}
        name = {key: columns["name"][row] for row, key in keys.items()}
        if missing := self._cron_retries.due(key for key in name if key not in self._cron):
            names = {key[0]: name[key] for key in missing}
            records = ask_jobs(self._commands, names, len(cron), self._most_singly).records
            self._cron |= {key: _is_cron(records[key[0]]) for key in missing if key[0] in records}
            self._cron_retries.failed(key for key in missing if key not in self._cron)
        for row, key in keys.items():
            cron[row] = self._cron.get(key, True)
        return cron


def held_parts(record: JobRecord, user: str, node_list: str, tres: str) -> Parts:
    """The hostlists a job holds and the gres text of each of their nodes.

    user, node_list, tres: as squeue told them. Raises UnreadableError where the record tells otherwise.
    """
    if not record.is_of(user):
        raise UnreadableError("its record is of another user", text=record.facts[:200])
    parts = tuple((hosts, text) for hosts, _, text in DETAIL.findall(record.facts))
    if not parts:
        return ()
    nodes = expand_hosts(node_list)
    most, listed, gpus = len(nodes), list[str](), 0
    for hosts, text in parts:
        shown = expand_hosts(hosts, most)
        listed += shown
        gpus += len(shown) * count_indexed(parse_gres(text))
        if len(listed) > most:
            break
    if len(listed) != most or set(listed) != set(nodes):
        raise UnreadableError("its record shows other nodes than squeue", text=str(parts)[:200])
    held = sum(entry.count for entry in parse_gres(tres) if entry.kind == "gpu")
    if "gres/gpu" in tres and held != gpus:
        raise UnreadableError(f"its record shows {gpus} GPUs, squeue {held}", text=str(parts)[:200])
    return parts


def count_indexed(entries: Iterable[Gres]) -> int:
    """GPUs, MIG devices among them. Raises UnreadableError where an entry has other indices than it counts."""
    total = 0
    for entry in entries:
        if entry.kind == "gpu":
            if entry.mask and entry.mask.bit_count() != entry.count:
                raise UnreadableError("its record counts other GPUs than it lists", text=str(entry))
            total += entry.count
    return total


def _is_cron(record: JobRecord) -> bool:
    return " CronJob=Yes " in record.facts


def _warning(doubts: Iterable[int]) -> list[str]:
    jobs = sorted(doubts)
    if not jobs:
        return []
    return [
        f"{named_jobs(jobs)}: which GPUs they hold is not known. Their records are doubled or differ from squeue, as a "
        "line break or a forged field in a user's text makes them. Their GPUs are counted without indices"
    ]


def _mark(columns: Mapping[str, Any], row: int) -> _Mark:
    """What changes when a job runs anew or is resized."""
    return (float(columns["start_s"][row]), columns["node_list"][row], int(columns["cpus"][row]))
