"""Layout, requests and what they make of jobs."""

from __future__ import annotations

import pytest

from slurmsched.errors import InputError
from slurmsched.model.columns import Labels
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout, LimitSpec, NodeOutage, NodeSpec, PartitionSpec
from slurmsched.sim.slurmctld.job_demands import JobDemands, SubmittedRequests
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

TWO = ClusterLayout(
    (NodeSpec("n1", 8, 64, 1000.0), NodeSpec("n2", 8, 64, 1000.0)),
    (PartitionSpec("gpu", factor=2), PartitionSpec("short", ("n2",), factor=1)),
    qos=(LimitSpec("high", priority=10),),
)


def demand(
    layout: ClusterLayout, trace: Trace, model: SlurmctldSettings | None = None, **columns: object
) -> JobDemands:
    return JobDemands.of(trace, SubmittedRequests.build(len(trace), columns), layout, model or SlurmctldSettings())


def test_partition_rows__default_first_named_and_unknown() -> None:
    """No name is the first partition, of a list the first counts, and an unknown one is an error that lists all."""
    assert TWO.partition_rows(Labels.of(["", "short", "short,gpu"])).tolist() == [0, 1, 1]
    with pytest.raises(InputError, match="no partition 'long' in this cluster; it has gpu, short"):
        TWO.partition_rows(Labels.of(["long"]))


def test_layout__names_a_node_that_is_not_there() -> None:
    """In partitions and closures alike."""
    with pytest.raises(InputError, match="no node 'n9'"):
        ClusterLayout(TWO.nodes, closures=(NodeOutage(("n9",), 0.0, 1.0),))


def test_demand__whole_nodes_and_a_remainder_or_equal_parts() -> None:
    """12 GPUs on nodes of 8 are 8 + 4 on the fewest nodes, 4 + 4 + 4 where 3 nodes are asked for; CPUs go with them."""
    wide = ClusterLayout((*TWO.nodes, NodeSpec("n3", 8, 64)))
    made = demand(wide, Trace.of([1, 2], [12, 12], [0, 0], [1, 1]), nodes=[0, 3])
    assert (made.nodes.tolist(), made.need.tolist(), made.last.tolist()) == (
        [2, 3], [[8, 64, 0], [4, 32, 0]], [[4, 32, 0], [4, 32, 0]],
    )  # fmt: skip


def test_demand__a_job_bound_to_all_its_nodes() -> None:
    """Its pool is those nodes; a pool of one node is no pin for a job of two."""
    made = demand(TWO, Trace.of([1, 2], [4, 16], [0, 0], [1, 1]), node_list=["n2", ""])
    assert (made.usable[made.pool].tolist(), made.bound.tolist()) == ([[False, True], [True, True]], [True, False])


@pytest.mark.parametrize("columns", [{"cpus": [200]}, {"memory_mib": [5000.0]}, {"partition": ["short"], "nodes": [2]}])
def test_demand__refuses_what_never_fits(columns: dict[str, list[object]]) -> None:
    """CPUs, memory and the nodes of the partition count as GPUs do."""
    with pytest.raises(
        InputError,
        match=r"job 1 asks for 2 GPUs on \d nodes? with \d GPUs?, \d+ CPUs?.* each, which no",
    ):
        demand(TWO, Trace.of([1], [2], [0], [1]), **columns)


def test_factors__are_slurms_sums() -> None:
    """Size is the mean of the shares of nodes and CPUs; partition and QOS count against the largest of their kind."""
    model = SlurmctldSettings(weight_job_size=1000, weight_partition=100, weight_qos=10, weight_tres=(1000.0, 0.0, 0.0))
    trace = Trace.of([1, 2], [8, 8], [0, 0], [1, 1])
    made = demand(TWO, trace, model, cpus=[64, 64], partition=["gpu", "short"], qos=["high", "normal"])
    assert made.factors.tolist() == [500 + 100 + 10 + 500, 500 + 50 + 0 + 500]
    small = demand(TWO, trace, SlurmctldSettings(weight_job_size=1000, favor_small=True), cpus=[64, 0])
    assert small.factors.tolist() == [500, 750]


def test_requests__follow_the_trace_by_job_id() -> None:
    """The trace sorts its rows by submit time; a job that only one of the two has is an error."""
    trace = Trace.of([5, 3], [1, 1], [10, 0], [1, 1])
    assert list(SubmittedRequests.of(trace, [5, 3], {"user": ["a", "b"]}).user) == ["b", "a"]
    with pytest.raises(InputError, match="job 3 is not in both"):
        SubmittedRequests.of(trace, [5], {})


TYPED = ClusterLayout((
    NodeSpec("n1", 8, 64, gpu_types="gpu:a100:8"), NodeSpec("n2", 4, 16, gpu_types="gpu:v100:4"),
    NodeSpec("n3", 8, 64, gpu_types="gpu:a100_i0:4,gpu:a100_i1:4"),
))  # fmt: skip


def test_demand__a_gpu_type_names_the_nodes() -> None:
    """Slurm gives a typed request GPUs of that very type only; what a whole node is, its nodes tell."""
    made = demand(TYPED, Trace.of([1, 2, 3, 4], [8, 4, 2, 8], [0] * 4, [1] * 4),
                  gpu_type=["a100", "v100", "a100_i1", ""])  # fmt: skip
    usable = [[True, False, False], [False, True, False], [False, False, True], [True, True, True]]
    assert made.usable[made.pool].tolist() == usable
    assert (made.nodes.tolist(), made.need[:, 1].tolist()) == ([1, 1, 1, 1], [64, 16, 16, 64])
    with pytest.raises(
        InputError,
        match=r"job 1 asks for 8 GPUs of type v100, .* hold 4; .* 8 GPUs of type v100",
    ):
        demand(TYPED, Trace.of([1], [8], [0], [1]), gpu_type=["v100"])


def test_requests__types_count_that_the_cluster_has() -> None:
    """A type of the trace that no node has, or nodes that tell none, leave the job untyped."""
    trace = Trace.of([1, 2, 3], [1, 1, 1], [0, 0, 0], [1, 1, 1], gpu_type=["a100", "h100", ""])
    assert list(SubmittedRequests.of_trace(trace, TYPED).gpu_type) == ["a100", "", ""]
    assert list(SubmittedRequests.of_trace(trace, TWO).gpu_type) == ["", "", ""]
