"""On which nodes a pending gang is to start, and when it is left to Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.config import Config, GangsConfig, PlacementConfig, ScopeConfig
from slurmsched.model import (
    JobChanges,
    JobGpuRequest,
    Labels,
    NodeState,
    Ranking,
    Reservations,
    Rights,
    SiteTopology,
    Snapshot,
)
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.placements.baselines import Spread
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.harmony import Harmony
from slurmsched.placements.linked import Linked
from slurmsched.planning.job_overrides import JobOverrides, by_job, records_of
from slurmsched.planning.node_lists.gpu_picks import fabric_height, fabric_text
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import Proposal
from tests.unit.planning.node_lists.node_list_cases import (
    NOW_S,
    cluster,
    gpu_request,
    list_overrides,
    lists,
    on_fabric,
    rules,
    wait,
)

ALL, HALF = list(range(8)), [0, 1, 2, 3]
LEAVES = "SwitchName=top Switches=a,b\nSwitchName=a Nodes=n1,n3\nSwitchName=b Nodes=n2,n4\n"
HINTS = PlacementConfig(pin="hints")


def gang(job_id: int = 1, nodes: int = 2, each: int = 4, **columns: Any) -> dict[str, Any]:
    row = {"nodes": nodes, "cpus": nodes, "gpu_request": f"gpu:{each}", "comment": "slurmsched: topo=switch"}
    return wait(job_id, nodes * each) | row | columns


def asks(job_id: int = 1, nodes: int = 2, each: int = 4, **values: Any) -> JobGpuRequest:
    return gpu_request(job_id, each, **{"tasks": nodes, "cpus_per_task": 1, "nodes": nodes, **values})


def leaves(
    jobs: Sequence[Mapping[str, Any]] = (),
    free: Sequence[Sequence[int]] = (ALL,) * 4,
    gpu_requests: Sequence[JobGpuRequest] = (),
    **others: Any,
) -> Snapshot:
    """Two leaf switches, n1 and n3 under one, n2 and n4 under the other."""
    return on_fabric(cluster(jobs or [gang()], free, gpu_requests or (asks(),), **others), LEAVES)


def planned(at: Snapshot, limits: PlacementConfig = HINTS, placement: Any = Linked()) -> Proposal:  # noqa: B008
    ranking = Ranking(np.arange(len(at.jobs)))
    return node_lists(at, ranking, at.jobs.pending, placement, limits, ScopeConfig(partitions=("*",)))


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        ((ALL, ALL, ALL, ALL), "n[1,3]"),
        ((ALL, HALF, ALL, HALF), "n[2,4]"),  # the leaf left fullest
        ((ALL, ALL, [0], ALL), "n[2,4]"),  # Slurm alone would take n1 and n2
        ((ALL, ALL, [0], [0]), "n[1-2]"),  # no leaf has room for both
    ],
)
def test_gang__all_of_it_goes_where_its_nodes_are_nearest(free, expected):
    """One list of as many nodes as it gets, on record with nothing as base."""
    found = planned(leaves(free=free))
    (action,), (pin,) = found.actions, by_job(found.overrides)
    assert (action.new, action.old, action.base, action.picked) == (expected, "", "", True)
    assert pin == list_overrides(1, expected, values=(expected, ""))


def test_gang__says_where_it_lies():
    """By the name of the cell; or that there is none."""
    at = leaves(free=(ALL, ALL, [0], ALL))
    assert planned(at).actions[0].reason == "its 2 nodes are free together in b, over 1 of the lowest cells"
    loose = on_fabric(at, "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n").topology
    told = "its 2 nodes are free together in no one cell of the fabric, over 2 of the lowest cells"
    assert fabric_text(loose, [0, 1]) == told


def test_gang__nothing_is_written_unless_all_of_it_is_free():
    """One node short of GPUs, of CPUs or of memory is one too few; so is one that is drained or reserved."""
    one_left = leaves(free=(ALL, [0], [0], [0]))
    assert planned(one_left) == Proposal()
    at = leaves(free=(ALL, [0], ALL, [0]))
    assert lists(planned(at)) == {1: "n[1,3]"}
    nodes, last = at.nodes, np.array([False, False, True, False])
    full = {"cpus_used": nodes.cpus, "memory_used_mib": nodes.memory_mib}
    taken = [{name: np.where(last, of, getattr(nodes, name))} for name, of in full.items()]
    closed = [{"state": np.where(last, nodes.state | int(flag), nodes.state)}
              for flag in (NodeState.DRAIN, NodeState.RESERVED)]  # fmt: skip
    for columns in (*taken, *closed):
        assert lists(planned(replace(at, nodes=nodes.with_columns(**columns)))) == {}, columns.keys()


def reserved(at: Snapshot, nodes: str, start_s: float, limit_s: float = 3_600.0) -> Snapshot:
    """With a reservation of an hour, and this limit for every job."""
    column = {"name": ["fix"], "node_list": [nodes], "start_s": [start_s], "end_s": [start_s + 3_600]}
    jobs = at.jobs.with_columns(time_limit_s=np.full(len(at.jobs), limit_s))
    return replace(at, jobs=jobs, reservations=Reservations.build(1, column))


@pytest.mark.parametrize(
    ("nodes", "start_s", "limit_s", "expected"),
    [
        ("n[1,3]", NOW_S + 600, 3_600.0, {1: "n[2,4]"}),
        ("n[1,3]", NOW_S + 600, np.nan, {1: "n[2,4]"}),
        ("n[1,3]", NOW_S + 600, 300.0, {1: "n[1,3]"}),  # over before
        ("n[1,3]", NOW_S - 7_200, 3_600.0, {1: "n[1,3]"}),  # that is over
        ("n[1-4]", NOW_S + 600, 3_600.0, {}),
        ("n[1", NOW_S + 600, 3_600.0, {}),  # cannot be read
    ],
)
def test_gang__no_list_where_a_reservation_comes_before_it_would_be_over(nodes, start_s, limit_s, expected):
    """Slurm would not start it there, but could on other nodes."""
    assert lists(planned(reserved(leaves(), nodes, start_s, limit_s))) == expected


def test_gang__shares_that_do_not_divide_are_taken_rounded_up():
    """Slurm may give the first node four of seven CPUs: the second gang would not fit beside the first."""
    at = leaves([gang(each=2, cpus=7), gang(2, each=2, cpus=7)], gpu_requests=(asks(each=2), asks(2, each=2)))
    seven_left = at.nodes.with_columns(cpus_used=at.nodes.cpus - 7)
    assert lists(planned(replace(at, nodes=seven_left))) == {1: "n[1,3]", 2: "n[2,4]"}


@pytest.mark.parametrize(
    ("pin", "comment", "expected"),
    [
        ("hints", "", {}),
        ("hints", "slurmsched: topo=nvlink", {1: "n[1,3]"}),
        ("multi-gpu", "", {1: "n[1,3]"}),
        ("multi-gpu", "slurmsched: topo=any", {}),
        ("off", "slurmsched: topo=switch", {}),
    ],
)
def test_gang__by_hint_or_all(pin, comment, expected):
    """As jobs of one node; one GPU on each of two nodes is a gang too."""
    assert lists(planned(leaves([gang(comment=comment)]), PlacementConfig(pin=pin))) == expected
    small = leaves([gang(each=1, comment=comment)], gpu_requests=(asks(each=1),))
    assert lists(planned(small, PlacementConfig(pin=pin))) == expected


@pytest.mark.parametrize(
    ("columns", "values", "rule"),
    [
        ({"nodes_asked": "n[1-2]"}, {}, "pin-own"),
        ({"features_asked": "[a*2]"}, {}, "pin-form"),
        ({"array_job_id": 1, "array_tasks": 3}, {}, "pin-array"),
        ({"het_job_id": 1}, {}, "pin-het"),
        ({}, {"bars": ("switches",)}, "pin-asks"),
        ({}, {"nodes": 0, "bars": ("a number of nodes that is not fixed",)}, "pin-asks"),
        ({}, {"nodes": 3}, "pin-gang"),  # the list of jobs and the job's own record differ
        ({}, {"even": False}, "pin-gang"),
        ({"gpus": 9}, {}, "pin-gang"),
        ({"cpus": 12}, {"tasks": 3, "cpus_per_task": 4}, "pin-gang"),  # eight CPUs on one node and four on the other
    ],
)
def test_gang__left_alone_with_a_reason(columns, values, rule):
    """The user's own wishes, and what could break by a list."""
    found = planned(leaves([gang(**columns)], gpu_requests=(asks(**values),)))
    assert (lists(found), rules(found)) == ({}, {1: rule})


