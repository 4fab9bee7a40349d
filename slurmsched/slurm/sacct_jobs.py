"""Reads Slurm's accounting (`sacct -P`, any version): jobs, their runs and their GPUs."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.input_files import FileHead, InputFile
from slurmsched.model.columns import Labels
from slurmsched.model.durations import DAY_S, HOUR_S
from slurmsched.model.gres import NO_REQUEST, GpuRequest, RequestForms, parse_gres, read_request_forms
from slurmsched.model.slurm_text import UNSET, license_counts, memory_mib, parse_count_with_unit, slurm_duration_s
from slurmsched.model.states import JobState, job_state
from slurmsched.model.trace_rows import (
    NAN,
    BesideJob,
    Columns,
    ParsedTime,
    RowGroups,
    RowLoader,
    SkippedRow,
    TraceJob,
    join_rows,
    parse_time,
    rows_by_id,
)
from slurmsched.slurm.sacct_text import looks_like_sacct, read_rows

_OPTIONS = {
    "gres": "per_node", "gpus-per-node": "per_node", "gpus": "per_job", "G": "per_job", "gpus-per-task": "per_task",
    "gpus-per-socket": "per_socket", "ntasks": "tasks", "n": "tasks", "nodes": "nodes", "N": "nodes",
    "ntasks-per-node": "tasks_per_node",
}  # fmt: skip
_COUNTS = frozenset({"tasks", "nodes", "tasks_per_node"})
# Options of sbatch, salloc and srun that take no word after them (Slurm's manual pages, 20.11 to 26.05).
_ALONE = frozenset({
    "requeue", "no-requeue", "hold", "H", "exclusive", "overcommit", "O", "oversubscribe", "s", "share", "parsable",
    "quiet", "Q", "verbose", "v", "wait", "W", "test-only", "contiguous", "spread-job", "use-min-nodes", "reboot",
    "ignore-pbs", "no-kill", "k", "get-user-env", "nice", "x11", "propagate", "no-bell", "bell", "immediate", "I",
    "pty", "label", "l", "multi-prog", "preserve-env", "E", "unbuffered", "u", "overlap", "exact", "interactive",
    "no-shell", "disable-status", "X", "no-allocate", "Z", "kill-on-bad-exit", "K", "whole", "resv-ports", "stepmgr",
    "consolidate-segments",
})  # fmt: skip
_WHOLE = re.compile(r"(\d+)(?:-\d+)?", re.ASCII)
_PARTS = re.compile(r"gpu|shard|mps")


def gpus_of(fields: Mapping[str, str]) -> GpuRequest:
    """GPUs held or asked for, from the first field that tells of any.

    AllocTRES and ReqTRES count all nodes; they know GPUs only where AccountingStorageTRES lists them. SubmitLine shows
    the options of the command line, not those in the script. AllocGRES and ReqGRES (up to 20.11) are per node.
    """
    counts = (fields.get(name, "") for name in ("NNodes", "AllocNodes", "ReqNodes"))
    nodes_text = next((text for text in counts if text not in UNSET), _nodes_of(fields.get("AllocTRES", "")))
    nodes, tasks = _count(nodes_text), _count(fields.get("NTasks", ""))
    for name in ("AllocTRES", "ReqTRES", "SubmitLine", "AllocGRES", "ReqGRES"):
        text = fields.get(name, "")
        if text in UNSET or ("gpu" not in text and "-G" not in text):
            continue
        found = _asked(name, text, nodes, tasks, _component(fields.get("JobID", "")))
        if found.gpus or found.mig_devices or found.shards:
            return found
    count = fields.get("GPUs", "")
    return GpuRequest(gpus=_count(count)) if count else NO_REQUEST


def _nodes_of(tres: str) -> str:
    """The count of nodes in a TRES text, "" where it tells none."""
    return dict(part.partition("=")[::2] for part in tres.split(",")).get("node", "")


@lru_cache(maxsize=1 << 12)
def one_type(text: str) -> str:
    """The GPU type of a request's normal form: "gpu:a100:2" -> "a100"; "" of several or none."""
    types = {entry.type for entry in parse_gres(text) if entry.kind == "gpu"}
    return types.pop() if len(types) == 1 else ""


