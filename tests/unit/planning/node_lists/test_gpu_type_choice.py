"""Gangs that are sent to nodes of several GPU types at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.config import LeverConfig, PlacementConfig, ScopeConfig
from slurmsched.model import GpuSelection, JobChanges, JobGpuRequest, Labels, Ranking, Snapshot, frozen
from slurmsched.placements.linked import Linked
from slurmsched.planning.earliest_starts import unwritten_changes
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.planning.proposals import Proposal
from slurmsched.testing import snapshot
from tests.unit.planning.node_lists.node_list_cases import NOW_S, lists, on_fabric, rules

TYPES = PlacementConfig(types=True)
BOTH = {"gpus": 8, "nodes": 2, "comment": "slurmsched: mixed=yes"}


def at(*jobs: dict[str, object], **wished: object) -> Snapshot:
    """Three nodes of each type; of K80 the first is used most, of V100 the last. wished: how the jobs ask."""
    nodes = [
        {"name": f"n{n}", "gpus": 8, "gpu_types": f"gpu:{kind}:8", "gpus_used": used, "cpus": 64, "memory_mib": 9e5}
        for n, kind, used in ((1, "k80", 4), (2, "k80", 0), (3, "k80", 2), (4, "v100", 0), (5, "v100", 1),
                              (6, "v100", 3))
    ]  # fmt: skip
    rows = [{"submit_s": NOW_S - 60, **job, "gpu_request": f"gpu:{job['gpus']}"} for job in jobs]
    made = snapshot(rows, nodes, now_s=NOW_S)
    even = {"form": "gpus-per-node", "count": 4, "tasks": 2, "nodes": 2, **wished}
    gpu_requests = [JobGpuRequest(int(job), NOW_S - 60, **even) for job in made.jobs.job_id.tolist()]  # type: ignore[arg-type]
    return replace(
        made, gpu_selection=GpuSelection((), frozen([-1] * 6, np.int64), ((),) * 6, (26, 5), tuple(gpu_requests))
    )


def sent(given: Snapshot, *requests: str, limits: PlacementConfig = TYPES) -> Proposal:
    return node_lists(given, ranked(*requests), given.jobs.pending, Linked(), limits, ScopeConfig(partitions=("*",)))


def ranked(*requests: str) -> Ranking:
    types = Labels.of(["v100"] * len(requests))
    return Ranking(np.arange(len(requests)), changes=JobChanges(gpu_type=types, gpus_by_type=Labels.of(requests)))


def test_types__a_gang_goes_to_nodes_of_both():
    """A node of each that is left fullest with room; the next one has what is left."""
    found = sent(at(BOTH, BOTH, BOTH), *["gpu:k80:4,gpu:v100:4"] * 3)
    assert lists(found) == {1: "n[1,6]", 2: "n[3,5]", 3: "n[2,4]"}
    assert found.actions[0].reason == "the policy wants it on k80 and v100, of which there is room on these nodes"


def test_types__a_gang_of_four_nodes_has_three_of_one_type():
    """As the parts come to whole nodes."""
    four = {**BOTH, "gpus": 16, "nodes": 4}
    assert lists(sent(at(four, nodes=4, tasks=4), "gpu:k80:12,gpu:v100:4")) == {1: "n[1-3,6]"}


@pytest.mark.parametrize(
    ("job", "request_"),
    [
        ({"comment": ""}, "gpu:k80:4,gpu:v100:4"), ({"comment": "slurmsched: mixed=no"}, "gpu:k80:4,gpu:v100:4"),
        ({}, "gpu:k80:2,gpu:v100:6"), ({}, "gpu:k80:2,gpu:v100:2"), ({}, ""),
    ],
)  # fmt: skip
def test_types__a_gang_is_slurms_if_it_may_not_or_the_parts_do_not_fit_its_nodes(job, request_):
    """Without the hint, with parts of a node, with other GPUs in sum, with one type alone."""
    assert sent(at({**BOTH, **job}), request_) == Proposal()


def test_types__a_gang_waits_for_room_on_both():
    """No V100 node has six GPUs left for the second."""
    six = {**BOTH, "gpus": 14}
    assert lists(sent(at(six, six, six, count=7), *["gpu:k80:7,gpu:v100:7"] * 3)) == {1: "n[2,5]"}


@pytest.mark.parametrize(
    "wished", [{"nodes": 0}, {"even": False}, {"tasks": 3}, {"bars": ("switches",)}]
)  # fmt: skip
def test_types__a_gang_of_which_slurm_might_give_otherwise_is_refused(wished):
    """Another number of nodes, shares that are not known, or more that it asks for."""
    found = sent(at(BOTH, **wished), "gpu:k80:4,gpu:v100:4")
    assert (lists(found), rules(found)) == ({}, {1: "pin-asks"})


def test_types__a_gang_whose_request_was_not_read_is_refused():
    """Nothing is known of how it asks."""
    found = sent(replace(at(BOTH), gpu_selection=None), "gpu:k80:4,gpu:v100:4")
    assert (lists(found), rules(found)) == ({}, {1: "pin-asks"})


def test_types__not_over_blocks_that_slurm_does_not_join():
    """In blocks of three nodes, of which each type fills one, Slurm starts a gang of two in one alone."""
    blocks = on_fabric(at(BOTH), "BlockName=a Nodes=n[1-3]\nBlockName=b Nodes=n[4-6]\nBlockSizes=3\n")
    assert lists(sent(blocks, "gpu:k80:4,gpu:v100:4")) == {}


def test_unwritten_changes__jobs_for_which_several_types_cannot_be_had():
    """With types on, the gang that is sent there does not count; the job of one node does."""
    given, ranking = at(BOTH, {**BOTH, "nodes": 1}), ranked(*["gpu:k80:4,gpu:v100:4"] * 2)
    every = np.ones(2, np.bool_)
    told = [unwritten_changes(given, ranking, every, LeverConfig(), types=types)[-1] for types in (True, False)]
    words = "on several GPU types at once; set placement.types = true to send gangs of several nodes there"
    assert told == [f"the policy would run {count} {words}" for count in ("1 job", "2 jobs")]