def test_gang__needs_a_fabric():
    """Without one no node is nearer than another; so it is where only other nodes are in it."""
    for text in ("", "SwitchName=a Nodes=x[1-9]\n"):
        assert rules(planned(on_fabric(leaves(), text))) == {1: "pin-gang"}
    assert rules(planned(replace(leaves(), topology=SiteTopology()))) == {1: "pin-gang"}


BLOCKS = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2,4\n"
FOUR = "".join(f"BlockName=b{at} Nodes=n[{2 * at - 1}-{2 * at}]\n" for at in range(1, 5)) + "BlockSizes=2,4\n"


def test_gang__that_fits_into_a_block_is_left_to_slurm_until_it_can_lie_in_one():
    """Slurm starts it over two blocks neither with a list nor without; the job takes its share all the same."""
    at = on_fabric(leaves(free=([0], ALL, ALL, [0])), BLOCKS)
    assert (lists(planned(at)), rules(planned(at))) == ({}, {})
    assert lists(planned(on_fabric(leaves(free=([0], ALL, ALL, ALL)), BLOCKS))) == {1: "n[3-4]"}


@pytest.mark.parametrize(
    ("nodes", "busy", "expected"),
    [
        (3, (), "n[1-3]"),
        (3, (1,), "n[2-4]"),
        (3, (1, 4), "n[5-7]"),
        (3, (1, 4, 5, 8), None),  # four are free, in two aggregates
        (4, (1,), "n[5-8]"),
        (5, (), "n[1-5]"),  # more than the largest: in two of them, three blocks
        (5, (2, 4, 6, 8), None),
    ],
)
def test_gang__over_several_blocks_where_slurm_starts_it(nodes, busy, expected):
    """In one aggregate, and there in the fewest blocks."""
    free = [[0] if node in busy else ALL for node in range(1, 9)]
    at = cluster([gang(nodes=nodes)], free, (asks(nodes=nodes),))
    found = lists(planned(on_fabric(at, FOUR)))
    assert found == ({1: expected} if expected else {})


