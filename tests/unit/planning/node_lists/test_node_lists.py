"""On which node a pending job is to start, and when it gets its own node list back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.config import PlacementConfig, ScopeConfig
from slurmsched.model import (
    AllowStart,
    GpuSelection,
    JobChanges,
    Labels,
    Operation,
    Override,
    Purpose,
    Ranking,
    Reservations,
    SetNodeList,
    Snapshot,
    frozen,
    node_state,
)
from slurmsched.placements.linked import Linked
from slurmsched.planning.job_overrides import NODE_LIST_FIELDS, JobOverrides, by_job, records_of, restore_proposal
from slurmsched.planning.node_lists.gpu_picks import SelectionState
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.planning.proposals import Proposal
from slurmsched.testing import snapshot
from tests.unit.planning.node_lists.node_list_cases import (
    HINT,
    NOW_S,
    cluster,
    gpu_request,
    list_overrides,
    lists,
    rules,
    wait,
)

HINTS = PlacementConfig(pin="hints")
DOUBLE, SINGLE, NONE = [0, 3], [0, 1], [0, 5]  # pairs of GPUs with two lanes, one, none


def planned(at: Snapshot, limits: PlacementConfig = HINTS, most: int = 500) -> Proposal:
    """With all pending jobs managed, by job id."""
    ranking = Ranking(np.arange(len(at.jobs)))
    return node_lists(at, ranking, at.jobs.pending, Linked(), limits, ScopeConfig(partitions=("*",)), most)


def holding(job_id: int, nodes: str, since_s: float = NOW_S - 10, **values) -> JobOverrides:
    return list_overrides(job_id, nodes, since_s=since_s, **values)


def test_pins__takes_the_node_where_slurms_pick_is_best():
    """Of nodes with a pair each, the one with the most lanes; the record has the user's own list as base."""
    found = planned(cluster([wait(1)], [SINGLE, DOUBLE, NONE]))
    assert lists(found) == {1: "n2"}
    assert by_job(found.overrides) == (list_overrides(1, "n2", values=("n2", "")),)  # no write is answered yet
    assert found.actions[0].picked
    assert found.actions[0].reason == "Slurm gives it GPUs 0,3 there, the best set of all it may have"


REBOOTS = "IDLE+REBOOT_ISSUED+REBOOT_RESUME"
UNSENT = ["IDLE+POWERED_DOWN", "IDLE+POWERING_UP", "IDLE+POWERING_DOWN", "IDLE+BLOCKED", "IDLE+RESERVED", REBOOTS]


@pytest.mark.parametrize("state", UNSENT)
def test_pins__takes_no_node_that_has_to_boot_is_reserved_or_takes_no_job(state):
    """The best pick is on n2, to which no job is sent: the job gets n1. Where nothing else has room Slurm chooses."""
    two, one = cluster([wait(1)], [SINGLE, DOUBLE]), cluster([wait(1)], [[], DOUBLE])
    assert lists(planned(_in_state(two, 1, state))) == {1: "n1"}
    assert lists(planned(_in_state(one, 1, state))) == {}


def test_pins__takes_no_node_whose_gpus_in_use_cannot_be_read():
    """It is closed for every decision."""
    at = cluster([wait(1)], [SINGLE, DOUBLE])
    unread = at.nodes.with_columns(gpus_unread=np.array([False, True]))
    assert lists(planned(replace(at, nodes=unread))) == {1: "n1"}


def test_pins__jobs_of_slurm_take_nodes_that_are_up_before_others_boot():
    """The first job, whose node Slurm chooses, takes n2, which is up; the second has room after a boot only."""
    at = _in_state(cluster([wait(1, comment=""), wait(2)], [DOUBLE, SINGLE]), 0, "IDLE+POWERED_DOWN")
    assert lists(planned(at)) == {}


def _in_state(at: Snapshot, row: int, state: str) -> Snapshot:
    states = at.nodes.state.copy()
    states[row] = int(node_state(state))
    return replace(at, nodes=at.nodes.with_columns(state=states))


