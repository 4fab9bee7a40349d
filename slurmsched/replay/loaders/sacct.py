"""Slurm's own history: `sacct -P` text and `sacct --json` of any version, best taken with -D -X -a."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Labels
from slurmsched.model.states import JobState, job_state
from slurmsched.replay.loaders.joining import Groups, by_id, with_joined
from slurmsched.replay.loaders.rows import NAN, Columns, Dropped, Instant, Job, RowLoader, instant
from slurmsched.replay.loaders.sacct_gpus import gpus_of, one_type
from slurmsched.replay.loaders.sacct_rows import looks_like_sacct, read_rows
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.slurm.requests import GpuRequest
from slurmsched.slurm.text import UNSET, count_units, duration_s, memory_mib

ENDED_BY_SLURM = frozenset(
    {"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "RESIZING", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
TO_BE_CONTINUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"})
UNENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING"})
WITHOUT_START = frozenset({"CANCELLED", "DEADLINE", "REVOKED"})  # ends of jobs that wait, too
REMARK_START = "with a Start long before Submit or after End: the start is taken as End less ElapsedRaw"
REMARK_ELAPSED = "with an ElapsedRaw other than the time from Start to End: ElapsedRaw is taken"
HOUR_S, DAY_S = 3_600.0, 86_400.0
NO_VAL = 0xFFFFFFFE  # and INFINITE above it: a number that is not set
_ASKS = re.compile(r"(?:^|\s)(?:--gpus|--gres[= ]\S*gpu|-G)")
_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\])|\+(\d+))?", re.ASCII)


@dataclass(slots=True)
class Seen:
    """Of the rows read. numbers: of array tasks that have none. runs: hashes, as answers for months that adjoin hold a
    run twice that went on over midnight. wall: whether times are wall clock, None before the first."""

    numbers: dict[str, int] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)
    wall: bool | None = None


class SacctRows(RowLoader):
    """What kinds of sacct's answers share: records are (Seen, Source, fields by name)."""

    __slots__ = ()
    calendar = True

    def job(self, record: Any) -> Job:
        seen, source, fields = record
        times = times_of(fields)
        if seen.wall not in (None, times.wall):
            raise ValueError("its times are wall clock and those of other rows are not, or the other way round")
        job = job_of(fields, job_id_of(fields, seen.numbers), source, times)
        run = hash(tuple(fields.get(name) for name in ("Cluster", "JobID", "JobIDRaw", "Submit", "Start", "End")))
        if run in seen.runs:
            raise Dropped("the same run told twice")
        seen.runs.add(run)
        if seen.wall is None:
            seen.wall = times.wall
            source.utc_offset_s = 0.0 if math.isnan(times.offset_s) else times.offset_s
        return job

    def finish(self, columns: Columns, source: Source) -> Columns:
        return joined(columns, source)


@dataclass(frozen=True, slots=True)
class Sacct(SacctRows):
    """Fields by their header names, in any order and with any delimiter; steps are passed over.

    Needs State, Submit, Start, End and JobIDRaw or JobID; uses Cluster, ElapsedRaw, Elapsed, Suspended, TimelimitRaw,
    User, Account, JobName, Partition, QOS, NNodes, and for GPUs, in this order, AllocTRES, ReqTRES, SubmitLine,
    AllocGRES, ReqGRES. CPUs and memory are those of ReqTRES, else of AllocTRES. Runs of a requeued job
    add up to its run time; het components are one gang. A record that had not ended is left out.

    cluster: of a file with several, the one to take; "" for all.
    """

    cluster: str = ""

    def sniff(self, head: Head) -> bool:
        return looks_like_sacct(head.lines)

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        seen = Seen()
        with source.text() as file:
            for line, row in read_rows(file, source):
                fields = row.fields
                if "." in fields.get("JobID", "") or "." in fields.get("JobIDRaw", ""):
                    continue
                if self.cluster and fields.get("Cluster") != self.cluster:
                    continue
                if row.unclear and re.search("gpu|-G", row.unclear) and not _any_gpus(fields):
                    source.reject(line, "several texts may hold the delimiter, and only SubmitLine may tell its GPUs")
                    continue
                yield line, (seen, source, fields)


def _any_gpus(fields: Mapping[str, str]) -> bool:
    try:
        return gpus_of(fields).text != ""
    except UnreadableError:
        return False


@dataclass(frozen=True, slots=True)
class Times:
    """A run's times [Unix s], NaN where not told. See Instant for wall and offset_s."""

    submit_s: float
    start_s: float
    end_s: float
    wall: bool
    offset_s: float = NAN


def times_of(fields: Mapping[str, str]) -> Times:
    """The times of a run. Raises ValueError for one that is none, and where they are not all of one clock."""
    told = [_instant(fields[name]) for name in ("Submit", "Start", "End")]
    known = [each for each in told if not math.isnan(each.at_s)]
    if len({each.wall for each in known}) > 1:
        raise ValueError("some of its times tell an offset from UTC and some do not")
    offsets = [each.offset_s for each in known if not math.isnan(each.offset_s)]
    submit, start, end = (each.at_s for each in told)
    return Times(submit, start, end, any(each.wall for each in known), offsets[0] if offsets else NAN)


