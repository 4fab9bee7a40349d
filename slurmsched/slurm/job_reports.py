"""What running jobs tell of themselves in a shared folder, and what slurmsched wants of them: plugin/job.

The folder has two folders. `reports` is open to everybody (mode 1777): each job writes one file there, named by its id,
with its own rights. `wants` is ours: a job reads its file there when it likes.

A report is not trusted. It counts if it is a plain file of the job's own user, of at most MOST_BYTES, written since the
job was submitted. Links and FIFOs are not opened, and only the words of hints.REPORTED that are understood are kept. So
a job can tell how it does, and can ask for nothing that its comment does not ask for.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Labels
from slurmsched.model.hints import reported_hints, with_reported_hints
from slurmsched.model.jobs import Jobs
from slurmsched.model.plan import AskSize
from slurmsched.model.snapshot import Snapshot

REPORTS, WANTS = "reports", "wants"
MOST_BYTES = 1_024  # of a report, as of a comment
PATIENCE_S = 5.0  # for the reports of one cycle; the other jobs' turn comes in the next one
MOST_WARNINGS = 3  # about files that are not a job's own
SKEW_S = 60.0  # by so much the clock of a node may be behind slurmctld's
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class JobReport:
    """The words that a job told, such as "progress=30/90", and when [Unix s]. fault: why none counts, "" = it does."""

    words: tuple[str, ...] = ()
    written_s: float = 0.0
    fault: str = ""


class ReportReader:
    """Adds what running jobs report to the hints of a snapshot. Jobs that are requeued keep what they told last.

    uid: user name -> uid, -1 for nobody.
    clock: seconds, for PATIENCE_S.
    """

    def __init__(
        self, folder: Path, uid: Callable[[str], int] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reports, self._folder = folder / REPORTS, folder
        self._uid, self._clock = uid or _Uids(), clock
        self._known: dict[int, JobReport] = {}
        self._next = 0  # job id at which the next cycle begins

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the words of each report in place of those of the job's comment."""
        snapshot = with_asked_sizes(self._folder, snapshot)
        jobs = snapshot.jobs
        rows = _readers(jobs)
        try:
            self._read(jobs, rows)
        except OSError as error:
            warning = f"reports of jobs: {self._reports} cannot be read: {error.strerror or error}"
            return replace(snapshot, warnings=(*snapshot.warnings, warning))
        comments = list(jobs.comment)
        for row in rows:
            report = self._known.get(int(jobs.job_id[row]), JobReport())
            comments[row] = with_reported_hints(comments[row], _current(jobs, row, report))
        faults = [self._known[job].fault for row in rows if (job := int(jobs.job_id[row])) in self._known]
        return replace(
            snapshot,
            jobs=jobs.with_columns(comment=Labels.of(comments)) if rows else jobs,
            warnings=(*snapshot.warnings, *filter(None, faults))[: len(snapshot.warnings) + MOST_WARNINGS],
        )

    def _read(self, jobs: Jobs, rows: Sequence[int]) -> None:
        """Read the reports of these jobs, from where the last cycle ended, for as long as there is time."""
        ids = {int(jobs.job_id[row]): jobs.user[row] for row in rows}
        self._known = {job: report for job, report in self._known.items() if job in ids}
        later = sorted(ids, key=lambda job: (job < self._next, job))
        until_s = self._clock() + PATIENCE_S
        folder = os.open(self._reports, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for at, job in enumerate(later):
                self._next = job
                if at and self._clock() > until_s:
                    return
                self._known[job] = read_report(folder, job, self._uid(ids[job]))
            self._next = 0
        finally:
            os.close(folder)


def _current(jobs: Jobs, row: int, report: JobReport) -> tuple[str, ...]:
    """What counts of a report: nothing that is older than the job; of a run before only what a checkpoint keeps."""
    told_s, first_s = report.written_s + SKEW_S, float(jobs.first_submit_s[row])
    if told_s < first_s:  # another job's, whose id was used again
        return ()
    if told_s < float(jobs.start_s[row] if jobs.running[row] else jobs.submit_s[row]):
        if jobs.restarts[row] == 0:
            return ()
        return tuple(word for word in report.words if not word.startswith("throughput="))
    return report.words


def _readers(jobs: Jobs) -> list[int]:
    """Rows of the jobs that tell and read: those that run, or have run."""
    found: list[int] = np.flatnonzero((jobs.running | (jobs.pending & (jobs.restarts > 0))) & (jobs.gpus > 0)).tolist()
    return found


class _Uids:
    """Uids by user name, asked once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, user: str) -> int:
        if user not in self._known:
            with suppress(KeyError, ValueError):
                self._known[user] = pwd.getpwnam(user).pw_uid
        return self._known.get(user, -1)


def read_report(folder: int, job_id: int, uid: int) -> JobReport:
    """The report of a job of this user. folder: an open folder. Nothing that may be in it blocks or harms."""
    if uid < 0:
        return JobReport()
    try:
        file = os.open(str(job_id), _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return JobReport()
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.ENXIO)
        return JobReport(fault=_fault(job_id, "is no plain file" if link else f"cannot be read: {error.strerror}"))
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return JobReport(fault=_fault(job_id, "is no plain file"))
        if found.st_uid != uid:
            return JobReport(fault=_fault(job_id, f"belongs to uid {found.st_uid}, not to the job's user"))
        if found.st_size > MOST_BYTES:
            return JobReport(fault=_fault(job_id, f"has more than {MOST_BYTES:,} bytes"))
        text = os.read(file, MOST_BYTES).decode("ascii", "replace")
        return JobReport(reported_hints(text.partition("\n")[0]), found.st_mtime)
    except OSError as error:
        return JobReport(fault=_fault(job_id, f"cannot be read: {error.strerror}"))
    finally:
        os.close(file)


def _fault(job_id: int, why: str) -> str:
    return f"the report of job {job_id} {why}: it is not read"


@dataclass(frozen=True, slots=True)
class RunningJobRequest:
    """What is asked of a running job, at its own pace.

    gpus: another size [GPUs], 0 = none.
    checkpoint_s: when a checkpoint was asked for [Unix s], 0 = not.
    stop: what it does is of no use any more.
    run: how often it had been restarted when another size was asked of it, -1 = any. The next run does not see that
        request.
    """

    gpus: int = 0
    checkpoint_s: int = 0
    stop: bool = False
    run: int = -1

    @property
    def lines(self) -> str:
        """The file's text: key=value lines that a shell can read."""
        run = self.run if self.gpus and self.run >= 0 else ""
        made = {"gpus": self.gpus or "", "run": run, "checkpoint": self.checkpoint_s or "",
                "stop": "yes" if self.stop else ""}  # fmt: skip
        return "".join(f"{key}={value}\n" for key, value in made.items() if value != "")

    def of_run(self, restarts: int) -> bool:
        """Whether its size is asked of the run after that many restarts."""
        return self.gpus > 0 and self.run in (-1, restarts)


def read_job_request(folder: Path, job_id: int) -> RunningJobRequest:
    """What is wanted of a job; nothing where there is no file. Raises InputError."""
    path = folder / WANTS / str(job_id)
    try:
        found = dict(_pairs(path.read_text(encoding="ascii", errors="replace")))
        numbers = (int(found.get(key, default)) for key, default in (("gpus", 0), ("checkpoint", 0), ("run", -1)))
        gpus, checkpoint_s, run = numbers
        return RunningJobRequest(gpus, checkpoint_s, found.get("stop") == "yes", run)
    except FileNotFoundError:
        return RunningJobRequest()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}; remove it", source=str(path)) from error