def test_gang__over_blocks_of_which_no_sizes_are_told_in_one_only():
    """How Slurm joins them is not known then."""
    at = on_fabric(cluster([gang(nodes=3)], [ALL] * 8, (asks(nodes=3),)), FOUR.replace("BlockSizes=2,4\n", ""))
    assert lists(planned(at)) == {}


def test_gang__whose_fabric_is_told_by_a_file_that_slurm_does_not_have():
    """A flat Slurm takes any list; one with blocks of its own takes those in one; one that has not told, none."""
    at = on_fabric(leaves(free=([0], ALL, ALL, [0])), BLOCKS).topology
    plain = SiteTopology()
    flat, blocks, unwritten_changes = (
        replace(at, slurm_fabric=slurm.slurm_fabric, slurm_cell=slurm.slurm_cell, slurm_known=known)
        for slurm, known in ((plain, True), (at, True), (plain, False))
    )
    free = leaves(free=([0], ALL, ALL, [0]))
    assert lists(planned(replace(free, topology=flat))) == {1: "n[2-3]"}
    switches = replace(blocks, fabric=free.topology.fabric, cell=free.topology.cell)
    assert lists(planned(replace(free, topology=switches))) == {}
    assert lists(planned(replace(leaves(free=([0], ALL, ALL, ALL)), topology=switches))) == {1: "n[3-4]"}
    assert rules(planned(replace(free, topology=unwritten_changes))) == {1: "pin-gang"}


def test_gang__under_one_switch_of_a_tree_without_a_root():
    """Slurm starts no job under two; nor on nodes on no switch."""
    loose = "SwitchName=a Nodes=n1,n3\nSwitchName=b Nodes=n2\n"
    assert lists(planned(on_fabric(leaves(), loose))) == {1: "n[1,3]"}
    assert lists(planned(on_fabric(leaves(free=(ALL, ALL, [0], ALL)), loose))) == {}


@pytest.mark.parametrize(("version", "rule"), [((24, 11), {1: "pin-gang"}), ((25, 5), {})])
def test_gang__in_blocks_only_where_slurm_shows_segments(version, rule):
    """Earlier releases tell nobody what a job asked for."""
    at = on_fabric(leaves(), BLOCKS)
    old = replace(at, gpu_selection=replace(at.gpu_selection, version=version))
    assert (bool(lists(planned(old))), rules(planned(old))) == (not rule, rule)
    tree = leaves()
    assert lists(planned(replace(tree, gpu_selection=replace(tree.gpu_selection, version=version))))


def test_gang__that_may_have_no_node_is_told_nothing_of_the_fabric():
    """Its constraint, partition or type is what keeps it."""
    found = planned(leaves([gang(features_asked="none")]))
    assert (lists(found), rules(found)) == ({}, {})


