"""Jobs placed one after another get what a whole `place` for each would give them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.config import PlacementConfig, ScopeConfig
from slurmsched.model import Assignments, JobState, Ranking, Snapshot, node_state
from slurmsched.placements.baselines import BestFit, Spread
from slurmsched.placements.linked import Linked
from slurmsched.placements.stepwise_placement import GangPlacement
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.protocols import Placement
from tests.unit.planning.node_lists.node_list_cases import cluster, gpu_request, on_fabric, wait

STATES = ["IDLE"] * 3 + ["MIXED"] * 3 + ["IDLE+DRAIN", "IDLE+POWERED_DOWN", "IDLE+REBOOT_ISSUED+REBOOT_RESUME"]
LEAVES = "SwitchName=top Switches=a,b\nSwitchName=a Nodes=n1,n3,n5\nSwitchName=b Nodes=n2,n4\n"
EVERY = ScopeConfig(partitions=("*",))
KINDS = ("pick", "pick", "gang", "plain", "plain gang", "whole")


@dataclass(frozen=True)
class WholePlace:
    """The same placement without its chooser."""

    placement: Placement

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        return self.placement.place(snapshot, ranking)


@st.composite
def jobs_on_clusters(draw: st.DrawFn) -> Snapshot:
    """Up to five nodes in any state, some without GPU indices, little memory and few CPUs; up to eight waiting jobs."""
    free = draw(st.lists(st.sets(st.integers(0, 7), min_size=4), min_size=3, max_size=5))
    jobs, gpu_requests = list[dict[str, Any]](), []
    for job_id in range(1, draw(st.integers(2, 8)) + 1):
        kind, gpus = draw(st.sampled_from(KINDS)), draw(st.sampled_from([1, 1, 2, 2, 3, 4]))
        count = draw(st.integers(2, 3)) if "gang" in kind else 1
        beside = {"cpus": draw(st.integers(1, 9)) * count, "memory_mib": draw(st.sampled_from([0.0, 0.3, 1.0, 4.7]))}
        comment = "" if "plain" in kind else "slurmsched: topo=nvlink"
        row = {"nodes": count, "gpu_request": f"gpu:{gpus}", "exclusive": kind == "whole", **beside}
        jobs.append(wait(job_id, gpus * count, comment, **row))
        asks = {"tasks": count, "nodes": count, "cpus_per_task": 1, "whole": kind == "whole"}
        gpu_requests.append(gpu_request(job_id, gpus, **asks))
    made = on_fabric(cluster(jobs, [sorted(one) for one in free], gpu_requests), LEAVES)
    nodes, rows = made.nodes, len(free)
    blind = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    states = [int(node_state(draw(st.sampled_from(STATES)))) for _ in range(rows)]
    masks = np.where(blind & draw(st.booleans()), 0, nodes.gpu_mask_used)
    sizes = {"cpus": np.full(rows, draw(st.sampled_from([0, 12, 64]))), "memory_mib": np.full(rows, 9.0)}
    used = {"cpus_used": nodes.gpus_used + draw(st.integers(0, 3)), "memory_used_mib": np.full(rows, 2.3)}
    columns = {"state": np.array(states), "gpu_mask_used": masks, **sizes, **(used if draw(st.booleans()) else {})}
    ends = ~made.jobs.pending & (made.jobs.job_id % 4 == draw(st.integers(0, 4)))
    state = np.where(ends, made.jobs.state | int(JobState.COMPLETING), made.jobs.state)
    return replace(made, nodes=nodes.with_columns(**columns), jobs=made.jobs.with_columns(state=state))


@pytest.mark.parametrize("placement", [Linked(), BestFit(), Spread()], ids=lambda one: type(one).__name__)
@settings(deadline=None, max_examples=50)
@given(at=jobs_on_clusters(), pin=st.sampled_from(["hints", "multi-gpu"]))
def test_stepwise__gives_what_a_whole_place_gives(placement, at, pin):
    """Lists, requests, reasons and refusals of a cycle are the same, whatever nodes and jobs there are."""
    assert isinstance(placement, GangPlacement)
    found = [
        node_lists(at, Ranking(np.arange(len(at.jobs))), at.jobs.pending, one, PlacementConfig(pin=pin), EVERY)
        for one in (placement, WholePlace(placement))
    ]
    assert found[0] == found[1]