@lru_cache(maxsize=1 << 14)
def _asked(name: str, text: str, nodes: int, tasks: int, component: int) -> GpuRequest:
    """The request of one field's text. Raises UnreadableError."""
    if name == "SubmitLine":
        return _from_command(text, nodes, tasks, component)
    if name.endswith("TRES"):  # energy, licences and others have forms of their own
        return read_request_forms(RequestForms(tres=",".join(part for part in text.split(",") if _PARTS.search(part))))
    return read_request_forms(RequestForms(per_node=text, nodes=max(nodes, 1)))


def _component(job_id: str) -> int:
    """The place of a het job's component in its command line."""
    offset = job_id.rpartition("+")[2] if "+" in job_id else ""
    return int(offset) if offset.isascii() and offset.isdecimal() else 0


def _from_command(line: str, nodes: int, tasks: int, component: int) -> GpuRequest:
    """The request in the options of an sbatch, salloc or srun command line; those after the script are its own.

    nodes, tasks: as accounting counts them, 0 where it does not tell: then the options tell.
    """
    forms: dict[str, Any] = {}
    for name, value in _options(line, component):
        if field := _OPTIONS.get(name):
            forms[field] = _least(value) if field in _COUNTS else _gres(name, value)
    nodes = nodes or forms.get("nodes", 1)
    per_node = forms.pop("tasks_per_node", 1)
    forms |= {"nodes": nodes, "tasks": tasks or forms.get("tasks", nodes * per_node)}
    try:
        return read_request_forms(replace(RequestForms(), **forms))
    except UnreadableError:
        return NO_REQUEST


@lru_cache(maxsize=1 << 12)
def _options(line: str, component: int = 0) -> tuple[tuple[str, str], ...]:
    """Name and value of the options of an sbatch, salloc or srun command line, those after the script left out."""
    try:
        words = shlex.split(line)
    except ValueError:
        return ()
    parts = [list(part) for option, part in groupby(words[1:], key=lambda word: word != ":") if option]
    if component >= len(parts):
        return ()
    words, found = ["", *parts[component]], list[tuple[str, str]]()
    for i, word in enumerate(words[1:], 1):
        if not word.startswith("-") and not _takes(words[i - 1]):
            break
        if word.startswith("-"):
            found.append(_option(word, words[i + 1] if i + 1 < len(words) else ""))
    return tuple(found)


def _takes(word: str) -> bool:
    """Whether the word is an option that may have its value in the next word."""
    return word.startswith("-") and "=" not in word and word.lstrip("-") not in _ALONE


def _option(word: str, following: str) -> tuple[str, str]:
    """Name and value of an option: "--gpus=2", "--gpus 2", "-G2", "-G 2"."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else following
    return word[1:2], word[2:] or following


def _gres(name: str, value: str) -> str:
    """A gres text: --gpus and its like leave "gpu:" out."""
    if name == "gres":
        return value
    return ",".join(f"gpu:{part}" for part in value.split(",") if part)


@lru_cache(maxsize=1 << 12)
def _count(text: str) -> int:
    """A count as Slurm prints it: "4", "1.50K", "2-4" (least first); 0 if not given. Raises UnreadableError."""
    return parse_count_with_unit(text.partition("-")[0])


def _least(text: str) -> int:
    """The least count of an option such as --nodes=2-4, 1 where it is none."""
    found = _WHOLE.match(text)
    return max(int(found[1]), 1) if found else 1


# Jobs and their runs.

ENDED_BY_SLURM = frozenset(
    {"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "RESIZING", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
TO_BE_CONTINUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"})
UNENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING"})
WITHOUT_START = frozenset({"CANCELLED", "DEADLINE", "REVOKED"})  # ends of jobs that wait, too
REMARK_START = "with a Start long before Submit or after End: the start is taken as End less ElapsedRaw"
REMARK_ELAPSED = "with an ElapsedRaw other than the time from Start to End: ElapsedRaw is taken"
NO_VAL = 0xFFFFFFFE  # and INFINITE above it: a number that is not set
_ASKS = re.compile(r"(?:^|\s)(?:--gpus|--gres[= ]\S*gpu|-G)")
_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\])|\+(\d+))?", re.ASCII)


@dataclass(slots=True)
class SeenRuns:
    """Of the rows read.

    numbers: of array tasks that have none.
    runs: hashes, as answers for months that adjoin hold a run twice that went on over midnight.
    wall: whether times are wall clock, None before the first.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)
    wall: bool | None = None