def test_pins__of_nodes_with_equal_links_the_pair_on_one_numa_node():
    """Two lanes either way; 0-4 joins two sockets."""
    assert lists(planned(cluster([wait(1)], [[0, 4], DOUBLE]))) == {1: "n2"}
    assert lists(planned(cluster([wait(1)], [DOUBLE, [0, 4]]))) == {1: "n1"}


def test_pins__a_bad_pick_makes_a_node_of_good_gpus_bad():
    """Slurm 26.05 takes the least linked of all eight: a node with one single link is better than one all free."""
    all_free = cluster([wait(1)], [list(range(8)), DOUBLE])
    assert lists(planned(all_free)) == {1: "n2"}
    told = planned(cluster([wait(1)], [list(range(8)), SINGLE])).actions[0]
    assert told.reason.endswith("the best of Slurm's picks on its nodes")


@pytest.mark.parametrize(
    ("pin", "comment", "expected"),
    [
        ("off", HINT, {}),
        ("hints", "", {}),
        ("hints", HINT, {1: "n2"}),
        ("hints", "slurmsched: topo=any", {}),
        ("multi-gpu", "", {1: "n2"}),
        ("multi-gpu", "slurmsched: topo=any", {}),
    ],
)
def test_pins__only_whose_nodes_are_to_be_chosen(pin, comment, expected):
    """By hint, or all jobs of several GPUs but those that say that any will do."""
    at = cluster([wait(1, comment=comment)], [SINGLE, DOUBLE])
    assert lists(planned(at, PlacementConfig(pin=pin))) == expected


def test_pins__jobs_of_one_gpu_are_left_alone():
    """One GPU has no links."""
    assert planned(cluster([wait(1, gpus=1)], [SINGLE, DOUBLE])) == Proposal()


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"nodes_asked": "n1"}, "pin-own"),
        ({"array_job_id": 1, "array_tasks": 3}, "pin-array"),
        ({"het_job_id": 1}, "pin-het"),
        ({"nodes": 2, "gpus": 4}, "pin-gang"),
        ({"features_asked": "[a*2]"}, "pin-form"),
    ],
)
def test_pins__what_slurm_could_not_take_back_or_the_user_has_chosen_is_left_alone(columns, rule):
    """One reason each."""
    found = planned(cluster([wait(1, **columns)], [SINGLE, DOUBLE]))
    assert (lists(found), rules(found)) == ({}, {1: rule})


def test_pins__what_the_picker_does_not_know_is_left_alone():
    """A request for switches, and one that was not read."""
    bars = (gpu_request(1, bars=("switches",)),)
    found = planned(cluster([wait(1), wait(2)], [SINGLE, DOUBLE], bars))
    assert (lists(found), rules(found)) == ({}, {1: "pin-asks", 2: "pin-asks"})
    assert found.refusals[0].reason.startswith("it asks for switches:")


def test_pins__excluded_nodes_and_features_are_obeyed():
    """The best node is not for this job."""
    assert lists(planned(cluster([wait(1, nodes_excluded="n2")], [SINGLE, DOUBLE]))) == {1: "n1"}
    assert lists(planned(cluster([wait(1, features_asked="fast")], [SINGLE, DOUBLE]))) == {}


def test_pins__a_job_sees_what_those_before_it_take():
    """Two jobs, two good pairs: one each, though both would like the first."""
    found = planned(cluster([wait(1), wait(2)], [DOUBLE, [0, 3, 5], SINGLE]))
    assert set(lists(found).values()) == {"n1", "n2"}


def test_pins__stops_at_the_first_job_that_does_not_fit():
    """Slurm does not start what comes after it either."""
    assert lists(planned(cluster([wait(1, gpus=8), wait(2)], [SINGLE, DOUBLE]))) == {}


def test_pins__nodes_of_unknown_cores_are_left_out():
    """A job came or went between two answers of Slurm: nobody knows what it would pick there."""
    at = cluster([wait(1)], [SINGLE, DOUBLE])
    assert at.gpu_selection is not None
    moved = replace(at.gpu_selection, free_cores=(at.gpu_selection.free_cores[0], ()))
    assert lists(planned(replace(at, gpu_selection=moved))) == {1: "n1"}


