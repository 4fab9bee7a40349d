"""Which GPUs Slurm picks: what the labs' Slurm 24.11.5 and 26.05.5 gave, and what older ones are known to."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model.gpu_masks import mask_members
from slurmsched.topology.slurm_selection import (
    UNKNOWN_SELECTION,
    GpuOption,
    NodeGpuRequest,
    SlurmNode,
    cores_for,
    read_version,
    select_gpus,
    select_near_cores,
)


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
        assert expected == mask_members(
            select_gpus(NODE, NodeGpuRequest(GpuOption(form), count, **more), 0xFF, (32, 32), version)
        )


def test_pick__before_24_05_takes_the_best_linked():
    """Slurm 22.05 gave 0 and 1 where later ones give 0 and 2."""
    assert mask_members(select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2), 0xFF, (32, 32), OLD)) == [0, 1]


def test_pick__prefers_the_socket_with_most_free_cores():
    """A second job of two goes to the other socket."""
    assert mask_members(select_gpus(NODE, NodeGpuRequest(GpuOption.PER_JOB, 2), 0b11111010, (31, 32), NEW)) == [4, 5]


def test_pick__zero_where_the_job_does_not_fit():
    """More GPUs than are free, or bound to a socket without cores."""
    assert select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 3), 0b11, (32, 32), NEW) == 0
    assert select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2, bound=True), 0b11, (0, 32), NEW) == 0


def test_pick__unknown_where_versions_are_not_known_to_agree():
    """A bound --gpus=N of one CPU between 24.11 and 26.05; tasks before 24.05; a task on two sockets in 26.05."""
    assert (
        select_gpus(NODE, NodeGpuRequest(GpuOption.PER_JOB, 2, bound=True), 0xFF, (32, 32), (25, 5))
        == UNKNOWN_SELECTION
    )
    assert select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2, tasks=2), 0xFF, (32, 32), OLD) == UNKNOWN_SELECTION
    assert (
        select_gpus(NODE, NodeGpuRequest(GpuOption.PER_TASK, 5, 1, cpus_per_task=6), 0xFF, (32, 32), NEW)
        == UNKNOWN_SELECTION
    )


def test_cores_for__second_try_takes_sockets_without_gpus():
    """Forty CPUs do not fit on the socket of the GPUs: the rest comes from the other."""
    request = NodeGpuRequest(GpuOption.PER_NODE, 2, cpus_per_task=40)
    got = cores_for(NODE, request, np.ones(8, bool), (32, 32))
    assert got is not None
    assert got.tolist() == [32, 8]


def test_slurm_node__cores_that_the_node_has_not_are_refused():
    """A wrong Cores is an error that names the core."""
    with pytest.raises(ConfigError, match="core 64"):
        SlurmNode.build([[64]], [[-1]], sockets=2, cores_per_socket=32)


WIDE = SlurmNode.build([range(41)] * 4 + [range(41, 82)] * 4, [], sockets=2, cores_per_socket=41)


@pytest.mark.parametrize(
    ("form", "count", "expected"),
    [
        (GpuOption.PER_JOB, 2, [0, 1]),
        (GpuOption.PER_JOB, 4, [0, 1, 2, 4]),
        (GpuOption.PER_JOB, 6, [0, 1, 2, 4, 5, 6]),
        (GpuOption.PER_NODE, 2, [0, 4]),
        (GpuOption.PER_NODE, 4, [0, 1, 4, 5]),
        (GpuOption.PER_NODE, 6, [0, 1, 2, 4, 5, 6]),
    ],
)
def test_pick__shares_as_recorded_on_41_cores_a_socket(form, count, expected):
    """26.05.5 gave these: by job the share of a socket is still reckoned in floats, by node in doubles."""
    assert expected == mask_members(select_gpus(WIDE, NodeGpuRequest(form, count, 1, 82), 0xFF, (41, 41), (26, 5, 5)))


@pytest.mark.parametrize(("version", "expected"), [
    ((24, 5), [0, 1]), ((24, 11, 5), [0, 1]), ((25, 5, 9), [0, 1]), ((25, 11), [0, 4]), ((25, 11, 0), [0, 4]),
    (NEW, [0, 4])])  # fmt: skip
def test_pick__shares_of_requests_by_node_are_doubles_from_25_11_on(version, expected):
    """41 of 82 cores are half of two GPUs: 0.99 in floats, which is none, and 1 in doubles. By job always none."""
    cores = np.array([41, 41], np.int32)
    assert expected == mask_members(
        select_near_cores(WIDE, NodeGpuRequest(GpuOption.PER_NODE, 2), 0xFF, cores, version)
    )
    assert mask_members(select_near_cores(WIDE, NodeGpuRequest(GpuOption.PER_JOB, 2), 0xFF, cores, version)) == [0, 1]


@pytest.mark.parametrize(("version", "known"), [
    ((24, 5), False), ((24, 5, 0), False), ((24, 5, 2), False), ((24, 5, 3), True), ((24, 5, 4), True), ((24, 11), True)
])  # fmt: skip
def test_pick__tasks_were_counted_by_cores_before_24_05_3(version, known):
    """Unknown with threads, and where two tasks of 20 CPUs were both counted on the first socket."""
    threads = SlurmNode.build(CORES, PAIRS, sockets=2, cores_per_socket=32, cpus_per_core=2)
    assert (select_gpus(threads, NodeGpuRequest(GpuOption.PER_TASK, 1, 2), 0xFF, (32, 32), version) > 0) == known
    assert (select_gpus(NODE, NodeGpuRequest(GpuOption.PER_TASK, 1, 2, 20), 0xFF, (32, 32), version) > 0) == known
    assert mask_members(select_gpus(NODE, NodeGpuRequest(GpuOption.PER_TASK, 1, 2), 0xFF, (32, 32), version)) == [0, 2]
    assert mask_members(select_gpus(NODE, NodeGpuRequest(GpuOption.PER_TASK, 1, 2, 8), 0xFF, (32, 32), version)) == [
        0,
        2,
    ]


@pytest.mark.parametrize(("version", "known"), [
    ((23, 11, 9), True), ((24, 5, 8), False), ((24, 11), False), ((24, 11, 0), False), ((24, 11, 1), True),
    ((24, 11, 5), True), ((25, 5), True), ((26, 5, 5), True)])  # fmt: skip
def test_pick__bound_requests_got_too_little_before_24_11_1(version, known):
    """Which of their resources were missing is not told, so what they get is unknown; others are not concerned."""
    assert (select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2, bound=True), 0xFF, (32, 32), version) > 0) == known
    assert select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2), 0xFF, (32, 32), version) > 0


@pytest.mark.parametrize("version", [(24, 11, 1), (24, 11, 5), (25, 5, 3), (25, 11, 2), (26, 5, 0), (26, 5, 5)])
def test_pick__a_micro_does_not_move_a_release(version):
    """Rules that hold for a whole release hold for each of its micros, the last ones too."""
    crowded = select_gpus(NODE, NodeGpuRequest(GpuOption.PER_JOB, 2, bound=True), 0xFF, (32, 32), version)
    assert crowded == {(24, 11): 0b110000, (26, 5): 0b11}.get(version[:2], UNKNOWN_SELECTION)
    straddling = select_gpus(NODE, NodeGpuRequest(GpuOption.PER_TASK, 5, 1, cpus_per_task=6), 0xFF, (32, 32), version)
    assert (straddling == UNKNOWN_SELECTION) == (version[:2] > (24, 11))


@pytest.mark.parametrize(
    ("version", "known"), [((24, 11, 5), True), ((25, 5, 0), False), ((25, 5, 1), True), ((25, 5), True)]
)
def test_pick__25_05_0_may_give_gpus_that_are_held(version, known):
    """Its fault, mended in 25.05.1: only where nothing is held its choice is known."""
    assert (select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2), 0xFE, (32, 32), version) > 0) == known
    assert select_gpus(NODE, NodeGpuRequest(GpuOption.PER_NODE, 2), 0xFF, (32, 32), version) > 0


@pytest.mark.parametrize(("text", "expected"), [
    ("24.11.5", (24, 11, 5)), ("slurm 24.05.3", (24, 5, 3)), ("slurm-wlm 26.05.5-1", (26, 5, 5)), ("24.11", (24, 11)),
    ("24.11.10", (24, 11, 10)), ("24.11.0-0rc1", (24, 11)), ("24.11.10rc1", (24, 11)), ("24.115", (0, 0)),
    ("", (0, 0)), ("2024.11.5", (0, 0))])  # fmt: skip
def test_read_version__a_candidate_has_no_micro(text, expected):
    """Year, month and micro where it is told."""
    assert read_version(text) == expected
