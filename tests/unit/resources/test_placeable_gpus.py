"""Parts of GPUs that are free."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.model import Snapshot, frozen
from slurmsched.model.gpu_topology import SiteTopology
from slurmsched.resources.placeable_gpus import FreeShares, PlaceableGpus, whole_gpu_masks
from slurmsched.testing import snapshot
from slurmsched.topology.published_hardware import machines
from tests.reference.placeable import placeable


def muddled(seed: int) -> Snapshot:
    """Up to 7 nodes and 11 jobs by ascending id or not; some hold GPUs, shown or not, or MIG devices, some are gone."""
    chance = np.random.default_rng(seed)
    count, sizes = int(chance.integers(1, 8)), chance.choice([4, 8], 7).tolist()
    nodes: list[dict[str, Any]] = [
        {"name": f"n{n}", "gpus": sizes[n], "state": str(chance.choice(["IDLE", "MIXED", "DRAIN", "DOWN"])),
         "gpu_mask_used": (mask := int(chance.integers(0, 1 << sizes[n]))), "gpus_used": mask.bit_count()}
        for n in range(count)
    ]  # fmt: skip
    ids = chance.permutation(20)[: int(chance.integers(0, 12))] + 1
    states = ["RUNNING", "RUNNING", "PENDING", "COMPLETING", "SUSPENDED"]
    jobs = [
        {"job_id": job_id, "gpus": int(chance.integers(0, 9)), "cpus": int(chance.integers(0, 9)),
         "memory_mib": float(chance.integers(0, 9)), "state": str(chance.choice(states))}
        for job_id in (np.sort(ids) if chance.integers(2) else ids).tolist()
    ]  # fmt: skip
    held = []
    for _ in range(int(chance.integers(0, 14))):
        mask = int(chance.integers(0, 256))
        gpus = mask.bit_count() if chance.integers(3) else int(chance.integers(0, 5))
        held.append({"job_id": int(chance.integers(1, 22)), "node": f"n{chance.integers(0, count)}", "gpus": gpus,
                     "gpu_mask": mask if chance.integers(5) else 0,
                     "gpu_type": str(chance.choice(["", "a100", "1g.5gb"]))})  # fmt: skip
    known = frozen(chance.choice([-1, 0], count), np.int64)
    return snapshot(jobs, nodes, allocations=held, topology=SiteTopology((machines()["dgx-1v"],), known))


@pytest.mark.parametrize("seed", range(60))
def test_placeable_gpus__agree_with_reference(seed: int) -> None:
    """The same GPUs to place, and the same held by each job on each node."""
    given = muddled(seed)
    made, held = PlaceableGpus.of(given), PlaceableGpus.of(given).allocated
    capacity, blind, entries = placeable(given, whole_gpu_masks(given).tolist())
    assert (made.capacity.tolist(), made.blind.tolist()) == (capacity, blind)
    keys, columns = zip(held.row.tolist(), held.node.tolist(), strict=True), (held.mask, held.gpus, held.cpus)
    cells = zip(*(column.tolist() for column in (*columns, held.memory_mib)), strict=True)
    assert dict(zip(keys, cells, strict=True)) == entries
    assert held.count.tolist() == [sum(row == job for row, _ in entries) for job in range(len(given.jobs))]
    assert held.first.tolist() == (np.cumsum(held.count) - held.count).tolist()


def test_free_shares__two_jobs_hold_parts_of_one_gpu():
    """Job 1 holds 0.3 and job 2 0.5 of GPU 0; job 3 holds GPU 1 whole; GPU 2 is free; the second node has two GPUs."""
    rows = [{"job_id": i, "gpus": 1, "state": "RUNNING", "cpus": 2, "gpu_milli": milli}
            for i, milli in ((1, 300), (2, 500), (3, 1000))]  # fmt: skip
    held = [{"job_id": i, "node": "n1", "gpus": 1, "gpu_mask": mask} for i, mask in ((1, 1), (2, 1), (3, 2))]
    nodes = [{"name": "n1", "gpus": 3, "cpus": 16}, {"name": "n2", "gpus": 2}]
    found = FreeShares.of(snapshot(rows, nodes, allocations=held))
    assert found.gpu_milli.tolist() == [[200, 0, 1000], [1000, 1000, 0]]
    assert found.cpus.tolist()[0] == 10.0
