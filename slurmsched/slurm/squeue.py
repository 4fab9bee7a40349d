"""Rows of squeue and sprio as columns, in a form that no job name or comment can break.

With squeue -O any text can follow a field; here it is a random mark. Fields come in groups: those that differ from job
to job, those that mostly repeat, and free text. Each distinct text is converted once, so 100,000 rows take only a few
passes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.slurm_text import LAST_TIME_S, MOST_INT64, is_signed_number, signed_number, time_s, whole_number


@dataclass(frozen=True, slots=True)
class GroupedColumns:
    """Several text columns whose combinations mostly repeat.

    codes: (N,) int32, the combination of each row.
    columns: name -> its text in each of the U distinct combinations.
    """

    codes: Int32s
    columns: dict[str, list[str]]

    @classmethod
    def split(cls, texts: Sequence[str], separator: str, names: Sequence[str]) -> GroupedColumns:
        """Columns of rows whose fields are joined by the separator.

        Raises UnreadableError for a row with too few or too many fields.
        """
        distinct = list(dict.fromkeys(texts))
        code = {text: i for i, text in enumerate(distinct)}
        codes = np.fromiter(map(code.__getitem__, texts), np.int32, len(texts))
        return cls(codes, split_columns(distinct, separator, names))

    def labels(self, name: str, clean: Callable[[str], str] = str) -> Labels:
        """A column as text, cleaned once for each distinct value."""
        known = {text: clean(text) for text in set(self.columns[name])}
        return self.expand_labels([known[text] for text in self.columns[name]])

    def numbers(
        self, name: str, convert: Callable[[str], Any], dtype: Any, odd: Bools | None = None, otherwise: Any = 0
    ) -> Any:
        """A column converted once for each distinct text. (N,) of dtype.

        odd: (N,) bool, set for rows whose text cannot be converted; they hold `otherwise`. Without it such a text
            raises UnreadableError.
        """
        values, strange = convert_each(self.columns[name], convert, dtype, otherwise)
        if strange.any():
            if odd is None:
                raise UnreadableError(f"not a value of {name}", text=self.columns[name][int(strange.argmax())])
            odd |= strange[self.codes]
        return values[self.codes]

    def expand(self, values: Iterable[Any], dtype: Any) -> Any:
        """Values given by combination, as a column of rows. (N,) of dtype."""
        return np.asarray(list(values), dtype)[self.codes]

    def expand_labels(self, texts: Sequence[str]) -> Labels:
        """Texts given by combination, as a column of rows."""
        labels = Labels.of(texts)
        return Labels(labels.codes[self.codes], labels.names)

    def rows(self, *names: str) -> Iterable[tuple[str, ...]]:
        """These columns' texts, combination by combination."""
        return zip(*(self.columns[name] for name in names), strict=True)