def with_asked_sizes(folder: Path, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the GPUs to which jobs are asked to change.

    Of a job that waits again: what was asked of the run before. What was asked of an earlier one asks for nothing, nor
    does a file that cannot be read; a warning tells of the latter.
    """
    jobs, wanted, faults = snapshot.jobs, dict[int, int](), list[str]()
    there = _numbered(folder)
    for row in _readers(jobs):
        if int(jobs.job_id[row]) in there:
            try:
                asked = read_job_request(folder, int(jobs.job_id[row]))
            except InputError as error:
                faults.append(str(error))
                continue
            before = 0 if jobs.running[row] else 1
            wanted[row] = asked.gpus if asked.of_run(int(jobs.restarts[row]) - before) else 0
    if any(wanted.values()):
        jobs = jobs.with_columns(wanted_gpus=[wanted.get(row, 0) for row in range(len(jobs))])
    return replace(snapshot, jobs=jobs, warnings=(*snapshot.warnings, *faults[:MOST_WARNINGS]))


def ask_size(folder: Path | None, action: AskSize) -> None:
    """Ask a job for this number of GPUs, 0 = no other any more; what else it is asked for stays. Raises InputError.

    folder: None = there is none.
    """
    if folder is not None:
        before = read_job_request(folder, action.job_id)
        write_job_requests(folder, {action.job_id: replace(before, gpus=action.gpus, run=action.restarts)})


def forget_job_requests(folder: Path | None, jobs: Jobs) -> None:
    """Remove requests that no longer count.

    These are the requests of jobs that Slurm no longer shows, since an id may come again. They are also the sizes that
    were asked of earlier runs. A file that cannot be read or removed stays: no request of another job depends on it.

    folder: None = there is none.
    """
    if folder is None:
        return
    for job in _numbered(folder):
        with suppress(OSError, InputError):
            if (row := jobs.row_of(job)) < 0:
                (folder / WANTS / str(job)).unlink(missing_ok=True)
                continue
            asked = read_job_request(folder, job)
            if jobs.running[row] and asked.gpus and not asked.of_run(int(jobs.restarts[row])):
                write_job_requests(folder, {job: replace(asked, gpus=0)})


def _numbered(folder: Path) -> set[int]:
    """Ids of the jobs of which something is wanted; none where the folder cannot be read."""
    with suppress(OSError):
        return {int(path.name) for path in (folder / WANTS).iterdir() if path.name.isdecimal()}
    return set()


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text[:MOST_BYTES].splitlines():
        key, _, value = line.partition("=")
        yield key, value


def write_job_requests(folder: Path, requests: Mapping[int, RunningJobRequest]) -> None:
    """Put the files of these jobs in place, whole or not at all; that of a job of which nothing is wanted goes.

    Raises InputError where the folder cannot be written.
    """
    place = folder / WANTS
    try:
        for job_id, wanted in requests.items():
            path = place / str(job_id)
            if not wanted.lines:
                path.unlink(missing_ok=True)
                continue
            handle, made = tempfile.mkstemp(prefix=".", dir=place)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                os.fchmod(handle, 0o644)
                file.write(wanted.lines)
            os.replace(made, path)  # noqa: PTH105 - made is a text
    except OSError as error:
        why = f"cannot be written: {error.strerror or error}; make it, owned by the user of slurmsched"
        raise InputError(why, source=str(place)) from error
