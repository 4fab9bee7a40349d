"""Placements against what the projects they come from chose. Data: tests/recorded/peers."""

from __future__ import annotations

import csv
import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from slurmsched.model import Ranking, frozen
from slurmsched.model.gpu_topology import GpuTopology, LinkKind, SiteTopology
from slurmsched.placements.linked import Linked
from slurmsched.placements.mapa import Mapa, predicted_of
from slurmsched.placements.topology_aware import TopologyAware, distances, job_utility
from slurmsched.protocols import Placement
from slurmsched.resources import gpu_sets
from slurmsched.testing import snapshot
from tests.reference import gpu_set_search as reference

PEERS = Path(__file__).parents[2] / "recorded" / "peers"
MACHINES = json.loads((PEERS / "mapa" / "topologies.json").read_text())
UNIT = 16_000  # of link weights, in 1 / (GB/s)


class Job(NamedTuple):
    job_id: int
    gpus: int
    submit_s: float
    duration_s: float
    comment: str = ""


class Start(NamedTuple):
    job: Job
    node: int
    mask: int


def mapa_machine(name: str) -> GpuTopology:
    """A machine as MAPA has it: NVLinks, and 10 GB/s between all other pairs."""
    gpus, half = MACHINES[name]["gpus"], MACHINES[name]["gpus_per_socket"]
    speed, lanes = np.zeros((gpus, gpus)), np.zeros((gpus, gpus), np.int16)
    for a, b, gb_per_s, count in MACHINES[name]["links"]:
        speed[a, b] = speed[b, a] = gb_per_s
        lanes[a, b] = lanes[b, a] = count
    kind = np.where(lanes > 0, LinkKind.NVLINK, LinkKind.SYS) * (1 - np.eye(gpus, dtype=np.int64))
    numa = np.arange(gpus) // half
    return GpuTopology.build(name, gpus, kind=kind, lanes=lanes, bandwidth_gb_per_s=speed, numa=numa)


def rows(*path: str, **options: Any) -> list[dict[str, str]]:
    with PEERS.joinpath(*path).open() as file:
        return list(csv.DictReader(file, **options))


def run(placement: Placement, topology: GpuTopology, nodes: int, jobs: Sequence[Job], blocks: bool) -> Iterator[Start]:
    """Starts of jobs, first come first served on idle nodes. blocks: nobody passes a job that does not fit."""
    waiting, running, ends, now_s = sorted(jobs, key=lambda job: job.submit_s), [], [], 0.0
    while waiting:
        here = [job for job in waiting if job.submit_s <= now_s]
        for start in _starts(placement, topology, nodes, running, here[:1] if blocks else here):
            yield start
            waiting.remove(start.job)
            running.append(start)
            heapq.heappush(ends, (now_s + start.job.duration_s, start.job.job_id))
            if blocks:
                break
        else:
            came = [job.submit_s for job in waiting if job.submit_s > now_s]
            now_s = min([*came, *(ends[0][:1] if ends else [])])
            while ends and ends[0][0] <= now_s:
                _, job_id = heapq.heappop(ends)
                running = [start for start in running if start.job.job_id != job_id]


def _starts(
    placement: Placement, topology: GpuTopology, nodes: int, running: Sequence[Start], waiting: Sequence[Job]
) -> list[Start]:
    table = [
        *({"job_id": r.job.job_id, "gpus": r.job.gpus, "state": "RUNNING"} for r in running),
        *({"job_id": j.job_id, "gpus": j.gpus, "gpu_request": "gpu", "comment": j.comment} for j in waiting),
    ]
    held = [{"job_id": r.job.job_id, "node": f"n{r.node + 1}", "gpus": r.job.gpus, "gpu_mask": r.mask} for r in running]
    wired = SiteTopology((topology,), frozen([0] * nodes, np.int64))
    given = snapshot(table, f"{nodes}x{topology.gpus}", allocations=held, topology=wired)
    place = {job.job_id: i for i, job in enumerate([r.job for r in running] + list(waiting))}
    order = np.argsort([place[j] for j in given.jobs.job_id.tolist()])
    made = placement.place(given, Ranking(order))
    by_id = {job.job_id: job for job in waiting}
    return [
        Start(by_id[int(given.jobs.job_id[row])], int(made.node[first]), int(made.gpu_mask[first]))
        for row, first in zip(made.rows.tolist(), made.first.tolist(), strict=True)
        if int(given.jobs.job_id[row]) in by_id
    ]