class SacctLoader(RowLoader):
    """What kinds of sacct's answers share: records are (Seen, Source, fields by name)."""

    __slots__ = ()
    calendar = True

    def job(self, record: Any) -> TraceJob:
        seen, source, fields = record
        times = times_of(fields)
        if seen.wall not in (None, times.wall):
            raise ValueError("its times are wall clock and those of other rows are not, or the other way round")
        job = job_of(fields, job_id_of(fields, seen.numbers), source, times)
        run = hash(tuple(fields.get(name) for name in ("Cluster", "JobID", "JobIDRaw", "Submit", "Start", "End")))
        if run in seen.runs:
            raise SkippedRow("the same run twice")
        seen.runs.add(run)
        if seen.wall is None:
            seen.wall = times.wall
            source.utc_offset_s = 0.0 if math.isnan(times.offset_s) else times.offset_s
        return job

    def finish(self, columns: Columns, source: InputFile) -> Columns:
        return join_runs(columns, source)


@dataclass(frozen=True, slots=True)
class SacctTrace(SacctLoader):
    """Fields by their header names, in any order and with any delimiter; steps are passed over.

    Needs State, Submit, Start, End and JobIDRaw or JobID. Uses Cluster, Eligible, ElapsedRaw, Elapsed, Suspended,
    TimelimitRaw, User, Account, JobName, Partition, QOS, NNodes. GPUs are those of the first of these fields that has
    some: AllocTRES, ReqTRES, SubmitLine, AllocGRES, ReqGRES. CPUs and memory are those of ReqTRES, else of AllocTRES.
    Features are those of Constraints, else of SubmitLine, which also has --exclusive, --dependency, an array's %N and
    several partitions.
    Runs of a requeued job add up to its run time. The components of a het job are one gang. A record that had not ended
    is left out.

    cluster: of a file with several, the one to take; "" for all.
    """

    cluster: str = ""

    def sniff(self, head: FileHead) -> bool:
        return looks_like_sacct(head.lines)

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        seen = SeenRuns()
        with source.text() as file:
            for line, row in read_rows(file, source):
                fields = row.fields
                if "." in fields.get("JobID", "") or "." in fields.get("JobIDRaw", ""):
                    continue
                if self.cluster and fields.get("Cluster") != self.cluster:
                    continue
                if row.unclear and re.search("gpu|-G", row.unclear) and not _any_gpus(fields):
                    source.reject(line, "several texts may hold the delimiter, and only SubmitLine may have its GPUs")
                    continue
                yield line, (seen, source, fields)


def _any_gpus(fields: Mapping[str, str]) -> bool:
    try:
        return gpus_of(fields).text != ""
    except UnreadableError:
        return False


@dataclass(frozen=True, slots=True)
class RunTimes:
    """A run's times [Unix s], NaN if not given. See ParsedTime for wall and offset_s."""

    submit_s: float
    start_s: float
    end_s: float
    wall: bool
    offset_s: float = NAN