def test_pins__a_list_that_is_still_right_stays():
    """Nothing is sent twice."""
    at = cluster([wait(1, nodes_asked="n2")], [SINGLE, DOUBLE], overrides=records_of((holding(1, "n2"),)))
    assert planned(at) == Proposal()


def test_pins__a_list_moves_when_its_node_is_taken():
    """Both lists count as ours from then on, and the time-out runs on."""
    at = cluster([wait(1, nodes_asked="n2")], [SINGLE, []], overrides=records_of((holding(1, "n2"),)))
    (action,), (pin,) = planned(at).actions, by_job(planned(at).overrides)
    assert (action.new, action.old, action.base) == ("n1", "n2", "")
    assert (pin.nodes.values, pin.since_s) == (("n2", "n1"), NOW_S - 10)


def test_pins__a_list_goes_back_when_nothing_is_free():
    """The job waits as it would without us, and may be pinned again."""
    found = planned(cluster([wait(1, nodes_asked="n2")], [[], []], overrides=records_of((holding(1, "n2"),))))
    assert [(action.new, action.old) for action in found.actions] == [("", "n2")]
    assert (by_job(found.overrides)[0].open, by_job(found.overrides)[0].abandoned) == (False, False)


def test_pins__a_job_for_which_others_leave_keeps_what_it_has():
    """Its operation chose nodes by the list that it has: none is moved, given back or given."""
    operation = Operation("1-9", Purpose.PREEMPT, 1, NOW_S - 60, "alice", "n2", 60.0, NOW_S - 10)
    for nodes, pins_ in (("n2", (holding(1, "n2"),)), ("", ())):
        at = cluster([wait(1, nodes_asked=nodes)], [SINGLE, []], overrides=records_of(pins_), operations=(operation,))
        assert planned(at) == Proposal()


def test_pins__a_list_of_a_time_to_come_is_of_now():
    """The clock was set back by hours since: it stays, and its time is on record, so that it does not wait for ever."""
    at = cluster(
        [wait(1, nodes_asked="n2")], [SINGLE, DOUBLE], overrides=records_of((holding(1, "n2", NOW_S + 18_000),))
    )
    found = planned(at)
    assert (found.actions, [pin.since_s for pin in by_job(found.overrides)]) == ((), [NOW_S])
    again = planned(replace(at, now_s=NOW_S + 121, overrides=found.overrides))
    assert (lists(again), by_job(again.overrides)[-1].abandoned) == ({1: ""}, True)


def test_pins__a_job_that_did_not_start_in_time_is_slurms():
    """Its list goes back, and it gets none again."""
    late = holding(1, "n2", NOW_S - 500)
    found = planned(cluster([wait(1, nodes_asked="n2")], [SINGLE, DOUBLE], overrides=records_of((late,))))
    assert (lists(found), by_job(found.overrides)[0].abandoned) == ({1: ""}, True)
    assert found.actions[0].reason == "it did not start within 120 s"
    assert planned(cluster([wait(1)], [SINGLE, DOUBLE], overrides=found.overrides)) == Proposal()


@pytest.mark.parametrize("theirs", ["", "n1"])
def test_pins__a_list_that_somebody_else_changed_is_theirs(theirs):
    """Cleared or set to another: left alone for good."""
    at = cluster([wait(1, nodes_asked=theirs)], [SINGLE, DOUBLE], overrides=records_of((holding(1, "n2"),)))
    found = planned(at)
    assert (found.actions, [pin.abandoned for pin in by_job(found.overrides)]) == ((), [True])
    assert planned(replace(at, overrides=found.overrides)).actions == ()


def test_pins__a_requeued_job_keeps_our_list_and_gets_it_back():
    """Slurm keeps the list over a requeue: it counts as given anew, under the new submit time."""
    old = list_overrides(1, "n2", submit_s=5.0, since_s=5.0)
    found = planned(cluster([wait(1, nodes_asked="n2", restarts=1)], [SINGLE, []], overrides=records_of((old,))))
    assert lists(found) == {1: "n1"}
    assert by_job(found.overrides[:2])[0] == old.with_all(submit_s=NOW_S - 60, since_s=NOW_S)


