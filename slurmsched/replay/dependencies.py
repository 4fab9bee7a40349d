"""Dependencies between jobs of a trace: who waits for whom, and whom an end sets free."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from slurmsched.errors import InputError
from slurmsched.replay.requests import Requests
from slurmsched.replay.traces import Trace

KINDS = ("after", "afterany", "afterok", "afternotok")
SINGLETON = "singleton"
_JOB = re.compile(r"\d{1,18}", re.ASCII)


class Dependencies:
    """What is still open. Rows are those of the trace; a dependency on an array is one on each of its tasks.

    open: (J,) int64, jobs that each row waits for. Raises InputError for a text that is not Slurm's, or that uses "?",
    or names a job that is not in the trace.
    """

    def __init__(self, trace: Trace, requests: Requests) -> None:
        self.open = np.zeros(len(trace), np.int64)
        self._waiting: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._rows: dict[int, list[int]] = defaultdict(list)
        if not requests.dependency.isin([""]).all():
            self._link(trace, requests)

    def ended(self, row: int, ok: bool) -> tuple[list[int], list[int]]:
        """The row ended, with or without success. Returns rows now free, and rows that can never start any more."""
        return self._settle(row, {"afterok": ok, "afternotok": not ok, "after": None})

    def started(self, row: int) -> list[int]:
        """The row started; returns rows now free."""
        return self._settle(row, {"after": True}, only="after")[0]

    def _settle(self, row: int, verdict: dict[str, bool | None], only: str = "") -> tuple[list[int], list[int]]:
        free, dead, kept = [], [], []
        for waiter, kind in self._waiting.pop(row, ()):
            if only and kind != only:
                kept.append((waiter, kind))
            elif verdict.get(kind, True) is False:
                dead.append(waiter)
            else:
                self.open[waiter] -= 1
                free += [waiter] if self.open[waiter] == 0 else []
        if kept:
            self._waiting[row] = kept
        return free, dead

    def _link(self, trace: Trace, requests: Requests) -> None:
        for row, (job, array) in enumerate(zip(trace.job_id.tolist(), requests.array_id.tolist(), strict=True)):
            for key in {job, array} - {0}:
                self._rows[key].append(row)
        earlier: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row, text in enumerate(requests.dependency):
            namesakes = earlier[requests.user[row], requests.name[row]]
            for kind, target in self._parsed(text, int(trace.job_id[row]), namesakes):
                self._waiting[target].append((row, kind))
                self.open[row] += 1
            namesakes.append(row)

    def _parsed(self, text: str, job_id: int, namesakes: Sequence[int]) -> Iterator[tuple[str, int]]:
        for part in filter(None, text.split(",")):
            kind, *targets = part.split(":")
            if kind == SINGLETON:
                yield from ((SINGLETON, row) for row in namesakes)
            elif kind in KINDS and targets and all(map(_JOB.fullmatch, targets)):
                for target in targets:
                    if int(target) not in self._rows:
                        raise InputError(f"job {job_id} depends on job {target}, which is not in the trace")
                    yield from ((kind, row) for row in self._rows[int(target)])
            else:
                known = ", ".join((*KINDS, SINGLETON))
                raise InputError(f"job {job_id} has the dependency {part!r}; replayed are {known} with job ids")