# -- MAPA


@pytest.mark.parametrize("machine", ["dgx-v", "dgx-p", "summit"])
def test_mapa__sums_of_idle_machines_are_the_best_there_are(machine: str) -> None:
    """DGX-1V: the published 100/125/175/210/275/325/400. Elsewhere brute force decides; dgx-p k=7 is published 10 low,
    summit k >= 4 higher than its links allow."""
    topology = mapa_machine(machine)
    table, full = gpu_sets.set_table(topology, "sum"), (1 << topology.gpus) - 1
    weight, best = gpu_sets.link_weights(topology), {}
    for k in range(2, topology.gpus + 1):
        sets = reference.subsets(full, k)
        best[k] = max(reference.ring_value(weight, reference.bits(s), False)[1] for s in sets) // UNIT
    ours = {k: int(table.quality[table.best[full, k], 2]) // UNIT for k in best}
    assert best == ours
    published = {int(k): total for k, total in MACHINES[machine]["ideal_ring_bw_sum"].items()}
    wrong = {"dgx-v": set(), "dgx-p": {7}, "summit": {4, 5, 6}}[machine]
    assert wrong == {k for k in best if best[k] != published[k]}


def test_mapa__predicts_the_published_bandwidth() -> None:
    """Every choice of its Greedy and Preserve policies that is the best ring of its set by the model."""
    topology, seen = mapa_machine("dgx-v"), set()
    for row in rows("mapa", "placements_dgx-v_jobs100_s1_preserve.csv"):
        if row["bw_sensitive"] == "1":
            mask = sum(1 << (int(g) - 1) for g in row["gpus_1based"].split())
            seen.add(mask)
            assert float(row["predicted_bw_gbps"]) == pytest.approx(predicted_of(topology, mask), abs=1e-5)
    assert len(seen) > 10


def mapa_jobs(seed: int) -> list[Job]:
    lines = (PEERS / "mapa" / f"jobs100_s{seed}.csv").read_text().splitlines()
    calm = {"0": "slurmsched: topo=any", "1": ""}
    cut = [line.split(",") for line in lines]
    return [Job(i + 1, int(c[0]), 0.0, float(c[3]), calm[c[4]]) for i, c in enumerate(cut)]


def mean_share(starts: Sequence[Start], topology: GpuTopology) -> float:
    """Mean of ring sum over the best of an idle machine, jobs of two GPUs and more."""
    table, full = gpu_sets.set_table(topology, "sum"), (1 << topology.gpus) - 1
    shares = [
        table.quality[s.mask, 2] / table.quality[table.best[full, s.job.gpus], 2] for s in starts if s.job.gpus > 1
    ]
    return float(np.mean(shares))


def published_share(policy: str, seed: int) -> float:
    found = rows("mapa", f"placements_dgx-v_jobs100_s{seed}_{policy}.csv")
    return float(np.mean([float(row["norm_link_bw_sum"]) for row in found if int(row["num_gpus"]) > 1]))


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("placement", [Mapa("greedy"), Linked("sum")], ids=["mapa-greedy", "linked-sum"])
def test_mapa__greedy_rings_are_as_good_as_published(placement: Placement, seed: int) -> None:
    """At least 0.98 of the ideal, and not below what MAPA's own program reached; its baseline is far below."""
    topology = mapa_machine("dgx-v")
    ours = mean_share(list(run(placement, topology, 1, mapa_jobs(seed), blocks=True)), topology)
    assert ours >= 0.98
    assert ours >= published_share("greedy", seed) - 0.005
    assert published_share("baseline", seed) < 0.9


@pytest.mark.parametrize("seed", [1, 3])
def test_mapa__preserve_gives_sensitive_jobs_the_published_bandwidth(seed: int) -> None:
    """Mean predicted bandwidth of sensitive jobs of two GPUs and more: within 2 % of MAPA's own program, or above."""
    topology = mapa_machine("dgx-v")
    starts = list(run(Mapa(), topology, 1, mapa_jobs(seed), blocks=True))
    ours = np.mean([predicted_of(topology, s.mask) for s in starts if s.job.gpus > 1 and not s.job.comment])
    found = rows("mapa", f"placements_dgx-v_jobs100_s{seed}_preserve.csv")
    theirs = np.mean(
        [float(r["predicted_bw_gbps"]) for r in found if int(r["num_gpus"]) > 1 and r["bw_sensitive"] == "1"]
    )
    assert ours >= 0.98 * theirs


# -- Topology-Aware

FARTHEST = (40.0, 60.0)  # its worst costs for two and three GPUs


def minsky() -> GpuTopology:
    """4 P100 of an IBM Power8 node: NVLink pairs on two sockets."""
    lanes, socket = np.zeros((4, 4), np.int16), np.array([0, 0, 1, 1])
    for a, b in ((0, 1), (2, 3)):
        lanes[a, b] = lanes[b, a] = 2
    kind = np.where(lanes > 0, LinkKind.NVLINK, LinkKind.SYS) * (1 - np.eye(4, dtype=np.int64))
    speed = np.where(lanes > 0, 40.0, 8.0) * (1 - np.eye(4))
    return GpuTopology.build("minsky", 4, kind=kind, lanes=lanes, bandwidth_gb_per_s=speed, numa=socket)


@pytest.mark.parametrize("policy", ["bf", "fcfs", "utilityaware-policy-neutral-postponed-False"])
def test_topology_aware__has_the_published_utilities(policy: str) -> None:
    """Every job of the published placements: its cost of communication, and its utility by both costs."""
    placement, machine, seen = TopologyAware(farthest=FARTHEST), minsky(), 0
    for row in rows("gpu-topo-aware", f"placements_workloads-100_5x4_{policy}.csv"):
        members = sorted(int(g) for g in row["gpus"].split())
        cost = placement.communication(machine, members)
        worst = FARTHEST[len(members) - 2] if len(members) > 1 else 1.0
        assert float(row["communication"]) == pytest.approx(cost * worst if cost > 0.01 else cost, abs=1e-3)
        assert float(row["job_utility"]) == pytest.approx(job_utility(cost, float(row["interference"])), abs=1e-4)
        seen += len(members) > 1
    assert seen > 50


def test_topology_aware__has_the_published_distances() -> None:
    """1 over NVLink, 20 across sockets."""
    assert distances(minsky()).tolist() == [[0, 1, 20, 20], [1, 0, 20, 20], [20, 20, 0, 1], [20, 20, 1, 0]]


@pytest.mark.parametrize(
    ("placement", "most"),
    [(TopologyAware(farthest=FARTHEST), 6), (TopologyAware(least_utility=0.5, farthest=FARTHEST), 0), (Linked(), 6)],
    ids=["topology-aware", "topology-aware-waits", "linked"],
)
def test_topology_aware__pairs_seldom_cross_sockets(placement: Placement, most: int) -> None:
    """Of 52 two-GPU jobs on 5 machines of 4 at most 6 (published 6 to 8); none if a job may wait for a better place."""
    found = rows("gpu-topo-aware", "placements_workloads-100_5x4_utilityaware-policy-neutral-postponed-False.csv")
    jobs = [
        Job(int(r["job_id"]) + 1, int(r["gpus_req"]), float(r["submit"]), float(r["end"]) - float(r["start"]))
        for r in found
    ]
    pairs = [s.mask for s in run(placement, minsky(), 5, jobs, blocks=False) if s.job.gpus == 2]
    assert len(pairs) == 52
    assert sum(mask not in (0b0011, 0b1100) for mask in pairs) <= most
