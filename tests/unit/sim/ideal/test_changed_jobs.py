from __future__ import annotations

import math

import numpy as np

from slurmsched.model import JobChanges, Labels, Ranking, Snapshot
from slurmsched.placements.consolidated import Consolidated
from slurmsched.policies.fifo import Fifo
from slurmsched.sim.ideal.changed_jobs import with_changes
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.testing import snapshot

MIXED = (
    {"name": "k1", "partitions": "gpu", "gpus": 4, "gpu_types": "gpu:k80:4", "cpus": 64},
    {"name": "v1", "partitions": "gpu", "gpus": 4, "gpu_types": "gpu:v100:4", "cpus": 64},
)


def given(*jobs: dict, allocations: tuple[dict, ...] = ()) -> Snapshot:
    return snapshot(jobs, MIXED, now_s=100.0, allocations=allocations)


def placed(made: Snapshot) -> dict[int, list[str]]:
    """Nodes by job id after a placement in FIFO order."""
    target = Consolidated().place(made, Ranking(np.arange(len(made.jobs))))
    where = np.repeat(target.rows, target.count)
    return {
        int(made.jobs.job_id[row]): [made.nodes.name[n] for n in target.node[where == row].tolist()]
        for row in target.rows.tolist()
    }


def test_as_wanted__nothing_wanted_is_the_same_snapshot() -> None:
    """Neither no wants, nor a share, which the order follows already, change what is placed."""
    before = given({})
    assert with_changes(before, None) is before
    assert with_changes(before, JobChanges(share=np.array([0.5]))) is before


def test_as_wanted__sends_a_job_to_a_gpu_type() -> None:
    """A waiting job is placed on nodes of the type; one without a wish goes where it may."""
    made = with_changes(given({"gpus": 2}, {"gpus": 4}), JobChanges(gpu_type=Labels.of(["v100", ""])))
    assert placed(made) == {1: ["v1"], 2: ["k1"]}


def test_as_wanted__moves_a_job_from_the_wrong_type() -> None:
    """A running job on another type counts as waiting and its GPUs as free; one on the right type stays."""
    running = {"state": "RUNNING", "gpus": 4}
    held = ({"job_id": 1, "node": "k1", "gpus": 4}, {"job_id": 2, "node": "v1", "gpus": 4})
    before = given(running, running, allocations=held)
    swapped = with_changes(before, JobChanges(gpu_type=Labels.of(["v100", "k80"])))
    assert placed(swapped) == {1: ["v1"], 2: ["k1"]}
    assert swapped.nodes.gpus_used.tolist() == [0, 0]
    stays = with_changes(before, JobChanges(gpu_type=Labels.of(["k80", "v100"])))
    assert stays.jobs.running.tolist() == [True, True]


def test_as_wanted__gives_a_job_another_size() -> None:
    """GPUs, nodes and request follow the size; 0 leaves the job as it asked."""
    made = with_changes(
        given({"gpus": 1, "gpu_request": "gpu:1"}, {"gpus": 2}), JobChanges(gpus=np.array([8, 0], np.int32))
    )
    assert made.jobs.gpus.tolist() == [8, 2]
    assert made.jobs.nodes.tolist() == [2, 1]
    assert made.jobs.gpu_request[0] == "gpu:8"


def test_as_wanted__holds_a_job_back() -> None:
    """A waiting job may not start before its time; one that runs is not stopped."""
    held = ({"job_id": 2, "node": "k1", "gpus": 1},)
    before = given({}, {"state": "RUNNING"}, allocations=held)
    made = with_changes(before, JobChanges(start_s=np.array([200.0, math.inf])))
    assert placed(made) == {2: ["k1"]}


class Later(Fifo):
    """FIFO in which every job waits until 160."""

    def rank(self, snapshot: Snapshot) -> Ranking:
        order = super().rank(snapshot).order
        return Ranking(order, changes=JobChanges(start_s=np.full(len(order), 160.0)))


def test_direct_planner__looks_again_when_a_job_may_start() -> None:
    """The plan is to be renewed at the earliest time at which a job that is held back may start."""
    plan = DirectPlanner(Later(), Consolidated()).plan(given({}))
    assert plan.target is not None
    assert (len(plan.target.rows), plan.next_look_s) == (0, 160.0)
