"""Sizes of jobs that may start with fewer GPUs, by what is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig
from slurmsched.model import JobChanges, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.planning.moldable_sizes import moldable_sizes
from slurmsched.testing import snapshot

NOW = 1_000.0
ON = LeverConfig(size=True, moldable=True)
JOB = {"gpus": 8, "nodes": 1, "gpus_by": "node", "gpu_request": "gpu:8", "submit_s": 900.0, "time_limit_s": 10_000.0,
       "comment": "slurmsched: moldable=yes min_gpus=2 dur=1000s"}  # fmt: skip
GANG = {"gpus": 16, "nodes": 2, "tasks": 2, "cpus": 2, "gpu_request": "gpu:16"}


def queue(*rows: dict[str, Any], used: tuple[int, ...] = (4, 6)) -> Snapshot:
    """These jobs wait, and so many GPUs of each node of eight are in use."""
    jobs = [JOB | {"job_id": number, **row} for number, row in enumerate(rows, 1)]
    made = snapshot(jobs, f"{len(used)}x8", now_s=NOW)
    return replace(made, nodes=made.nodes.with_columns(gpus_used=np.array(used, made.nodes.gpus_used.dtype)))


def sizes(given: Snapshot, lever: LeverConfig = ON, changes: JobChanges | None = None) -> list[int]:
    every = np.ones(len(given.jobs), np.bool_)
    made = moldable_sizes(Ranking(ordered(given.jobs), changes=changes), given, every, lever)
    gpus = None if made.changes is None else made.changes.gpus
    return [0] * len(given.jobs) if gpus is None else gpus.tolist()


@pytest.mark.parametrize(
    ("row", "used", "size"),
    [
        ({}, (4, 6), 4),  # the most that a node has free
        ({}, (0, 6), 0),  # its own is free
        ({}, (7, 7), 0),  # less than min_gpus
        (GANG, (0, 4, 8), 8),  # one whole node
        (GANG, (0, 0, 8), 0),
        ({"comment": "slurmsched: min_gpus=2 dur=1000s"}, (4, 6), 0),  # it did not agree
        ({"comment": "slurmsched: moldable=yes min_gpus=2"}, (4, 6), 0),  # how long it runs is not known
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


def test_moldable__no_gpu_is_given_twice() -> None:
    """The first gets the four of n1, the second the two of n2, the third nothing."""
    assert sizes(queue({}, {}, {})) == [4, 2, 0]


def test_moldable__is_off_by_default_and_leaves_the_policys_sizes() -> None:
    """Both lever.size and lever.moldable are needed."""
    assert sizes(queue({}), LeverConfig(size=True)) == sizes(queue({}), LeverConfig(moldable=True)) == [0]
    assert sizes(queue({}, {}), changes=JobChanges(gpus=np.array([6, 0], np.int32))) == [6, 4]
