"""How good the GPUs are that a job got, beside the best it could have had when it started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.model import Fabric, SiteTopology, Snapshot, frozen
from slurmsched.model.columns import Labels
from slurmsched.planning.job_overrides import JobOverrides, records_of
from slurmsched.planning.quality import placed
from slurmsched.testing import snapshot
from tests.unit.planning.node_lists.node_list_cases import list_overrides, mesh_of

BEFORE_S, NOW_S = 100.0, 200.0


def run(job_id: int, gpus: int, start_s: float, **columns: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "state": "RUNNING", "start_s": start_s, "submit_s": 1.0, **columns}


def cluster(jobs: list[dict[str, Any]], held: dict[int, tuple[str, tuple[int, ...]]], now_s: float, nodes: int = 2,
            **others: Any) -> Snapshot:  # fmt: skip
    """held: node and GPUs of each job."""
    rows = [{"job_id": job, "node": node, "gpus": len(gpus), "gpu_mask": sum(1 << g for g in gpus)}
            for job, (node, gpus) in held.items()]  # fmt: skip
    return snapshot(jobs, f"{nodes}x8", now_s=now_s, allocations=rows, topology=mesh_of(nodes), **others)


EMPTY = cluster([], {}, BEFORE_S)
FULL = {"1": run(1, 8, 50.0), "2": run(2, 6, 50.0)}


@pytest.mark.parametrize(
    ("gpus", "ratio", "note"), [((0, 3), 1.0, ""), ((0, 1), 0.5, "n1 had GPUs"), ((0, 5), 0.16, "n1 had")]
)
def test_placed__the_pair_beside_the_best_free_one(gpus, ratio, note):
    """On an empty DGX-1V the best pair has two lanes of 25 GB/s; one lane is half of it, PCIe 8 GB/s."""
    (found,) = placed(EMPTY, cluster([run(7, 2, 150.0)], {7: ("n1", gpus)}, NOW_S))
    assert (found.ratio, found.missed, found.best_gb_per_s) == (ratio, bool(note), 50.0)
    assert found.note.startswith(note)


def test_placed__what_others_held_then_was_not_to_be_had():
    """Only GPUs 0 and 1 of n1 were free: a single link was the best of the moment."""
    jobs, held = [run(1, 8, 50.0), run(2, 6, 50.0)], {1: ("n2", tuple(range(8))), 2: ("n1", (2, 3, 4, 5, 6, 7))}
    before = cluster(jobs, held, BEFORE_S)
    (found,) = placed(before, cluster([*jobs, run(7, 2, 150.0)], held | {7: ("n1", (0, 1))}, NOW_S))
    assert (found.ratio, found.note) == (1.0, "")


@pytest.mark.parametrize(("end_s", "ratio"), [(140.0, 0.5), (160.0, 1.0), (float("nan"), 1.0)])
def test_placed__what_was_given_back_before_the_start_was_to_be_had(end_s, ratio):
    """A job on n2 that ended before, after, or nobody knows when (then it counts as having held them)."""
    jobs, held = [run(2, 6, 50.0), run(1, 8, 50.0)], {1: ("n2", tuple(range(8))), 2: ("n1", (2, 3, 4, 5, 6, 7))}
    ended = {**run(1, 8, 50.0), "state": "COMPLETED", "end_s": end_s}
    gone = [ended] if end_s == end_s else []
    now = cluster([jobs[0], *gone, run(7, 2, 150.0)], {2: held[2], 7: ("n1", (0, 1))}, NOW_S)
    (found,) = placed(cluster(jobs, held, BEFORE_S), now)
    assert found.ratio == ratio


def test_placed__in_the_order_of_the_starts():
    """The second job could not have what the first had taken."""
    jobs = [run(1, 8, 50.0), run(2, 4, 50.0)]
    held = {1: ("n2", tuple(range(8))), 2: ("n1", (4, 5, 6, 7))}
    new = {8: ("n1", (0, 3)), 7: ("n1", (1, 2))}
    now = cluster([*jobs, run(8, 2, 150.0), run(7, 2, 160.0)], held | new, NOW_S)
    found = placed(cluster(jobs, held, BEFORE_S), now)
    assert [(one.job_id, one.ratio) for one in found] == [(8, 1.0), (7, 1.0)]


def test_placed__only_nodes_it_could_have_had():
    """n1 is better and excluded; our own pin is no wish of the user's."""
    (barred,) = placed(EMPTY, cluster([run(7, 2, 150.0, nodes_excluded="n2")], {7: ("n1", (0, 3))}, NOW_S))
    assert barred.ratio == 1.0
    pin = list_overrides(7, "n1", submit_s=1.0, since_s=1.0)
    full = cluster([run(1, 6, 50.0)], {1: ("n1", (2, 3, 4, 5, 6, 7))}, BEFORE_S)
    now = cluster([run(1, 6, 50.0), run(7, 2, 150.0, nodes_asked="n1")],
                  {1: ("n1", (2, 3, 4, 5, 6, 7)), 7: ("n1", (0, 1))}, NOW_S)  # fmt: skip
    assert [one.ratio for one in placed(full, now)] == [1.0]
    pinned = placed(full, replace(now, overrides=records_of((pin,))))
    assert [(one.ratio, one.pinned) for one in pinned] == [(0.5, True)]