def test_gang__gpus_not_asked_for_by_node_only_with_whole_nodes():
    """Slurm gives --gpus=16 on two nodes of eight all of both, and --gpus=8 as seven and one."""
    at = leaves([gang(each=8, gpu_request="")], (ALL, HALF, ALL, ALL), (asks(each=8, form="gpus", even=False),))
    assert lists(planned(at)) == {1: "n[1,3]"}


def test_gang__alone_on_its_nodes_only_where_nobody_is():
    """--exclusive: a node with one CPU in use has no room for it, and nobody is placed beside it."""
    jobs = [gang(each=4), gang(2, each=4)]
    at = leaves(jobs, (ALL, HALF, ALL, HALF), (asks(whole=True), asks(2)))
    assert lists(planned(at)) == {1: "n[1,3]", 2: "n[2,4]"}
    assert lists(planned(leaves(jobs, (ALL, [0], ALL, [0]), (asks(whole=True), asks(2))))) == {1: "n[1,3]"}


def test_gang__excluded_nodes_features_and_partitions_are_obeyed():
    """Where that leaves no leaf with room, two leaves do."""
    assert lists(planned(leaves([gang(nodes_excluded="n3")]))) == {1: "n[2,4]"}
    at = leaves([gang(features_asked="fast")])
    fast = replace(at, nodes=at.nodes.with_columns(features=["fast", "fast", "", ""]))
    assert (lists(planned(fast)), lists(planned(at))) == ({1: "n[1-2]"}, {})
    other = at.nodes.with_columns(partitions=["gpu", "gpu,b", "b", "gpu,b"], features=["fast"] * 4)
    assert lists(planned(replace(at, nodes=other))) == {1: "n[2,4]"}


def test_gang__takes_its_share_before_the_next():
    """Two gangs and a job of one node: nobody is promised what another takes."""
    jobs = [gang(each=8), gang(2, each=8), wait(3)]
    found = planned(leaves(jobs, gpu_requests=(asks(each=8), asks(2, each=8), gpu_request(3))))
    assert lists(found) == {1: "n[1,3]", 2: "n[2,4]"}


def test_gang__that_does_not_fit_lets_nobody_pass():
    """As Slurm does: what comes after it starts no earlier."""
    assert (
        lists(planned(leaves([gang(nodes=5, each=8), wait(2)], gpu_requests=(asks(nodes=5, each=8), gpu_request(2)))))
        == {}
    )


def test_gang__uneven_counts_are_given_to_no_node():
    """Two nodes of six GPUs each, not eight and four."""
    at = leaves([gang(each=6)], (ALL, [0, 1, 2, 3, 4, 5], ALL, [0, 1, 2, 3, 4, 5]), (asks(each=6),))
    assert lists(planned(at)) == {1: "n[2,4]"}


def kept(nodes: str, since_s: float = NOW_S - 10) -> JobOverrides:
    return list_overrides(1, nodes, since_s=since_s)


@pytest.mark.parametrize("pinned", ["n[1,3]", "n[2,4]"])
def test_gang__a_list_that_is_as_good_stays(pinned):
    """Either leaf will do; nothing is sent twice, in whatever way Slurm writes the list."""
    for shown in (pinned, ",".join(expand_hostlist(pinned))):
        assert planned(leaves([gang(nodes_asked=shown)], overrides=records_of((kept(pinned),)))) == Proposal()


def test_gang__a_list_stays_while_slurm_has_not_told_its_fabric():
    """Nothing speaks against it; it still goes back once it is late."""
    at = leaves([gang(nodes_asked="n[1,3]")], overrides=records_of((kept("n[1,3]"),)))
    unwritten_changes = replace(at, topology=replace(at.topology, slurm_known=False))
    assert lists(planned(unwritten_changes)) == {}
    assert lists(planned(replace(unwritten_changes, now_s=NOW_S + HINTS.start_timeout_s + 1))) == {1: ""}


def test_gang__a_list_moves_to_a_nearer_place_and_goes_back_when_one_node_is_taken():
    """Half of it free is not enough."""
    spanning = leaves([gang(nodes_asked="n[1-2]")], overrides=records_of((kept("n[1-2]"),)))
    assert lists(planned(spanning)) == {1: "n[1,3]"}
    taken = leaves([gang(nodes_asked="n[1,3]")], (ALL, [0], [0], [0]), overrides=records_of((kept("n[1,3]"),)))
    assert lists(planned(taken)) == {1: ""}
    assert not by_job(planned(taken).overrides)[0].abandoned


