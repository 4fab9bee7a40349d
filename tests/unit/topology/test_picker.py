"""Which GPUs Slurm picks: what the labs' Slurm 24.11.5 and 26.05.5 gave, and what older ones are known to."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.topology.picker import UNKNOWN, Form, GpuRequest, SlurmNode, members, pick, pick_near
from slurmsched.topology.slurm_cores import cores_for


def lanes(a: int, b: int) -> int:
    """Pairs of four lanes, two lanes to the others of the socket."""
    return 4 if a // 2 == b // 2 else 2 if a // 4 == b // 4 else 0


PAIRS = [[-1 if a == b else lanes(a, b) for b in range(8)] for a in range(8)]
CORES = [range(32)] * 4 + [range(32, 64)] * 4
NODE = SlurmNode.build(CORES, PAIRS, sockets=2, cores_per_socket=32)
NEW, OLD = (26, 5), (23, 11)


@pytest.mark.parametrize(("form", "count", "more", "expected"), [
    ("gpus-per-node", 2, {}, [0, 2]), ("gpus-per-node", 3, {}, [0, 2, 3]), ("gpus-per-node", 5, {}, [0, 1, 2, 3, 4]),
    ("gpus-per-node", 6, {"cpus_per_task": 8}, [0, 1, 2, 3, 4, 6]), ("gpus", 2, {}, [0, 1]), ("gpus", 3, {}, [0, 1, 3]),
    ("gpus", 2, {"cpus_per_task": 40}, [0, 1]), ("gpus-per-task", 1, {"tasks": 2}, [0, 2]),
    ("gpus-per-task", 1, {"tasks": 5}, [0, 2, 4, 6, 7]), ("gpus-per-task", 2, {"tasks": 2}, [0, 1, 2, 3]),
    ("gpus-per-socket", 2, {"sockets": 1}, [4, 6]), ("gpus-per-socket", 2, {"sockets": 2}, [0, 2, 4, 6]),
])  # fmt: skip
def test_pick__as_recorded_on_an_empty_node(form, count, more, expected):
    """Both labs gave these indices."""
    for version in ((24, 11), (26, 5)):
        assert expected == members(pick(NODE, GpuRequest(Form(form), count, **more), 0xFF, (32, 32), version))


def test_pick__before_24_05_takes_the_best_linked():
    """Slurm 22.05 gave 0 and 1 where later ones give 0 and 2."""
    assert members(pick(NODE, GpuRequest(Form.PER_NODE, 2), 0xFF, (32, 32), OLD)) == [0, 1]


def test_pick__prefers_the_socket_with_most_free_cores():
    """A second job of two goes to the other socket."""
    assert members(pick(NODE, GpuRequest(Form.PER_JOB, 2), 0b11111010, (31, 32), NEW)) == [4, 5]


def test_pick__zero_where_the_job_does_not_fit():
    """More GPUs than are free, or bound to a socket without cores."""
    assert pick(NODE, GpuRequest(Form.PER_NODE, 3), 0b11, (32, 32), NEW) == 0
    assert pick(NODE, GpuRequest(Form.PER_NODE, 2, bound=True), 0b11, (0, 32), NEW) == 0


def test_pick__unknown_where_versions_are_not_known_to_agree():
    """A bound --gpus=N of one CPU between 24.11 and 26.05; tasks before 24.05; a task on two sockets in 26.05."""
    assert pick(NODE, GpuRequest(Form.PER_JOB, 2, bound=True), 0xFF, (32, 32), (25, 5)) == UNKNOWN
    assert pick(NODE, GpuRequest(Form.PER_NODE, 2, tasks=2), 0xFF, (32, 32), OLD) == UNKNOWN
    assert pick(NODE, GpuRequest(Form.PER_TASK, 5, 1, cpus_per_task=6), 0xFF, (32, 32), NEW) == UNKNOWN


def test_cores_for__second_try_takes_sockets_without_gpus():
    """Forty CPUs do not fit on the socket of the GPUs: the rest comes from the other."""
    request = GpuRequest(Form.PER_NODE, 2, cpus_per_task=40)
    got = cores_for(NODE, request, np.ones(8, bool), (32, 32))
    assert got is not None
    assert got.tolist() == [32, 8]


def test_slurm_node__cores_that_the_node_has_not_are_refused():
    """A wrong Cores is an error that names the core."""
    with pytest.raises(ConfigError, match="core 64"):
        SlurmNode.build([[64]], [[-1]], sockets=2, cores_per_socket=32)


@pytest.mark.parametrize(
    ("version", "expected"), [((24, 5), [0, 1]), ((25, 5), [0, 1]), ((25, 11), [0, 2]), (NEW, [0, 2])]
)
def test_pick__shares_of_sockets_are_doubles_from_25_11_on(version, expected):
    """41 of 82 cores are half of two GPUs: 0.99 in floats, which is none, and 1 in doubles."""
    node = SlurmNode.build([range(41)] * 2 + [range(41, 82)] * 2, [], sockets=2, cores_per_socket=41)
    cores = np.array([41, 41], np.int32)
    assert expected == members(pick_near(node, GpuRequest(Form.PER_NODE, 2), 0b1111, cores, version))


def test_pick__tasks_with_threads_in_24_05():
    """Its third update counts tasks otherwise, and the release alone does not tell which it is."""
    node = SlurmNode.build(CORES, PAIRS, sockets=2, cores_per_socket=32, cpus_per_core=2)
    asked = GpuRequest(Form.PER_TASK, 1, 2)
    assert pick(node, asked, 0xFF, (32, 32), (24, 5)) == UNKNOWN
    assert pick(node, asked, 0xFF, (32, 32), (24, 11)) > 0
    assert pick(NODE, asked, 0xFF, (32, 32), (24, 5)) > 0
