"""Builders: snapshots in a line."""

from __future__ import annotations

import pytest

from slurmsched.testing import fleet, jobs, mixed_snapshot, snapshot


def test_jobs__sorts_by_id_and_fills_in() -> None:
    """Rows may come in any order; service follows from run time and GPUs, the first submission from the last."""
    table = jobs([{"job_id": 9, "gpus": 4, "executed_s": 10.0, "submit_s": 3.0}, {"job_id": 2, "state": "R"}])
    assert (table.job_id.tolist(), table.running.tolist()) == ([2, 9], [True, False])
    assert (table.attained_gpu_s.tolist(), table.first_submit_s.tolist()) == ([0.0, 40.0], [0.0, 3.0])


def test_jobs__refuses_a_misspelt_column() -> None:
    """A typo in a test is an error, not a default."""
    with pytest.raises(ValueError, match="has no column gpuss"):
        jobs([{"gpuss": 1}])


def test_fleet__names_sort_as_they_count() -> None:
    """20x8: n01 to n20, each 8 GPUs of the type."""
    nodes = fleet("20x8", gpu_type="h100")
    assert (nodes.name[0], nodes.name[19], nodes.gpu_types[0], int(nodes.gpus.sum())) == (
        "n01",
        "n20",
        "gpu:h100:8",
        160,
    )


def test_fleet__refuses_other_forms() -> None:
    """The message says how a fleet is written."""
    with pytest.raises(ValueError, match="NODESxGPUS"):
        fleet("8")


def test_snapshot__allocations_count_as_used() -> None:
    """GPUs held are used on their nodes, by count and by mask."""
    given = snapshot(
        [{"job_id": 1, "state": "RUNNING", "gpus": 3}],
        "2x8",
        allocations=[{"job_id": 1, "node": "n2", "gpus": 2, "gpu_mask": 0b11}, {"job_id": 1, "node": "n1", "gpus": 1}],
    )
    assert (given.nodes.gpus_used.tolist(), given.nodes.gpu_mask_used.tolist()) == ([1, 2], [0, 3])
    assert list(given.allocations.node) == ["n1", "n2"]


def test_snapshot__has_one_partition_of_all_nodes() -> None:
    """The default partition holds the whole fleet; given ones replace it."""
    given, other = snapshot(nodes="2x8"), snapshot(partitions=[{"name": "b"}, {"name": "a"}])
    assert (given.partitions.node_list[0], list(other.partitions.name)) == ("n1,n2", ["a", "b"])


def test_mixed_snapshot__is_repeatable() -> None:
    """The same seed gives the same snapshot, another seed another."""
    digests = [mixed_snapshot(30, seed=seed).digest for seed in (1, 1, 2)]
    assert (digests[0] == digests[1], digests[0] == digests[2], len(mixed_snapshot(30).jobs)) == (True, False, 30)


def test_jobs__are_not_held_unless_said_so() -> None:
    """Priority 0 means held to Slurm, and no policy's example wants that."""
    assert jobs([{}, {"priority": 0}]).held.tolist() == [False, True]
