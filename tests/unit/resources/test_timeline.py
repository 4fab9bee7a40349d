"""What jobs give back."""

from __future__ import annotations

import numpy as np

from slurmsched.resources.timeline import ReleasedResources
from slurmsched.testing import snapshot


def test_leaving__a_list_of_nodes_that_cannot_be_read_gives_nothing_back():
    """Nothing is to come free there; the other jobs are as they were."""
    jobs = [{"job_id": job, "state": "R", "node_list": nodes, "cpus": 4} for job, nodes in ((1, "n[1-"), (2, "n2"))]
    leaving = ReleasedResources.of(snapshot(jobs), np.full(2, 9.0))
    assert (leaving.job.tolist(), leaving.node.tolist()) == ([1], [1])
