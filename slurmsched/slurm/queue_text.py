"""What squeue and sprio print, asked for in a form that no job name or comment can break.

squeue -O lets each field be followed by any text. Fields that differ from job to job, fields that
mostly repeat, and free text come in groups, so that 100,000 rows cost a few passes over columns.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.slurm.columns import Grouped, convert_each, integers, split_columns, times
from slurmsched.slurm.text import MOST, time_s, whole

UNIT = "\x1f"  # between fields that hold nothing but what Slurm writes
MOST_JOB_ID = 0xFFFF_FFFD  # below slurm.h's NO_VAL
# Names of squeue -O fields in 21.08, which every later squeue knows.
IDS = ("JobID", "Nice", "PriorityLong", "SubmitTime", "EligibleTime")
KIND = (
    "UserName", "Account", "Partition", "QOS", "State", "Reason", "Reservation", "TimeLimit", "NumNodes", "NumCPUs",
    "NumTasks", "Sockets", "tres-per-job", "tres-per-task", "tres-per-socket", "tres-per-node", "tres-alloc",
    "RestartCnt", "Requeue", "BatchFlag", "Feature", "ReqNodes", "ExcNodes",
)  # fmt: skip
RUN = ("StartTime", "EndTime", "TimeUsed", "NodeList", "Dependency")
# What pyslurm does not tell.
REQUESTS = ("tres-per-job", "tres-per-task", "tres-per-socket", "tres-per-node", "tres-alloc", "NumNodes", "NumTasks",
            "Sockets", "TimeLimit", "Dependency", "Feature", "ReqNodes", "ExcNodes")  # fmt: skip
GROUPS = (IDS, KIND, RUN, ("JobArrayID",), ("Name",), ("Comment",))
_EVERY = ("--noheader", "--all", "--local", "--sort=i")
EXPANDED = (*_EVERY, "--states=PENDING", "--array", "--Format=ArrayJobID:0_,JobID:0")
_PRIORITY_FIELDS = ("%i", "%Y", "%S", "%N", "factors")
PRIORITIES = ("--noheader", f"--format={UNIT.join(('%i', '%Y', '%S', '%N', '%A %B %F %J %P %Q %T'))}")


def fresh_mark() -> str:
    """What ends each group of fields: new each time, so that no job can have it in its name or comment."""
    return f"\x1e{secrets.token_hex(8)}\x1e"


def unit_of(mark: str) -> str:
    """What ends each field of a group: of the same token, as users may choose an account, too."""
    return mark.replace("\x1e", UNIT)


def queue_arguments(mark: str, listed: str = "") -> tuple[str, ...]:
    """Arguments of squeue that print one row a job.

    squeue folds pending tasks split off an array into the row of its record, and --array prints a row
    for each task instead. listed: ids of those to print that way (see commands.batches); the rest is left out.
    """
    chosen = ("--array", f"--jobs={listed}") if listed else ()
    return (*_EVERY, "--states=all", *chosen, _format(GROUPS, mark))


def _format(groups: Sequence[Sequence[str]], mark: str) -> str:
    wanted = []
    for names in groups:
        wanted += [f"{name}:0{unit_of(mark)}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    return f"--Format={','.join(wanted)}"


def request_arguments(mark: str) -> tuple[str, ...]:
    """Arguments of squeue that print each job's request only, for parse_requests."""
    return (*_EVERY, "--states=all", _format((("JobID",), REQUESTS), mark))


def parse_requests(text: str, mark: str) -> tuple[list[str], Grouped]:
    """Job ids and the columns REQUESTS. Raises UnreadableError."""
    flat = text.split(mark)
    if flat.pop().strip() or len(flat) % 2:
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    return flat[::2], Grouped.split(flat[1::2], unit_of(mark), REQUESTS)


@dataclass(frozen=True, slots=True)
class Queue:
    """squeue's rows as columns. ids: name -> (N,) numbers. kind, run: grouped. array_id, name, comment: one text a row.

    odd: (N,) bool, rows with a number that is none.
    """

    ids: dict[str, Any]
    kind: Grouped
    run: Grouped
    array_id: list[str]
    name: list[str]
    comment: list[str]
    odd: Bools

    def __len__(self) -> int:
        return len(self.name)


def split_rows(text: str, mark: str) -> list[str]:
    """The groups of all rows in one list, len(GROUPS) a row. Raises UnreadableError for a torn answer."""
    flat = text.split(mark)
    if flat.pop().strip() or len(flat) % len(GROUPS):
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    return flat


def _job(ids: str) -> str:
    """The job id that begins a row's first group; the line end of the row before it is left out."""
    return re.match(r"\s*(\w*)", ids)[1]  # type: ignore[index]  # it matches any text


def parse_queue(flat: Sequence[str], unit: str, warnings: list[str]) -> Queue:
    """The columns of split_rows. unit: as of queue_arguments. A row without a job id, or with other fields than were
    asked for, is left out, with a warning."""
    groups = [list(flat[i :: len(GROUPS)]) for i in range(len(GROUPS))]
    groups = _whole_rows(groups, unit, warnings)
    ids, kind, run, arrays, names, comments = groups
    numbers = split_columns(ids, unit, IDS)
    odd = np.zeros(len(ids), np.bool_)
    columns: dict[str, Any] = {"JobID": integers(numbers["JobID"])[0]}
    for name, low, high in (("Nice", -MOST, MOST), ("PriorityLong", 0, 2**32 - 1)):
        columns[name], strange = integers(numbers[name], low, high)
        odd |= strange
    for name in ("SubmitTime", "EligibleTime"):
        columns[name], strange = times(numbers[name], time_s)
        odd |= strange
    return Queue(columns, Grouped.split(kind, unit, KIND), Grouped.split(run, unit, RUN), arrays, names, comments, odd)