def split_columns(texts: Sequence[str], separator: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Columns by name of rows whose fields are joined by the separator. Raises UnreadableError."""
    width = len(names)
    flat = separator.join(texts).split(separator) if texts else []
    if len(flat) != width * len(texts):
        bad = next(text for text in texts if text.count(separator) != width - 1)
        raise UnreadableError(f"expected {width} fields ({', '.join(names)})", text=bad)
    return {name: flat[i::width] for i, name in enumerate(names)}


def integers(texts: Sequence[str], low: int = -MOST_INT64, high: int = MOST_INT64) -> tuple[Any, Bools]:
    """Numbers, and the rows that hold no number from low to high; those are 0. (N,) int64, (N,) bool."""
    try:
        if not _plain(texts):
            raise ValueError
        values = np.fromiter(map(int, texts), np.int64, len(texts))
    except (ValueError, OverflowError):
        number_of = {text: signed_number(text) if is_signed_number(text) else high + 1 for text in set(texts)}
        values = np.fromiter(map(number_of.__getitem__, texts), np.int64, len(texts))
    odd = (values < low) | (values > high)
    return np.where(odd, 0, values), odd


def unix_times(texts: Sequence[str], convert: Callable[[str], float]) -> tuple[Any, Bools]:
    """Unix seconds, and the rows that hold no time; fast if all are plain numbers. (N,) float64, (N,) bool."""
    try:
        if not _plain(texts):
            raise ValueError
        values = np.fromiter(map(int, texts), np.float64, len(texts))
    except (ValueError, OverflowError):
        return convert_each(texts, convert, np.float64, np.nan)
    odd = (values < 0) | (values >= LAST_TIME_S)
    values[odd | (values == 0)] = np.nan
    return values, odd


def convert_each(texts: Sequence[str], convert: Callable[[str], Any], dtype: Any, otherwise: Any) -> tuple[Any, Bools]:
    """Each distinct text converted once, and the rows that raised UnreadableError; those hold `otherwise`."""
    known: dict[str, Any] = {}
    strange: set[str] = set()
    for text in set(texts):
        try:
            known[text] = convert(text)
        except UnreadableError:
            known[text] = otherwise
            strange.add(text)
    rows = len(texts)
    odd = np.fromiter(map(strange.__contains__, texts), np.bool_, rows) if strange else np.zeros(rows, np.bool_)
    return np.fromiter(map(known.__getitem__, texts), dtype, rows), odd


def _plain(texts: Sequence[str]) -> bool:
    """Whether int() reads these numbers as Slurm writes them: no digits of other alphabets, no 1_000."""
    joined = "".join(texts)
    return joined.isascii() and "_" not in joined


# The rows of squeue and sprio.

UNIT_SEPARATOR = "\x1f"  # between fields that users cannot set
MOST_JOB_ID = 0xFFFF_FFFD  # below slurm.h's NO_VAL
# Fields of squeue -O in 21.08. Every later squeue has them.
ID_FIELDS = ("JobID", "Nice", "PriorityLong", "SubmitTime", "EligibleTime")
KIND_FIELDS = (
    "UserName", "Account", "Partition", "QOS", "State", "Reason", "Reservation", "TimeLimit", "NumNodes", "NumCPUs",
    "NumTasks", "Sockets", "tres-per-job", "tres-per-task", "tres-per-socket", "tres-per-node", "tres-alloc",
    "RestartCnt", "Requeue", "BatchFlag", "Feature", "ReqNodes", "ExcNodes",
)  # fmt: skip
RUN_FIELDS = ("StartTime", "EndTime", "TimeUsed", "NodeList", "Dependency")
GROUPS = (ID_FIELDS, KIND_FIELDS, RUN_FIELDS, ("JobArrayID",), ("Name",), ("Comment",))
_EVERY = ("--noheader", "--all", "--local", "--sort=i")
ARRAY_TASK_ARGUMENTS = (*_EVERY, "--states=PENDING", "--array", "--Format=ArrayJobID:0_,JobID:0")
_PRIORITY_FIELDS = ("%i", "%Y", "%S", "%N", "factors")
SPRIO_ARGUMENTS = ("--noheader", f"--format={UNIT_SEPARATOR.join(('%i', '%Y', '%S', '%N', '%A %B %F %J %P %Q %T'))}")


def fresh_mark() -> str:
    """The mark that ends each group of fields. It is new each time, so no name or comment contains it.

    It is short, since a row has some 35 of them: 64 bits as 11 letters.
    """
    return f"\x1e{secrets.token_urlsafe(8)}"


def unit_of(mark: str) -> str:
    """The mark that ends each field of a group. It is short too, as Slurm writes or checks what these fields hold.

    A field that contained it would have its row left out, since the row has too many fields then.
    """
    return UNIT_SEPARATOR + mark[1:4]


def queue_arguments(mark: str, listed: str = "", states: str = "all") -> tuple[str, ...]:
    """Arguments of squeue that print one row for each job.

    listed: comma list of job ids to print with --array, one row for each task; other jobs are then left out. Without it
        squeue hides pending tasks that were split off an array in the row of the array.
    states: comma list of states; jobs in other states are left out.
    """
    chosen = ("--array", f"--jobs={listed}") if listed else ()
    return (*_EVERY, f"--states={states}", *chosen, _format(GROUPS, mark))


def _format(groups: Sequence[Sequence[str]], mark: str) -> str:
    wanted = []
    for names in groups:
        wanted += [f"{name}:0{unit_of(mark)}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    return f"--Format={','.join(wanted)}"


@dataclass(frozen=True, slots=True)
class SqueueRows:
    """The rows of squeue as columns.

    ids: name -> (N,) numbers.
    kind, run: fields whose combinations repeat.
    array_id, name, comment: one text for each row.
    odd: (N,) bool, rows with an unreadable number.
    """

    ids: dict[str, Any]
    kind: GroupedColumns
    run: GroupedColumns
    array_id: Sequence[str]
    name: Sequence[str]
    comment: Sequence[str]
    odd: Bools

    def __len__(self) -> int:
        return len(self.name)


def split_rows(text: str, mark: str) -> list[str]:
    """The groups of all rows in one list, len(GROUPS) for each row. Raises UnreadableError for a broken answer."""
    flat = text.split(mark)
    if flat.pop().strip() or len(flat) % len(GROUPS):
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    return flat


def _job(ids: str) -> str:
    """The job id at the beginning of a row's first group, without the line end of the row before."""
    return re.match(r"\s*(\w*)", ids)[1]  # type: ignore[index]  # it matches any text


def parse_queue(flat: Sequence[str], unit: str, warnings: list[str]) -> SqueueRows:
    """The columns of split_rows.

    A row without a job id or with a wrong number of fields is left out, with a warning.

    unit: as unit_of the mark of queue_arguments.
    """
    groups: Sequence[Sequence[str]] = [flat[i :: len(GROUPS)] for i in range(len(GROUPS))]
    numbers = _numbers(groups, unit) or _numbers(groups := _whole_rows(groups, unit, warnings), unit)
    assert numbers is not None
    ids, kind, run, arrays, names, comments = groups
    odd = np.zeros(len(ids), np.bool_)
    columns: dict[str, Any] = {"JobID": integers(numbers["JobID"])[0]}
    for name, low, high in (("Nice", -MOST_INT64, MOST_INT64), ("PriorityLong", 0, 2**32 - 1)):
        columns[name], strange = integers(numbers[name], low, high)
        odd |= strange
    for name in ("SubmitTime", "EligibleTime"):
        columns[name], strange = unix_times(numbers[name], time_s)
        odd |= strange
    return SqueueRows(
        columns,
        GroupedColumns.split(kind, unit, KIND_FIELDS),
        GroupedColumns.split(run, unit, RUN_FIELDS),
        arrays,
        names,
        comments,
        odd,
    )


def _numbers(groups: Sequence[Sequence[str]], unit: str) -> dict[str, list[str]] | None:
    """The columns ID_FIELDS; None if a row has no job id or a wrong number of fields."""
    ids, kind, run = groups[:3]
    for group, names in ((ids, ID_FIELDS), (dict.fromkeys(kind), KIND_FIELDS), (dict.fromkeys(run), RUN_FIELDS)):
        if set(map(str.count, group, repeat(unit))) - {len(names) - 1}:
            return None
    numbers = split_columns(groups[0], unit, ID_FIELDS)
    return None if integers(numbers["JobID"], 1, MOST_JOB_ID)[1].any() else numbers


def _whole_rows(groups: Sequence[Sequence[str]], unit: str, warnings: list[str]) -> Sequence[Sequence[str]]:
    """The groups of the rows that have a job id and the right number of fields."""
    odd = np.zeros(len(groups[0]), np.bool_)
    for group, names in zip(groups, (ID_FIELDS, KIND_FIELDS, RUN_FIELDS), strict=False):
        fits = {text: text.count(unit) == len(names) - 1 for text in set(group)}
        odd |= np.fromiter((not fits[text] for text in group), np.bool_, len(group))
    odd |= integers([text.partition(unit)[0] for text in groups[0]], 1, MOST_JOB_ID)[1]
    if not odd.any():
        return groups
    shown = [text.partition(unit)[0].strip()[:20] for text, strange in zip(groups[0], odd, strict=True) if strange]
    warnings.append(f"squeue's rows of {', '.join(map(repr, shown[:10]))} cannot be read; these jobs are not managed")
    keep = np.flatnonzero(~odd).tolist()
    return [[group[row] for row in keep] for group in groups]


def pending_arrays(flat: Sequence[str]) -> bool:
    """Whether any row is for several pending tasks ("18_[1-4]")."""
    return any("[" in text for text in flat[GROUPS.index(("JobArrayID",)) :: len(GROUPS)])


def split_arrays(expanded: str, flat: Sequence[str]) -> list[int]:
    """Ids of arrays of which squeue hid a record. expanded: its output for the arguments ARRAY_TASK_ARGUMENTS."""
    shown = {_job(ids) for ids in flat[:: len(GROUPS)]}
    pairs = (line.partition("_") for line in set(expanded.split()))
    return sorted({number for array, _, job in pairs if job not in shown and (number := whole_number(array))})


def merge_rows(flat: Sequence[str], unfolded: Sequence[str], arrays: Iterable[int]) -> list[str]:
    """The rows, with those of the given arrays replaced by one row for each of their records.

    unfolded: rows of single tasks. Tasks of one record become "ARRAY_[first,...]".
    """
    width, gone = len(GROUPS), {str(array) for array in arrays}
    at = GROUPS.index(("JobArrayID",))
    rows = [list(flat[i : i + width]) for i in range(0, len(flat), width) if flat[i + at].partition("_")[0] not in gone]
    records: dict[str, list[str]] = {}
    for i in range(0, len(unfolded), width):
        row = list(unfolded[i : i + width])
        task = row[at].partition("_")[2]
        known = records.setdefault(_job(row[0]), row)
        if known is not row:
            known[at] = f"{known[at].rstrip(']') if '[' in known[at] else _open_task_list(known[at])},{task}]"
    return [text for row in [*rows, *records.values()] for text in row]


def _open_task_list(array_id: str) -> str:
    array, _, task = array_id.partition("_")
    return f"{array}_[{task}"


@dataclass(frozen=True, slots=True)
class Priorities:
    """The rows of sprio, one for each job, in ascending id. Held and not yet eligible jobs are absent.

    site: (N,) int64 site factor.
    factors: (N,) float64 sum of the weighted factors, without nice and site factor.
    fixed_priority: (N,) bool, an operator set the priority directly.
    """

    job_id: Int64s
    site: Int64s
    factors: Floats
    fixed_priority: Any

    @classmethod
    def none(cls) -> Priorities:
        """The table of a cluster whose priorities have no factors."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, np.zeros(0), np.zeros(0, np.bool_))


def parse_priorities(text: str, warnings: list[str]) -> Priorities:
    """The output of sprio for SPRIO_ARGUMENTS. A job with several partitions has its highest row.

    The priority of a job is fixed if its factors are all 0 and it is not the sum of site factor and nice. That of a job
    with an unreadable number counts as fixed, with a warning. A row without a job id is left out.
    """
    lines = rows = text.split("\n")[:-1]
    if set(map(str.count, lines, repeat(UNIT_SEPARATOR))) - {len(_PRIORITY_FIELDS) - 1}:
        rows = [line for line in lines if line.count(UNIT_SEPARATOR) == len(_PRIORITY_FIELDS) - 1]
    columns = split_columns(rows, UNIT_SEPARATOR, _PRIORITY_FIELDS) if rows else {name: [] for name in _PRIORITY_FIELDS}
    job_id, unknown = integers(columns["%i"], 1, MOST_JOB_ID)
    priority, odd = integers(columns["%Y"], 0, 2**33)
    site, strange = integers(columns["%S"], -(2**33), 2**33)
    nice, more = integers(columns["%N"], -(2**33), 2**33)
    factors, most = convert_each(columns["factors"], _sum_factors, np.float64, np.nan)
    odd = (odd | strange | more | most) & ~unknown
    if left_out := len(lines) - len(rows) + int(unknown.sum()):
        warnings.append(f"sprio: {left_out} rows without a job id or with a wrong number of fields")
    if odd.any():
        jobs = ", ".join(map(str, np.unique(job_id[odd])[:10].tolist()))
        warnings.append(f"sprio shows no readable priority of jobs {jobs}; they are not managed")
    order = np.lexsort((-priority, job_id))
    order = order[~unknown[order]]
    first = order[np.unique(job_id[order], return_index=True)[1]]
    fixed_priority = ((factors == 0) & (priority != np.maximum(site - nice, 1))) | np.isin(job_id, job_id[odd])
    return Priorities(job_id[first], site[first], factors[first], fixed_priority[first])


def _sum_factors(text: str) -> float:
    """Sum of blank-separated factors. The last one may be a TRES list ("cpu=10,gres/gpu=5").

    Each TRES adds to the priority, typed and untyped ones alike. Raises UnreadableError.
    """
    try:
        total = sum(float(part.rpartition("=")[2]) for word in text.split() for part in word.split(","))
    except ValueError:
        total = float("nan")
    if not abs(total) < 2**53:
        raise UnreadableError("sprio printed something other than priority factors", text=text)
    return total
