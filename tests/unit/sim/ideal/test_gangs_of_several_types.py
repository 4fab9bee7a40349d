"""Gangs on GPUs of several types at once: whole or not at all, whatever the placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, JobChanges, Labels, Ranking, Snapshot
from slurmsched.placements.baselines import AnyFit, BestFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.policies.fifo import Fifo
from slurmsched.protocols import Placement
from slurmsched.sim.ideal.changed_jobs import with_changes
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, placed_whole
from slurmsched.testing import snapshot

TYPED = [{"name": f"{name}{n}", "gpus": 4, "gpu_types": f"gpu:{name}:4", "cpus": 64}
         for name in ("k", "v") for n in (1, 2)]  # fmt: skip
PLACEMENTS = [Consolidated(), AnyFit(), BestFit()]


def wants(*requests: str) -> JobChanges:
    return JobChanges(gpus_by_type=Labels.of(requests))


def placed(given: Snapshot, wanted: JobChanges, placement: Placement = Consolidated()) -> dict[int, dict[str, int]]:  # noqa: B008
    """GPUs by node and job id, in submission order of the jobs."""
    ranking = Ranking(np.arange(len(given.jobs)), changes=wanted)
    target = placed_whole(placement.place, with_changes(given, wanted), ranking)
    return {
        int(given.jobs.job_id[row]): {given.nodes.name[target.node[k]]: int(target.gpus[k])
                                      for k in range(first, first + count)}
        for row, first, count in zip(target.rows.tolist(), target.first.tolist(), target.count.tolist(), strict=True)
    }  # fmt: skip


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda each: type(each).__name__)
def test_placed_whole__each_part_on_its_type(placement: Placement) -> None:
    """Two of one type and four of the other, and a job beside them that has one type: nobody gets another's."""
    found = placed(snapshot([{"gpus": 6}, {"gpus": 4}], TYPED), wants("gpu:k:2,gpu:v:4", ""), placement)
    of_type = {name: sum(gpus for node, gpus in found[1].items() if node[0] == name) for name in "kv"}
    assert of_type == {"k": 2, "v": 4}
    assert sum(found[2].values()) == 4


def test_placed_whole__half_a_gang_is_none() -> None:
    """All V100 go to the first job: the second has none, though its K80 are free, and the third has those."""
    jobs = [{"gpus": 8}, {"gpus": 4}, {"gpus": 8}]
    found = placed(snapshot(jobs, TYPED), wants("gpu:v:8", "gpu:k:2,gpu:v:2", "gpu:k:8"))
    assert {job: sum(gpus.values()) for job, gpus in found.items()} == {1: 8, 3: 8}


def test_placed_whole__many_that_do_not_fit() -> None:
    """Thirty gangs need both types, of which one is taken: none has any, and the job behind them has what it asks."""
    jobs = [{"gpus": 8}, *[{"gpus": 2}] * 30, {"gpus": 8}]
    found = placed(snapshot(jobs, TYPED), wants("gpu:v:8", *["gpu:k:1,gpu:v:1"] * 30, "gpu:k:8"))
    assert sorted(found) == [1, 32]


class Deaf:
    """A placement that starts whom it should not yet."""

    def place(self, given: Snapshot, ranking: Ranking) -> Assignments:
        awake = given.jobs.with_columns(eligible_s=np.zeros(len(given.jobs)))
        return Consolidated().place(replace(given, jobs=awake), ranking)


def test_placed_whole__a_placement_that_starts_jobs_too_early_is_refused() -> None:
    """It would be asked for ever."""
    with pytest.raises(ConfigError, match="eligible_s"):
        placed(snapshot([{"gpus": 8}, {"gpus": 4}], TYPED), wants("gpu:v:8", "gpu:k:2,gpu:v:2"), Deaf())


def running(*held: tuple[str, int], **job: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    gpus = sum(count for _, count in held)
    return {"state": "RUNNING", "gpus": gpus, "job_id": 1, **job}, [
        {"job_id": 1, "node": node, "gpus": count} for node, count in held
    ]


def test_placed_whole__a_gang_that_runs_stays_where_it_is() -> None:
    """It holds what it is to hold."""
    row, held = running(("k2", 2), ("v2", 2))
    given = snapshot([row, {"gpus": 2, "job_id": 2}], TYPED, allocations=held)
    assert placed(given, wants("gpu:k:2,gpu:v:2", ""))[1] == {"k2": 2, "v2": 2}


@pytest.mark.parametrize("held", [(("k1", 1), ("v1", 3)), (("k1", 4),), (("k1", 2), ("k2", 2))])
def test_placed_whole__a_gang_on_other_types_moves(held: tuple[tuple[str, int], ...]) -> None:
    """Other parts, or one type alone: it waits for what it is to hold, and its GPUs are free for that."""
    row, allocations = running(*held)
    given = snapshot([row], TYPED, allocations=allocations)
    assert with_changes(given, wants("gpu:k:2,gpu:v:2")).jobs.pending.all()
    assert sorted(placed(given, wants("gpu:k:2,gpu:v:2"))[1].values()) == [2, 2]


def test_placed_whole__who_loses_a_part_loses_all() -> None:
    """A more urgent job takes the V100 of a gang that runs: its K80 go to the next one."""
    row, held = running(("k2", 2), ("v2", 2))
    jobs = [{"gpus": 8, "job_id": 2}, {"gpus": 8, "job_id": 3}, row]
    given = snapshot(jobs, TYPED, allocations=held)
    wanted = wants("gpu:k:2,gpu:v:2", "gpu:v:8", "gpu:k:8")  # rows ascend by job id
    target = placed_whole(
        Consolidated().place, with_changes(given, wanted), Ranking(np.array([1, 2, 0]), changes=wanted)
    )
    assert target.rows.tolist() == [1, 2]


def test_placed_whole__on_a_node_of_both_types_a_job_is_named_once() -> None:
    """Both parts fall on one node: one entry with the sum."""
    both = [{"name": "n1", "gpus": 8, "gpu_types": "gpu:k:4,gpu:v:4", "cpus": 64}]
    assert placed(snapshot([{"gpus": 4}], both), wants("gpu:k:2,gpu:v:2")) == {1: {"n1": 4}}


def test_placed_whole__where_only_counts_matter() -> None:
    """Count knows no types: all is on the first node."""
    found = placed(snapshot([{"gpus": 4}], TYPED), wants("gpu:k:2,gpu:v:2"), Count())
    assert found == {1: {"k1": 4}}


class Halves(Fifo):
    """FIFO in which every job of two GPUs or more is half on each type."""

    preemptive: ClassVar[bool] = True

    def rank(self, snapshot: Snapshot) -> Ranking:
        gpus = snapshot.jobs.gpus.tolist()
        halves = [f"gpu:k:{count // 2},gpu:v:{count - count // 2}" if count > 1 else "" for count in gpus]
        return Ranking(super().rank(snapshot).order, changes=JobChanges(gpus_by_type=Labels.of(halves)))


def test_direct_planner__names_gangs_on_several_types() -> None:
    """The target has the gangs of the policy, rows as in the snapshot."""
    plan = DirectPlanner(Halves(), Consolidated()).plan(snapshot([{"gpus": 4}, {"gpus": 8}, {"gpus": 1}], TYPED))
    assert plan.target is not None
    assert plan.target.rows.tolist() == [0, 1, 2]
    assert [plan.target.gpus[first : first + count].sum() for first, count in
            zip(plan.target.first.tolist(), plan.target.count.tolist(), strict=True)] == [4, 8, 1]  # fmt: skip
