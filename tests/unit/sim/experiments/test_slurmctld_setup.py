"""What of a history is left out on a cluster that does not have it, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterDescription, ClusterLayout, NodeSpec, PartitionSpec
from slurmsched.sim.experiments.published_quirks import WholeNodes
from slurmsched.sim.experiments.slurmctld_setup import fitted_trace

HERE = ClusterLayout((NodeSpec("n1", 8, 64, features=("a100",)),), (PartitionSpec("gpu"), PartitionSpec("cpu")))

UNKNOWN = "no partition old in this cluster: 1 job that does not count left out; --map old=NAME renames it"


def history(**more: object) -> Trace:
    """A job that counts, one without GPUs and one that was cancelled, of partitions gpu, cpu and old."""
    columns = {"partition": ["gpu", "cpu", "old"], "counted": [True, False, False], "constraint": ["a100", "", "k80"]}
    return Trace.of([1, 2, 3], [1, 0, 2], [0.0, 1.0, 2.0], [5.0] * 3, least_gpus=0, **(columns | more))


@pytest.mark.parametrize(("layout", "cpus_known", "jobs", "told"), [
    (HERE, True, [1, 2], [UNKNOWN]),
    (HERE, False, [1], ["the cluster has no CPUs given: 1 job without GPUs left out",
                        UNKNOWN]),
    (ClusterLayout(HERE.nodes), True, [1, 2, 3], [
        "no node here has the features k80: the constraints of 1 job do not count; they may start on other nodes, too "
        "early"]),
])  # fmt: skip
def test_fitted_trace__leaves_out_what_the_cluster_lacks(
    layout: ClusterLayout, cpus_known: bool, jobs: list[int], told: list[str]
) -> None:
    """Jobs that count stay, whatever their partition: that is an error, with what to do."""
    trace, warnings = fitted_trace(history(), ClusterDescription(layout, cpus_known=cpus_known))
    assert (trace.job_id.tolist(), list(warnings)) == (jobs, told)
    counting, said = fitted_trace(history(counted=[True] * 3, constraint=[""] * 3), ClusterDescription(layout))
    assert (counting.job_id.tolist(), said) == ([1, 2, 3], ())


def test_fitted_trace__tells_of_licences_that_the_cluster_lacks() -> None:
    """Two jobs ask for some that it has not."""
    given = history(partition=["gpu"] * 3, constraint=[""] * 3, licenses=["a:1,b:1", "c", "a"])
    described = ClusterDescription(replace(HERE, licenses={"a": 2}), cpus_known=True)
    _, (warning,) = fitted_trace(given, described)
    assert warning == "the cluster has no licences b, c: those of 2 jobs do not count; they may start too early"


def test_fitted_trace__a_constraint_is_one_on_nodes_of_the_partition() -> None:
    """Node n1 has the feature, but is not in the partition cpu."""
    layout = ClusterLayout(
        (*HERE.nodes, NodeSpec("c1", 1, 64)), (PartitionSpec("gpu", ("n1",)), PartitionSpec("cpu", ("c1",)))
    )
    given = history(partition=["gpu", "cpu", "gpu"], constraint=["a100", "a100", "a100&"], counted=[True] * 3)
    trace, (warning,) = fitted_trace(given, ClusterDescription(layout, cpus_known=True))
    assert list(trace.constraint) == ["a100", "", ""]
    assert warning.startswith("no node here has the features a100, a100&: the constraints of 2 jobs do not count")


# Nodes that gangs take consolidated.


def test_rooms__a_gang_needs_the_fewest_nodes() -> None:
    """On two nodes of 4: 3 and 3 leave one GPU on each, where no gang of two fits, until one of them is gone."""
    rooms = WholeNodes(8, 4, "fullest")
    assert [rooms.take(1, 3), rooms.take(2, 3), rooms.take(3, 2)] == [True, True, False]
    rooms.give(1)
    assert rooms.take(3, 2)


def test_rooms__wide_gangs_take_whole_nodes() -> None:
    """Six GPUs on nodes of 4 are a whole node and two of another; a node with one job on it is not whole."""
    rooms = WholeNodes(8, 4, "fullest")
    assert rooms.take(1, 1)
    assert not rooms.take(2, 8)
    assert rooms.take(3, 6)


@pytest.mark.parametrize(("choice", "fits"), [("fullest", True), ("rest-emptiest", False)])
def test_rooms__choice_of_the_node_for_the_rest(choice: str, fits: bool) -> None:
    """Nodes of 4, one of them with two GPUs taken: the rest of a gang of six goes there, or breaks an idle node."""
    rooms = WholeNodes(16, 4, choice)  # type: ignore[arg-type]
    assert rooms.take(1, 2)
    assert rooms.take(2, 6)
    assert rooms.take(3, 8) is fits