def job_of(fields: Mapping[str, str], job_id: int, source: Source | None = None, times: Times | None = None) -> Job:
    """One run from sacct's fields by name; source gets the remarks. Raises Dropped, ValueError or UnreadableError."""
    times = times or times_of(fields)
    state = state_of(fields["State"])
    if math.isnan(times.start_s):
        raise Dropped("never started")
    if state in UNENDED or math.isnan(times.end_s):
        raise Dropped("had not ended")
    if times.start_s >= times.end_s and state in WITHOUT_START and not _had_resources(fields):
        raise Dropped("never started")
    request = gpus_of(fields)
    if not request.gpus:
        raise Dropped(_why_without(fields, request))
    start_s, run_s, remark = _run(fields, times)
    if remark and source is not None:
        source.remarks[remark] += 1
    return Job(
        job_id=job_id,
        gpus=request.gpus,
        submit_s=times.submit_s,
        start_s=start_s,
        duration_s=run_s,
        time_limit_s=_limit_s(fields),
        user=fields.get("User", ""),
        nodes=_nodes(fields),
        **_shares(fields),
        account=fields.get("Account", ""),
        partition=fields.get("Partition", ""),
        qos=fields.get("QOS", ""),
        name=fields.get("JobName", ""),
        gpu_type=one_type(request.text),
        state=state,
        cluster=fields.get("Cluster", ""),
    )


def _why_without(fields: Mapping[str, str], request: GpuRequest) -> str:
    if request.mig_devices or request.shards:
        return "parts of GPUs only (MIG, shard)"
    if _ASKS.search(fields.get("SubmitLine", "")):
        return "SubmitLine asks for GPUs, nobody can tell whether of Slurm or of the script, and no TRES counts them"
    return "without GPUs"


def _run(fields: Mapping[str, str], times: Times) -> tuple[float, float, str]:
    """Start, run time and a remark. A start long before the submission (1970), or after the end, is none.

    Slurm's own count, ElapsedRaw or Elapsed, is the run time where it is told: it knows nothing of clock changes, and
    leaves out suspended time.

    Raises ValueError where nothing tells the run time.
    """
    suspended_s, told_s = _seconds(fields.get("Suspended", ""), 0.0), _elapsed_s(fields)
    slack_s = 2 * HOUR_S if times.wall else 2.0
    if not times.submit_s - DAY_S <= times.start_s <= times.end_s + slack_s:
        if not 0 <= told_s <= times.end_s - times.submit_s + DAY_S:
            raise ValueError(
                "its start is long before its submission or after its end, and ElapsedRaw tells no run time"
            )
        return times.end_s - told_s - suspended_s, told_s, REMARK_START
    spanned_s = times.end_s - times.start_s - suspended_s
    if math.isnan(told_s):
        return times.start_s, spanned_s, ""
    return times.start_s, told_s, REMARK_ELAPSED if abs(told_s - spanned_s) > slack_s else ""


def joined(columns: Columns, source: Source) -> Columns:
    """The columns with the runs of each job joined: a run that Slurm itself ended goes on in the job's next run.

    A job is its cluster, its id and its submission. An id that comes back later (after MaxJobId), or on another
    cluster, is another job and gets a number of its own. A job whose last run here was requeued had not ended, and is
    left out.
    """
    clusters: Labels = columns.get("cluster", Labels(np.zeros(len(columns["job_id"]), np.int32), ("",)))
    columns = columns | {"cluster": clusters}
    if len(clusters.names) > 1:
        source.said.append(f"jobs of {len(clusters.names)} clusters ({', '.join(clusters.names[:9])}): a replay takes "
                           "them for one; --set cluster=NAME takes the jobs of one")  # fmt: skip
    order = np.lexsort((columns["start_s"], columns["submit_s"], clusters.codes, columns["job_id"]))
    ids = np.stack([columns["job_id"][order], clusters.codes[order]], axis=1)
    same = np.zeros(len(order), np.int64)
    if len(order):
        same[order] = np.cumsum(np.r_[0, (np.diff(ids, axis=0) != 0).any(axis=1)])
    single, several = by_id({"job_id": same}, order)
    made = [_chain(columns, chain) for runs in several for chain in _chains(columns, runs)]
    found = with_joined(columns, single, made)
    going_on = found["state"].isin(TO_BE_CONTINUED)
    source.dropped["had not ended"] += int(going_on.sum())
    return renumbered(with_joined(found, np.flatnonzero(~going_on), ()))


def renumbered(columns: Columns) -> Columns:
    """The columns with a number of its own for each row whose id an earlier submission has."""
    ids = columns["job_id"]
    order = np.lexsort((columns["cluster"].codes, columns["submit_s"], ids))
    again = order[1:][np.diff(ids[order]) == 0] if len(ids) else order
    fresh = ids.copy()
    fresh[again] = int(ids.max(initial=0)) + 1 + np.arange(len(again))
    return columns | {"job_id": fresh}


