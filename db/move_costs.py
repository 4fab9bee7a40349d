"""What moves cost, as seen: how long a job that we moved ran until it was further than it had been before.

Pure. Only jobs that got a signal and report progress (hints `ckpt` and `progress`) are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any

import numpy as np
import orjson

from slurmsched.db.journal_file import as_line
from slurmsched.model.hints import parse_hints
from slurmsched.model.jobs import Jobs
from slurmsched.model.operations import Operation, OperationStage
from slurmsched.model.snapshot import Snapshot

KEPT = 5  # latest moves of a user's jobs of one name
LEAST = 3  # fewest measurements for a median
GROUPS = 1_000  # of user and name: those measured last
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A job that waits after a move, or runs again. run: number of that run. done: share done before it, 0 to 1."""

    first_submit_s: float
    run: int
    done: float


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """What moves of jobs cost, and the measurements under way.

    open: jobs under measurement.
    costs: of each user and job name the latest moves [s], groups in the order of their last one.
    """

    open: Mapping[int, MovedJob] = field(default_factory=dict)
    costs: Mapping[Group, tuple[float, ...]] = field(default_factory=dict)


def observe_moves(moves: MoveCosts, snapshot: Snapshot) -> MoveCosts:
    """The moves after this look: `moves` itself if it adds nothing."""
    jobs, requeued_runs = snapshot.jobs, _requeued_runs(snapshot)
    waiting, costs = dict[int, MovedJob](), dict(moves.costs)
    for row in np.flatnonzero(np.isin(jobs.job_id, [*moves.open, *(job for job, _ in requeued_runs)])).tolist():
        job_id, run, done = int(jobs.job_id[row]), int(jobs.restarts[row]), parse_hints(jobs.comment[row]).progress
        first_s, before = float(jobs.first_submit_s[row]), moves.open.get(job_id)
        known = before is not None and (before.first_submit_s, before.run) == (first_s, run)
        if done is None or not isfinite(first_s) or jobs.finished[row]:
            continue
        if jobs.pending[row] and (known or (job_id, run) in requeued_runs):
            waiting[job_id] = MovedJob(first_s, run, done)
        elif known and before is not None and (not jobs.running[row] or done <= before.done):
            waiting[job_id] = before
        elif known:
            _add(costs, (jobs.user[row], jobs.name[row]), float(jobs.run_s[row]))
    found = MoveCosts(waiting, costs)
    return moves if found == moves else found


def move_columns(moves: MoveCosts, jobs: Jobs) -> dict[str, Any]:
    """moved_cost_s and moves_seen of each row of jobs: the median of the latest moves of its group, and how many they
    are; NaN and 0 where they are too few. Each (N,)."""
    cost_s, seen = np.full(len(jobs), np.nan), np.zeros(len(jobs), np.int32)
    users, names = ({name: code for code, name in enumerate(each.names)} for each in (jobs.user, jobs.name))
    for (user, name), costs in moves.costs.items():
        if len(costs) >= LEAST and user in users and name in names:
            rows = (jobs.user.codes == users[user]) & (jobs.name.codes == names[name])
            cost_s[rows], seen[rows] = median(costs), len(costs)
    return {"moved_cost_s": cost_s, "moves_seen": seen}


def encode_moves(moves: MoveCosts) -> str:
    """The moves as JSON."""
    open_ = [[job, each.first_submit_s, each.run, each.done] for job, each in moves.open.items()]
    return as_line({"open": open_, "costs": [[*group, list(costs)] for group, costs in moves.costs.items()]}).decode()


def decode_moves(text: str) -> MoveCosts:
    """The moves again; none if the text is not of this form: they are measured anew."""
    try:
        stored = orjson.loads(text)
        open_ = {
            int(job): MovedJob(float(first_s), int(run), float(done)) for job, first_s, run, done in stored["open"]
        }
        costs = {(str(user), str(name)): tuple(map(float, each)) for user, name, each in stored["costs"]}
    except (ValueError, TypeError, KeyError):
        return MoveCosts()
    return MoveCosts(open_, costs)


def _requeued_runs(snapshot: Snapshot) -> frozenset[tuple[int, int]]:
    """Job and number of the next run of each victim that was asked to save itself and then to go."""
    operations: Iterable[Operation] = (*snapshot.past_operations, *snapshot.operations)
    victims = (victim for operation in operations if _requeued(operation) for victim in operation.victims)
    return frozenset((victim.job_id, victim.restarts + 1) for victim in victims if victim.signal)


def _requeued(operation: Operation) -> bool:
    """Whether its victims were told to go: not yet, or never, where it was given up, which its note says."""
    return operation.stage == OperationStage.REQUEUED or (
        operation.stage in (OperationStage.CLEANING, OperationStage.CLOSED) and not operation.note
    )


def _add(costs: dict[Group, tuple[float, ...]], group: Group, cost_s: float) -> None:
    """Note a move as the latest one; groups that were not measured for longest are forgotten."""
    costs[group] = (*costs.pop(group, ()), cost_s)[-KEPT:]
    while len(costs) > GROUPS:
        del costs[next(iter(costs))]
