"""Slurm's own history: `sacct -P` text of any version, best taken with -D -X -a."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.replay.loaders.joining import Groups, by_id, with_joined
from slurmsched.replay.loaders.rows import NAN, Columns, Dropped, Job, RowLoader, wall_s
from slurmsched.replay.loaders.sacct_gpus import first_type, gpus_of
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.slurm.text import UNSET, duration_s, memory_mib

NEEDED = ("State", "Submit", "Start", "End")
FREE_TEXT = ("JobName", "SubmitLine", "Comment", "WorkDir", "Extra", "AdminComment", "SystemComment")
ENDED_BY_SLURM = frozenset(
    {"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "RESIZING", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
TO_BE_CONTINUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT"})
UNENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING"})
WITHOUT_START = frozenset({"CANCELLED", "DEADLINE", "REVOKED"})  # ends of jobs that wait, too
MOST_LINES = 200  # of one row
_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\])|\+(\d+))?")
_ID_BEGUN = re.compile(r"\d[\d_.+\[\]%,-]*")


@dataclass(frozen=True, slots=True)
class Seen:
    """Of the rows read: numbers of array tasks that have none, and hashes of the runs, as answers for months that
    adjoin hold a run twice that went on over midnight."""

    numbers: dict[str, int] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Sacct(RowLoader):
    """Fields by their header names, in any order and with any delimiter; steps are passed over.

    Needs State, Submit, Start, End and JobIDRaw or JobID; uses ElapsedRaw, Suspended, TimelimitRaw, User, Account,
    JobName, Partition, QOS, NNodes, and for GPUs, in this order, AllocTRES, ReqTRES, SubmitLine, AllocGRES, ReqGRES.
    CPUs and memory are those of ReqTRES, else of AllocTRES. Runs of a requeued job
    add up to its run time; het components are one gang. A record that had not ended is left out.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        fields = set(re.split(r"[^A-Za-z]+", head.lines[0]))
        return fields >= set(NEEDED) and bool(fields & {"JobID", "JobIDRaw"})

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        seen = Seen()
        with source.text() as file:
            header, delimiter = _header(source, file.readline())
            for line, fields in _rows(file, header, delimiter, source):
                if fields is None:
                    source.reject(line, f"has not the header's {len(header)} fields")
                elif "." not in fields.get("JobID", "") and "." not in fields.get("JobIDRaw", ""):
                    yield line, (seen, fields)

    def job(self, record: Any) -> Job:
        seen, fields = record
        job = job_of(fields, job_id_of(fields, seen.numbers))
        run = hash(
            (fields.get("JobID"), fields.get("JobIDRaw"), *(fields[name] for name in ("Submit", "Start", "End")))
        )
        if run in seen.runs:
            raise Dropped("the same run told twice")
        seen.runs.add(run)
        return job

    def finish(self, columns: Columns, source: Source) -> Columns:
        return joined(columns, source)


def job_of(fields: Mapping[str, str], job_id: int) -> Job:
    """One run from sacct's fields by name. Raises Dropped, ValueError or UnreadableError."""
    state = fields["State"].partition(" by ")[0].strip()
    start_s, end_s = _time_s(fields["Start"]), _time_s(fields["End"])
    if math.isnan(start_s):
        raise Dropped("never started")
    if state in UNENDED or math.isnan(end_s):
        raise Dropped("had not ended")
    if start_s == end_s and state in WITHOUT_START and not _had_resources(fields):
        raise Dropped("never started")
    request = gpus_of(fields)
    if not request.gpus:
        raise Dropped("parts of GPUs only (MIG, shard)" if request.mig_devices or request.shards else "without GPUs")
    return Job(
        job_id=job_id,
        gpus=request.gpus,
        submit_s=_time_s(fields["Submit"]),
        start_s=start_s,
        duration_s=end_s - start_s - _seconds(fields.get("Suspended", ""), 0.0),
        time_limit_s=_limit_s(fields),
        user=fields.get("User", ""),
        nodes=_count(fields.get("NNodes", "")),
        **_shares(fields),
        account=fields.get("Account", ""),
        partition=fields.get("Partition", ""),
        qos=fields.get("QOS", ""),
        name=fields.get("JobName", ""),
        gpu_type=first_type(request.text),
        state=state,
    )


def joined(columns: Columns, source: Source) -> Columns:
    """The columns with the runs of each job joined: a run that Slurm itself ended goes on in the job's next run.

    An id that comes back later (after MaxJobId) is another job and gets a number of its own. A job whose last run
    here was requeued had not ended, and is left out.
    """
    order = np.lexsort((columns["start_s"], columns["submit_s"], columns["job_id"]))
    single, several = by_id(columns, order)
    unused, made = int(columns["job_id"].max(initial=0)) + 1, list[dict[str, Any]]()
    for runs in several:
        first, *later = _chains(columns, runs)
        made.append(_chain(columns, first))
        made += [_chain(columns, chain) | {"job_id": unused + n} for n, chain in enumerate(later)]
        unused += len(later)
    found = with_joined(columns, single, made)
    going_on = found["state"].isin(TO_BE_CONTINUED)
    source.dropped["had not ended"] += int(going_on.sum())
    return with_joined(found, np.flatnonzero(~going_on), ())


