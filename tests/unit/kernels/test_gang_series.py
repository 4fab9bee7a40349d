"""Many gangs in one call, against one gang after another, on fixed draws."""

from __future__ import annotations

from dataclasses import fields
from unittest.mock import patch

import numpy as np
import pytest

from slurmsched.model import Labels, Ranking, frozen
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.placements import gang_walk
from slurmsched.placements.linked import Linked
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines
from tests.property.test_rings import crowded


@pytest.mark.parametrize("seed", range(12))
def test_serve_series__chooses_as_one_gang_after_another(seed: int) -> None:
    """The same GPUs for the same jobs."""
    at, ranking = crowded(seed)
    found = []
    for least in (1, 1 << 60):
        with patch.object(gang_walk, "FEW_GANGS", least):
            found.append(Linked().place(at, ranking))
    for spec in fields(found[0]):
        one, other = (getattr(each, spec.name).tolist() for each in found)
        assert one == other, spec.name


def test_serve_series__finds_the_tighter_of_two_fabrics() -> None:
    """The switches have no common one above them: n3 and n4 have just the room for the gang of two nodes."""
    apart = Fabric("apart", Labels.of(["s0", "s1"]), frozen([1, 1], np.int8), frozen([-1, -1], np.int32))
    wired = SiteTopology((machines()["dgx-1v"],), frozen([0] * 4, np.int64), apart, frozen([0, 0, 1, 1], np.int64))
    runs = [{"job_id": 9, "gpus": 4, "state": "RUNNING"}, {"job_id": 10, "gpus": 4, "state": "RUNNING"}]
    held = [
        {"job_id": 9, "node": "n3", "gpus": 4, "gpu_mask": 15},
        {"job_id": 10, "node": "n4", "gpus": 4, "gpu_mask": 15},
    ]
    gang = {"job_id": 1, "gpus": 8, "nodes": 2, "gpu_request": "gpu"}
    nodes = [{"name": f"n{n}", "gpus": 8, "gpu_types": "gpu:8"} for n in range(1, 5)]
    at = snapshot([gang, *runs], nodes, allocations=held, topology=wired)
    for least in (1, 1 << 60):
        with patch.object(gang_walk, "FEW_GANGS", least):
            made = Linked().place(at, Ranking(np.array([1, 2, 0])))
        place = made.rows.tolist().index(0)
        assert made.node[made.first[place] : made.first[place] + made.count[place]].tolist() == [2, 3]


def test_serve_series__without_a_fabric_and_jobs_of_no_gpu() -> None:
    """Jobs without GPUs get none, and a second pair finds no node that is left."""
    at = snapshot([{"gpus": 0}, {"gpus": 2}, {"gpus": 4, "nodes": 2}, {"gpus": 2}], "2x2")
    with patch.object(gang_walk, "FEW_GANGS", 1):
        assert Linked().place(at, Ranking(np.array([1, 0, 2, 3]))).rows.tolist() == [1, 3]
