"""What single simulators do besides, on clusters small enough to follow by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Labels
from slurmsched.model.trace import Trace
from slurmsched.placements.count import Count
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Policy
from slurmsched.sim.event_loop import replay_events, replay_following
from slurmsched.sim.experiments.published_quirks import PublishedCluster, ideal_cluster
from slurmsched.sim.experiments.published_settings import PublishedSettings
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, Filling
from slurmsched.sim.replay_stores import CarryStore


def played(trace: Trace, policy: Policy, filling: Filling = "skip", gpus: int = 4, **settings: Any) -> IdealCluster:
    cluster = ideal_cluster(trace, [gpus], PublishedSettings.of(settings))
    replay_events(cluster, DirectPlanner(policy, Count(), filling), CarryStore())
    return cluster


def ends(cluster: IdealCluster) -> list[float]:
    return cluster.outcomes().end_s.tolist()


def test_ideal_cluster__is_the_plain_one_without_quirks() -> None:
    """The quirks cost nothing where nobody asks for them."""
    trace = Trace.of([1], [1], [0], [5])
    assert type(ideal_cluster(trace, [4], PublishedSettings(round_s=5.0))) is IdealCluster
    assert type(ideal_cluster(trace, [4], PublishedSettings(node_gpus=2))) is PublishedCluster


def test_slowdown__makes_every_job_longer_and_policies_know() -> None:
    """10 s become 15; SRTF sees 15 s too, and lets the job of 14 s pass."""
    trace = Trace.of([1, 2], [4, 4], [0, 0], [10, 9])
    assert ends(played(trace, Srtf(), slowdown=1.5)) == [28.5, 13.5]


def test_restart_cost__depends_on_gpus() -> None:
    """Jobs 1 and 2 are preempted at 5 s with 5 s to do, and run again from 7 s on: one GPU pays 1 s, two pay 3 s."""
    trace = Trace.of([1, 2, 3], [1, 2, 4], [0, 0, 5], [10, 10, 2])
    done = played(trace, Srtf(), restart_cost_s=1.0, restart_cost_by_gpus=[(2, 3.0)])
    assert ends(done) == [13.0, 15.0, 7.0]


def test_event_cost__is_taken_at_every_event() -> None:
    """Job 1 loses 2 s when job 2 comes at 3 s and 1 s, all it made since, when that ends at 4 s."""
    trace = Trace.of([1, 2], [2, 2], [0, 3], [10, 1])
    done = played(trace, Fifo(), event_cost_s={"": [(1, 2.0)]})
    assert ends(done) == [13.0, 4.0]


def test_event_cost__of_the_model_and_the_size() -> None:
    """A model of the table by its steps, nothing below the first; any other by the empty name."""
    model = PublishedSettings(event_cost_s={"a": [(2, 5.0), (4, 7.0)], "": [(1, 1.0)]})
    sizes = np.array([1, 2, 3, 4, 4])
    assert model.event_costs(Labels.of(["a", "a", "a", "a", "b"]), sizes).tolist() == [0.0, 5.0, 5.0, 7.0, 1.0]


def test_event_cost__counts_when_the_run_is_cut() -> None:
    """Job 1 runs 0-4 and loses 1 s at 2 s, when job 2 comes; job 3 takes its GPUs at 4 s for 1 s: 3 of 10 s are done,
    less the second that the event at 4 s costs, and 8 are left. The end of 2 at 12 s costs one more."""
    trace = Trace.of([1, 2, 3], [2, 2, 4], [0, 2, 4], [10, 7, 1])
    done = played(trace, Srtf(), event_cost_s={"": [(1, 1.0)]})
    assert done.outcomes().preemptions.tolist() == [1, 1, 0]
    assert ends(done) == [14.0, 11.0, 5.0]


@pytest.mark.parametrize(("known", "first"), [(False, 1), (True, 2)])
def test_costs_known__let_policies_see_the_whole_rest(known: bool, first: int) -> None:
    """At 6 s job 1 has 5 s to do and 4 to restart, job 2 has 8 s to do: who goes first is a question of knowing it."""
    trace = Trace.of([1, 2, 3], [4, 4, 4], [0, 6, 5], [10, 8, 1])
    done = played(trace, Srtf(), restart_cost_s=4.0, costs_known=known).outcomes()
    assert int(done.job_id[np.argsort(done.end_s)[1]]) == first


def test_node_gpus__a_gang_without_a_place_waits_while_its_gpus_idle() -> None:
    """From 2 s on two nodes of 2 have a GPU free each: no place for job 4, whose GPUs job 5 does not get either."""
    trace = Trace.of([1, 2, 3, 4, 5], [1, 1, 1, 2, 1], [0, 0, 0, 1, 3], [2, 9, 9, 4, 3])
    plain, split = (ends(played(trace, Fifo(), node_gpus=size)) for size in (0, 2))
    assert plain == [2.0, 9.0, 9.0, 6.0, 9.0]
    assert split == [2.0, 9.0, 9.0, 13.0, 12.0]


@pytest.mark.parametrize(("blocks", "end_s"), [(False, 5.0), (True, 12.0)])
def test_refusal_blocks__holds_back_those_behind(blocks: bool, end_s: float) -> None:
    """From 2 s to 9 s each of three nodes of 2 has a GPU free: none for job 7, and one for job 8 or not."""
    trace = Trace.of(range(1, 9), [1, 1, 1, 1, 1, 1, 2, 1], [0] * 6 + [1, 1], [2, 9, 2, 9, 2, 9, 4, 3])
    assert ends(played(trace, Fifo(), gpus=6, node_gpus=2, refusal_blocks=blocks))[7] == end_s


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"node_gpus": -1}, "number of GPUs"), ({"slowdown": 0}, "above 0"),
        ({"node_choice": "any"}, "one of fullest, .*:node_choice=first"),
        ({"restart_cost_by_gpus": [(4, 1.0), (2, 1.0)]}, "must ascend"), ({"hold_s": "x"}, "must be a time"),
        ({"rounds_follow": True}, "needs round_s"), ({"event_cost_s": 4}, "table of steps"),
        ({"restart_cost_by_gpus": "x"}, "steps of GPUs"), ({"event_cost_s": {"a": [(1, -1.0)]}}, "must be a time"),
        ({"nodes": 4}, "is no setting of the ideal cluster"),
    ],
)  # fmt: skip
def test_settings__are_checked(settings: dict[str, Any], match: str) -> None:
    """The setting is named, and what it must be."""
    with pytest.raises(ConfigError, match=match):
        PublishedSettings.of(settings)


@pytest.mark.parametrize(("nodes", "match"), [([4, 4], "--placement count"), ([9], "make up the 9")])
def test_node_gpus__must_make_up_one_pile(nodes: list[int], match: str) -> None:
    """Nodes of two GPUs are cut from a pile of GPUs, and leave none over."""
    with pytest.raises(ConfigError, match=match):
        ideal_cluster(Trace.of([1], [1], [0], [5]), nodes, PublishedSettings(node_gpus=2))


def following(trace: Trace, hold_s: float = 0.0) -> IdealCluster:
    cluster = IdealCluster(trace, [4], PublishedSettings(round_s=10.0))
    planner = DirectPlanner(Fifo(), Count(), "block")
    replay_following(cluster, planner, CarryStore(), round_s=10.0, hold_s=hold_s)
    return cluster


def test_following__rounds_begin_where_the_last_ended() -> None:
    """From the first arrival at 3 s rounds of 10 s; job 2 comes at 5 s and starts at 13 s; the next round ends early,
    with job 2 at 15 s, when job 3 starts."""
    trace = Trace.of([1, 2, 3], [4, 4, 2], [3, 5, 14], [6, 2, 1])
    assert ends(following(trace)) == [9.0, 11.0, 15.0]


def test_following__a_plan_stands_for_so_long() -> None:
    """Planned at 1 s, job 2 comes at 2 s; 30 s later, at the end of a round, it may start."""
    trace = Trace.of([1, 2, 3], [2, 2, 2], [1, 2, 40], [60, 5, 5])
    assert ends(following(trace, hold_s=30.0))[1] == 36.0


def test_following__goes_on_when_nothing_runs_or_comes() -> None:
    """The hold ends when nothing would ever happen again."""
    trace = Trace.of([1, 2], [4, 4], [1, 2], [5, 5])
    assert ends(following(trace, hold_s=1_000.0)) == [6.0, 11.0]


def test_node_gpus__no_job_is_lost_or_served_twice() -> None:
    """Every job ends after just its run time, however places fail."""
    chance = np.random.default_rng(7)
    jobs = 60
    trace = Trace.of(np.arange(jobs), chance.choice([1, 2, 3, 4, 8, 12], jobs), chance.integers(0, 500, jobs),
                     chance.integers(1, 300, jobs))  # fmt: skip
    for choice in ("fullest", "rest-emptiest"):
        done = played(trace, DiscretizedLas((200.0,)), gpus=16, node_gpus=8, node_choice=choice).outcomes()
        assert (len(done.job_id), done.executed_s.tolist()) == (jobs, trace.duration_s.tolist())
