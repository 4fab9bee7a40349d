"""Requests rewritten by GPU Type: whose, to what, and how they get their own back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.config import PlacementConfig, ScopeConfig
from slurmsched.model import Ranking, SetGpuRequest, SetNodeList, Snapshot, frozen
from slurmsched.placements.linked import Linked
from slurmsched.planning.job_overrides import (
    NODE_LIST_FIELDS,
    JobOverrides,
    by_job,
    own_lists,
    records_of,
    restore_proposal,
)
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.planning.proposals import Proposal
from slurmsched.topology.gres_nodes import TypedNode
from tests.unit.planning.node_lists.node_list_cases import NOW_S, cluster, gpu_request, list_overrides, wait

PAIRS = TypedNode(("p0", "p1", "p1", "p0", "p2", "p3", "p3", "p2"))  # joined by two lanes
ON = PlacementConfig(pin="hints", retype=True)
DOUBLE = [0, 3]  # two lanes
ASKS = {"asks": "gpu:2"}


def typed(jobs, free, gpu_requests=None, **others) -> Snapshot:
    """As `cluster`, with a Type for each pair of GPUs."""
    gpu_requests = (
        [gpu_request(job["job_id"], job["gpus"], asks=f"gpu:{job['gpus']}") for job in jobs]
        if gpu_requests is None
        else gpu_requests
    )
    at = cluster(jobs, free, gpu_requests, **others)
    assert at.gpu_selection is not None
    kinds = replace(at.gpu_selection, kinds=(PAIRS,), free_cores=((0,),) * len(free))
    has = "gpu:p0:2,gpu:p1:2,gpu:p2:2,gpu:p3:2"
    return replace(at, gpu_selection=kinds, nodes=at.nodes.with_columns(gpu_types=[has] * len(free)))


def planned(at: Snapshot, limits: PlacementConfig = ON) -> Proposal:
    return node_lists(
        at, Ranking(np.arange(len(at.jobs))), at.jobs.pending, Linked(), limits, ScopeConfig(partitions=("*",)), 500
    )


def asked(found: Proposal) -> dict[int, str]:
    return {action.job_id: action.new for action in found.actions if isinstance(action, SetGpuRequest)}


def mine(gpus: str = "gpu:p3:2", nodes: str = "n1", **values) -> JobOverrides:
    request = {"base": "gpu:2", "sent": gpus, "values": (gpus,)}
    return list_overrides(1, nodes, since_s=NOW_S - 10, request=request, **values)


def rewritten(pin: JobOverrides, free: list[list[int]], **columns) -> Snapshot:
    """Job 1 as it waits with what the pin gave it."""
    values = {"nodes_asked": pin.nodes.sent, "gpu_request": pin.request.sent} | columns
    return typed([wait(1, **values)], free, [gpu_request(1, asks=values["gpu_request"])], overrides=records_of((pin,)))


def test_retype__asks_for_the_best_pair_on_its_node():
    """The list first, which alone keeps the job from a node where that request would be worse; then the request."""
    found = planned(typed([wait(1)], [[0, 1, 2], [0, 1, 3, 6]]))
    nodes, request = found.actions
    assert isinstance(nodes, SetNodeList)
    assert nodes.new in ("n1", "n2")
    assert (request.new, request.old, request.base) == (asked(found)[1], "gpu:2", "gpu:2")
    assert (nodes.new, request.new) in {("n1", "gpu:p1:2"), ("n2", "gpu:p0:2")}
    (pin,) = by_job(found.overrides)
    assert (pin.nodes.sent, pin.request.sent, pin.request.base, pin.request.values) == (
        nodes.new,
        request.new,
        "gpu:2",
        (request.new, "gpu:2"),
    )


@pytest.mark.parametrize("limits", [PlacementConfig(pin="hints"), PlacementConfig(pin="off", retype=True)])
def test_retype__only_if_it_is_turned_on(limits):
    """It needs both: pins, and leave to rewrite."""
    assert planned(typed([wait(1)], [list(range(8))]), limits).actions == ()


@pytest.mark.parametrize(
    "other",
    [{"asks": "gpu:p0:2"}, {"asks": "gpu:2", "alone": False}, {"asks": "gpu:2", "form": "gpus"},
     {"asks": "gpu:2", "bound": True}, {"asks": "gpu:p0:1,gpu:p1:1"}],
)  # fmt: skip
def test_retype__leaves_every_other_request_alone(other):
    """Types of the user's own, other things beside the GPUs, another form, GPUs bound to cores."""
    assert planned(typed([wait(1)], [list(range(8))], [gpu_request(1, **other)])).actions == ()


@pytest.mark.parametrize("free", [[0, 3, 4], [0, 4, 7]])
def test_retype__of_pairs_with_equal_links_the_one_on_one_numa_node(free):
    """Two lanes either way; 0-4 joins two sockets."""
    assert asked(planned(typed([wait(1)], [free])))[1] in ("gpu:p0:2", "gpu:p2:2")


def test_retype__jobs_take_different_pairs():
    """Each sees what those before it take."""
    found = planned(typed([wait(1), wait(2), wait(3)], [list(range(8))]))
    assert len(set(asked(found).values())) == 3


