"""Buddy cells: HiveD's own example cluster and expected placements, and the rules one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from slurmsched.model import Labels, NodeState, Ranking, Snapshot, frozen
from slurmsched.model.gpu_topology import Fabric, GpuTopology, SiteTopology
from slurmsched.placements.cell_shares import CellShares, GpuCell
from slurmsched.placements.cells import CellPlacement
from slurmsched.resources.placeable_gpus import PlaceableGpus
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines

HIVED = json.loads(
    (Path(__file__).parents[2] / "recorded" / "peers" / "hived" / "expected_placements.json").read_text()
)
RACKS = {  # lowest cell of each DGX-2 node in a rack, and the cell above it
    **{f"0.0.2.{i}": ("rack2", "") for i in range(3)},
    **{f"0.0.{r}.{i}": (f"rack{r}.{i // 2}", f"rack{r}") for r in (3, 4) for i in range(4)},
}
TYPES = {"0.0.0.0": "CT1", "0.0.0.1": "CT1", "0.0.1.0": "DGX2", "0.0.5.0": "DGX2", **dict.fromkeys(RACKS, "DGX2")}
SIZES = {"CT1": 2, "DGX2": 16}
PINNED = ("0.0.3.0", "0.0.3.1")
# Its shares: two, two and two DGX-2 nodes of different racks and one pair; the pinned pair is an account of its own.
SHARES = {"VC1": {"node:DGX2": 6, "cell1:DGX2": 1}, "pinned": {"cell1": 1}, "VC2": {"node:CT1": 1}}
# One Slurm job a gang. Not expressible: group 7 and 9 name cell types of racks or unequal pods.
GANGS = tuple(f"group{i}" for i in (1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 16))


class Bound(NamedTuple):
    """GPU masks of one gang by node."""

    gang: str
    masks: Mapping[str, int]


def dgx2() -> GpuTopology:
    """16 GPUs on one switch, in the pairs, quads and halves that HiveD's example cuts it into (quads left out)."""
    return machines()["dgx-2"]


def cluster(rows: Sequence[dict[str, Any]], held: Sequence[Bound], ids: Mapping[str, int]) -> Snapshot:
    names = sorted(TYPES)
    nodes = [
        {"name": n, "gpus": SIZES[TYPES[n]], "gpu_types": f"gpu:{TYPES[n]}:{SIZES[TYPES[n]]}",
         "partitions": "pinned" if n in PINNED else "gpu"}
        for n in names
    ]  # fmt: skip
    cells = sorted({cell for pair in RACKS.values() for cell in pair if cell})
    parents = dict(RACKS.values())
    level = [2 if c in parents.values() else 1 for c in cells]
    parent = [cells.index(parents[c]) if parents.get(c) else -1 for c in cells]
    fabric = Fabric("tree", Labels.of(cells), frozen(level, np.int8), frozen(parent, np.int32))
    cell = [cells.index(RACKS[n][0]) if n in RACKS else -1 for n in names]
    known = [0 if TYPES[n] == "DGX2" else -1 for n in names]
    topology = SiteTopology((dgx2(),), frozen(known, np.int64), fabric, frozen(cell, np.int64))
    allocations = [
        {"job_id": ids[b.gang], "node": n, "gpus": mask.bit_count(), "gpu_mask": mask}
        for b in held
        for n, mask in b.masks.items()
    ]
    partitions = [{"name": "gpu"}, {"name": "pinned"}]
    return snapshot(rows, nodes, allocations=allocations, partitions=partitions, topology=topology)


def row(gang: str, job_id: int, running: bool) -> dict[str, Any]:
    """The gang as a Slurm job: its virtual cluster is the account, priority -1 the qos `opportunistic`."""
    pods = [pod for pod in HIVED["pods"].values() if pod["group"] == gang]
    pinned, gpu_type = pods[0]["pinned_cell"], pods[0]["gpu_type"].removesuffix("-V100")
    gpus = sum(pod["gpus"] for pod in pods)
    return {
        "job_id": job_id, "gpus": gpus, "nodes": len(pods), "gpu_request": f"gpu:{gpu_type}:{gpus}",
        "account": "pinned" if pinned else pods[0]["vc"], "partition": "pinned" if pinned else "gpu",
        "qos": "opportunistic" if pods[0]["priority"] < 0 else "normal", "state": "RUNNING" if running else "PENDING",
    }  # fmt: skip


def priority(gang: str) -> int:
    return max(pod["priority"] for pod in HIVED["pods"].values() if pod["group"] == gang)