def test_placed__old_runs_single_gpus_and_unknown_wiring_are_left_out():
    """A run that was there before is not looked at again; one GPU has no link; no class, no bandwidth."""
    jobs = [run(1, 2, 50.0), run(2, 1, 150.0)]
    held = {1: ("n1", (0, 5)), 2: ("n1", (1,))}
    assert placed(cluster(jobs[:1], {1: held[1]}, BEFORE_S), cluster(jobs, held, NOW_S)) == ()
    unknown = replace(mesh_of(2), node_class=frozen([-1, -1], np.int64))
    now = replace(cluster([run(7, 2, 150.0)], {7: ("n1", (0, 5))}, NOW_S), topology=unknown)
    assert placed(EMPTY, now) == ()


BLOCKS = Fabric("block", Labels.of(["a", "b"]), frozen([1, 1], np.int8), frozen([-1, -1], np.int32),
                Labels.of(["n1", "n2", "n3", "n4"]), frozen([0, 0, 1, 1], np.int32))  # fmt: skip


def gang_on(
    *names: str, fabric: Fabric = BLOCKS, classes: bool = True, pins: tuple[JobOverrides, ...] = (), **asks: Any
) -> list[Any]:
    """What is told of a gang of whole nodes that started on these, while a job held n1."""
    wired = mesh_of(4) if classes else SiteTopology(node_class=frozen([-1] * 4, np.int64))
    blocks = replace(wired, fabric=fabric, cell=frozen([0, 0, 1, 1], np.int64))
    jobs = [run(1, 8, 50.0), run(7, 8 * len(names), 150.0, nodes=len(names), **asks)]
    rows = [{"job_id": job, "node": node, "gpus": 8, "gpu_mask": 255}
            for job, node in ((1, "n1"), *((7, name) for name in names))]  # fmt: skip
    before = snapshot(jobs[:1], "4x8", now_s=BEFORE_S, allocations=rows[:1], topology=blocks)
    now = snapshot(jobs, "4x8", now_s=NOW_S, allocations=rows, topology=blocks, overrides=records_of(pins))
    return list(placed(before, now))


def test_placed__a_gang_over_two_cells_though_one_had_room():
    """Block b had two free nodes; the gang got one of each block. Told also where no node's GPUs are known."""
    for classes in (True, False):
        (found,) = gang_on("n2", "n3", classes=classes)
        assert (found.ratio, found.note) == (0.5, "it spans 2 of the lowest cells, b had room for it all")


@pytest.mark.parametrize(("nodes", "pinned"), [("n[2-3]", True), ("n[3-4]", False)])
def test_placed__a_gang_on_a_list_of_ours(nodes, pinned):
    """It is told whether the gang runs on just the nodes that it was given."""
    (found,) = gang_on("n2", "n3", pins=(list_overrides(7, nodes, submit_s=1.0, since_s=1.0),))
    assert (found.pinned, found.ratio) == (pinned, 0.5)


def test_placed__a_segment_that_is_not_within_one_block():
    """--segment=2 over both blocks; what the same gang could have had is another miss only if it asked for no less."""
    (found,) = gang_on("n2", "n3", segment_nodes=2)
    assert (found.ratio, found.missed) == (0.0, True)
    assert found.note.startswith("1 of its 1 segment of 2 nodes is not within one block; it spans 2")
    (alone,) = gang_on("n2", "n3", segment_nodes=1)
    assert (alone.ratio, alone.note) == (1.0, "")


def test_placed__what_a_gang_asks_of_nodes_need_not_be_understood_to_see_a_broken_segment():
    """A constraint in brackets; without a segment nothing is told of such a gang."""
    (found,) = gang_on("n2", "n3", segment_nodes=2, features_asked="[a|b]")
    assert found.note == "1 of its 1 segment of 2 nodes is not within one block"
    assert gang_on("n2", "n3", features_asked="[a|b]") == []


@pytest.mark.parametrize(("most", "ratio"), [(1, 0.5), (2, 1.0), (0, 1.0)])
def test_placed__more_switches_than_it_asked_for(most, ratio):
    """No switch had room for it all; on a tree, --switches=1 is broken all the same. Blocks know no such wish."""
    tree = replace(BLOCKS, form="tree")
    (found,) = gang_on("n2", "n3", "n4", fabric=tree, switches=most)
    note = "it asked for at most 1 switch, and is on 2" if most == 1 else ""
    assert (found.ratio, found.note) == (ratio, note)
    (of_blocks,) = gang_on("n2", "n3", "n4", switches=most)
    assert "switches" not in of_blocks.note
