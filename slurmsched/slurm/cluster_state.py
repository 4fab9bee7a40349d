"""What every reader needs besides the jobs: nodes, partitions, settings, priorities, held GPUs; and the snapshot.

GPUs that running jobs hold come from squeue (counts) or from `scontrol -d show job` (indices). Only the latter shows
jobs of scrontab.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model.columns import Bools, Int64s, Labels
from slurmsched.model.gres import KINDS, Gres, normal_form, parse_gres
from slurmsched.model.slurm_text import setting_s
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.model.states import HOLDS_NODES, JobState
from slurmsched.slurm.commands import Commands, RunningCommand, command_error
from slurmsched.slurm.job_records import (
    LONGEST_REST,
    MOST_SINGLY,
    NODE_DETAIL,
    SPREAD_NOT_KNOWN,
    DoubtfulJobs,
    JobRecord,
    SpreadLimits,
    ask_jobs,
)
from slurmsched.slurm.job_tables import (
    HeldByJob,
    HeldParts,
    build_allocations,
    expand_hosts,
    finish_jobs,
    named_jobs,
    priority_columns,
    put_held,
    with_held,
    with_shared_parts,
)
from slurmsched.slurm.scontrol_tables import SHOW_PARTITIONS, parse_nodes, parse_partitions
from slurmsched.slurm.site import SHOW_CONFIG, ask_rights, collect_settings, make_site
from slurmsched.slurm.squeue import SPRIO_ARGUMENTS, Priorities, parse_priorities


def held_by_squeue(columns: Mapping[str, Any], tres: Labels, holds: Bools) -> dict[int, HeldParts]:
    """For each job in the rows of `holds`: the hostlists that it holds and the gres text of their nodes.

    A job on several nodes is assumed to hold equally many GPUs on each; the first nodes have one more if they do not
    divide. A text that cannot be parsed is passed on unchanged.

    tres: (N,) GPUs and shards of AllocTRES.
    """
    return {
        int(columns["job_id"][row]): _parts(columns["node_list"][row], tres[row], columns["gpu_request"][row])
        for row in np.flatnonzero(holds).tolist()
    }


@lru_cache(maxsize=1 << 14)
def _parts(hosts: str, tres: str, request: str) -> HeldParts:
    try:
        entries = _held_entries(parse_gres(tres), parse_gres(request))
        nodes = expand_hosts(hosts)
    except UnreadableError:
        return ((hosts, tres),)
    if len(nodes) == 1:
        return ((hosts, normal_form(entries)),)
    return tuple((node, normal_form(_share(entries, len(nodes), at))) for at, node in enumerate(nodes))


def _held_entries(tres: tuple[Gres, ...], request: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """AllocTRES, or the request if AllocTRES lacks the GPUs or their types (AccountingStorageTRES)."""
    if not tres or (not any(entry.type for entry in tres) and _counts(tres) == _counts(request)):
        return request
    return tres


def _counts(entries: Iterable[Gres]) -> dict[str, int]:
    return {kind: sum(entry.count for entry in entries if entry.kind == kind) for kind in KINDS}


def _share(entries: Iterable[Gres], nodes: int, at: int) -> list[Gres]:
    """The part of the entries that the node at this place of the list has."""
    shares = ((entry, divmod(entry.count, nodes)) for entry in entries)
    return [Gres(entry.kind, entry.type, each + (at < more)) for entry, (each, more) in shares]


# GPUs of running jobs, and scrontab.

_LIVES = JobState.PENDING | JobState.RUNNING | JobState.SUSPENDED
_Mark = tuple[Any, ...]


class HeldGpuRecords:
    """Remembers the GPUs of each run, so that a cycle reads only the records of new or resized runs.

    A job whose record is in doubt is read again after 1, 2, 4 ... 64 reads.

    most_singly: up to this many jobs are read one by one; for more, all jobs are listed at once.
    """

    def __init__(self, commands: Commands, most_singly: int = MOST_SINGLY) -> None:
        self._commands = commands
        self._most_singly = most_singly
        self._known: dict[int, tuple[_Mark, HeldParts, SpreadLimits]] = {}
        self._doubts: dict[int, tuple[_Mark, int, int]] = {}  # mark of the run, tries, number of the read to try again
        self._reads = 0
        self._cron: dict[tuple[int, float], bool] = {}
        self._cron_retries = DoubtfulJobs()

    def read(self, columns: Mapping[str, Any], tres: Labels, holds: Bools, warnings: list[str]) -> dict[int, HeldParts]:
        """For each job in the rows of `holds`: the hostlists that it holds and the gres text of their nodes.

        A job whose record is in doubt has the counts of squeue, without indices.

        tres: (N,) GPUs and shards of AllocTRES.
        holds: (N,) bool. warnings: gets one for jobs in doubt.
        Raises SlurmError.
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
        return {job: parts for job, (_, parts, _) in self._known.items()} | held_by_squeue(columns, tres, doubts)

    def put_spread(self, columns: dict[str, Any]) -> None:
        """Fill the columns of --switches and --segment for the jobs of the last read; -1 if in doubt."""
        ids = np.asarray(columns["job_id"], np.int64)
        spreads = {job: spread for job, (_, _, spread) in self._known.items() if any(spread)}
        spreads |= dict.fromkeys(self._doubts, SPREAD_NOT_KNOWN)
        for place, name in enumerate(("switches", "segment_nodes")):
            columns[name] = np.zeros(len(ids), np.int32)
            for job, spread in spreads.items():
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
        """Rows of jobs of scrontab, and of jobs that may be. (N,) bool.

        Slurm is asked only if the site offers scrontab.
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


def held_parts(record: JobRecord, user: str, node_list: str, tres: str) -> HeldParts:
    """The hostlists that a job holds and the gres text of their nodes.

    user, node_list, tres: as squeue shows them. Raises UnreadableError if the record differs.
    """
    if not record.is_of(user):
        raise UnreadableError("its record is of another user", text=record.record_text[:200])
    parts = tuple((hosts, text) for hosts, _, text in NODE_DETAIL.findall(record.record_text))
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
    """GPUs and MIG devices. Raises UnreadableError if an entry has more or fewer indices than its count."""
    total = 0
    for entry in entries:
        if entry.kind == "gpu":
            if entry.mask and entry.mask.bit_count() != entry.count:
                raise UnreadableError("its record counts other GPUs than it lists", text=str(entry))
            total += entry.count
    return total


def _is_cron(record: JobRecord) -> bool:
    return " CronJob=Yes " in record.record_text


def _warning(doubts: Iterable[int]) -> list[str]:
    jobs = sorted(doubts)
    if not jobs:
        return []
    return [
        f"{named_jobs(jobs)}: it is unknown which GPUs they hold. Their records occur twice or differ from squeue; a "
        "line break or a forged field in a user's text can cause that. Their GPUs are counted without indices"
    ]


def _mark(columns: Mapping[str, Any], row: int) -> _Mark:
    """Values that change when a job starts again or is resized."""
    return (float(columns["start_s"][row]), columns["node_list"][row], int(columns["cpus"][row]))


# The state of one cluster.

DOUBT_S = 60.0  # after a needless check of our rights, the next one waits this long
RIGHTS_S = 3600.0  # our admin level is read again after this time, or at once after a refused write
_COMMANDS = {
    "nodes": ("scontrol", "-o", "-d", "show", "node"),
    "partitions": SHOW_PARTITIONS,
    "config": SHOW_CONFIG,
    "sprio": ("sprio", *SPRIO_ARGUMENTS),
}


SprioUse = Literal["never", "always", "changed"]
# Of the waiting jobs: ids, ascending; priority before nice; whether sprio lists it.
PriorityMarks = tuple[Int64s, Int64s, Bools]
_NO_MARKS: PriorityMarks = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))


def priority_marks(columns: Mapping[str, Any], now_s: float) -> PriorityMarks:
    """The waiting jobs, each with its priority before nice, and whether sprio lists it: not held, and eligible.

    Slurm raises a priority below 1 to 1, so that nice does not show in it.
    """
    rows = np.flatnonzero((columns["state"] & int(JobState.PENDING)) != 0)
    rows = rows[np.argsort(columns["job_id"][rows], kind="stable")]
    priority = np.asarray(columns["priority"], np.int64)[rows]
    before = np.where(priority > 1, priority + np.asarray(columns["nice"], np.int64)[rows], priority)
    return columns["job_id"][rows], before, (priority > 0) & (columns["eligible_s"][rows] <= now_s)


def same_marks(marks: PriorityMarks, others: PriorityMarks) -> Bools:
    """The jobs of marks that have the same marks among the others. (M,) bool."""
    ids, before, listed = others
    if not len(ids):
        return np.zeros(len(marks[0]), np.bool_)
    at = np.minimum(np.searchsorted(ids, marks[0]), len(ids) - 1)
    same: Bools = (ids[at] == marks[0]) & (before[at] == marks[1]) & (listed[at] == marks[2])
    return same


@dataclass(frozen=True, slots=True)
class KnownPriorities:
    """The last table of sprio. marks: the waiting jobs that it is right for. at_s: when sprio started (monotonic)."""

    table: Priorities = field(default_factory=Priorities.none)
    marks: PriorityMarks = _NO_MARKS
    at_s: float = -math.inf

    @classmethod
    def of(cls, table: Priorities, marks: PriorityMarks, earlier: PriorityMarks, at_s: float) -> KnownPriorities:
        """A table, and the waiting jobs that it is right for.

        A job that is new or changed since the earlier marks is not among them: sprio may have run before the change.
        Nor is a job that sprio should list and does not: slurmctld has not computed its factors yet.

        marks: of the jobs' listing. earlier: of a listing that ended before sprio started; it may be marks itself.
        """
        right = same_marks(marks, earlier) & (~marks[2] | np.isin(marks[0], table.job_id))
        return cls(table, (marks[0][right], marks[1][right], marks[2][right]), at_s)

    def hold(self, marks: PriorityMarks, site: Site) -> bool:
        """Whether sprio would show the same of these waiting jobs.

        Slurm computes the factors when a job is submitted or changed, and again each PriorityCalcPeriod.
        """
        age_s = time.monotonic() - self.at_s
        if not age_s < setting_s(site.settings.get("PriorityCalcPeriod", "")):
            return False
        if "CALCULATE_RUNNING" in site.settings.get("PriorityFlags", ""):
            return False
        return bool(same_marks(marks, self.marks).all())


class ClusterState:
    """Nodes, partitions, settings, priority factors and held GPUs of one cluster.

    Between reads it remembers these:

    - the GPUs that each run holds (they change only with its nodes);
    - our rights;
    - whether priorities have factors;
    - the last table of sprio.

    indices: True reads the GPU indices of each run, which takes requests to slurmctld for every new run. False takes
        the counts of squeue (held_by_squeue), and the number of requests does not depend on the running jobs.
    sprio: when sprio runs. "changed": where a waiting job is new or its priority has changed since the last table,
        apart from its nice. "never": no job has a base priority or a site factor, and none is pinned by an operator.
    """

    def __init__(self, commands: Commands, *, indices: bool = True, sprio: SprioUse = "always") -> None:
        self.commands = commands
        self._indices, self._sprio = indices, sprio
        self._held = HeldGpuRecords(commands, MOST_SINGLY if indices else 1)
        self._multifactor, self._sprio_first = True, True
        self._known, self._marks = KnownPriorities(), _NO_MARKS  # the marks of the last read
        self._started_s = -math.inf  # of the last commands (monotonic)
        self._rights = (-math.inf, Rights.USER)  # when they were read, and what they are
        self._doubted, self._certain_s = False, -math.inf  # until when another doubt is ignored

    def start(self, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, RunningCommand]:
        """Start these commands and ours. Raises SlurmUnreachableError after ending all of them."""
        ours = {
            name: command
            for name, command in _COMMANDS.items()
            if name != "sprio" or (self._multifactor and self._sprio != "never" and self._sprio_first)
        }
        started: dict[str, RunningCommand] = {}
        self._started_s = time.monotonic()
        try:
            for name, (program, *arguments) in {**wanted, **ours}.items():
                started[name] = self.commands.start(program, *arguments)
        except SlurmError:
            abandon(started)
            raise
        return started

    def doubt_rights(self) -> None:
        """Read our admin level again at the next read, because Slurm refused a write."""
        self._doubted = time.monotonic() >= self._certain_s

    def snapshot(
        self,
        now_s: float,
        columns: dict[str, Any],
        started: Mapping[str, RunningCommand],
        site: Site,
        warnings: list[str],
    ) -> Snapshot:
        """The snapshot of these job columns, of the started commands' output and of `site`. Raises SlurmError."""
        _join_priorities(columns, self._priorities(columns, now_s, started.get("sprio"), site, warnings))
        holds = _holds_gpus(columns)
        tres = columns.pop("tres")
        details: HeldByJob = (
            self._held.read(columns, tres, holds, warnings) if self._indices else held_by_squeue(columns, tres, holds)
        )
        put_held(columns, details, holds)
        if self._indices:
            self._held.put_spread(columns)
        if "cron" not in columns:
            columns["cron"] = self._held.cron_jobs(columns, site)
        nodes, held = parse_nodes(started["nodes"].text(), warnings), build_allocations(details, warnings)
        return Snapshot(
            now_s=now_s,
            jobs=with_shared_parts(finish_jobs(columns, warnings), nodes),
            nodes=with_held(nodes, held, exact=self._indices),
            partitions=parse_partitions(started["partitions"].text(), warnings),
            allocations=held,
            site=site,
            warnings=tuple(warnings),
        )

    def _priorities(
        self, columns: Mapping[str, Any], now_s: float, sprio: RunningCommand | None, site: Site, warnings: list[str]
    ) -> Priorities:
        """The table of sprio, or the last one if it still holds for all waiting jobs.

        It is empty if priorities have no factors, since sprio then refuses. After a read that needed sprio the next one
        starts it with the other commands.
        """
        self._multifactor = site.multifactor
        if not site.multifactor or self._sprio == "never":
            return Priorities.none()
        marks = priority_marks(columns, now_s)
        earlier, self._marks = self._marks, marks
        self._sprio_first = self._sprio == "always" or not self._known.hold(marks, site)
        if sprio is None and not self._sprio_first:
            return self._known.table
        at_s = self._started_s
        if sprio is None:
            earlier, at_s, sprio = marks, time.monotonic(), self.commands.start(*_COMMANDS["sprio"])
        status, out, err = sprio.finish()
        if status:
            raise command_error("sprio", status, err or out)
        self._known = KnownPriorities.of(parse_priorities(out, warnings), marks, earlier, at_s)
        return self._known.table

    def site(self, started: Mapping[str, RunningCommand], warnings: list[str]) -> Site:
        """Slurm's settings and our rights. They are asked for first: the jobs take longest. Raises SlurmError."""
        settings, now_s = collect_settings(started["config"]), time.monotonic()
        if self._doubted or self._rights[1] < Rights.OPERATOR or now_s - self._rights[0] > RIGHTS_S:
            rights = ask_rights(self.commands, settings)
            if rights is not None:
                self._certain_s = now_s + DOUBT_S if self._doubted and rights >= Rights.OPERATOR else -math.inf
                self._rights, self._doubted = (now_s, rights), False
        site = make_site(settings, self._rights[1])
        warnings += _hidden(site)
        return site


def abandon(started: Mapping[str, RunningCommand]) -> None:
    """End the commands whose output was not collected."""
    for command in started.values():
        command.abandon()


def _hidden(site: Site) -> list[str]:
    """A warning if Slurm hides other users' jobs, which it does without an error."""
    private = site.settings.get("PrivateData", "").split(",")
    if "jobs" not in private or site.rights >= Rights.OPERATOR:
        return []
    return [f"PrivateData=jobs hides other users' jobs from {site.user}, which needs the Operator right"]


def _join_priorities(columns: dict[str, Any], priorities: Priorities) -> None:
    found = priority_columns(columns["job_id"], priorities)
    waits = (columns["state"] & int(JobState.PENDING)) != 0
    found["fixed_priority"] = columns["fixed_priority"] | (found["fixed_priority"] & waits)
    columns.update(found)


def _holds_gpus(columns: Mapping[str, Any]) -> Bools:
    """Rows that may hold GPUs now. (N,) bool."""
    asks = (columns["gpus"] + columns["mig_devices"] + columns["shards"]) > 0
    holds: Bools = ((columns["state"] & int(HOLDS_NODES)) != 0) & asks
    return holds
