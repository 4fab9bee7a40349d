"""What Slurm's picks of GPUs depend on of each job, asked once: cores that runs hold, requests of jobs that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.jobs import Jobs
from slurmsched.model.pins import Wish
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_records import MOST_SINGLY, JobRecord, ask_jobs
from slurmsched.slurm.picks import RUNS, cpus_of, union

_Mark = tuple[Any, ...]
_Cpus = Mapping[str, int]  # node -> mask of CPUs


class PickRecords:
    """Remembers what each job told, so that a cycle asks for jobs that are new or look otherwise than before.

    read_wish: of a job's id and record. A job whose record is in doubt has no wish, and no CPUs. A change
    that squeue does not show, such as another switch count, is found when the job is read again right before it is
    written (Recheck).
    """

    def __init__(self, commands: Commands, read_wish: Callable[[int, JobRecord], Wish | None]) -> None:
        self._commands, self._read_wish = commands, read_wish
        self._runs: dict[int, tuple[_Mark, _Cpus]] = {}
        self._waits: dict[int, tuple[_Mark, Wish | None]] = {}

    def read(
        self, jobs: Jobs, *, cores: bool, among: Bools | None = None
    ) -> tuple[dict[str, int], tuple[Wish, ...]]:  # fmt: skip
        """CPUs that are held on each node, and the requests of pending jobs of several GPUs. Raises SlurmError.

        cores: whether anybody asks for the CPUs; none are told else. among: (N,) bool, the only jobs whose requests
        anybody asks for; None = all.
        """
        runs = _run_marks(jobs, np.flatnonzero(jobs.is_state(RUNS) & cores))
        asked = jobs.pending & (jobs.gpus > 1)
        waits = _wait_marks(jobs, np.flatnonzero(asked if among is None else asked & among))
        new_runs, new_waits = _news(self._runs, runs), _news(self._waits, waits)
        if missing := [*new_runs, *new_waits]:
            names = dict(zip(jobs.job_id.tolist(), jobs.name, strict=True))
            answer = ask_jobs(self._commands, {job: names[job] for job in missing}, len(jobs))
            for job, record in answer.records.items():
                if job in new_runs:
                    self._runs[job] = (runs[job], cpus_of(record))
                if job in new_waits:
                    self._waits[job] = (waits[job], self._read_wish(job, record))
            if len(answer.doubtful) <= MOST_SINGLY:  # each was asked for alone: it stays in doubt while it looks so
                self._runs |= {job: (runs[job], {}) for job in answer.doubtful & new_runs}
                self._waits |= {job: (waits[job], None) for job in answer.doubtful & new_waits}
        self._runs = {job: self._runs[job] for job in runs if job in self._runs}
        self._waits = {job: self._waits[job] for job in waits if job in self._waits}
        return union(cpus for _, cpus in self._runs.values()), tuple(wish for _, wish in self._waits.values() if wish)

    def forget(self, jobs: Iterable[int]) -> None:
        """Ask for these anew."""
        for job in jobs:
            self._runs.pop(job, None)
            self._waits.pop(job, None)


def _news(known: Mapping[int, tuple[_Mark, Any]], marks: Mapping[int, _Mark]) -> frozenset[int]:
    return frozenset(job for job, mark in marks.items() if job not in known or known[job][0] != mark)


def _run_marks(jobs: Jobs, rows: Int64s) -> dict[int, _Mark]:
    """By job what changes when it runs anew, is resized or ends."""
    columns = (jobs.start_s, jobs.cpus, jobs.state)
    return _marks(jobs, rows, [*(column[rows].tolist() for column in columns), jobs.node_list.take(rows)])


def _wait_marks(jobs: Jobs, rows: Int64s) -> dict[int, _Mark]:
    """By job what squeue shows of its request, and its name, by which its record is read."""
    columns = (jobs.submit_s, jobs.memory_mib, jobs.nodes, jobs.cpus)
    texts = (jobs.gpu_request, jobs.features_asked, jobs.name)
    return _marks(jobs, rows, [*(column[rows].tolist() for column in columns), *(text.take(rows) for text in texts)])


def _marks(jobs: Jobs, rows: Int64s, columns: Iterable[Iterable[Any]]) -> dict[int, _Mark]:
    return dict(zip(jobs.job_id[rows].tolist(), zip(*columns, strict=True), strict=True))
