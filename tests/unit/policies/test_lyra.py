"""Nodes that are lent and taken back, and sizes of the jobs that borrow them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import ConfigError
from slurmsched.model import Ranking
from slurmsched.model.trace import Trace
from slurmsched.policies.lyra import LenderNeed, Lyra, taken_back
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.testing import check_policy, snapshot

NODES = [{"name": "n1", "gpus": 4, "partitions": "train"},
         *({"name": f"n{n}", "gpus": 4, "partitions": "serve,train"} for n in (2, 3, 4))]  # fmt: skip
JOBS = ((8, 2, "dur=5h"), (2, 1, "dur=1h"), (2, 1, "dur=2h"), (2, 1, "dur=3h min_gpus=1 max_gpus=4"), (2, 1, "dur=4h"))
HELD = ((1, "n1", 4), (1, "n2", 4), (2, "n3", 2), (3, "n3", 2), (4, "n4", 2), (5, "n4", 2))
PARTITIONS = [{"name": "serve"}, {"name": "train"}]
YES = np.ones(2, np.bool_)
LENDS = Lyra(lenders=("serve",))


def rows(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """The page's five borrowers, running, and other jobs."""
    runs = {"partition": "train", "state": "RUNNING"}
    running = [{**runs, "gpus": gpus, "nodes": nodes, "comment": f"slurmsched: {hints}"} for gpus, nodes, hints in JOBS]
    return [*running, *more]


def ranked(policy: Lyra, *more: dict[str, Any], **others: Any) -> Ranking:
    held = [{"job_id": job, "node": node, "gpus": gpus} for job, node, gpus in HELD]
    return policy.rank(snapshot(rows(*more), NODES, allocations=held, partitions=PARTITIONS, **others))


def test_lyra__conforms() -> None:
    """The rules of all policies, with and without lenders."""
    check_policy(LENDS)
    check_policy(Lyra(lenders=("gpu",), spare_gpus=2))


def test_lyra__six_jobs_by_hand() -> None:
    """The page's: node n2 costs half a job, n3 and n4 two each; job 1 leaves, and job 4 grows to four."""
    ranking = ranked(LENDS, {"gpus": 4, "partition": "serve"})
    assert ranking.why["leaves"].tolist() == [True] + [False] * 5
    assert ranking.why["given_gpus"].tolist() == [0, 2, 2, 4, 2, 4]
    assert (ranking.order + 1).tolist() == [2, 3, 4, 5, 6, 1]
    assert ranking.notes == ("1 running job leaves lent nodes to their lender",)


def test_lyra__nobody_leaves_while_the_lender_needs_nothing() -> None:
    """Without a job of the lender, and where it finds GPUs free, all go on."""
    assert not ranked(LENDS).why["leaves"].any()
    waits = {"gpus": 4, "partition": "serve"}
    one = [{"job_id": 1, "node": "n1", "gpus": 4}, {"job_id": 2, "node": "n3", "gpus": 2}]
    ranking = LENDS.rank(snapshot([*rows()[:2], waits], NODES, allocations=one, partitions=PARTITIONS))
    assert not ranking.why["leaves"].any()
    assert not ranked(Lyra(), waits).why["leaves"].any()


def test_lyra__spare_gpus_stay_free_for_the_lender() -> None:
    """Six of them: two nodes come back though no job of the lender waits."""
    assert ranked(Lyra(lenders=("serve",), spare_gpus=6)).why["leaves"].tolist() == [True, True, True, False, False]


def test_lyra__who_leaves_leaves_until_the_next_round() -> None:
    """A minute later the choice stands. A further job of the lender begins a new one at once."""
    first = ranked(LENDS, {"gpus": 4, "partition": "serve"})
    later = ranked(LENDS, {"gpus": 4, "partition": "serve"}, now_s=60.0, carry=first.carry)
    assert later.why["leaves"].tolist() == first.why["leaves"].tolist()
    more = ranked(LENDS, *[{"gpus": 4, "partition": "serve"}] * 2, now_s=60.0, carry=first.carry)
    assert more.why["leaves"].tolist() == [True, True, True, False, False, False, False]


