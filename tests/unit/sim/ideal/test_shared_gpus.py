"""Guests and hosts: what a placement is shown, and the target that comes of it, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.model import JobChanges, Ranking, Snapshot
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.policies.fifo import Fifo
from slurmsched.protocols import Placement
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, hosts_of, with_guests, without_guests
from slurmsched.testing import snapshot


def two(*rows: dict[str, object], used: int = 0, nodes: str = "1x2") -> Snapshot:
    """Jobs 1, 2, ... of one GPU; each with `mask` holds those GPUs of the first node. used: mask of the node."""
    jobs = [{"job_id": n, "gpus": 1, "state": "RUNNING" if "mask" in row else "PENDING", "start_s": 0.0}
            | {key: value for key, value in row.items() if key != "mask"} for n, row in enumerate(rows, 1)]  # fmt: skip
    held = [{"job_id": n, "node": "n0", "gpus": 1, "gpu_mask": row["mask"]} for n, row in enumerate(rows, 1)
            if "mask" in row]  # fmt: skip
    made = snapshot(jobs, nodes, now_s=10.0)
    names = list(made.nodes.name)
    made = snapshot(jobs, nodes, now_s=10.0, allocations=[{**row, "node": names[0]} for row in held])
    busy = np.zeros((2, len(names)), np.int64)
    busy[:, 0] = used.bit_count(), used
    return replace(made, nodes=made.nodes.with_columns(gpus_used=busy[0].astype(np.int32), gpu_mask_used=busy[1]))


def beside(*ids: int) -> JobChanges:
    return JobChanges(beside=np.array(ids, np.int64))


def test_hosts_of__is_the_row_of_a_job_that_is_there_and_as_large() -> None:
    """Job 9 is not there, and job 4 asks for two GPUs: jobs 2 and 3 are on their own."""
    here = two({}, {}, {}, {"gpus": 2}, {})
    assert hosts_of(here, beside(-1, 9, 4, -1, 1)).tolist() == [-1, -1, -1, -1, 0]  # type: ignore[union-attr]
    assert hosts_of(here, None) is None
    assert hosts_of(here, JobChanges(share=np.ones(5))) is None
    assert hosts_of(snapshot(()), beside()).tolist() == []  # type: ignore[union-attr]


def test_without_guests__a_guest_neither_holds_nor_waits() -> None:
    """Job 2 shares GPU 0 with job 1, which is held on; job 3 waits to join job 1, and no placement sees it."""
    here = two({"mask": 1}, {"mask": 1}, {}, used=1)
    alone = without_guests(here, Ranking(np.arange(3)), np.array([-1, 0, 0]))
    assert alone.allocations.job_id.tolist() == [1]
    assert (alone.nodes.gpus_used.tolist(), alone.nodes.gpu_mask_used.tolist()) == ([1], [1])
    assert alone.jobs.running.tolist() == [True, False, False]
    assert Consolidated().place(alone, Ranking(np.arange(3))).rows.tolist() == [0]


@pytest.mark.parametrize(("order", "stays"), [([0, 1], 1), ([1, 0], 2)])
def test_without_guests__of_two_that_part_the_first_keeps_the_gpu(order: list[int], stays: int) -> None:
    """The other is to move: it counts as waiting, and the shared GPU is not free."""
    here = two({"mask": 2}, {"mask": 2}, used=2)
    alone = without_guests(here, Ranking(np.array(order)), np.array([-1, -1]))
    assert (alone.allocations.job_id.tolist(), alone.nodes.gpus_used.tolist()) == ([stays], [1])
    assert alone.jobs.pending.tolist() == [stays == 2, stays == 1]


def test_without_guests__a_gpu_that_only_a_guest_holds_is_free() -> None:
    """Job 1 holds GPU 1 and is to join job 2, which waits."""
    here = two({"mask": 2}, {}, used=2)
    alone = without_guests(here, Ranking(np.arange(2)), np.array([1, -1]))
    assert (len(alone.allocations), alone.nodes.gpu_mask_used.tolist()) == (0, [0])


@pytest.mark.parametrize("placement", [Consolidated(), Count()])
def test_with_guests__are_where_their_hosts_are(placement: Placement) -> None:
    """A gang over two nodes and its guest; the guest of a job that finds no room waits with it."""
    rows = [{"gpus": 4}, {"gpus": 4}, {"gpus": 2}, {"gpus": 2}]
    here, host = two(*rows, nodes="2x2"), np.array([-1, 0, -1, 2])
    base = placement.place(without_guests(here, Ranking(np.arange(4)), host), Ranking(np.arange(4)))
    made = with_guests(base, host)
    assert (made.rows.tolist(), made.host.tolist()) == ([0, 1], [-1, 0])
    entries = [slice(first, first + count) for first, count in zip(made.first, made.count, strict=True)]
    assert made.node[entries[0]].tolist() == made.node[entries[1]].tolist()
    assert made.gpus[entries[1]].sum() == 4


def test_plan__names_the_host_of_a_guest_and_nobody_without_the_want() -> None:
    """Three jobs on two GPUs; the third has no room but beside the first."""

    class Sharing(Fifo):
        preemptive = True

        def rank(self, given: Snapshot) -> Ranking:
            return replace(super().rank(given), changes=beside(-1, -1, 1))

    plan = DirectPlanner(Sharing(), Consolidated()).plan(two({}, {}, {}))
    assert plan.target is not None
    assert (plan.target.rows.tolist(), plan.target.host.tolist()) == ([0, 1, 2], [-1, -1, 0])
    target = DirectPlanner(Fifo(), Consolidated(), "skip").plan(two({}, {}, {})).target
    assert target is not None and (target.rows.tolist(), target.host.tolist()) == ([0, 1], [])
