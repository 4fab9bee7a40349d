"""What squeue and sprio print, asked for in a form that no job name or comment can break.

squeue -O lets each field be followed by any text. Fields that differ from job to job, fields that
mostly repeat, and free text come in groups, so that 100,000 rows cost a few passes over columns.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Floats, Int64s
from slurmsched.slurm.columns import Grouped, integers, split_columns, times
from slurmsched.slurm.text import time_s

UNIT = "\x1f"
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
PRIORITIES = ("--noheader", f"--format={UNIT.join(('%i', '%Y', '%S', '%N', '%A %B %F %J %P %Q %T'))}")


def fresh_mark() -> str:
    """What ends each group of fields: new each time, so that no job can have it in its name or comment."""
    return f"\x1e{secrets.token_hex(4)}\x1e"


def queue_arguments(mark: str, arrays: Sequence[int] = ()) -> tuple[str, ...]:
    """Arguments of squeue that print one row a job.

    squeue folds pending tasks split off an array into the row of its record, and --array prints a row
    for each task instead. arrays: ids of those to print that way; the rest is left out.
    """
    chosen = ("--array", f"--jobs={','.join(map(str, arrays))}") if arrays else ()
    return (*_EVERY, "--states=all", *chosen, _format(GROUPS, mark))


def _format(groups: Sequence[Sequence[str]], mark: str) -> str:
    wanted = []
    for names in groups:
        wanted += [f"{name}:0{UNIT}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    return f"--Format={','.join(wanted)}"


def request_arguments(mark: str) -> tuple[str, ...]:
    """Arguments of squeue that print each job's request only, for parse_requests."""
    return (*_EVERY, "--states=all", _format((("JobID",), REQUESTS), mark))


def parse_requests(text: str, mark: str) -> tuple[list[str], Grouped]:
    """Job ids and the columns REQUESTS. Raises UnreadableError."""
    flat = text.split(mark)
    if flat.pop().strip() or len(flat) % 2:
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    return flat[::2], Grouped.split(flat[1::2], UNIT, REQUESTS)


@dataclass(frozen=True, slots=True)
class Queue:
    """squeue's rows as columns. ids: name -> (N,) numbers. kind, run: grouped. The rest: one text a row."""

    ids: dict[str, Any]
    kind: Grouped
    run: Grouped
    array_id: list[str]
    name: list[str]
    comment: list[str]

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
    return ids.partition(UNIT)[0].lstrip()


def parse_queue(flat: Sequence[str]) -> Queue:
    """The columns of split_rows. Raises UnreadableError when they do not follow queue_arguments."""
    ids, kind, run, arrays, names, comments = (list(flat[i :: len(GROUPS)]) for i in range(len(GROUPS)))
    numbers = split_columns(ids, UNIT, IDS)
    columns = {name: integers(numbers[name]) for name in ("JobID", "Nice", "PriorityLong")}
    columns |= {name: times(numbers[name], time_s) for name in ("SubmitTime", "EligibleTime")}
    return Queue(columns, Grouped.split(kind, UNIT, KIND), Grouped.split(run, UNIT, RUN), arrays, names, comments)


def pending_arrays(flat: Sequence[str]) -> bool:
    """Whether any row stands for several pending tasks ("18_[1-4]")."""
    return any("[" in text for text in flat[GROUPS.index(("JobArrayID",)) :: len(GROUPS)])


def split_arrays(expanded: str, flat: Sequence[str]) -> list[int]:
    """Ids of arrays of which squeue hid a record. expanded: what it prints for the arguments EXPANDED."""
    shown = {_job(ids) for ids in flat[:: len(GROUPS)]}
    pairs = (line.partition("_") for line in set(expanded.split()))
    return sorted({int(array) for array, _, job in pairs if job not in shown})


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


def parse_priorities(text: str) -> Priorities:
    """The columns of what sprio prints for PRIORITIES; of a job with several partitions its highest row.

    A job whose factors are all 0 while its priority is not what site factor and nice alone make of it
    was pinned. Raises UnreadableError.
    """
    rows = text.split("\n")[:-1]
    names = ("%i", "%Y", "%S", "%N", "factors")
    columns = split_columns(rows, UNIT, names) if rows else {name: [] for name in names}
    job_id, priority, site, nice = (integers([t.strip() for t in columns[name]]) for name in names[:4])
    known = {factors: _sum_factors(factors) for factors in set(columns["factors"])}
    factors = np.fromiter(map(known.__getitem__, columns["factors"]), np.float64, len(rows))
    order = np.lexsort((-priority, job_id))
    first = order[np.unique(job_id[order], return_index=True)[1]]
    pinned = (factors == 0) & (priority != np.maximum(site - nice, 1))
    return Priorities(job_id[first], site[first], factors[first], pinned[first])


def _sum_factors(text: str) -> float:
    """Sum of blank-separated factors, of which the last is a TRES list ("cpu=10,gres/gpu=5") or absent.

    Each TRES adds to the priority, a typed one and the untyped one of its kind alike. Raises UnreadableError.
    """
    try:
        return sum(float(part.rpartition("=")[2]) for word in text.split() for part in word.split(","))
    except ValueError:
        raise UnreadableError("sprio printed something else than priority factors", text=text) from None