def times_of(fields: Mapping[str, str]) -> RunTimes:
    """The times of a run. Raises ValueError for one that is none, and where they are not all of one clock."""
    times = [_instant(fields[name]) for name in ("Submit", "Start", "End")]
    known = [each for each in times if not math.isnan(each.at_s)]
    if len({each.wall for each in known}) > 1:
        raise ValueError("some of its times have an offset from UTC and some do not")
    offsets = [each.offset_s for each in known if not math.isnan(each.offset_s)]
    submit, start, end = (each.at_s for each in times)
    return RunTimes(submit, start, end, any(each.wall for each in known), offsets[0] if offsets else NAN)


# Over 30 lines: one line for each column of the trace.
def job_of(
    fields: Mapping[str, str], job_id: int, source: InputFile | None = None, times: RunTimes | None = None
) -> TraceJob:
    """One run from sacct's fields by name. Raises SkippedRow, ValueError or UnreadableError; BesideJob for one without
    GPUs, and for one that was cancelled while it waited.

    source: gets the remarks.
    """
    times = times or times_of(fields)
    state = state_of(fields["State"])
    waited = _cancelled_while_waiting(fields, times, state)
    request = gpus_of(fields)
    if not request.gpus and (why := _why_without(fields, request)) != WITHOUT_GPUS:
        raise SkippedRow(why)
    start_s, run_s, remark = (NAN, _longest_s(fields), "") if waited else _run(fields, times)
    if source is not None:
        source.remarks.update(filter(None, (remark,)))
    made = TraceJob(
        job_id=job_id,
        gpus=request.gpus,
        submit_s=times.submit_s,
        start_s=start_s,
        eligible_s=_eligible_s(fields, replace(times, start_s=times.end_s) if waited else times),
        duration_s=run_s,
        time_limit_s=_limit_s(fields),
        user=fields.get("User", ""),
        nodes=_nodes(fields),
        **_shares(fields),
        account=fields.get("Account", ""),
        partition=fields.get("Partition", ""),
        node_list="" if fields.get("NodeList") in NO_NODES else fields.get("NodeList", ""),
        qos=fields.get("QOS", ""),
        name=fields.get("JobName", ""),
        gpu_type=one_type(request.text),
        state=state,
        cancel_s=times.end_s if waited else NAN,
        **_asked_besides(fields),
        cluster=fields.get("Cluster", ""),
    )
    if waited or not request.gpus:
        raise BesideJob(WAITED if waited else WITHOUT_GPUS, made)
    return made


WITHOUT_GPUS, WAITED = "without GPUs", "cancelled while waiting"
NO_NODES = (*UNSET, "None assigned")
_THROTTLE = re.compile(r"%(\d{1,9})$", re.ASCII)


def _asked_besides(fields: Mapping[str, str]) -> dict[str, Any]:
    """Array, features, whole nodes, several partitions, dependencies and licences, as far as the fields and the command
    line say."""
    job_id, options = fields.get("JobID", ""), dict(_options(fields.get("SubmitLine", "")))
    array = int(job_id.partition("_")[0]) if "_" in job_id else 0
    throttle = _THROTTLE.search(options.get("array") or options.get("a") or job_id.removesuffix("]"))
    limit = fields.get("ArrayTaskLimit") or (throttle[1] if throttle else "0")
    constraint = fields.get("Constraints", "")
    if constraint in UNSET:
        constraint = options.get("constraint") or options.get("C") or ""
    alone = any(name == "exclusive" for name in options) and options["exclusive"] not in ("user", "mcs", "no", "topo")
    partitions = options.get("partition") or options.get("p") or ""
    dependency = options.get("dependency") or options.get("d") or ""
    return {"array_id": array, "array_limit": int(limit) if array else 0, "constraint": constraint,
            "exclusive": int(alone), "partitions": partitions if "," in partitions else "",
            "dependency": dependency, "licenses": _licenses(fields, options)}  # fmt: skip


