"""`gpus` and `fit` on any cluster: nothing is counted twice, and what is said to fit fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.observe.survey.fit import fit, largest_requests
from slurmsched.observe.survey.gpu_overview import gpu_overview
from slurmsched.observe.survey.sbatch_request import SbatchRequest
from tests.unit.observe.survey.survey_site import node, site


@st.composite
def clusters(draw):
    """Up to three nodes of any state, with any GPUs, CPUs and memory held."""
    rows = []
    for name in ("n1", "n2", "n3")[: draw(st.integers(1, 3))]:
        held = {"cpus_used": draw(st.integers(0, 64)), "memory_used_mib": float(draw(st.integers(0, 512_000)))}
        held["gpu_types"] = draw(st.sampled_from(("gpu:v100:8", "gpu:a100:8")))
        state = draw(st.sampled_from(("IDLE", "MIXED", "MIXED+DRAIN", "DOWN")))
        rows.append(node(name, mask=draw(st.integers(0, 255)), **held) | {"state": state})
    return site(rows, wired=False, defaults=draw(st.sampled_from(("", "DefMemPerCPU=1000", "DefMemPerGPU=64000"))))


@given(snapshot=clusters())
@settings(deadline=None)
def test_overview__types_add_up_to_the_nodes(snapshot):
    """By type the sums are those of the nodes table; the nodes shown have all free GPUs."""
    found, totals = gpu_overview(snapshot), snapshot.nodes.gpu_totals()
    named = {"free": "idle", "used": "allocated", "drained": "draining", "down": "down", "gpus": "all"}
    for name, total in named.items():
        assert sum(getattr(one, name) for one in found.types) == totals[total]
    assert all(0 <= one.stranded <= one.free for one in found.types)


@given(snapshot=clusters(), cpus=st.integers(1, 40))
@settings(deadline=None)
def test_largest__is_the_edge_of_what_fits(snapshot, cpus):
    """As many nodes of so many GPUs as are told start, and one node more does not; one GPU more on a node neither."""
    for one in largest_requests(snapshot, SbatchRequest(cpus_per_task=cpus)):
        ask = {"gpu_type": one.gpu_type, "cpus_per_task": cpus}
        for gpus, nodes in one.shapes.items():
            told = [fit(snapshot, SbatchRequest(nodes=n, gpus_per_node=gpus, **ask)).starts for n in (nodes, nodes + 1)]
            assert told == [True, False]
        assert not fit(snapshot, SbatchRequest(nodes=1, gpus_per_node=one.one_node + 1, **ask)).starts
