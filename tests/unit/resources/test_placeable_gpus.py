"""Parts of GPUs that are free."""

from __future__ import annotations

from slurmsched.resources.placeable_gpus import FreeShares
from slurmsched.testing import snapshot


def test_free_shares__two_jobs_hold_parts_of_one_gpu():
    """Job 1 holds 0.3 and job 2 0.5 of GPU 0; job 3 holds GPU 1 whole; GPU 2 is free; the second node has two GPUs."""
    rows = [{"job_id": i, "gpus": 1, "state": "RUNNING", "cpus": 2, "gpu_milli": milli}
            for i, milli in ((1, 300), (2, 500), (3, 1000))]  # fmt: skip
    held = [{"job_id": i, "node": "n1", "gpus": 1, "gpu_mask": mask} for i, mask in ((1, 1), (2, 1), (3, 2))]
    nodes = [{"name": "n1", "gpus": 3, "cpus": 16}, {"name": "n2", "gpus": 2}]
    found = FreeShares.of(snapshot(rows, nodes, allocations=held))
    assert found.gpu_milli.tolist() == [[200, 0, 1000], [1000, 1000, 0]]
    assert found.cpus.tolist()[0] == 10.0
