"""GPUs that jobs want, that nodes may give, and who holds which, against the plain twins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.kernels.free_gpus import givable, wanted_of
from slurmsched.model import Snapshot, frozen
from slurmsched.model.gpu_topology import SiteTopology
from slurmsched.resources.placeable_gpus import PlaceableGpus, whole_gpu_masks
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines
from tests.reference import pile as reference
from tests.reference.placeable import placeable


@pytest.mark.parametrize("seed", range(10))
def test_wanted_of__agrees_with_reference(seed: int) -> None:
    """What a job asks for while it waits, and holds while it runs; allocations of other jobs count for none."""
    chance = np.random.default_rng(seed)
    job_id, holder = np.arange(2, 8), np.sort(chance.integers(1, 10, 6))
    standing, asked = chance.integers(0, 3, 6), chance.integers(1, 9, 6).astype(np.int32)
    gpus = chance.integers(1, 5, 6).astype(np.int32)
    found = wanted_of(job_id, standing, asked, holder, gpus)
    assert found.tolist() == reference.wanted_of(job_id, standing, asked, holder, gpus)


@pytest.mark.parametrize("seed", range(10))
def test_givable__agrees_with_reference(seed: int) -> None:
    """What jobs of the snapshot hold, and what is free on nodes that take jobs; node -1 is none of these."""
    chance = np.random.default_rng(seed)
    closed, capacity = chance.random(4) < 0.3, np.full(4, 8, np.int32)
    node, gpus = chance.integers(-1, 4, 5), chance.integers(1, 3, 5).astype(np.int32)
    used = chance.integers(0, 9, 4).astype(np.int32)
    found = givable(closed, capacity, used, node, gpus)
    assert found.tolist() == reference.givable(closed, capacity, used, node, gpus)


def muddled(seed: int) -> Snapshot:
    """Up to 7 nodes by ascending name or not, and 11 jobs by ascending id or not. Some hold GPUs, shown or not, or MIG
    devices. Some jobs and one node are gone."""
    chance = np.random.default_rng(seed)
    count, sizes = int(chance.integers(1, 8)), chance.choice([4, 8], 8).tolist()
    nodes: list[dict[str, Any]] = [
        {"name": f"n{n}", "gpus": sizes[n], "state": str(chance.choice(["IDLE", "MIXED", "DRAIN", "DOWN"])),
         "gpu_mask_used": (mask := int(chance.integers(0, 1 << sizes[n]))), "gpus_used": mask.bit_count()}
        for n in range(count + 1)
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
        held.append({"job_id": int(chance.choice([*ids, 21])), "node": f"n{chance.integers(0, count + 1)}",
                     "gpus": gpus, "gpu_mask": mask if chance.integers(5) else 0,
                     "gpu_type": str(chance.choice(["", "a100", "1g.5gb"]))})  # fmt: skip
    known = frozen(chance.choice([-1, 0], count), np.int64)
    made = snapshot(jobs, nodes, allocations=held, topology=SiteTopology((machines()["dgx-1v"],), known))
    return replace(made, nodes=made.nodes.take(chance.permutation(count)))


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
