"""Records of `scontrol -d show job`, which part of each record Slurm itself wrote, and options only they show.

scontrol prints names, comments, folders and commands unchanged, with their line breaks. So a user's text can end a
record, begin a forged record of another job, or look like any field. Therefore:

* Jobs that are read one by one are separated by lines with a random token, which no text can contain.
* In a listing of all jobs each real record begins a line. So if a job has one record, it is the real one. A job with
  several records is read alone.
* Only the part that Slurm wrote is read: after the job's name (known from squeue) and before the user's texts.
* If a record does not fit, the job is in doubt. Options behind a user's text are then unknown.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from slurmsched.errors import SlurmUnreachableError, UnreadableError
from slurmsched.model.columns import Labels
from slurmsched.model.jobs import GpuOptions, Jobs
from slurmsched.model.slurm_text import RECORD_KEY, record_fields, text_or_empty, whole_number
from slurmsched.model.snapshot import Site
from slurmsched.slurm.commands import Commands, command_error
from slurmsched.slurm.squeue import fresh_mark, unit_of

# Reading one job costs as much as listing this many jobs (measured: 0.3 ms against 0.08 ms).
ONE_AS_MANY = 4
# Each takes two requests to slurmctld (the job, and the federation), which the rate limiter counts.
MOST_SINGLY = 20

NODE_DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=(\S*) Mem=\d+ GRES=(\S*)")
_JOB = re.compile(r"^[ \t]*(?:scontrol: )?JobId=(\d{1,18}) ", re.MULTILINE)
_NEXT = re.compile(r"\s+(?:SLUID|HetJobIdSet|UserId)=")  # follows the name in every release
_USER = re.compile(r"\sUserId=([^\s(]*)\((\d+)\)")
_TEXTS = re.compile(r"\sMinCPUsNode=")  # behind it come features, licences, command, folder, comment and files
_BEFORE_MAIL = re.compile(r"\s(?:StdErr|StdIn|SegmentSize|Switches|Tres\w*|\w+PerTres)=")
LONGEST_REST = 64  # most reads between two tries for a job in doubt
_Piece = tuple[str, bool]  # a record, and whether a user's text may have cut it short
SpreadLimits = tuple[int, int]  # most leaf switches, nodes of each segment; 0 = not asked for, -1 = unknown
SPREAD_NOT_KNOWN: SpreadLimits = (-1, -1)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What Slurm wrote about one job.

    record_text: the text between the job's name and the user's texts.
    texts: the user's texts and all that follows.
    options: fields behind the user's texts, by key; None if the texts make them doubtful.
    """

    record_text: str
    texts: str
    options: Mapping[str, str] | None

    @property
    def node_list(self) -> str:
        """Nodes of a running job."""
        found = re.search(r"\sNodeList=(\S*)", self.record_text)
        return found[1] if found else ""

    def is_of(self, user: str) -> bool:
        """Whether the job belongs to this user (name or uid, as squeue shows it)."""
        found = _USER.search(self.record_text)
        return not user or found is None or user in found.groups() or found[1] == "nobody"

    @property
    def spread(self) -> SpreadLimits:
        """The job's --switches and --segment."""
        if self.options is None:
            return SPREAD_NOT_KNOWN
        return _count(self.options.get("Switches", "0").partition("@")[0]), _count(self.options.get("SegmentSize", "0"))


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


