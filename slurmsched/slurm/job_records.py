"""Records of `scontrol -d show job`: which text belongs to which job, and which part of it Slurm wrote.

scontrol prints names, comments, folders and commands as they are, line breaks included. So a user's text can end
a record, begin a forged one of another job, or look like any field. What holds here:

* Jobs asked for one by one are told apart by lines of a random token, which no text can hold.
* In a listing of all jobs each real record begins a line. So a job with one record has the real one, and a job with
  several is asked for alone.
* Of a record only what Slurm wrote is read: after the job's name, which squeue told, and before the user's texts.
* A record that does not fit is no answer: the job is in doubt. Options behind a user's text that may end them are not
  known.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from slurmsched.errors import SlurmUnreachableError
from slurmsched.slurm.commands import Commands, failure
from slurmsched.slurm.text import fields

# Asking for one job costs about as much as printing this many of all jobs (measured: 0.3 ms against 0.08 ms).
ONE_AS_MANY = 4
# Each is two requests to slurmctld (the job, and whether there is a federation), which the rate limiter counts.
MOST_SINGLY = 20

DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=(\S*) Mem=\d+ GRES=(\S*)")
_JOB = re.compile(r"^[ \t]*(?:scontrol: )?JobId=(\d{1,18}) ", re.MULTILINE)
_NEXT = re.compile(r"\s+(?:SLUID|HetJobIdSet|UserId)=")  # what follows the name, in every release
_USER = re.compile(r"\sUserId=([^\s(]*)\((\d+)\)")
_TEXTS = re.compile(r"\sMinCPUsNode=")  # behind it come features, licences, command, folder, comment and files
_KEY = re.compile(r"(?:^|\s)([A-Z][\w/:.*]*)=")
_BEFORE_MAIL = re.compile(r"\s(?:StdErr|StdIn|SegmentSize|Switches|Tres\w*|\w+PerTres)=")
LONGEST_REST = 64  # reads after which a doubt is looked into again
_Piece = tuple[str, bool]  # a record, and whether a user's text may have cut it short
Spread = tuple[int, int]  # leaf switches at most, nodes of each segment; 0 = not asked for, -1 = not known
NOT_KNOWN: Spread = (-1, -1)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What Slurm wrote of one job.

    facts: from behind the name to the user's texts. texts: from there on. options: what comes behind the user's
    texts, by key; None where the texts make that doubtful.
    """

    facts: str
    texts: str
    options: Mapping[str, str] | None

    @property
    def node_list(self) -> str:
        """Nodes of a job that runs."""
        found = re.search(r"\sNodeList=(\S*)", self.facts)
        return found[1] if found else ""

    def is_of(self, user: str) -> bool:
        """Whether it is of this user, whom squeue shows by name or number."""
        found = _USER.search(self.facts)
        return not user or found is None or user in found.groups() or found[1] == "nobody"

    @property
    def spread(self) -> Spread:
        """What the job asks for by --switches and --segment."""
        if self.options is None:
            return NOT_KNOWN
        return _count(self.options.get("Switches", "0").partition("@")[0]), _count(self.options.get("SegmentSize", "0"))


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


class Retries:
    """Jobs in doubt, which are asked for again after 1, 2, 4 ... 64 reads. A key is a job's id and when it came."""

    def __init__(self) -> None:
        self._reads = 0
        self._of: dict[tuple[int, float], tuple[int, int]] = {}  # tries, and the read of the next one

    def due(self, keys: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
        """Which of these to ask for in this read. All others are forgotten."""
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
    """Records by job, and the jobs that have one which cannot be told from a forged one."""

    records: Mapping[int, JobRecord]
    doubtful: frozenset[int] = frozenset()


def ask_jobs(commands: Commands, names: Mapping[int, str], rows: int, most_singly: int = MOST_SINGLY) -> JobAnswer:
    """The records of these jobs; one that ended meanwhile has none.

    names: by job its name as squeue told it. rows: jobs in the queue. most_singly: jobs asked for by id in one go; for
    more, all jobs are printed at once. Raises SlurmError.
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


def _bound(told: Mapping[int, list[_Piece]], names: Mapping[int, str]) -> tuple[dict[int, JobRecord], set[int]]:
    """Records of jobs that have exactly one, and the jobs that have others."""
    found: dict[int, JobRecord] = {}
    doubtful: set[int] = set()
    for job, pieces in told.items():
        record = read_record(pieces[0][0], names[job]) if len(pieces) == 1 else None
        if record is None:
            doubtful.add(job)
        else:
            found[job] = replace(record, options=None) if pieces[0][1] else record
    return found, doubtful


def _ask_singly(commands: Commands, jobs: list[int]) -> dict[int, list[_Piece]]:
    """By job its records, one process whatever their number. Raises SlurmUnreachableError."""
    token = f"t{secrets.token_hex(8)}"
    script = "".join(f"show hostnames {token}x{job}\nshow job {job}\n" for job in jobs)
    status, out, err = commands.start("scontrol", "-o", "-d", stdin=f"{script}show hostnames {token}xend\n").finish()
    if status:  # a job that ended meanwhile makes the status 1
        error = failure("scontrol", status, err)
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
    """Of these jobs what begins as a record of theirs. alone: the text answers for one job, and for tasks of its array.

    A record that a user's text may have cut short ends where another begins that is there twice, or of no such task.
    """
    wanted = frozenset(jobs)
    found: dict[int, list[_Piece]] = {}
    told = list(job_records(text))
    times = Counter(job for job, _ in told)
    for (job, record), following in zip(told, [*told[1:], None], strict=False):
        if job in wanted:
            cut = following is not None and (
                times[following[0]] > 1 or (alone and (not (of := _array(record)) or _array(following[1]) != of))
            )
            found.setdefault(job, []).append((record, cut))
    return found


def _array(record: str) -> str:
    """The id of its array, which Slurm writes before the name; "" = it is of none."""
    found = re.search(r" ArrayJobId=(\d+)", record.partition(" JobName=")[0])
    return found[1] if found else ""


def job_records(text: str) -> Iterator[tuple[int, str]]:
    """Job id and text of whatever begins like a record, one line or many."""
    marks = list(_JOB.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        yield int(mark[1]), text[mark.start() : following.start() if following else len(text)]


def read_record(text: str, name: str) -> JobRecord | None:
    """A record of the job of this name; None where it is of another, or where what Slurm wrote cannot be told."""
    _, named, rest = text.partition("JobName=")
    words = next((word for word in (name, name or "(null)") if _follows(rest, word)), None)
    if not named or words is None:
        return None
    rest = rest[len(words) :]
    ends = [mark.start() for mark in _TEXTS.finditer(rest)]
    if len(ends) > 1:
        return None
    facts, texts = (rest[: ends[0]], rest[ends[0] :]) if ends else (rest, "")
    return JobRecord(facts, texts, _options(rest))


def _follows(rest: str, name: str) -> bool:
    return rest.startswith(name) and _NEXT.match(rest, len(name)) is not None


def _options(rest: str) -> Mapping[str, str] | None:
    """What comes behind files and folder, up to the mail address; None where a user's text may begin or end it, or
    where no folder is told."""
    marks = [mark for mark in (" WorkDir=", " StdOut=") if mark in rest]  # no files of srun and salloc
    if " WorkDir=" not in marks or any(rest.count(mark) > 1 for mark in marks):
        return None
    tail = rest[rest.rfind(marks[-1]) :]
    tail, _, mail = tail.partition(" MailUser=")
    keys = _KEY.findall(tail)
    return fields(tail) if len(keys) == len(set(keys)) and not _BEFORE_MAIL.search(mail) else None