def test_gang__that_did_not_start_in_time_is_left_to_slurm():
    """Its own list back, and no other one."""
    at = leaves([gang(nodes_asked="n[1,3]")], overrides=records_of((kept("n[1,3]", NOW_S - 121),)))
    found = planned(at)
    assert (lists(found), by_job(found.overrides)[0].abandoned) == ({1: ""}, True)
    assert planned(leaves(overrides=found.overrides)) == Proposal()


def test_gang__no_nodes_are_kept_for_one_that_has_a_list():
    """Its gang reservation would be bound to a list that is given back in the same cycle; the next one may begin it."""
    busy = leaves(
        [gang(each=8, nodes_asked="n[1,3]")],
        (ALL, [0], [0], [0]),
        (asks(each=8),),
        overrides=records_of((kept("n[1,3]"),)),
    )
    ends = np.where(busy.jobs.pending, np.nan, NOW_S + 600)
    jobs = busy.jobs.with_columns(end_s=ends, time_limit_s=np.full(len(ends), 3600.0))
    busy = replace(busy, jobs=jobs, site=replace(busy.site, rights=Rights.OPERATOR))
    planner = replace(
        Planner.from_config(Config()),
        scope=ScopeConfig(partitions=("*",)),
        placement_config=HINTS,
        gangs=GangsConfig(reserve=True),
    )
    assert planner.plan(busy).operations == ()
    own = busy.jobs.with_columns(nodes_asked=Labels.of([""] * len(busy.jobs)))
    assert len(planner.plan(replace(busy, jobs=own, overrides=())).operations) == 1


def test_gang__is_not_sent_to_a_type_that_the_policy_wants():
    """Types are for jobs of one node."""
    at = leaves()
    ranking = Ranking(np.arange(len(at.jobs)), changes=JobChanges(gpu_type=Labels.of(["v100"] * len(at.jobs))))
    found = node_lists(
        at, ranking, at.jobs.pending, Linked(), PlacementConfig(types=True), ScopeConfig(partitions=("*",))
    )
    assert found == Proposal()


def test_gang__of_leaves_that_are_equally_near_the_one_with_slurms_better_picks():
    """A pair with two lanes on each node, not with one; unless that leaf is no longer as near."""
    single, double = [0, 1], [0, 3]
    pair = (asks(each=2, cpus_per_task=2),)
    assert lists(planned(leaves([gang(each=2)], (single, double) * 2, pair))) == {1: "n[2,4]"}
    assert lists(planned(leaves([gang(each=2)], (double, single) * 2, pair))) == {1: "n[1,3]"}
    assert lists(planned(leaves([gang(each=2)], (single, double, single, [0]), pair))) == {1: "n[1,3]"}


@pytest.mark.parametrize(
    ("placement", "expected"),
    [(Linked(), "n[1,3]"), (Spread(), "n[2,4]"), (CellPlacement(), "n[1,3]"), (Harmony(), "n[2,4]")],
)
def test_gang__the_placement_chooses(placement, expected):
    """The fuller leaf, or the emptier nodes; also for the last of more jobs than the placement is asked about."""
    at = leaves([wait(1, priority=0), gang(5000)], free=(HALF, ALL, HALF, ALL), gpu_requests=(asks(5000),))
    assert lists(planned(at, placement=placement)) == {5000: expected}


FREE = st.lists(st.integers(0, 8), min_size=6, max_size=6)
DEEP = "".join(f"SwitchName=l{i} Nodes=n{2 * i + 1},n{2 * i + 2}\n" for i in range(3))
DEEP += "SwitchName=s0 Switches=l0,l1\nSwitchName=s1 Switches=l2\nSwitchName=top Switches=s0,s1\n"


@settings(deadline=None, max_examples=60)
@given(FREE, st.integers(2, 4), st.integers(1, 8))
def test_gang__nothing_nearer_was_free(counts, nodes, each):
    """Of all sets of nodes with room none lies lower in the fabric or on fewer leaves; and each has its share."""
    free = [ALL[:count] for count in counts]
    at = on_fabric(cluster([gang(nodes=nodes, each=each)], free, (asks(nodes=nodes, each=each),)), DEEP)
    found = lists(planned(at))
    fits = [n for n, count in enumerate(counts) if count >= each]
    assert bool(found) == (len(fits) >= nodes)
    if found:
        chosen = [list(at.nodes.name).index(name) for name in expand_hostlist(found[1])]
        assert len(set(chosen)) == nodes
        assert set(chosen) <= set(fits)
        assert fabric_height(at.topology, chosen) == min(
            fabric_height(at.topology, each) for each in combinations(fits, nodes)
        )