def _chains(columns: Columns, runs: Groups) -> list[Groups]:
    """Runs in order of time, cut where a job ended for good. Components of one het job have the same submit time."""
    states, submits = columns["state"], columns["submit_s"]
    cuts = [i for i in range(1, len(runs))
            if states[runs[i - 1]] not in ENDED_BY_SLURM and submits[runs[i]] != submits[runs[i - 1]]]  # fmt: skip
    return np.split(runs, cuts)


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


def _header(source: Source, line: str) -> tuple[list[str], str]:
    """Field names and the delimiter between them."""
    line = line.rstrip("\r\n")
    found = re.match(r"[A-Za-z]+([^A-Za-z]+)[A-Za-z]", line)
    delimiter = found[1] if found else "|"
    header = [name for name in line.split(delimiter) if name]
    missing = [name for name in NEEDED if name not in header]
    if missing or not {"JobID", "JobIDRaw"} & set(header):
        said = f"has no field {', '.join(missing) or 'JobIDRaw'}; sacct needs --parsable2 and a header line (no -n)"
        raise source.fail(said, line=1)
    return header, delimiter


def _torn(text: str, header: list[str]) -> bool:
    """Whether a line without any delimiter may be the begin of a row."""
    begun = _ID_BEGUN.fullmatch(text) if header[0] in ("JobID", "JobIDRaw") else text.strip()
    return bool(begun)


def _rows(
    file: Iterable[str], header: list[str], delimiter: str, source: Source
) -> Iterator[tuple[int, dict[str, str] | None]]:
    """Line number and row by field name, None for a line that is none.

    A text such as SubmitLine may hold line breaks: a line that ends within one is set together with those after it
    until they are a row. Where that text is the last field, what follows a row without any delimiter belongs to it, and
    is passed over; lines that may as well be rows torn within their first field are counted.
    """
    held: list[tuple[int, str]] = []
    texts = {place for place, name in enumerate(header) if name in FREE_TEXT}
    after_row = False
    for line, raw in enumerate(file, 2):
        text = raw.rstrip("\r\n")
        if after_row and delimiter not in text:
            source.passed_over += _torn(text, header)
            continue
        if not (text.strip() or held):
            continue
        fields, first = _fields(text, header, delimiter), line
        if fields is None and held:
            first = held[0][0]
            fields = _fields("\n".join((*(each for _, each in held), text)), header, delimiter)
            held = [] if fields else held
        if fields is None and len(held) < MOST_LINES and (held or text.count(delimiter) in texts):
            held.append((line, text))
            after_row = False
            continue
        yield from ((each, None) for each, _ in held)
        held, after_row = [], bool(fields) and header[-1] in FREE_TEXT
        yield first, fields
    yield from ((each, None) for each, text in held if text.strip())


def _fields(text: str, header: list[str], delimiter: str) -> dict[str, str] | None:
    """A row by field name, None if it has too few or too many. One free-text field may hold the delimiter."""
    values = text.split(delimiter)
    surplus = len(values) - len(header)
    if surplus == 1 and values[-1] == "":  # --parsable ends each line with the delimiter
        values, surplus = values[:-1], 0
    free = [i for i, name in enumerate(header) if name in FREE_TEXT]
    if surplus > 0 and len(free) == 1:
        at = free[0]
        values[at : at + surplus + 1] = [delimiter.join(values[at : at + surplus + 1])]
        surplus = 0
    return dict(zip(header, values, strict=True)) if surplus == 0 else None


def job_id_of(fields: Mapping[str, str], numbers: dict[str, int]) -> int:
    """JobIDRaw; a number in file order for array tasks where only JobID is there; the leader's for het components."""
    text = fields.get("JobID") or fields["JobIDRaw"]
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no job id")
    if match[3] is not None:
        return int(match[1])
    if fields.get("JobIDRaw"):
        return int(fields["JobIDRaw"])
    return int(match[1]) if match[2] is None else numbers.setdefault(text, (1 << 40) + len(numbers))


def _time_s(text: str) -> float:
    if text in UNSET:
        return NAN
    return float(text) or NAN if text.isdigit() else wall_s(text)


@lru_cache(maxsize=1 << 12)
def _seconds(text: str, otherwise: float) -> float:
    value = duration_s(text)
    return otherwise if math.isnan(value) else value


def _had_resources(fields: Mapping[str, str]) -> bool:
    """Whether the run is told to have been given any: older versions of sacct tell the end of a job that never
    started as its start too."""
    return any(fields.get(name) for name in ("AllocTRES", "AllocGRES")) and fields.get("NodeList") != "None assigned"


def _shares(fields: Mapping[str, str]) -> dict[str, Any]:
    """CPUs and memory [MiB] of the whole job, 0 where no field tells."""
    text = next((text for name in ("ReqTRES", "AllocTRES") if (text := fields.get(name, "")) not in UNSET), "")
    told = dict(part.partition("=")[::2] for part in text.split(","))
    return {"cpus": _count(told.get("cpu", "")), "memory_mib": memory_mib(told.get("mem", ""))}


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _limit_s(fields: Mapping[str, str]) -> float:
    raw = fields.get("TimelimitRaw", "")
    value = float(raw) * 60 if raw.isdigit() else duration_s(fields.get("Timelimit", ""))
    return value if 0 < value < math.inf else NAN
