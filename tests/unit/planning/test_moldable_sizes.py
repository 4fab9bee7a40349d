"""Sizes of jobs that may start with fewer GPUs, by what is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.model import JobChanges, Override, Ranking, Rights, SetSize, Site, Snapshot
from slurmsched.model.gpu_selection import counted
from slurmsched.model.ordering import ordered
from slurmsched.planning.planner import Planner
from slurmsched.testing import snapshot

NOW = 1_000.0
ON = LeverConfig(size=True, moldable=True)
JOB = {"gpus": 8, "nodes": 1, "gpus_by": "node", "gpu_request": "gpu:8", "submit_s": 900.0, "time_limit_s": 10_000.0,
       "comment": "slurmsched: moldable=yes min_gpus=2 max_gpus=8 dur=1000s", "expected_start_s": NOW + 5_000.0,
       "tasks": 1, "cpus": 1}  # fmt: skip
FIRM = {"gpus": 4, "gpu_request": "gpu:4", "comment": ""}
GANG = {
    "comment": "slurmsched: moldable=yes min_gpus=2 max_gpus=16 dur=1000s",
    "gpus": 16,
    "nodes": 2,
    "tasks": 2,
    "cpus": 2,
    "gpu_request": "gpu:16",
}


@dataclass(frozen=True)
class Chosen:
    """In order of submission, with these changes."""

    preemptive: ClassVar[bool] = False
    changes: JobChanges | None = None

    def rank(self, given: Snapshot) -> Ranking:
        return Ranking(ordered(given.jobs), changes=self.changes)


def queue(*rows: dict[str, Any], used: tuple[int, ...] = (4, 6)) -> Snapshot:
    """These jobs wait, and so many GPUs of each node of eight are in use."""
    jobs = [JOB | {"job_id": number, **row} for number, row in enumerate(rows, 1)]
    made = snapshot(jobs, f"{len(used)}x8", now_s=NOW, site=Site(rights=Rights.OPERATOR))
    return replace(made, nodes=made.nodes.with_columns(gpus_used=np.array(used, made.nodes.gpus_used.dtype)))


def sizes(
    given: Snapshot, lever: LeverConfig = ON, changes: JobChanges | None = None, records: tuple[Override, ...] = ()
) -> list[int]:
    """GPUs that the plan chooses for each job, 0 = none. Each that the policy does not give is written."""
    planner = Planner(Chosen(changes), scope=ScopeConfig(partitions=("gpu",)), lever=lever)
    plan = planner.plan(replace(given, overrides=records))
    gpus = None if plan.ranking is None or plan.ranking.changes is None else plan.ranking.changes.gpus
    chosen = [0] * len(given.jobs) if gpus is None else gpus.tolist()
    written = {step.job_id: counted(step.new) for step in plan.actions if isinstance(step, SetSize)}
    if changes is None and not records:
        assert written == {row + 1: size for row, size in enumerate(chosen) if size}
    return chosen


@pytest.mark.parametrize(
    ("row", "used", "size"),
    [
        ({}, (4, 6), 4),  # the most that a node has free
        ({}, (0, 6), 0),  # its own is free
        ({}, (7, 7), 0),  # less than min_gpus
        (GANG, (0, 4, 8), 8),  # one whole node
        (GANG, (0, 0, 8), 0),
        ({"comment": "slurmsched: min_gpus=2 max_gpus=8 dur=1000s"}, (4, 6), 0),  # it did not agree
        ({"comment": "slurmsched: moldable=yes min_gpus=2 max_gpus=8"}, (4, 6), 0),  # how long it runs is not known
        ({"comment": "slurmsched: moldable=yes min_gpus=2 dur=1000s"}, (4, 6), 0),  # its most is not known
        ({"comment": "slurmsched: moldable=yes min_gpus=2 max_gpus=3 dur=1000s"}, (4, 6), 3),
        ({"array_job_id": 1, "array_tasks": 20}, (4, 6), 0),  # tasks that start later keep the size
        ({"gpus_by": "socket"}, (4, 6), 0),
        ({"features_asked": "a*1"}, (4, 6), 0),  # which nodes it may have is not known
        ({"expected_start_s": float("nan")}, (4, 6), 0),  # Slurm has not looked at it yet
        ({"time_limit_s": 1_900.0}, (4, 6), 0),  # with half its GPUs it runs 2,000 s
        ({"expected_start_s": NOW + 900.0}, (4, 6), 0),  # it ends at 2,900 s with its own size, else at 3,000
        ({"expected_start_s": NOW + 1_100.0}, (4, 6), 4),
        ({"state": "RUNNING", "start_s": 950.0}, (4, 6), 0),
    ],
)
def test_moldable__starts_with_what_is_free_if_it_ends_no_later(
    row: dict[str, Any], used: tuple[int, ...], size: int
) -> None:
    """In whole nodes for a gang, never below min_gpus, and within its time limit."""
    assert sizes(queue(row, used=used)) == [size]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (({}, {}, {}), [4, 2, 0]),  # the four of n1, the two of n2, nothing
        ((FIRM, {}), [0, 2]),  # the first starts as it asks
        ((FIRM | {"array_job_id": 1, "array_tasks": 2, "gpus": 2, "gpu_request": "gpu:2"}, {}), [0, 2]),
        ((FIRM | {"gpus": 5, "gpu_request": "gpu:5"}, {}), [0, 4]),  # it fits nowhere
        ((FIRM | {"reason": "QOSMaxGRESPerUser"}, {}), [0, 4]),  # GPUs do not help it
        (({"comment": "slurmsched: moldable=yes min_gpus=2 dur=1000s"}, {}), [0, 4]),  # it keeps its own
        (({"time_limit_s": 1_500.0}, {}), [0, 4]),  # as this one
    ],
)
def test_moldable__no_gpu_is_given_twice(rows: tuple[dict[str, Any], ...], expected: list[int]) -> None:
    """Those that jobs before it take are not free, whatever these jobs are."""
    assert sizes(queue(*rows)) == expected


@pytest.mark.parametrize(
    ("used", "start_s", "size"),
    [
        ((4, 8), 60.0, 4),  # Slurm expects the smaller size to start soon
        ((4, 8), float("nan"), 4),
        ((2, 8), 60.0, 4),
        ((5, 8), 60.0, 0),
        ((0, 8), 60.0, 0),  # its own is free
    ],
)
def test_moldable__a_size_stays_while_it_is_free(used: tuple[int, ...], start_s: float, size: int) -> None:
    """Else a job would get its own and the smaller one in turn, and lose its place in the backfill each time."""
    (planned,) = (record for record in planned_records() if record.field == "size")
    row = {"gpus": 4, "gpu_request": "gpu:4", "expected_start_s": NOW + start_s}
    assert sizes(queue(row, used=used), records=(replace(planned, values=()),)) == [size]


def planned_records() -> tuple[Override, ...]:
    """The records of a plan that gives a job four GPUs."""
    return Planner(Chosen(), scope=ScopeConfig(partitions=("gpu",)), lever=ON).plan(queue({}, used=(4, 8))).overrides


def test_moldable__is_off_by_default_and_leaves_the_policys_sizes() -> None:
    """Both lever.size and lever.moldable are needed."""
    assert sizes(queue({}), LeverConfig(size=True)) == sizes(queue({}), LeverConfig(moldable=True)) == [0]
    assert sizes(queue({}, {}), changes=JobChanges(gpus=np.array([6, 0], np.int32))) == [6, 4]
