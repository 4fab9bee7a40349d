"""Held GPUs by squeue's counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model import Labels
from slurmsched.slurm.cluster_state import held_by_squeue


@pytest.mark.parametrize(
    ("hosts", "tres", "request_", "expected"),
    [
        ("n1", "gres/gpu=4,gres/gpu:a100=4", "gpu:4", (("n1", "gpu:a100:4"),)),
        ("n1", "gres/gpu=4", "gpu:a100:4", (("n1", "gpu:a100:4"),)),
        ("n1", "gres/gpu=3", "gpu:a100:2", (("n1", "gpu:3"),)),
        ("n1", "", "gpu:a100:2,shard:1", (("n1", "gpu:a100:2,shard:1"),)),
        ("n[1-2]", "gres/gpu=4", "gpu:4", (("n1", "gpu:2"), ("n2", "gpu:2"))),
        ("n[1-3]", "gres/gpu=5", "gpu:5", (("n1", "gpu:2"), ("n2", "gpu:2"), ("n3", "gpu:1"))),
        ("n1", "gres/gpu=what", "gpu:1", (("n1", "gres/gpu=what"),)),
    ],
)
def test_told__takes_counts_from_alloc_tres_or_the_request(hosts, tres, request_, expected):
    """AllocTRES is what is held; where it names no GPUs, or no types of as many, the request tells more."""
    columns = {
        "job_id": np.array([7, 8]), "node_list": Labels.of([hosts, ""]), "gpu_request": Labels.of([request_, "gpu:1"])
    }  # fmt: skip
    assert held_by_squeue(columns, Labels.of([tres, ""]), np.array([True, False])) == {7: expected}