@pytest.mark.parametrize(("ago_s", "late"), [(29.0, False), (30.0, True)])
def test_pins__a_write_without_an_answer_may_arrive_late(ago_s, late):
    """Its process was killed, and slurmctld had it in its queue: the job's own list is on record until that is over,
    and undo writes it. Then the job gets a list again. One that has come goes back as any other."""
    ours = records_of((list_overrides(1, "n2", values=("n2", ""), since_s=NOW_S - ago_s),))
    at = cluster([wait(1)], [SINGLE, DOUBLE], overrides=ours)
    undone = restore_proposal(at, NODE_LIST_FIELDS, "undo")
    assert (lists(planned(at)), lists(undone)) == (({1: "n2"}, {}) if late else ({}, {1: ""}))
    assert [each.open for each in undone.overrides] == [False, False]
    arrived = planned(cluster([wait(1, nodes_asked="n2")], [[], []], overrides=ours))
    assert (lists(arrived), by_job(arrived.overrides)[0].nodes.values) == ({1: ""}, ("n2",))


def test_pins__a_request_that_may_still_arrive_is_waited_for():
    """The list came, and the daemon was killed while the request was on its way. Afterwards the list goes back."""
    ours = list_overrides(1, "n1", since_s=NOW_S - 40).with_request(base="gpu:2", sent="gpu:p1:2",
                                                                   values=("gpu:p1:2", "gpu:2"))  # fmt: skip
    at = cluster([wait(1, nodes_asked="n1")], [[], []], overrides=records_of((ours,)))
    assert [(action.kind, action.new) for action in planned(at).actions] == [("pin", "")]
    soon_ = ours.with_request(since_s=NOW_S - 29)
    assert planned(replace(at, overrides=records_of((soon_,)))).actions == ()


def test_pins__lists_on_record_go_back_when_pinning_is_turned_off():
    """No picking is read then."""
    at = replace(
        cluster([wait(1, nodes_asked="n2")], [SINGLE, DOUBLE], overrides=records_of((holding(1, "n2"),))),
        gpu_selection=None,
    )
    assert lists(planned(at, PlacementConfig())) == {1: ""}


def test_pins__a_job_that_waits_for_its_place_begins_once_it_has_one():
    """Only if it was submitted to begin so soon: another begin time is the user's."""
    at = cluster([wait(1, eligible_s=NOW_S + 5)], [SINGLE, DOUBLE])
    assert planned(at).actions == ()
    pin, delay = planned(at, PlacementConfig(pin="hints", wait_s=65)).actions
    assert (pin.new, delay.operation) == ("n2", pin.operation)
    assert isinstance(delay, AllowStart)
    assert delay.start_s == NOW_S


def test_pins__no_more_writes_than_there_is_room_for():
    """What goes together goes together, and nothing is on record that is not sent."""
    at = cluster([wait(1), wait(2)], [DOUBLE, DOUBLE, SINGLE])
    found = planned(at, most=1)
    assert [len(found.actions), len(by_job(found.overrides))] == [1, 1]


def test_given_back__every_job_gets_its_own_list():
    """Undo; the list of a job that somebody else changed is not touched."""
    at = cluster([wait(1, nodes_asked="n2"), wait(2, nodes_asked="n1")], [[], []],
                 overrides=records_of((holding(1, "n2"), holding(2, "n2"))))  # fmt: skip
    assert lists(restore_proposal(at, NODE_LIST_FIELDS, "undo")) == {1: ""}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4), st.integers(2, 4))
def test_pins__no_other_node_would_give_a_better_pick(free, gpus):
    """Whatever is free: the node chosen has the highest rank of all picks, and there is one if any pick is known."""
    at = cluster([wait(1, gpus=gpus)], [sorted(one) for one in free])
    assert at.gpu_selection is not None
    picks = SelectionState.of(at, at.gpu_selection)
    ranks = [picks.pick(n, gpu_request(1, gpus), gpus).rank for n in range(len(free))]
    best = [f"n{n + 1}" for n, rank in enumerate(ranks) if rank == max(ranks) and rank >= 0]
    found = lists(planned(at))
    assert set(found.values()) <= set(best)
    assert bool(found) == bool(best)