def _licenses(fields: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Licences by name, "" for alternatives ("a|b")."""
    given = fields.get("Licenses", "")
    if given in UNSET:
        tres = [part.strip() for part in fields.get("ReqTRES", "").split(",")]
        given = ",".join(part.removeprefix("license/") for part in tres if part.startswith("license/"))
    counts = license_counts(given or options.get("licenses") or options.get("L") or "")
    return ",".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def _eligible_s(fields: Mapping[str, str], times: RunTimes) -> float:
    """When the run could first start, NaN where no field tells, or where it is none of the times from submission to
    start: a hold leaves it unknown, and older versions keep that of the run before."""
    try:
        at = _instant(fields.get("Eligible", ""))
    except ValueError:
        return NAN
    return at.at_s if at.wall == times.wall and times.submit_s <= at.at_s <= times.start_s else NAN


def _cancelled_while_waiting(fields: Mapping[str, str], times: RunTimes, state: str) -> bool:
    """Whether the run ended before it started, though it could have started.

    Raises SkippedRow for a run that has not ended, and for one that could not start: held, or before its begin time or
    the end of what it depended on.
    """
    if state not in WITHOUT_START and math.isnan(times.start_s):
        raise SkippedRow("never started")
    if state in UNENDED or math.isnan(times.end_s):
        raise SkippedRow("had not ended")
    if not math.isnan(times.start_s) and (times.start_s < times.end_s or state not in WITHOUT_START
                                          or _had_resources(fields)):  # fmt: skip
        return False
    eligible_s = _eligible_s(fields, replace(times, start_s=times.end_s))
    if not times.submit_s < times.end_s or (fields.get("Eligible") and math.isnan(eligible_s)):
        raise SkippedRow("never started")
    return True


def _longest_s(fields: Mapping[str, str]) -> float:
    """Run time of a job that never ran: its time limit, else a day."""
    limit_s = _limit_s(fields)
    return DAY_S if math.isnan(limit_s) else limit_s


def _why_without(fields: Mapping[str, str], request: GpuRequest) -> str:
    if request.mig_devices or request.shards:
        return "parts of GPUs only (MIG, shard)"
    if _ASKS.search(fields.get("SubmitLine", "")):
        return "SubmitLine asks for GPUs; it is unclear whether the option is sbatch's or the script's"
    return WITHOUT_GPUS


def _run(fields: Mapping[str, str], times: RunTimes) -> tuple[float, float, str]:
    """Start, run time and a remark. A start long before the submission (1970), or after the end, is none.

    Slurm's own count, ElapsedRaw or Elapsed, is the run time where it is given: it knows nothing of clock changes, and
    leaves out suspended time.

    Raises ValueError where nothing tells the run time.
    """
    suspended_s, told_s = _seconds(fields.get("Suspended", ""), 0.0), _elapsed_s(fields)
    slack_s = 2 * HOUR_S if times.wall else 2.0
    if not times.submit_s - DAY_S <= times.start_s <= times.end_s + slack_s:
        if not 0 <= told_s <= times.end_s - times.submit_s + DAY_S:
            raise ValueError("its start is long before its submission or after its end, and ElapsedRaw has no run time")
        return times.end_s - told_s - suspended_s, told_s, REMARK_START
    spanned_s = times.end_s - times.start_s - suspended_s
    if math.isnan(told_s):
        return times.start_s, spanned_s, ""
    return times.start_s, told_s, REMARK_ELAPSED if abs(told_s - spanned_s) > slack_s else ""


def join_runs(columns: Columns, source: InputFile) -> Columns:
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
    single, several = rows_by_id({"job_id": same}, order)
    made = [_chain(columns, chain) for runs in several for chain in _chains(columns, runs)]
    found = join_rows(columns, single, made)
    going_on = found["state"].isin(TO_BE_CONTINUED)
    source.dropped["had not ended"] += int(going_on.sum())
    return with_own_numbers(join_rows(found, np.flatnonzero(~going_on), ()))


def with_own_numbers(columns: Columns) -> Columns:
    """The columns with a number of its own for each row whose id an earlier submission has."""
    ids = columns["job_id"]
    order = np.lexsort((columns["cluster"].codes, columns["submit_s"], ids))
    again = order[1:][np.diff(ids[order]) == 0] if len(ids) else order
    fresh = ids.copy()
    fresh[again] = int(ids.max(initial=0)) + 1 + np.arange(len(again))
    return columns | {"job_id": fresh}


def _chains(columns: Columns, runs: RowGroups) -> list[RowGroups]:
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


def _chain(columns: Columns, runs: RowGroups) -> dict[str, Any]:
    """The columns that differ from those of the last run. Rows of one start are components: their GPUs add up."""
    starts, place = np.unique(columns["start_s"][runs], return_inverse=True)
    longest = np.zeros(len(starts))
    np.maximum.at(longest, place, columns["duration_s"][runs])
    first = {"eligible_s": columns["eligible_s"][runs[0]]} if "eligible_s" in columns else {}
    summed = {name: np.bincount(place, columns[name][runs])[-1] for name in ("gpus", "nodes", "cpus", "memory_mib")}
    return {
        "row": int(runs[-1]),
        "submit_s": columns["submit_s"][runs].min(),
        "start_s": starts[0],
        "duration_s": longest.sum(),
        **first,
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


def _instant(text: str) -> ParsedTime:
    if text in UNSET:
        return ParsedTime(NAN)
    if text.isascii() and text.isdecimal():
        return ParsedTime(float(text) if 0 < int(text) < NO_VAL else NAN)
    try:
        return parse_time(text)
    except ValueError as error:
        raise ValueError(f"{error}; SLURM_TIME_FORMAT=%s makes sacct print Unix seconds") from None


def _elapsed_s(fields: Mapping[str, str]) -> float:
    """Slurm's own count of the run time, NaN if not given."""
    raw = fields.get("ElapsedRaw", "")
    if raw in UNSET:
        return _seconds(fields.get("Elapsed", ""), NAN)
    if not (raw.isascii() and raw.isdecimal()):
        raise ValueError(f"ElapsedRaw is {raw[:80]!r}, not a whole number")
    return float(raw) if int(raw) < NO_VAL else NAN


@lru_cache(maxsize=1 << 12)
def _seconds(text: str, otherwise: float) -> float:
    value = slurm_duration_s(text)
    return otherwise if math.isnan(value) else value


def _had_resources(fields: Mapping[str, str]) -> bool:
    """Whether the run had any: older versions of sacct print the end of a job that never started as its start too."""
    return any(fields.get(name) for name in ("AllocTRES", "AllocGRES")) and fields.get("NodeList") != "None assigned"


def _nodes(fields: Mapping[str, str]) -> int:
    """Nodes of the whole job, 0 where no field tells."""
    nodes_text = next((text for name in ("NNodes", "AllocNodes") if (text := fields.get(name, "")) not in UNSET), "")
    return parse_count_with_unit(nodes_text or _tres(fields.get("AllocTRES", "")).get("node", ""))


def _shares(fields: Mapping[str, str]) -> dict[str, Any]:
    """CPUs and memory [MiB] of the whole job, 0 where no field tells."""
    text = next((text for name in ("ReqTRES", "AllocTRES") if (text := fields.get(name, "")) not in UNSET), "")
    counts = _tres(text)
    return {"cpus": parse_count_with_unit(counts.get("cpu", "")), "memory_mib": memory_mib(counts.get("mem", ""))}


def _tres(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))


def _limit_s(fields: Mapping[str, str]) -> float:
    raw = fields.get("TimelimitRaw", "")
    if not (raw.isascii() and raw.isdecimal()):
        value = slurm_duration_s(fields.get("Timelimit", ""))
    else:
        value = float(raw) * 60 if int(raw) < NO_VAL else NAN
    return value if 0 < value < math.inf else NAN
