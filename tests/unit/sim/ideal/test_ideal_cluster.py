"""The ideal cluster: schedules made by hand (drawn in docs/replay.md), its numbers, its snapshots."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Labels, Plan
from slurmsched.model.hints import parse_hints
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import BestFit, Spread
from slurmsched.placements.cells import CellPlacement
from slurmsched.placements.consolidated import Consolidated
from slurmsched.placements.count import Count
from slurmsched.placements.linked import Linked
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.dorm import Dorm
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Placement, Policy
from slurmsched.sim.event_loop import replay, replay_events
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_planner import DirectPlanner, Filling
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.replay_stores import CarryStore

# Six jobs on 4 GPUs: id, GPUs, submit [s], run time [s].
SIX = Trace.of([1, 2, 3, 4, 5, 6], [2, 4, 1, 2, 1, 3], [0, 1, 2, 3, 4, 5], [6, 4, 3, 5, 9, 2])
# policy, filling, ends [s], preemptions
BY_HAND: tuple[tuple[Policy, Filling, list[float], list[int]], ...] = (
    (Fifo(), "block", [6, 10, 13, 15, 19, 17], [0, 0, 0, 0, 0, 0]),
    (Fifo(), "easy", [6, 10, 5, 15, 19, 17], [0, 0, 0, 0, 0, 0]),
    (Fifo(), "skip", [6, 17, 5, 11, 13, 13], [0, 0, 0, 0, 0, 0]),
    (Sjf(), "block", [6, 12, 5, 17, 21, 8], [0, 0, 0, 0, 0, 0]),
    (Srtf(), "skip", [12, 5, 8, 13, 20, 7], [1, 0, 0, 0, 1, 0]),
    (DiscretizedLas((4.0,), fifo_by="submit"), "skip", [11, 14, 6, 11, 19, 8], [2, 1, 0, 1, 1, 0]),
)


def played(trace: Trace, policy: Policy, filling: Filling = "skip", model: IdealSettings | None = None) -> IdealCluster:
    cluster = IdealCluster(trace, [4], model)
    replay_events(cluster, DirectPlanner(policy, Count(), filling), CarryStore())
    return cluster


@pytest.mark.parametrize(("policy", "filling", "ends_s", "preemptions"), BY_HAND)
def test_ideal__follows_schedules_made_by_hand(
    policy: Policy, filling: Filling, ends_s: list[float], preemptions: list[int]
) -> None:
    """The six jobs of docs/replay.md end when the drawing says, preempted as often."""
    done = played(SIX, policy, filling).outcomes()
    assert (done.end_s.tolist(), done.preemptions.tolist()) == (ends_s, preemptions)


@pytest.mark.parametrize(
    ("policy", "lets_in", "next_s"),
    [
        (Srtf(), True, 34.0),
        (DiscretizedLas((10.0,)), True, 10.0),
        (DiscretizedLas((10.0,), dimension="1d"), False, 10.0),
    ],
)
def test_ideal__lets_in_who_takes_nothing_from_anybody(policy: Policy, lets_in: bool, next_s: float) -> None:
    """Job 2 takes a GPU from job 1, which waits for 4. Job 3 asks for 2 and starts without a plan at second 5; under
    2D-LAS it drops after 10 GPU s at second 10. By seconds of run time only a plan can tell.
    """
    trace = Trace.of([1, 2, 3], [4, 1, 2], [0, 4, 5], [60, 30, 30])
    cluster, planner = IdealCluster(trace, [4]), DirectPlanner(policy, Count())
    for time_s in (0.0, 4.0):
        cluster.advance(time_s)
        cluster.apply(planner.plan(cluster.read()))
    cluster.advance(5.0)
    assert (not cluster.undecided, cluster.waiting, cluster.next_event_s) == (lets_in, 2 - lets_in, next_s)


@pytest.mark.parametrize(
    ("policy", "placement", "held", "next_s"),
    [
        (Srtf(), Linked(), [("node1", 1), ("node2", 2)], 13.0),
        (Srtf(), CellPlacement(), [("node1", 1), ("node2", 2)], 13.0),
        (Srtf(), Spread(), [("node1", 1), ("node1", 2)], 13.0),
        (Srtf(), Consolidated(), [("node1", 1)], 34.0),
        (DiscretizedLas((10.0,)), BestFit(), [("node1", 1), ("node2", 2)], 10.0),
        (DiscretizedLas((3.0,), dimension="1d"), BestFit(), [("node1", 1)], 7.0),
    ],
)
def test_ideal__finds_nodes_for_who_takes_nothing_from_anybody(
    policy: Policy, placement: Placement, held: list[tuple[str, int]], next_s: float
) -> None:
    """Job 3 takes a GPU from job 2, which then waits for a node of 4. Job 1 ends. Job 4 asks for 2 and starts without
    a plan where the placement would have it; that of consolidated depends on the order. Under 2D-LAS it drops
    after 10 GPU s; by seconds of run time only a plan can tell. Job 2 gains nothing when it ends."""
    trace = Trace.of([1, 2, 3, 4], [2, 4, 1, 2], [0, 0, 4, 5], [4.5, 60, 30, 8])
    cluster, planner = IdealCluster(trace, [4, 2]), DirectPlanner(policy, placement)
    for time_s in (0.0, 4.0, 4.5):
        cluster.advance(time_s)
        cluster.apply(planner.plan(cluster.read()))
    cluster.advance(5.0)
    found = cluster.read().allocations
    assert list(zip(found.node, found.gpus.tolist(), strict=True)) == held
    assert (cluster.undecided, cluster.next_event_s) == (len(held) == 1, next_s)
    cluster.advance(next_s)
    assert cluster.undecided == (next_s != 13.0)


def test_ideal__finds_nodes_while_nobody_waits_but_not_for_two_at_once() -> None:
    """Job 2 comes alone and needs no cycle. Of jobs 3 and 4 a plan has to say who is first. Job 5 finds no room."""
    trace = Trace.of([1, 2, 3, 4, 5], [2, 5, 1, 1, 6], [0, 1, 2, 2, 3], [60, 60, 60, 60, 60])
    cluster, planner = IdealCluster(trace, [4, 4, 4]), DirectPlanner(Fifo(), Linked(), "skip")
    seen = []
    for time_s in (0.0, 1.0, 2.0, 3.0):
        cluster.advance(time_s)
        seen.append((cluster.undecided, cluster.waiting))
        if cluster.undecided:
            cluster.apply(planner.plan(cluster.read()))
    assert seen == [(True, 1), (False, 0), (True, 2), (True, 1)]
    rounds = IdealCluster(trace, [4, 4, 4], IdealSettings(round_s=1.0))
    for time_s in (0.0, 1.0):
        rounds.advance(time_s)
        assert rounds.undecided  # what comes in a round waits for its end
        rounds.apply(planner.plan(rounds.read()))


def test_ideal__starts_and_restarts_cost_what_the_model_says() -> None:
    """Job 1 runs 3 s before job 2 preempts it, the first of them for its start; then 2 s of restart and 5 to do."""
    trace = Trace.of([1, 2], [4, 4], [0, 3], [7, 2])
    done = played(trace, Srtf(), model=IdealSettings(start_cost_s=1.0, restart_cost_s=2.0)).outcomes()
    assert (done.end_s.tolist(), done.executed_s.tolist()) == ([13.0, 6.0], [10.0, 3.0])


def test_ideal__keeps_progress_in_steps_of_the_checkpoint() -> None:
    """7 of 20 s are done at the preemption; with checkpoints every 5 s two of them are done again."""
    trace = Trace.of([1, 2], [4, 4], [0, 7], [20, 1])
    done = played(trace, Srtf(), model=IdealSettings(checkpoint_s=5.0)).outcomes()
    assert (done.end_s.tolist(), (done.executed_s - done.useful_s).tolist()) == ([23.0, 8.0], [2.0, 0.0])


def test_ideal__decides_at_round_ends_only() -> None:
    """Rounds of 10 s: a job that comes at 1 starts at 10; GPUs given back at 15 idle until 20."""
    cluster = IdealCluster(Trace.of([1, 2], [4, 4], [1, 2], [5, 5]), [4], IdealSettings(round_s=10.0))
    replay(cluster, DirectPlanner(Fifo(), Count(), "block"), CarryStore(), interval_s=10.0)
    assert cluster.outcomes().end_s.tolist() == [15.0, 25.0]


def test_ideal__shows_what_a_reader_of_slurm_shows() -> None:
    """States, service, GPUs by job and node, with the run so far counted; read twice it is the same."""
    cluster = IdealCluster(Trace.of([7, 3], [6, 3], [0, 2], [50, 9]), [4, 4])
    planner, store = DirectPlanner(Fifo(), Consolidated(), "block"), CarryStore()
    cluster.advance(2.0)
    plan = planner.plan(store.recall(cluster.read()))
    cluster.apply(plan)
    cluster.advance(5.0)
    seen, again = cluster.read(), cluster.read()
    assert seen.jobs.job_id.tolist() == [3, 7]
    assert (seen.jobs.pending.tolist(), seen.jobs.running.tolist()) == ([True, False], [False, True])
    assert (seen.jobs.attained_gpu_s.tolist(), seen.jobs.waiting_s.tolist()) == ([0.0, 18.0], [3.0, 0.0])
    assert list(zip(seen.allocations.job_id, seen.allocations.node, seen.allocations.gpus, strict=True)) == [
        (7, "node1", 4), (7, "node2", 2),
    ]  # fmt: skip
    assert seen.nodes.gpus_used.tolist() == [4, 2]
    assert seen.digest == again.digest


def test_ideal__snapshot_does_not_change_after_it_was_read() -> None:
    """A column that is first looked at after the plan was enacted shows the cluster as it was read."""
    cluster = IdealCluster(SIX, [4])
    cluster.advance(0.0)
    seen = cluster.read()
    cluster.apply(DirectPlanner(Fifo(), Count(), "block").plan(cluster.read()))
    cluster.advance(3.0)
    assert (seen.jobs.running.tolist(), seen.jobs.executed_s.tolist()) == ([False], [0.0])
    assert (seen.nodes.gpus_used.tolist(), len(seen.allocations)) == ([0], 0)


def test_ideal__late_tables_are_cut_and_changed_like_others() -> None:
    """take and with_columns of a late table give a plain one."""
    cluster = IdealCluster(SIX, [4])
    cluster.advance(3.0)
    jobs = cluster.read().jobs
    assert jobs.take([1, 3]).gpus.tolist() == [4, 2]
    assert jobs.with_columns(nice=np.arange(4)).nice.tolist() == [0, 1, 2, 3]


def test_ideal__needs_a_target() -> None:
    """A plan of levers alone would leave every job waiting for ever."""
    cluster = IdealCluster(SIX, [4])
    cluster.advance(0.0)
    cluster.read()
    with pytest.raises(ConfigError, match="who holds which GPUs"):
        cluster.apply(Plan())


@pytest.mark.parametrize(("gpus", "nodes"), [(5, [4]), (9, [4, 4]), (7, [4, 2])])
def test_ideal__refuses_a_job_that_never_fits(gpus: int, nodes: list[int]) -> None:
    """The job and the nodes are named."""
    with pytest.raises(
        InputError,
        match=f"job 3 asks for {gpus} GPUs.* hold {sum(nodes)}, too few for 1 other job as well .4.; .*--cluster",
    ):
        IdealCluster(Trace.of([3, 4, 5], [gpus, gpus, 1], [0] * 3, [1] * 3), nodes)


def test_ideal__tells_a_gang_that_fits_by_count_but_by_no_nodes() -> None:
    """22 GPUs are 8, 8 and 6, and no third node has 6."""
    with pytest.raises(InputError, match=r"job 3 asks for 22 GPUs: .* nodes of 2x4\+2x8 GPUs never give; give"):
        IdealCluster(Trace.of([4, 3, 5], [22, 22, 1], [0] * 3, [1] * 3), [8, 8, 4, 4])


@pytest.mark.parametrize("name", ["round_s", "clock_s", "restart_cost_s"])
def test_ideal_model__refuses_negative_times(name: str) -> None:
    """The setting is named."""
    with pytest.raises(ConfigError) as caught:
        IdealSettings(**{name: -1.0})  # type: ignore[arg-type]  # one of its times
    assert caught.value.key == f"model.{name}"


def test_ideal__says_when_nothing_will_happen_any_more() -> None:
    """A planner that gives nobody GPUs would loop for ever."""

    class Miser(DirectPlanner):
        def plan(self, snapshot):  # type: ignore[no-untyped-def]
            whole = super().plan(snapshot)
            none = Count().place(snapshot, type(whole.ranking)(np.zeros(0)))  # type: ignore[misc]
            return IdealPlan(target=none)

    cluster = IdealCluster(SIX, [4])
    with pytest.raises(RuntimeError, match="cannot go on after"):
        replay_events(cluster, Miser(Fifo(), Count()), CarryStore())


def test_comments__reach_policies_beside_the_model() -> None:
    """A trace that tells deadlines: the cast's comment has the user's hints and the model of the trace."""
    trace = Trace.of([1, 2], [1, 1], [0, 0], [5, 5], comment=["slurmsched: deadline=+9s", ""], model=["resnet50", ""])
    cluster = IdealCluster(trace, [4])
    cluster.advance(0.0)
    hints = [parse_hints(comment) for comment in cluster.read().jobs.comment]
    assert [(told.model, told.deadline is not None) for told in hints] == [("resnet50", True), (None, False)]


def test_sizes__are_those_of_the_trace() -> None:
    """A policy that wants a job on more GPUs than the trace has it on: refused, with what to do."""
    trace = Trace.of([1], [1], [0], [5], comment=["slurmsched: min_gpus=1 max_gpus=4 dur=5s"])
    with pytest.raises(ConfigError, match="job 1 would have 4 GPUs in place of 1") as caught:
        played(trace, Dorm(theta1=0.0))
    assert caught.value.key == "policy"
    assert played(trace.with_columns(comment=Labels.constant("", 1)), Dorm()).finished