def in_order() -> tuple[dict[str, Mapping[str, int]], dict[str, set[str]]]:
    """The gangs one after another; bound ones stay unless one of higher priority of their virtual cluster comes.
    Where each was bound, and whom it displaced."""
    ids = {gang: i + 1 for i, gang in enumerate(GANGS)}
    bound: dict[str, Mapping[str, int]] = {}
    victims: dict[str, set[str]] = {}
    running: list[str] = []
    for gang in GANGS:
        rows = [row(g, ids[g], running=True) for g in running] + [row(gang, ids[gang], running=False)]
        given = cluster(rows, [Bound(g, bound[g]) for g in running], ids)
        order = sorted([*running, gang], key=lambda g: (-priority(g), ids[g]))
        place = {job: i for i, job in enumerate(given.jobs.job_id.tolist())}
        placement = CellPlacement(SHARES, opportunistic=("opportunistic",))
        made = placement.place(given, Ranking(np.array([place[ids[g]] for g in order])))
        names = {i: g for g, i in ids.items()}
        now = {
            names[int(given.jobs.job_id[r])]: {
                given.nodes.name[made.node[k]]: int(made.gpu_mask[k]) for k in range(first, first + count)
            }
            for r, first, count in zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True)
        }  # fmt: skip
        bound[gang] = now.get(gang, {})
        victims[gang] = set(running) - set(now)
        running = [g for g in [*running, gang] if g in now]
    return bound, victims


def expected(gang: str) -> dict[str, int]:
    pods = [name for name, pod in HIVED["pods"].items() if pod["group"] == gang]
    found = [HIVED["expected_bind"][name] for name in pods if name in HIVED["expected_bind"]]
    return {bind["node"]: sum(1 << g for g in bind["gpus"]) for bind in found}


@pytest.fixture(scope="module")
def hived() -> tuple[dict[str, Mapping[str, int]], dict[str, set[str]]]:
    return in_order()


@pytest.mark.parametrize("gang", [g for g in GANGS if g not in ("group11", "group15", "group16")])
def test_cells__binds_the_gangs_of_hived_where_it_does(hived: Any, gang: str) -> None:
    """The same nodes and the same GPUs."""
    assert hived[0][gang] == expected(gang)


@pytest.mark.parametrize("gang", ["group15", "group16"])
def test_cells__binds_small_nodes_of_hived_whole(hived: Any, gang: str) -> None:
    """One whole CT1 node, as in HiveD; which of the two equal ones is a matter of ties."""
    assert set(expected(gang).values()) == set(hived[0][gang].values())
    assert {TYPES[n] for n in hived[0][gang]} == {"CT1"}


def test_cells__displaces_whom_hived_does(hived: Any) -> None:
    """Pods 16 and 17 (group 11) take the pinned pair from pods 5 and 6 (group 5), and nobody else loses anything."""
    pods = HIVED["pods"]
    preempted = {pods[p]["group"] for p in HIVED["expected_preempt_victims"]["pod16"]}
    assert hived[1]["group11"] == preempted
    assert set(hived[0]["group11"]) == set(PINNED)
    assert not any(hived[1][gang] for gang in GANGS if gang != "group11")


def test_cells__a_displaced_share_goes_on_while_there_is_room(hived: Any) -> None:
    """VC2 has one CT1 node: it is that of the more urgent pod 25, and pod 24 goes on on the other, as in HiveD."""
    assert hived[1]["group16"] == set()
    assert set(hived[0]["group16"]) != set(hived[0]["group15"])


MESH = machines()["dgx-1v"]


def placed(
    shares: Any, jobs: Sequence[Any], nodes: Any = "2x8", qos: tuple[str, ...] = (), fabric: Any = None
) -> dict[int, dict[str, int]]:
    """Job -> node -> mask; jobs: rows, or pairs of row and allocation; ranked by id."""
    rows = [job[0] if isinstance(job, tuple) else job for job in jobs]
    held = [job[1] for job in jobs if isinstance(job, tuple)]
    count = int(nodes.split("x")[0]) if isinstance(nodes, str) else len(nodes)
    topology = SiteTopology((MESH,), frozen([0] * count, np.int64), *(fabric or ()))
    given = snapshot(rows, nodes, allocations=held, topology=topology)
    made = CellPlacement(shares, opportunistic=qos).place(given, Ranking(np.arange(len(rows))))
    return {
        int(given.jobs.job_id[r]): {given.nodes.name[made.node[k]]: int(made.gpu_mask[k]) for k in range(a, a + n)}
        for r, a, n in zip(made.rows.tolist(), made.first.tolist(), made.count.tolist(), strict=True)
    }


def job(job_id: int, account: str, gpus: int, **others: Any) -> dict[str, Any]:
    return {"job_id": job_id, "account": account, "gpus": gpus, "gpu_request": "gpu"} | others


def runs(job_id: int, account: str, node: str, mask: int) -> tuple[dict[str, Any], dict[str, Any]]:
    gpus = mask.bit_count()
    held = {"job_id": job_id, "node": node, "gpus": gpus, "gpu_mask": mask}
    return job(job_id, account, gpus, state="RUNNING"), held


def test_cells__a_tenant_stays_within_its_share() -> None:
    """One socket of four GPUs is team a's: the fifth GPU is not to be had, though 12 are idle."""
    jobs = [job(1, "a", 4), job(2, "a", 1)]
    assert {1} == set(placed({"a": {"socket": 1}}, jobs))