def _chains(columns: Columns, runs: Groups) -> list[Groups]:
    """Runs in order of time, cut where another job begins. Components of one het job have the same submit time."""
    return np.split(runs, [i for i in range(1, len(runs)) if not _goes_on(columns, runs[i - 1], runs[i])])


def _goes_on(columns: Columns, run: int, following: int) -> bool:
    """Whether a run is of the same job as the one before it, whose id it has.

    Slurm gives a requeued job a submission of its own, at the time of the requeue. An id that comes back belongs to a
    later job: of another user, or submitted long after the end.
    """
    submits, state = columns["submit_s"], columns["state"][run]
    if columns["user"].codes[run] != columns["user"].codes[following]:
        return False
    if submits[run] == submits[following]:
        return True
    if state not in ENDED_BY_SLURM:
        return False
    end_s = columns["start_s"][run] + columns["duration_s"][run]
    return state in TO_BE_CONTINUED or bool(submits[following] - end_s <= DAY_S)


def _chain(columns: Columns, runs: Groups) -> dict[str, Any]:
    """The columns that differ from those of the last run. Rows of one start are components: their GPUs add up."""
    starts, place = np.unique(columns["start_s"][runs], return_inverse=True)
    longest = np.zeros(len(starts))
    np.maximum.at(longest, place, columns["duration_s"][runs])
    summed = {name: np.bincount(place, columns[name][runs])[-1] for name in ("gpus", "nodes", "cpus", "memory_mib")}
    return {
        "row": int(runs[-1]),
        "submit_s": columns["submit_s"][runs].min(),
        "start_s": starts[0],
        "duration_s": longest.sum(),
        **{name: columns[name].dtype.type(total) for name, total in summed.items()},
        "requeues": len(starts) - 1,
    }


def job_id_of(fields: Mapping[str, str], numbers: dict[str, int]) -> int:
    """JobIDRaw; a number in file order for array tasks where only JobID is there; the leader's for het components."""
    text = fields.get("JobID") or fields["JobIDRaw"]
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is no job id")
    if match[3] is not None:
        return int(match[1])
    if raw := fields.get("JobIDRaw"):
        if not (raw.isascii() and raw.isdecimal()):
            raise ValueError(f"{raw[:80]!r} is no job id")
        return int(raw)
    return int(match[1]) if match[2] is None else numbers.setdefault(text, (1 << 40) + len(numbers))


@lru_cache(maxsize=1 << 10)
def state_of(text: str) -> str:
    """The state's name: of several flags the one that tells how the run ended. Raises UnreadableError."""
    names = [flag.name or "" for flag in JobState(job_state(text))]
    if not names:
        raise UnreadableError("not a job state", text=text)
    return next((name for kind in (ENDED_BY_SLURM, UNENDED) for name in names if name in kind), names[0])


def _instant(text: str) -> Instant:
    if text in UNSET:
        return Instant(NAN)
    if text.isascii() and text.isdecimal():
        return Instant(float(text) if 0 < int(text) < NO_VAL else NAN)
    try:
        return instant(text)
    except ValueError as error:
        raise ValueError(f"{error}; SLURM_TIME_FORMAT=%s makes sacct print Unix seconds") from None


def _elapsed_s(fields: Mapping[str, str]) -> float:
    """Slurm's own count of the run time, NaN where it is not told."""
    raw = fields.get("ElapsedRaw", "")
    if raw in UNSET:
        return _seconds(fields.get("Elapsed", ""), NAN)
    if not (raw.isascii() and raw.isdecimal()):
        raise ValueError(f"ElapsedRaw is {raw[:80]!r}, not a whole number")
    return float(raw) if int(raw) < NO_VAL else NAN


@lru_cache(maxsize=1 << 12)
def _seconds(text: str, otherwise: float) -> float:
    value = duration_s(text)
    return otherwise if math.isnan(value) else value


def _had_resources(fields: Mapping[str, str]) -> bool:
    """Whether the run is told to have been given any: older versions of sacct tell the end of a job that never
    started as its start too."""
    return any(fields.get(name) for name in ("AllocTRES", "AllocGRES")) and fields.get("NodeList") != "None assigned"


def _nodes(fields: Mapping[str, str]) -> int:
    """Nodes of the whole job, 0 where no field tells."""
    told = next((text for name in ("NNodes", "AllocNodes") if (text := fields.get(name, "")) not in UNSET), "")
    return count_units(told or _tres(fields.get("AllocTRES", "")).get("node", ""))


def _shares(fields: Mapping[str, str]) -> dict[str, Any]:
    """CPUs and memory [MiB] of the whole job, 0 where no field tells."""
    text = next((text for name in ("ReqTRES", "AllocTRES") if (text := fields.get(name, "")) not in UNSET), "")
    told = _tres(text)
    return {"cpus": count_units(told.get("cpu", "")), "memory_mib": memory_mib(told.get("mem", ""))}


def _tres(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))


def _limit_s(fields: Mapping[str, str]) -> float:
    raw = fields.get("TimelimitRaw", "")
    if not (raw.isascii() and raw.isdecimal()):
        value = duration_s(fields.get("Timelimit", ""))
    else:
        value = float(raw) * 60 if int(raw) < NO_VAL else NAN
    return value if 0 < value < math.inf else NAN