def returned(table: Any, least: Any, stops: Any, free: Any, needs: Any) -> tuple[list[int], int]:
    """taken_back of nodes that are all lent."""
    here = np.array(table)
    lent = np.ones(here.shape[1], np.bool_)
    wanted = [LenderNeed(parts, lent) for parts in needs]
    has, spans = here.sum(axis=1), (here > 0).sum(axis=1)
    after, promised = taken_back(here, has, spans, np.array(least), np.array(stops), lent, np.array(free), wanted)
    return after.tolist(), promised


def test_taken_back__a_job_that_can_do_without_shrinks_at_no_cost() -> None:
    """It has six GPUs on two lent nodes and needs two: the first node comes back, then it must leave."""
    table = [[4, 2], [0, 2]]
    assert returned(table, [2, 2], YES, [0, 0], [[4]]) == ([2, 2], 4)
    assert returned(table, [2, 2], YES, [0, 0], [[4], [2]]) == ([0, 0], 6)


@pytest.mark.parametrize("need", [[9], [5, 4], [4, 4, 1]])
def test_taken_back__nobody_leaves_for_what_never_fits(need: list[int]) -> None:
    """Two nodes of four: a need that is too large for one, or for both, changes nothing. A smaller one fits then."""
    table = [[4, 0], [0, 3]]
    assert returned(table, [4, 3], YES, [0, 1], [need]) == ([4, 3], 0)
    assert returned(table, [4, 3], YES, [0, 1], [need, [2]]) == ([4, 0], 2)


@settings(deadline=None, max_examples=100)
@given(chance=st.integers(0, 10_000))
def test_taken_back__gives_what_is_needed_and_keeps_gangs_whole(chance: int) -> None:
    """Each borrower has all, or enough, or, if it may be stopped, nothing; what is promised is free then."""
    draw = np.random.default_rng(chance)
    table = draw.integers(0, 3, (4, 3))
    has, least = table.sum(axis=1), draw.integers(1, 5, 4)
    needs = [draw.integers(1, 5, draw.integers(1, 4)).tolist() for _ in range(draw.integers(0, 3))]
    stops = draw.random(4) < 0.8
    found, promised = returned(table, least, stops, 9 - table.sum(axis=0), needs)
    after = np.array(found)
    assert ((after == has) | ((after == 0) & stops) | (after >= least)).all()
    assert after.sum() + promised <= 27
    assert promised or (after == has).all()
    if stops.all() and max(map(max, needs), default=0) <= 4:
        assert promised == sum(map(sum, needs))


def test_lyra__nodes_of_jobs_that_must_not_stop_stay_lent() -> None:
    """Job 1 may not: n3, the next node, comes back in its place."""
    runs = rows({"gpus": 4, "partition": "serve"})
    runs[0]["comment"] += " preempt=no"
    held = [{"job_id": job, "node": node, "gpus": gpus} for job, node, gpus in HELD]
    ranking = LENDS.rank(snapshot(runs, NODES, allocations=held, partitions=PARTITIONS))
    assert ranking.why["leaves"].tolist() == [False, True, True, False, False, False]


@pytest.mark.parametrize("preempt", [None, {}])
def test_lyra__the_service_gets_its_node_back_in_a_replay_of_slurm(tmp_path: Path, preempt: Any) -> None:
    """Two jobs of a day fill both nodes; a job of the service comes after an hour. One job stops, and goes on later."""
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        '[[nodes]]\nnames = "n[1-2]"\ngpus = 4\n[[partitions]]\nname = "train"\n'
        '[[partitions]]\nname = "serve"\nnodes = "n2"\n'
    )
    hints = ["slurmsched: preempt=yes ckpt=USR1@60"] * 2 + [""]
    trace = Trace.of([1, 2, 3], [4, 4, 4], [0.0, 0.0, 3_600.0], [86_400.0, 86_400.0, 600.0], comment=hints,
                     partition=["train", "train", "serve"])  # fmt: skip
    request = ReplayRequest(cluster=str(cluster), policy='lyra:lenders=["serve"]', model="slurm", preempt=preempt)
    outcomes = ReplaySession(trace, request).run().all_outcomes
    assert outcomes.first_start_s[2] - 3_600.0 < 300.0
    assert sorted(outcomes.preemptions.tolist()) == [0, 0, 1]


