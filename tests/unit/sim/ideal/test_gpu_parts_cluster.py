"""Parts of GPUs on the ideal cluster: by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Assignments
from slurmsched.model.trace import Trace
from slurmsched.placements.gpu_shares import FragmentationGradient
from slurmsched.policies.fifo import Fifo
from slurmsched.sim.cluster_layout import NodeSpec
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.gpu_parts_cluster import GpuPartsCluster
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.replay_stores import CarryStore

NODE = NodeSpec("n1", 2, 8)


def jobs(*gpus_and_share: tuple[int, float], **more: Any) -> Trace:
    """Jobs 1, 2, ... of 10 s that come at once."""
    gpus, share = zip(*gpus_and_share, strict=True)
    ids = np.arange(1, len(gpus) + 1)
    return Trace.of(ids, gpus, np.zeros(len(gpus)), np.full(len(gpus), 10.0), gpu_share=share, **more)


def test_gpu_parts__are_held_freed_and_counted_as_parts() -> None:
    """1 and 2 meet on a GPU, 3 has the other; 4 needs both whole and waits, though 0.5 is free. Parts of several GPUs
    are whole ones: 4 holds 2."""
    cluster = GpuPartsCluster(jobs((1, 0.5), (1, 0.5), (1, 0.5), (2, 0.5)), [NODE])
    replay_events(cluster, DirectPlanner(Fifo(), FragmentationGradient(), "block", each_order=True), CarryStore())
    done = cluster.outcomes()
    assert done.first_start_s.tolist() == [0, 0, 0, 10]
    assert (done.held_gpus.tolist(), done.utilisation) == ([0.5, 0.5, 0.5, 2.0], 35 / 40)
    assert [column.tolist() for column in cluster.history.steps()] == [[0, 10, 20], [1.5, 2, 0], [1, 0, 0]]


def test_gpu_parts__show_attained_service_by_parts() -> None:
    """Half a GPU for 4 s are 2 GPU s; a GPU that two jobs share is in use once."""
    cluster = GpuPartsCluster(jobs((1, 0.5), (1, 0.5)), [NODE])
    cluster.advance(0.0)
    cluster.apply(DirectPlanner(Fifo(), FragmentationGradient()).plan(cluster.read()))
    cluster.advance(4.0)
    now = cluster.read()
    assert now.jobs.attained_gpu_s.tolist() == [2.0, 2.0]
    assert (now.nodes.gpus_used.tolist(), now.jobs.gpu_milli.tolist()) == ([1], [500, 500])


@pytest.mark.parametrize(("trace", "told"), [
    (jobs((1, 0.5), (3, 1.0)), "job 2 asks for 3 GPUs, and no node holds that"),
    (jobs((1, 0.5), cpus=[9]), "job 1 asks for 1 GPU, 9 CPUs, and"),
])  # fmt: skip
def test_gpu_parts__refuse_a_job_that_fits_on_no_node(trace: Trace, told: str) -> None:
    """Before the replay begins, with what it asks for."""
    with pytest.raises(InputError, match=told):
        GpuPartsCluster(trace, [NODE], cpus_known=True)


@pytest.mark.parametrize(("masks", "told"), [
    ([1, 1], "more of a GPU than there is"), ([1, 4], "more of a GPU than there is"), ([1, 0], "job 2 other than"),
    ([], "name the GPUs of each job"),
])  # fmt: skip
def test_gpu_parts__refuse_a_target_that_cannot_be(masks: list[int], told: str) -> None:
    """Of 0.7 and 0.7: both on GPU 0, one on a GPU that is not there, one on none, GPUs not told."""
    cluster = GpuPartsCluster(jobs((1, 0.7), (1, 0.7)), [NODE])
    cluster.advance(0.0)
    cluster.read()
    rows, ones = np.arange(2), np.ones(2, np.int64)
    target = Assignments(rows, rows, ones, np.zeros(2, np.int64), ones, np.array(masks, np.int64))
    with pytest.raises(ConfigError, match=told):
        cluster.apply(IdealPlan(target=target))