TYPES = PlacementConfig(types=True)


def mixed(*jobs: dict[str, object], **others: object) -> Snapshot:
    """Two nodes of K80 and one of V100, the last with one GPU free."""
    nodes = [
        {"name": f"n{n}", "gpus": 4, "gpu_types": f"gpu:{kind}:4", "gpus_used": used, "cpus": 64, "memory_mib": 9e5}
        for n, kind, used in ((1, "k80", 0), (2, "k80", 2), (3, "v100", 3))
    ]
    rows = [{"submit_s": NOW_S - 60, "nodes": 1, "gpu_request": "gpu:1", **job} for job in jobs]
    return snapshot(rows, nodes, now_s=NOW_S, **others)


def typed(at: Snapshot, *types: str, limits: PlacementConfig = TYPES) -> Proposal:
    every = [*types, *[""] * (len(at.jobs) - len(types))]
    ranking = Ranking(np.arange(len(at.jobs)), changes=JobChanges(gpu_type=Labels.of(every)))
    return node_lists(at, ranking, at.jobs.pending, Linked(), limits, ScopeConfig(partitions=("*",)))


def test_types__a_job_goes_to_a_node_of_the_type_that_the_policy_wants():
    """The node left fullest with room; nobody is pinned where there is none, or no type is wanted."""
    found = typed(mixed({}, {}, {}, {}), "v100", "v100", "k80", "")
    assert lists(found) == {1: "n3", 3: "n2"}
    assert found.actions[0].reason == "the policy wants it on v100, of which there is room on this node"


def test_types__no_node_that_a_reservation_has_before_the_job_would_be_over():
    """As of those that are reserved now."""
    kept = Reservations.build(1, {"name": ["fix"], "node_list": ["n3"], "start_s": [NOW_S + 600]})
    for limit_s, expected in ((3_600.0, {}), (60.0, {1: "n3"})):
        assert lists(typed(mixed({"time_limit_s": limit_s}, reservations=kept), "v100")) == expected


@pytest.mark.parametrize(("nodes", "listed"), [(1, True), (0, False), (2, False)])
def test_types__only_jobs_whose_record_tells_one_node_where_it_was_read(nodes, listed):
    """squeue shows one node of `-n4 --gpus=4` too: a list would be refused in each cycle."""
    at = mixed({})
    read = GpuSelection((), frozen([-1] * 3, np.int64), ((),) * 3, (26, 5), (replace(gpu_request(1, 1), nodes=nodes),))
    found = typed(replace(at, gpu_selection=read), "v100")
    assert lists(found) == ({1: "n3"} if listed else {})
    assert rules(found) == ({} if listed else {1: "pin-asks"})


def test_types__off_by_default():
    """Without the setting no job is pinned for its type."""
    assert lists(typed(mixed({}), "v100", limits=PlacementConfig())) == {}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"gpu_request": "gpu:k80:1"}, {}), ({"nodes": 2, "gpus": 2}, {}), ({"nodes_asked": "n1"}, {}),
        ({"nodes_excluded": "n3"}, {}), ({"features_asked": "[x*2]"}, {}), ({}, {1: "n3"}),
    ],
)  # fmt: skip
def test_types__the_users_own_wishes_stand(job, expected):
    """A type or node of their own, several nodes, nodes left out, a constraint that is not understood."""
    assert lists(typed(mixed(job), "v100")) == expected


def test_types__a_list_goes_back_when_another_type_is_wanted_and_moves():
    """The next round wants it elsewhere: the list moves; without a type it is given back."""
    held = mixed({"nodes_asked": "n3"}, overrides=records_of((holding(1, "n3"),)))
    assert (lists(typed(held, "k80")), lists(typed(held, ""))) == ({1: "n2"}, {1: ""})


def test_types__who_waits_to_be_placed_starts_when_it_is():
    """A job that was submitted to begin a little later is pinned and begins at once."""
    at = mixed({"eligible_s": NOW_S + 100})
    found = typed(at, "v100", limits=PlacementConfig(types=True, wait_s=600))
    assert [type(action) for action in found.actions] == [SetNodeList, AllowStart]