@pytest.mark.parametrize("other", [{"reason": "QOSMaxGRESPerUser"}, {"reason": "Licenses"}, {"features_asked": "a100"}])
def test_lyra__nobody_leaves_for_a_job_that_does_not_wait_for_these_nodes(other: dict[str, Any]) -> None:
    """It waits for a limit or for licences, or asks for a feature that no lent node has."""
    assert not ranked(LENDS, {"gpus": 4, "partition": "serve", **other}).why["leaves"].any()


def test_lyra__a_long_queue_of_the_lender_takes_no_other_nodes() -> None:
    """Ten jobs of the service wait for its three nodes; the elastic job grows on the fourth."""
    waits = [{"gpus": 4, "partition": "serve"}] * 10
    job = {"gpus": 2, "partition": "train", "comment": "slurmsched: dur=1h min_gpus=1 max_gpus=8"}
    ranking = LENDS.rank(snapshot([job, *waits], NODES, partitions=PARTITIONS))
    assert ranking.why["given_gpus"][0] == 4


def test_lyra__a_job_that_must_not_stop_holds_its_size() -> None:
    """It could do with one GPU, and its node would come back at no cost."""
    job = {"gpus": 8, "nodes": 2, "partition": "train", "state": "RUNNING",
           "comment": "slurmsched: dur=1h min_gpus=1 max_gpus=16 preempt=no"}  # fmt: skip
    held = [{"job_id": 1, "node": node, "gpus": 4} for node in ("n1", "n2")]
    waits = {"gpus": 12, "nodes": 3, "partition": "serve"}
    ranking = LENDS.rank(snapshot([job, waits], NODES, allocations=held, partitions=PARTITIONS))
    assert ranking.why["given_gpus"][0] == 8


def test_lyra__a_job_of_the_service_that_cannot_start_stops_nobody(tmp_path: Path) -> None:
    """It needs three nodes, and one of these has a job of preempt=no for an hour. Then the two others stop, once."""
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        '[[nodes]]\nnames = "n[1-4]"\ngpus = 4\n[[partitions]]\nname = "train"\n'
        '[[partitions]]\nname = "serve"\nnodes = "n[2-4]"\n'
    )
    may, hour = "slurmsched: preempt=yes ckpt=USR1@60 dur=4h", 3_600.0
    hints = [may, may, may, "slurmsched: preempt=no dur=1h", "", may]
    nodes, partitions = np.array([1, 1, 1, 1, 3, 1], np.int64), ["train"] * 4 + ["serve", "train"]
    trace = Trace.of([1, 2, 3, 4, 5, 6], [4, 4, 4, 4, 12, 4], [0.0] * 4 + [600.0, 700.0],
                     [4 * hour, 4 * hour, 4 * hour, hour, 600.0, 4 * hour], nodes=nodes, comment=hints,
                     partition=partitions)  # fmt: skip
    request = ReplayRequest(cluster=str(cluster), policy='lyra:lenders=["serve"]', model="slurm", preempt={})
    outcomes = ReplaySession(trace, request).run().all_outcomes
    assert hour <= outcomes.first_start_s[4] < 1.5 * hour
    assert outcomes.preemptions.sum() == 2


def test_lyra__refuses_a_lender_without_a_name() -> None:
    """The error names the parameter."""
    with pytest.raises(ConfigError, match=r"policy\.lenders"):
        Lyra(lenders=("",))