def _whole_rows(groups: list[list[str]], unit: str, warnings: list[str]) -> list[list[str]]:
    """The groups of rows that have a job id and as many fields as were asked for."""
    odd = np.zeros(len(groups[0]), np.bool_)
    for group, names in zip(groups, (IDS, KIND, RUN), strict=False):
        fits = {text: text.count(unit) == len(names) - 1 for text in set(group)}
        odd |= np.fromiter((not fits[text] for text in group), np.bool_, len(group))
    odd |= integers([text.partition(unit)[0] for text in groups[0]], 1, MOST_JOB_ID)[1]
    if not odd.any():
        return groups
    shown = [text.partition(unit)[0].strip()[:20] for text, strange in zip(groups[0], odd, strict=True) if strange]
    warnings.append(f"squeue's rows of {', '.join(map(repr, shown[:10]))} cannot be read; these jobs are left alone")
    keep = np.flatnonzero(~odd).tolist()
    return [[group[row] for row in keep] for group in groups]


def pending_arrays(flat: Sequence[str]) -> bool:
    """Whether any row stands for several pending tasks ("18_[1-4]")."""
    return any("[" in text for text in flat[GROUPS.index(("JobArrayID",)) :: len(GROUPS)])


def split_arrays(expanded: str, flat: Sequence[str]) -> list[int]:
    """Ids of arrays of which squeue hid a record. expanded: what it prints for the arguments EXPANDED."""
    shown = {_job(ids) for ids in flat[:: len(GROUPS)]}
    pairs = (line.partition("_") for line in set(expanded.split()))
    return sorted({number for array, _, job in pairs if job not in shown and (number := whole(array))})


def merge_rows(flat: Sequence[str], unfolded: Sequence[str], arrays: Iterable[int]) -> list[str]:
    """Folded rows with those of the given arrays replaced by their unfolded ones, a record once.

    An unfolded row's JobArrayID counts as one task; rows of one record become "ARRAY_[first,...]".
    """
    width, gone = len(GROUPS), {str(array) for array in arrays}
    at = GROUPS.index(("JobArrayID",))
    kept = [list(flat[i : i + width]) for i in range(0, len(flat), width) if flat[i + at].partition("_")[0] not in gone]
    records: dict[str, list[str]] = {}
    for i in range(0, len(unfolded), width):
        row = list(unfolded[i : i + width])
        task = row[at].partition("_")[2]
        known = records.setdefault(_job(row[0]), row)
        if known is not row:
            known[at] = f"{known[at].rstrip(']') if '[' in known[at] else _open(known[at])},{task}]"
    return [text for row in [*kept, *records.values()] for text in row]


def _open(array_id: str) -> str:
    array, _, task = array_id.partition("_")
    return f"{array}_[{task}"


@dataclass(frozen=True, slots=True)
class Priorities:
    """sprio's rows, one a job, ascending id. Jobs that are held or not yet eligible are not in it.

    site: (N,) int64 site factor. factors: (N,) float64 sum of the weighted factors without nice and site.
    pinned: (N,) bool, an operator set the priority itself.
    """

    job_id: Int64s
    site: Int64s
    factors: Floats
    pinned: Any

    @classmethod
    def none(cls) -> Priorities:
        """Of a cluster whose priorities have no factors."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, np.zeros(0), np.zeros(0, np.bool_))


def parse_priorities(text: str, warnings: list[str]) -> Priorities:
    """The columns of what sprio prints for PRIORITIES; of a job with several partitions its highest row.

    A job whose factors are all 0 while its priority is not what site factor and nice alone make of it was pinned. One
    of which a number cannot be read counts as pinned, too, with a warning. A row without a job id is left out.
    """
    lines = text.split("\n")[:-1]
    rows = [line for line in lines if line.count(UNIT) == len(_PRIORITY_FIELDS) - 1]
    columns = split_columns(rows, UNIT, _PRIORITY_FIELDS) if rows else {name: [] for name in _PRIORITY_FIELDS}
    job_id, unknown = integers(columns["%i"], 1, MOST_JOB_ID)
    priority, odd = integers(columns["%Y"], 0, 2**33)
    site, strange = integers(columns["%S"], -(2**33), 2**33)
    nice, more = integers(columns["%N"], -(2**33), 2**33)
    factors, most = convert_each(columns["factors"], _sum_factors, np.float64, np.nan)
    odd = (odd | strange | more | most) & ~unknown
    if left_out := len(lines) - len(rows) + int(unknown.sum()):
        warnings.append(f"sprio: {left_out} rows without a job id, or of other fields than were asked for")
    if odd.any():
        jobs = ", ".join(map(str, np.unique(job_id[odd])[:10].tolist()))
        warnings.append(f"sprio tells no priority of jobs {jobs}; they are left alone")
    order = np.lexsort((-priority, job_id))
    order = order[~unknown[order]]
    first = order[np.unique(job_id[order], return_index=True)[1]]
    pinned = ((factors == 0) & (priority != np.maximum(site - nice, 1))) | np.isin(job_id, job_id[odd])
    return Priorities(job_id[first], site[first], factors[first], pinned[first])


def _sum_factors(text: str) -> float:
    """Sum of blank-separated factors, of which the last is a TRES list ("cpu=10,gres/gpu=5") or absent.

    Each TRES adds to the priority, a typed one and the untyped one of its kind alike. Raises UnreadableError.
    """
    try:
        total = sum(float(part.rpartition("=")[2]) for word in text.split() for part in word.split(","))
    except ValueError:
        total = float("nan")
    if not abs(total) < 2**53:
        raise UnreadableError("sprio printed something else than priority factors", text=text)
    return total