@pytest.mark.parametrize(
    ("starts", "kinds"), [((), ["pin", "delay"]), ((Override(1, NOW_S - 60, "start_time", 0.0, NOW_S + 100),), [])]
)
def test_pins__a_start_of_ours_is_no_wait_for_a_place(starts, kinds):
    """The policy wants it later: no node, no begin, though the start lies within wait_s. With the user's own it has."""
    limits = PlacementConfig(pin="hints", types=True, wait_s=600)
    by_type = typed(mixed({"eligible_s": NOW_S + 100}, overrides=starts), "v100", limits=limits)
    by_pick = planned(cluster([wait(1, eligible_s=NOW_S + 100)], [SINGLE, DOUBLE], overrides=starts), limits)
    assert ([step.kind for step in by_type.actions], [step.kind for step in by_pick.actions]) == (kinds, kinds)


BOTH = PlacementConfig(pin="hints", types=True, wait_s=600)


def meshes(jobs: list[dict[str, object]], free: list[list[int]], types: str = "gpu:v100:8", **others) -> Snapshot:
    at = cluster(jobs, free, **others)
    return replace(at, nodes=at.nodes.with_columns(gpu_types=[types] * len(free)))


def test_pins__one_walk_gives_no_gpu_twice():
    """Whoever is more urgent, the one by type or the one by pick: the other goes without, as the pair is taken."""
    jobs = [wait(1), wait(2)]
    assert lists(typed(meshes(jobs, [DOUBLE]), "v100", "", limits=BOTH)) == {1: "n1"}
    assert lists(typed(meshes(jobs, [DOUBLE]), "", "v100", limits=BOTH)) == {1: "n1"}


def test_pins__a_pick_is_not_told_on_the_node_of_a_job_by_type():
    """Which GPUs that one gets is not known, so the other is placed elsewhere."""
    at = meshes([wait(1), wait(2)], [[0, 3, 4, 7], [0, 1, 2, 5, 6]])
    assert lists(typed(at, "v100", "", limits=BOTH)) == {1: "n1", 2: "n2"}


def test_types__others_that_start_before_it_take_their_share():
    """Also one whose node is Slurm's to choose; without any pin by pick."""
    at = mixed({"gpu_request": "gpu:v100:1"}, {})
    assert lists(typed(at, "", "v100")) == {}
    assert lists(typed(mixed({}, {"gpu_request": "gpu:v100:1"}), "v100", "")) == {1: "n3"}


def test_types__who_finds_no_room_starts_elsewhere_or_waits():
    """A job that is ready takes what Slurm gives it; one that waits for its place takes nothing and stops nobody."""
    ready, waits = {"gpus": 2, "gpu_request": "gpu:2"}, {"eligible_s": NOW_S + 100}
    k80 = {"nodes_excluded": "n1"}
    assert lists(typed(mixed(ready | k80, k80), "v100", "k80", limits=BOTH)) == {}
    assert lists(typed(mixed(ready | k80 | waits, k80), "v100", "k80", limits=BOTH)) == {2: "n2"}


def test_types__go_on_after_the_first_job_that_does_not_fit():
    """A gang that waits stops picks, as Slurm starts what comes after it no earlier, but no types."""
    gang = wait(1, gpus=8, comment="")
    assert lists(typed(meshes([gang, wait(2), wait(3)], [DOUBLE, DOUBLE]), "", "", "v100", limits=BOTH)) == {3: "n1"}


def test_types__as_many_are_looked_at_as_candidates():
    """Others do not count against them, and they not against others' number."""
    few = PlacementConfig(types=True, candidates=1)
    assert lists(typed(mixed({}, {}, {}), "", "k80", "v100", limits=few)) == {2: "n2"}


def test_types__who_waits_for_no_place_of_ours_takes_nothing():
    """It names its type itself: nobody chooses its node, and it begins when it says."""
    own = {"gpu_request": "gpu:v100:1", "eligible_s": NOW_S + 100}
    assert lists(typed(mixed(own, {}), "", "v100", limits=BOTH)) == {2: "n3"}