def test_cells__what_others_may_claim_stays_whole() -> None:
    """Team b's share is a node: team a's second socket must come from the node already broken up."""
    jobs = [job(1, "a", 4), job(2, "a", 4), job(3, "b", 8)]
    got = placed({"a": {"socket": 2}, "b": {"node": 1}}, jobs)
    assert [{"n1"}, {"n1"}, {"n2"}] == [set(got[j]) for j in (1, 2, 3)]


def test_cells__splits_the_cell_that_is_broken_up_most() -> None:
    """A socket of n2 is in use, so the next socket cell is its other one, not one of the whole n1."""
    got = placed({"a": {"socket": 1}, "b": {"socket": 1}}, [runs(1, "a", "n2", 0b1111), job(2, "b", 1)])
    assert got[2] == {"n2": 0b10000}


def test_cells__guaranteed_jobs_displace_opportunistic_ones_whatever_the_ranking() -> None:
    """Job 1 of nobody's share holds both nodes and ranks first; team a's job gets its node all the same."""
    row, first = runs(1, "guest", "n1", 255)
    second = {**first, "node": "n2"}
    given = snapshot([row | {"gpus": 16, "nodes": 2}, job(2, "a", 8)], "2x8", allocations=[first, second])
    made = CellPlacement({"a": {"node": 1}}).place(given, Ranking(np.arange(2)))
    assert made.rows.tolist() == [1]


def test_cells__opportunistic_jobs_keep_away_from_guaranteed_ones() -> None:
    """The guest goes to the idle node, beside nobody; a job of the share with the qos `free` counts as a guest too."""
    jobs = [runs(1, "a", "n1", 0b1), job(2, "guest", 2), job(3, "a", 2, qos="free")]
    got = placed({"a": {"node": 1}}, jobs, qos=("free",))
    assert [{"n2"}, {"n2"}] == [set(got[2]), set(got[3])]


def test_cells__broken_nodes_are_no_cells() -> None:
    """n1 drains: the one node of the share is n2, and a second job of a whole node waits."""
    nodes = [
        {"name": f"n{i}", "gpus": 8, "gpu_types": "gpu:v100:8", "state": s} for i, s in ((1, "DRAIN"), (2, "IDLE"))
    ]
    got = placed({"a": {"node": 2}}, [job(1, "a", 8), job(2, "a", 8)], nodes)
    assert got == {1: {"n2": 255}}


@pytest.mark.parametrize("closed", [(), ("0.0.2.1",), ("0.0.3.0", "0.0.0.0")])
def test_shares__what_lies_around_all_nodes_is_what_lies_around_each(closed: Sequence[str]) -> None:
    """The highest unbroken cell around GPU 0 of a node, and the GPUs of the lowest, one by one and for all at once."""
    given = cluster([], [], {})
    state = np.where(given.nodes.name.isin(closed), NodeState.DRAIN, given.nodes.state)
    given = replace(given, nodes=given.nodes.with_columns(state=state))
    shares = CellShares(given, PlaceableGpus.of(given), {})
    each = [shares.breaks(GpuCell(0, (n,), 1), []) for n in range(len(given.nodes))]
    assert each == list(zip(*(column.tolist() for column in shares.unused_around), strict=True))


def test_cells__no_share_is_no_guarantee() -> None:
    """Without shares every job is opportunistic and is served while GPUs last."""
    assert {1, 2} == set(placed({}, [job(1, "a", 8), job(2, "b", 8)]))


def test_cells__guests_are_no_reason_to_break_up_what_other_shares_need() -> None:
    """Of three nodes one is broken up: its other socket is for d, though a guest is there; a and b find a node each."""
    shares = {"a": {"node": 1}, "b": {"node": 1}, "c": {"socket": 1}, "d": {"socket": 1}}
    low, high = 0b1111, 0b11110000
    first = placed(shares, [runs(1, "c", "n1", low), runs(2, "guest", "n1", high), job(3, "d", 4)], "3x8")
    assert first == {1: {"n1": low}, 3: {"n1": high}}
    got = placed(shares, [runs(1, "c", "n1", low), runs(3, "d", "n1", high), job(4, "a", 8), job(5, "b", 8)], "3x8")
    assert set(got) == {1, 3, 4, 5}


def test_cells__no_tenant_makes_way_for_another_within_its_share() -> None:
    """Job 2 of team b ranks before job 3 of team a, and takes the other node; beyond its share team a does make way."""
    shares = {"a": {"socket": 1}, "b": {"node": 1}}
    got = placed(shares, [job(2, "b", 8), runs(3, "a", "n1", 0b1111), runs(4, "guest", "n2", 0b1)])
    assert got == {2: {"n2": 255}, 3: {"n1": 0b1111}}
    beyond = placed(shares, [job(2, "b", 8), runs(3, "a", "n1", 0b1111), runs(4, "a", "n2", 0b1111)])
    assert beyond == {2: {"n2": 255}, 3: {"n1": 0b1111}}