def test_retype__a_request_that_is_still_right_stays():
    """Nothing is sent twice."""
    pin = mine("gpu:p1:2")
    assert planned(rewritten(pin, [[1, 2, 4]])) == Proposal()


def test_retype__a_request_moves_when_its_gpus_are_taken():
    """On the same node: the list stays, the request is written, and both requests count as ours."""
    found = planned(rewritten(mine(), [[1, 2, 4]]))
    (action,), (pin,) = found.actions, by_job(found.overrides)
    assert (action.new, action.old, action.base) == ("gpu:p1:2", "gpu:p3:2", "gpu:2")
    assert (pin.request.sent, pin.request.values) == ("gpu:p1:2", ("gpu:p3:2", "gpu:p1:2"))


def test_retype__both_go_back_when_nothing_is_free():
    """And may be given again."""
    found = planned(rewritten(mine(), [[]]))
    assert [action.kind for action in found.actions] == ["pin", "retype"]
    assert (asked(found), by_job(found.overrides)[0].open, by_job(found.overrides)[0].abandoned) == (
        {1: "gpu:2"},
        False,
        False,
    )


def test_retype__both_go_back_when_it_is_turned_off():
    """No other node of the site can take it then."""
    assert asked(planned(rewritten(mine(), [list(range(8))]), PlacementConfig(pin="hints"))) == {1: "gpu:2"}


@pytest.mark.parametrize(
    ("columns", "steps"),
    [({"gpu_request": "gpu:2"}, {"pin": ""}), ({"gpu_request": "gpu:p0:2"}, {"pin": ""}),
     ({"nodes_asked": "n4"}, {"retype": "gpu:2"}), ({"nodes_asked": "", "gpu_request": "gpu:2"}, {})],
)  # fmt: skip
def test_retype__what_somebody_else_changed_is_theirs_and_the_rest_goes_back(columns, steps):
    """The job is left to Slurm from then on."""
    at = rewritten(mine(), [list(range(8))], **columns)
    found = planned(at)
    told = {action.kind: action.new for action in found.actions}
    assert (told, [pin.abandoned for pin in by_job(found.overrides)]) == (steps, [True])


def moved() -> JobOverrides:
    """Of a job that was moved to a node without Types: its own request was to be written again."""
    return mine().with_request(sent="gpu:2")


@pytest.mark.parametrize("asks", ["gpu:4", "gpu:2"])
def test_retype__a_request_that_its_user_changes_after_ours_is_gone_stays(asks):
    """On a node without Types; nothing of an older request is known any more."""
    gpus = int(asks[-1])
    job = wait(1, gpus, nodes_asked="n1", gpu_request=asks)
    found = planned(
        cluster([job], [[0, 1, 2, 3, 4]], [gpu_request(1, gpus, asks=asks)], overrides=records_of((moved(),)))
    )
    assert (found.actions, by_job(found.overrides)) == ((), (moved().with_request(sent="", base="", values=()),))


def test_retype__a_request_is_rewritten_from_what_its_user_made_of_it():
    """Not from what it was before: four GPUs stay four, and the record has that request as its own."""
    job = wait(1, 4, nodes_asked="n1", gpu_request="gpu:4")
    found = planned(typed([job], [[0, 1, 2, 3]], [gpu_request(1, 4, asks="gpu:4")], overrides=records_of((moved(),))))
    (action,), pin = found.actions, by_job(found.overrides)[-1]
    assert isinstance(action, SetGpuRequest)
    assert (action.new, action.old, action.base) == ("gpu:p0:2,gpu:p1:2", "gpu:4", "gpu:4")
    assert (pin.request.sent, pin.request.base, pin.request.values) == (action.new, "gpu:4", (action.new, "gpu:4"))


def test_retype__its_own_goes_out_again_if_that_never_reached_slurm():
    """The record was kept before the write was tried: the job still has ours."""
    job = wait(1, nodes_asked="n1", gpu_request="gpu:p3:2")
    found = planned(cluster([job], [DOUBLE], [gpu_request(1, asks="gpu:p3:2")], overrides=records_of((moved(),))))
    assert asked(found) == {1: "gpu:2"}
    assert by_job(found.overrides)[-1] == moved()
    assert own_lists(cluster([job], [DOUBLE], overrides=records_of((moved(),)))).gpu_request[0] == "gpu:2"


def test_given_back__undo_restores_the_request():
    """The list and the request, each from what the job has now."""
    found = restore_proposal(rewritten(mine(), [[]]), NODE_LIST_FIELDS, "undo")
    assert [(action.kind, action.old) for action in found.actions] == [("pin", "n1"), ("retype", "gpu:p3:2")]
    assert asked(found) == {1: "gpu:2"}


def test_own_lists__have_the_users_own_request():
    """Policies and the quality of placements see what was asked, not what we made of it."""
    jobs = own_lists(rewritten(mine(), [[]]))
    assert (jobs.gpu_request[0], jobs.nodes_asked[0]) == ("gpu:2", "")


def test_retype__a_class_of_another_size_is_left_alone():
    """gres.conf and the true links must tell of the same GPUs."""
    at = typed([wait(1)], [list(range(8))])
    assert at.gpu_selection is not None
    short = replace(at.gpu_selection, kinds=(TypedNode(("a", "b")),), node_kind=frozen([0], np.int64))
    assert planned(replace(at, gpu_selection=short)).actions == ()