class DoubtfulJobs:
    """Jobs in doubt, which are read again after 1, 2, 4 ... 64 reads. A key is the job's id and submit time."""

    def __init__(self) -> None:
        self._reads = 0
        self._of: dict[tuple[int, float], tuple[int, int]] = {}  # tries, and the read of the next one

    def due(self, keys: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
        """Those of these keys that are due in this read. All other keys are forgotten."""
        self._reads += 1
        wanted = list(keys)
        self._of = {key: self._of[key] for key in wanted if key in self._of}
        return [key for key in wanted if key not in self._of or self._of[key][1] <= self._reads]

    def failed(self, keys: Iterable[tuple[int, float]]) -> None:
        """These are still in doubt."""
        for key in keys:
            tries = self._of[key][0] + 1 if key in self._of else 1
            self._of[key] = (tries, self._reads + min(1 << min(tries - 1, 10), LONGEST_REST))


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """Records by job, and jobs whose record may be forged."""

    records: Mapping[int, JobRecord]
    doubtful: frozenset[int] = frozenset()


def ask_jobs(commands: Commands, names: Mapping[int, str], rows: int, most_singly: int = MOST_SINGLY) -> JobAnswer:
    """The records of these jobs. A job that ended meanwhile has none.

    names: job id -> name, as squeue shows it.
    rows: number of jobs in the queue.
    most_singly: up to this many jobs are read one by one; for more, all jobs are listed at once.
    Raises SlurmError.
    """
    singly, found, doubtful = list(names), dict[int, JobRecord](), set[int]()
    if len(names) > most_singly or len(names) * ONE_AS_MANY > rows:
        listed = _by_job(commands.run("scontrol", "-o", "-d", "show", "job"), names)
        found, doubtful = _bound(listed, names)
        singly = [job for job in names if job in doubtful][:most_singly]
    if singly:
        one_by_one, unsure = _bound(_ask_singly(commands, singly), names)
        found |= one_by_one
        doubtful = (doubtful - set(singly)) | unsure
    return JobAnswer(found, frozenset(doubtful))


def _bound(pieces_of: Mapping[int, list[_Piece]], names: Mapping[int, str]) -> tuple[dict[int, JobRecord], set[int]]:
    """Records of jobs that have exactly one, and jobs with several or an unreadable one."""
    found: dict[int, JobRecord] = {}
    doubtful: set[int] = set()
    for job, pieces in pieces_of.items():
        record = read_record(pieces[0][0], names[job]) if len(pieces) == 1 else None
        if record is None:
            doubtful.add(job)
        else:
            found[job] = replace(record, options=None) if pieces[0][1] else record
    return found, doubtful


def _ask_singly(commands: Commands, jobs: list[int]) -> dict[int, list[_Piece]]:
    """Records by job, read by one process. Raises SlurmUnreachableError."""
    token = f"t{secrets.token_hex(8)}"
    script = "".join(f"show hostnames {token}x{job}\nshow job {job}\n" for job in jobs)
    status, out, err = commands.start("scontrol", "-o", "-d", stdin=f"{script}show hostnames {token}xend\n").finish()
    if status:  # a job that ended meanwhile makes the status 1
        error = command_error("scontrol", status, err)
        if isinstance(error, SlurmUnreachableError):
            raise error
    if token not in out:
        return _by_job(out, jobs)  # a scontrol that prints no host names
    found: dict[int, list[_Piece]] = {}
    pieces = re.split(rf"{token}x(\w+)", out)
    parts: dict[int, str] = {}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if name.isdecimal():
            parts[int(name)] = parts.get(int(name), "") + text
    for job in jobs:
        found |= _by_job(parts.get(job, ""), (job,), alone=True)
    return found


def _by_job(text: str, jobs: Iterable[int], *, alone: bool = False) -> dict[int, list[_Piece]]:
    """All texts that begin like a record of these jobs.

    A user's text may have cut a record short if the record behind it occurs twice, or (alone) is of another array.

    alone: the text answers for one job and the tasks of its array.
    """
    wanted = frozenset(jobs)
    found: dict[int, list[_Piece]] = {}
    pieces = list(job_records(text))
    times = Counter(job for job, _ in pieces)
    for (job, record), following in zip(pieces, [*pieces[1:], None], strict=False):
        if job in wanted:
            cut = following is not None and (
                times[following[0]] > 1 or (alone and (not (of := _array(record)) or _array(following[1]) != of))
            )
            found.setdefault(job, []).append((record, cut))
    return found


def _array(record: str) -> str:
    """The id of the job's array, which Slurm writes before the name; "" = no array."""
    found = re.search(r" ArrayJobId=(\d+)", record.partition(" JobName=")[0])
    return found[1] if found else ""


def job_records(text: str) -> Iterator[tuple[int, str]]:
    """Job id and text of everything that begins like a record, of one line or several."""
    marks = list(_JOB.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        yield int(mark[1]), text[mark.start() : following.start() if following else len(text)]


def read_record(text: str, name: str) -> JobRecord | None:
    """The record of the job with this name; None if the name differs or Slurm's part cannot be separated."""
    _, named, rest = text.partition("JobName=")
    words = next((word for word in (name, name or "(null)") if _follows(rest, word)), None)
    if not named or words is None:
        return None
    rest = rest[len(words) :]
    ends = [mark.start() for mark in _TEXTS.finditer(rest)]
    if len(ends) > 1:
        return None
    record_text, texts = (rest[: ends[0]], rest[ends[0] :]) if ends else (rest, "")
    return JobRecord(record_text, texts, _options(rest))


def _follows(rest: str, name: str) -> bool:
    return rest.startswith(name) and _NEXT.match(rest, len(name)) is not None


def _options(rest: str) -> Mapping[str, str] | None:
    """The fields between the folder or files and the mail address.

    None if a user's text may begin or end that part, or if no folder is shown.
    """
    marks = [mark for mark in (" WorkDir=", " StdOut=") if mark in rest]  # no files of srun and salloc
    if " WorkDir=" not in marks or any(rest.count(mark) > 1 for mark in marks):
        return None
    tail = rest[rest.rfind(marks[-1]) :]
    tail, _, mail = tail.partition(" MailUser=")
    keys = RECORD_KEY.findall(tail)
    return record_fields(tail) if len(keys) == len(set(keys)) and not _BEFORE_MAIL.search(mail) else None


# Options of jobs that no reader of the queue asks for: --exclusive, --switches, --segment, and how GPUs were requested.
#
# For --exclusive squeue has the field Exclusive from 26.05 on. Before, OverSubscribe is NO for such a job and OK for
# others. From 26.05 on OverSubscribe is NO for both (seen on 24.11.5 and 26.05.5).


EXCLUSIVE_SINCE = (26, 5)  # squeue has the field Exclusive; up to 25.05 OverSubscribe=NO means it


class ExclusiveJobs:
    """Asks squeue. The release of squeue itself decides which field exists; it is read once."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._field: tuple[str, str] | None = None

    def __call__(self) -> frozenset[int]:
        """Ids of pending job records that ask for whole nodes. Raises SlurmError."""
        field, means = self._field = self._field or exclusive_field(self._commands.run("squeue", "--version"))
        wanted = f"--Format=JobID:0|,{field}:0"
        return parse_exclusive(self._commands.run("squeue", "-h", "-a", "--local", "-t", "PENDING", wanted), means)


def exclusive_field(version: str) -> tuple[str, str]:
    """The field of squeue and its value for --exclusive. version: output of `squeue --version`.

    Raises UnreadableError.
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UnreadableError("squeue --version prints no version", text=version)
    return ("Exclusive", "NODE") if (int(found[1]), int(found[2])) >= EXCLUSIVE_SINCE else ("OverSubscribe", "NO")


def parse_exclusive(text: str, means: str) -> frozenset[int]:
    """Ids of rows such as "7|NODE" with this value or of another form. Raises UnreadableError for a row without id."""
    rows = [(whole_number(job), said) for job, *said in (line.strip().split("|") for line in text.splitlines())]
    if not all(job for job, _ in rows):
        raise UnreadableError("squeue printed something other than what was asked for", text=text[:200])
    return frozenset(job for job, said in rows if said == [means] or len(said) != 1 or not said[0])


# --switches and --segment of pending gangs. Only `scontrol show job` shows these in every version.


class SpreadRequests:
    """Reads each gang once, and again if its record is in doubt; its options are unknown until then.

    A later change of Switches is not seen. Slurm itself respects it.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: dict[tuple[int, float], SpreadLimits] = {}
        self._retries = DoubtfulJobs()

    def __call__(self, jobs: Jobs) -> Jobs:
        """The jobs, with both columns filled for pending jobs of several nodes. Raises SlurmError."""
        rows = np.flatnonzero(jobs.pending & (jobs.nodes > 1) & (jobs.gpus > 0)).tolist()
        key = {row: (int(jobs.job_id[row]), float(jobs.submit_s[row])) for row in rows}
        name = {key[row]: jobs.name[row] for row in rows}
        self._known = {each: self._known[each] for each in name if each in self._known}
        if missing := self._retries.due(each for each in name if each not in self._known):
            records = ask_jobs(self._commands, {each[0]: name[each] for each in missing}, len(jobs)).records
            found = {each: records[each[0]].spread for each in missing if each[0] in records}
            self._known |= {each: spread for each, spread in found.items() if min(spread) >= 0}
            self._retries.failed(each for each in missing if each not in self._known)
        made = {"switches": jobs.switches.copy(), "segment_nodes": jobs.segment_nodes.copy()}
        for row in rows:
            made["switches"][row], made["segment_nodes"][row] = self._known.get(key[row], SPREAD_NOT_KNOWN)
        return jobs.with_columns(**made)


# Options of GPU requests.

_REQUEST_FIELDS = {"per_job": "tres-per-job", "per_node": "tres-per-node", "per_task": "tres-per-task",
                   "per_socket": "tres-per-socket"}  # fmt: skip
_FIELDS = ("JobID", *_REQUEST_FIELDS.values(), "NumTasks", "MinMemory")
OVERSUBSCRIBE_UNTIL = (25, 5)
NOT_SET = 0xFFFF_FFFE  # slurm.h NO_VAL, which squeue prints as a number where -n was not given


def read_gpu_options(commands: Commands, site: Site) -> GpuOptions:
    """Every record of the queue. Raises SlurmError."""
    mark, extra = fresh_mark(), _exclusive_field(site)
    names = (*_FIELDS, *((extra,) if extra else ()))
    wanted = [f"{name}:0{unit_of(mark)}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    answer = commands.run(
        "squeue", "-h", "--all", "--local", "--sort=i", "--states=all", f"--Format={','.join(wanted)}"
    )
    return parse_gpu_options(answer, mark, extra)


def _exclusive_field(site: Site) -> str:
    """The field of squeue that shows --exclusive; "" for releases where no field is reliable."""
    found = re.match(r"(\d+)\.(\d+)", site.version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if release >= EXCLUSIVE_SINCE:
        return "Exclusive"
    return "OverSubscribe" if (0, 0) < release <= OVERSUBSCRIBE_UNTIL else ""


def parse_gpu_options(text: str, mark: str, extra: str) -> GpuOptions:
    """The table. extra: name of one more field at the end of each row, "" = none. Raises UnreadableError."""
    flat = text.split(mark)
    if flat.pop().strip():
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    width = len(_FIELDS) + bool(extra)
    split = (line.lstrip("\n").split(unit_of(mark)) for line in flat)
    rows = {whole_number(row[0]): row for row in split if len(row) == width and whole_number(row[0])}
    order = sorted(rows)
    at = {name: place for place, name in enumerate(_FIELDS)}
    columns = {
        name: Labels.of([text_or_empty(rows[job][at[field]]) for job in order])
        for name, field in _REQUEST_FIELDS.items()
    }
    tasks = [_tasks(rows[job][at["NumTasks"]]) for job in order]
    alone = {"Exclusive": "NODE", "OverSubscribe": "NO"}.get(extra)
    return GpuOptions.build(len(order), {
        **columns, "job_id": order, "tasks": tasks,
        "whole_memory": np.array([rows[job][at["MinMemory"]] == "0" for job in order], np.bool_),
        "exclusive": np.array([bool(extra) and rows[job][-1] == alone for job in order], np.bool_),
    })  # fmt: skip


def _tasks(text: str) -> int:
    """-n; 1 where it was not given."""
    return whole_number(text, 1, NOT_SET - 1)
