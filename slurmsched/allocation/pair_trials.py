"""Pairs of jobs on the same GPUs that are tried: what both made alone and together, and whether the pair pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from slurmsched.allocation.job_memory import JobMemory, recall, remembered
from slurmsched.allocation.job_times import active
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import hint_column

_SEEN = ("done", "ran_s", "alone_made", "alone_s", "shared_made", "shared_s", "partner", "guest")
REFUSED = "refused_pairs"  # in a carry
NOBODY = -1
PAYS = 1.0  # least sum of the shares of their speeds that two jobs keep: as much as in turns
ROUNDING = 1e-9


@dataclass(slots=True, eq=False)
class PairTrials:
    """What was seen of each job, by row of jobs. (N,) each.

    done: progress at this look, 0 to 1; 0 of a job that tells none.
    ran_s: run time at this look.
    alone_made, alone_s: progress on GPUs of its own, and the run time that it took.
    shared_made, shared_s: the same in the pair that it is in.
    partner: row of the other job of its pair, NOBODY = none.
    guest: whether it is the one on the GPUs of the other, 0 or 1.
    refused: job ids of pairs that did not pay, the lower first.
    Source: Xiao et al. (Gandiva), OSDI '18, section 4.2: a pair stays if it makes more than both in turns.
    """

    done: Floats
    ran_s: Floats
    alone_made: Floats
    alone_s: Floats
    shared_made: Floats
    shared_s: Floats
    partner: Int64s
    guest: Floats
    refused: set[tuple[int, int]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """What the carry of a snapshot has, with what jobs made since the last look. Pairs of which one is gone end."""
        jobs = snapshot.jobs
        known = {name: np.nan_to_num(column) for name, column in recall(jobs, snapshot.carry, _SEEN).items()}
        first = ~np.isfinite(recall(jobs, snapshot.carry, ("ran_s",))["ran_s"])
        done = np.nan_to_num(hint_column(jobs, "progress"))
        new = np.where(first, 0.0, np.maximum(done - known["done"], 0.0))
        ran_s = np.where(first, 0.0, np.maximum(jobs.executed_s - known["ran_s"], 0.0))
        had = np.where(first, float(NOBODY), known["partner"]).astype(np.int64)
        partner = _partners(snapshot, had)
        alone, shared = had == NOBODY, partner >= 0
        together = shared & (ran_s > 0) & (ran_s[np.maximum(partner, 0)] > 0)
        return cls(
            done, jobs.executed_s,
            known["alone_made"] + np.where(alone, new, 0.0), known["alone_s"] + np.where(alone, ran_s, 0.0),
            np.where(shared, known["shared_made"] + np.where(together, new, 0.0), 0.0),
            np.where(shared, known["shared_s"] + np.where(together, ran_s, 0.0), 0.0),
            partner, np.where(shared, known["guest"], 0.0), _refused(snapshot),
        )  # fmt: skip

    def profiled(self, trial_s: float) -> Floats:
        """Progress in a second on GPUs of its own, 0 of a job that was not seen there for so long. (N,)."""
        seen = (self.alone_s >= trial_s - ROUNDING) & (self.alone_made > 0)
        return np.divide(self.alone_made, self.alone_s, out=np.zeros(len(self.done)), where=seen)

    def kept(self, trial_s: float) -> Floats:
        """Share of its speed alone that each job keeps in its pair; infinity while that is not known. (N,)."""
        alone = self.profiled(trial_s)
        seen = (self.partner >= 0) & (self.shared_s >= trial_s - ROUNDING) & (alone > 0)
        rate = np.divide(self.shared_made, self.shared_s, out=np.zeros(len(alone)), where=seen)
        return np.divide(rate, alone, out=np.full(len(alone), np.inf), where=seen)

    def judge(self, snapshot: Snapshot, trial_s: float) -> None:
        """Part the pairs that do not pay, and remember them."""
        kept = self.kept(trial_s)
        for row in np.flatnonzero(self.guest > 0).tolist():
            other = int(self.partner[row])
            if kept[row] + kept[other] < PAYS:
                self.refused.add(_name(snapshot, row, other))
                self.part(row)

    def was_refused(self, snapshot: Snapshot, one: int, other: int) -> bool:
        """Whether a pair of these rows did not pay."""
        return _name(snapshot, one, other) in self.refused

    def pair(self, guest: int, host: int) -> None:
        """The first is on the GPUs of the second from now on."""
        self.partner[guest], self.partner[host], self.guest[guest] = host, guest, 1.0
        self._forget(guest, host)

    def part(self, row: int) -> None:
        """The pair of this row ends."""
        other = int(self.partner[row])
        self.partner[[row, other]], self.guest[[row, other]] = NOBODY, 0.0
        self._forget(row, other)

    def _forget(self, *rows: int) -> None:
        self.shared_made[list(rows)], self.shared_s[list(rows)] = 0.0, 0.0

    def hosts(self, snapshot: Snapshot) -> Int64s:
        """Id of the job on whose GPUs each is to run, NOBODY = on its own. (N,)."""
        found, guests = np.full(len(self.partner), NOBODY, np.int64), self.guest > 0
        found[guests] = snapshot.jobs.job_id[self.partner[guests]]
        return found

    def carry(self, snapshot: Snapshot, more: Mapping[str, Floats]) -> dict[str, Any]:
        """What the next look needs. more: columns of the policy, (N,) each."""
        ids = snapshot.jobs.job_id
        partner = np.where(self.partner >= 0, ids[self.partner] if len(ids) else 0, NOBODY).astype(np.float64)
        columns = {name: getattr(self, name) for name in _SEEN} | {"partner": partner}
        memory: JobMemory = remembered(snapshot.jobs, {**columns, **more})
        return {**memory, REFUSED: [list(pair) for pair in sorted(self.refused)]}


def _name(snapshot: Snapshot, one: int, other: int) -> tuple[int, int]:
    low, high = sorted(snapshot.jobs.job_id[[one, other]].tolist())
    return low, high


def _partners(snapshot: Snapshot, had: Int64s) -> Int64s:
    """Row of the partner of each job, NOBODY where one of both is gone or has another. had: (N,) job ids. (N,)."""
    row_of = {job: row for row, job in enumerate(snapshot.jobs.job_id.tolist())}
    found, here = np.full(len(had), NOBODY, np.int64), active(snapshot)
    for row, job in enumerate(had.tolist()):
        other = row_of.get(job, NOBODY)
        if other >= 0 and had[other] == snapshot.jobs.job_id[row] and here[row] and here[other]:
            found[row] = other
    return found


def _refused(snapshot: Snapshot) -> set[tuple[int, int]]:
    """The refused pairs of a carry of which both jobs are still there."""
    carried, here = snapshot.carry.get(REFUSED, ()), set(snapshot.jobs.job_id.tolist())
    pairs = [(int(one), int(other)) for one, other in carried]
    return {pair for pair in pairs if here.issuperset(pair)}
