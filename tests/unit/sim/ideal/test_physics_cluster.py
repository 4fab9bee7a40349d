"""The ideal cluster with physics, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Assignments, JobChanges, Ranking, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import parse_hints
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.placements.consolidated import Consolidated
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import DecidingPlanner
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.experiments.published_quirks import ideal_cluster
from slurmsched.sim.experiments.published_settings import PublishedSettings
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.change_costs import ChangeCosts, RecordedSpeed
from slurmsched.sim.physics.interconnect_speed import DistanceSpeed
from slurmsched.sim.physics.scaling_speed import AmdahlSpeed
from slurmsched.sim.replay_stores import CarryStore

FIFO = DirectPlanner(Fifo(), Consolidated(), "skip")


@dataclass(frozen=True)
class ByNode(ChangeCosts):
    """Speed by the node a job is on; with crowd, divided by the jobs that run there."""

    speeds: tuple[float, ...] = (1.0, 0.5)
    shared: bool = False

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        node = held.node[held.first]
        crowd = np.bincount(node, minlength=2)[node] if self.shared else 1
        return np.array(self.speeds)[node] / crowd


@dataclass
class Script:
    """At each time, who holds how many GPUs on which node: {job: {node: GPUs}}."""

    at: Mapping[float, Mapping[int, Mapping[int, int]]]
    seen: list[Snapshot] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> IdealPlan:
        self.seen.append(snapshot)
        wanted = next(self.at[time_s] for time_s in sorted(self.at, reverse=True) if time_s <= snapshot.now_s)
        ids = snapshot.jobs.job_id.tolist()
        rows = [ids.index(job) for job in wanted if job in ids]
        places = [sorted(wanted[ids[row]].items()) for row in rows]
        count = np.array([len(place) for place in places], np.int64)
        flat = [pair for place in places for pair in place]
        node, gpus = np.array([n for n, _ in flat], np.int64), np.array([g for _, g in flat], np.int64)
        later = min((time_s for time_s in self.at if time_s > snapshot.now_s), default=np.inf)
        target = Assignments(np.array(rows, np.int64), np.cumsum(count) - count, count, node, gpus)
        return IdealPlan(target=target, next_look_s=later)


def play(
    jobs: Sequence[Sequence[float]], planner: DecidingPlanner, physics: Any, nodes: str = "2x4", **model: Any
) -> JobOutcomes:
    """Jobs as (GPUs, submit, run time), numbered from 1."""
    cluster = made(jobs, physics, nodes, **model)
    replay_events(cluster, planner, CarryStore())
    return cluster.outcomes()


class Asked(PhysicsCluster):
    """A cluster that wants a plan at every event, though no job waits."""

    @property
    def undecided(self) -> bool:
        return True


def made(jobs: Sequence[Sequence[float]], physics: Any, nodes: str = "2x4", **model: Any) -> PhysicsCluster:
    count, gpus = map(int, nodes.split("x"))
    trace = Trace.of(range(1, len(jobs) + 1), *zip(*jobs, strict=True))
    return Asked(
        trace, ClusterHardware.of(ClusterLayout.of_gpus([gpus] * count).nodes), physics, IdealSettings(**model)
    )


def test_physics__a_slow_place_takes_longer() -> None:
    """The second job is on the node of half the speed: 10 s of work take 20."""
    done = play([(4, 0, 10), (4, 0, 10)], FIFO, ByNode())
    assert done.end_s.tolist() == [10.0, 20.0]
    assert (done.executed_s.tolist(), done.slowdown.tolist()) == ([10.0, 20.0], [1.0, 2.0])


def test_physics__a_job_that_moves_keeps_its_progress() -> None:
    """5 s at full speed, then 5 s of work at half of it, after 3 s for the move."""
    script = Script({0: {1: {0: 4}}, 5: {1: {1: 4}}})
    assert play([(4, 0, 10)], script, ByNode()).end_s.tolist() == [15.0]
    assert play([(4, 0, 10)], script, ByNode(), resize_cost_s=3.0).end_s.tolist() == [18.0]


def test_physics__a_preempted_job_goes_on_with_what_it_made() -> None:
    """10 s on the slow node made 5 of 10 s; a restart costs 2 s, and the rest runs at full speed."""
    script = Script({0: {1: {1: 4}}, 10: {}, 20: {1: {0: 4}}})
    done = play([(4, 0, 10)], script, ByNode(), restart_cost_s=2.0)
    assert (done.end_s.tolist(), done.executed_s.tolist(), done.preemptions.tolist()) == ([27.0], [17.0], [1])


def test_physics__a_checkpoint_is_of_progress_not_of_time() -> None:
    """10 s at half speed made 5 s, of which steps of 2 s keep 4."""
    script = Script({0: {1: {1: 4}}, 10: {}, 20: {1: {0: 4}}})
    assert play([(4, 0, 10)], script, ByNode(), checkpoint_s=2.0).end_s.tolist() == [26.0]


def test_physics__sharing_slows_both_until_one_ends() -> None:
    """Two on one node at half speed: the short one ends at 8, then the other has 6 of 10 s left."""
    done = play([(2, 0, 10), (2, 0, 4)], FIFO, ByNode(shared=True), "1x4")
    assert done.end_s.tolist() == [14.0, 8.0]


def test_physics__sharing_slows_who_runs_when_another_comes() -> None:
    """6 s alone, then 4 s of work at half speed; the second has 6 s left then, alone."""
    done = play([(2, 0, 10), (2, 6, 10)], FIFO, ByNode(shared=True), "1x4")
    assert done.end_s.tolist() == [14.0, 20.0]


def test_physics__attained_service_is_what_is_held_not_what_is_done() -> None:
    """After 10 s on the slow node a policy sees 40 GPU s and 10 s executed, and the recorded time limit."""
    script = Script({0: {1: {1: 4}}, 10: {1: {1: 4}}})
    play([(4, 0, 10)], script, ByNode())
    jobs = script.seen[1].jobs
    assert (jobs.attained_gpu_s.tolist(), jobs.executed_s.tolist(), jobs.time_limit_s.tolist()) == ([40], [10], [10])


def test_physics__snapshots_show_gpus_hints_and_types() -> None:
    """Who holds which GPUs, topo=any for a model that does not care beside its other hints, and node types."""
    script = Script({0: {1: {0: 1}, 2: {0: 2}}})
    trace = Trace.of([1, 2, 3], [1, 2, 4], [0, 0, 1], [9, 9, 9], model=["GoogLeNet", "bert", "bert"])
    hardware = ClusterHardware.of(ClusterLayout.of_gpus([8, 8], ["v100"] * 2).nodes, "dgx-1v")
    cluster = PhysicsCluster(trace, hardware, DistanceSpeed(insensitive=("googlenet",)))
    cluster.advance(0.0)
    cluster.apply(script.plan(cluster.read()))
    cluster.advance(1.0)
    shown = cluster.read()
    assert shown.allocations.gpu_mask.tolist() == [0b1, 0b110]
    assert shown.nodes.gpu_mask_used.tolist() == [0b111, 0]
    hints = [parse_hints(comment) for comment in shown.jobs.comment]
    assert [(each.topo, each.model) for each in hints] == [("any", "GoogLeNet"), (None, "bert"), (None, "bert")]
    assert list(shown.nodes.gpu_types) == ["gpu:v100:8", "gpu:v100:8"]
    assert shown.topology.classes[0].name == "dgx-1v"


@dataclass(frozen=True)
class Mixing(ByNode):
    """Physics that knows how fast jobs are on several GPU types."""

    mixed_efficiency: float = 0.9


@pytest.mark.parametrize(("physics", "expected"), [(Mixing(), [True, False]), (ByNode(), [None, False])])
def test_physics__jobs_say_that_they_can_be_on_several_types(physics: Any, expected: list[bool | None]) -> None:
    """Where physics knows how fast they are there, but for one that says no; beside a comment of another kind."""
    comments = ["of alice", "slurmsched: mixed=no"]
    trace = Trace.of([1, 2], [1, 2], [0, 0], [9, 9], comment=comments)
    cluster = PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([4, 4]).nodes), physics)
    cluster.advance(0.0)
    assert [parse_hints(comment).mixed for comment in cluster.read().jobs.comment] == expected


def test_physics__jobs_tell_their_progress() -> None:
    """Waiting 0; after 4 s on the slow node, of which 2 s are a start's cost, 1 of 10 s; kept when preempted."""
    script = Script({0: {1: {1: 4}}, 4: {}})
    play_to = made([(4, 0, 10), (4, 0, 10)], ByNode(), start_cost_s=2.0, tells_progress=True)
    seen = []
    for time_s in (0.0, 4.0, 6.0):
        play_to.advance(time_s)
        seen.append([parse_hints(comment).progress for comment in play_to.read().jobs.comment])
        play_to.apply(script.plan(play_to.read()))
    assert seen == [[0.0, 0.0], [pytest.approx(0.1), 0.0], [pytest.approx(0.1), 0.0]]


def test_physics__a_hint_is_told_once() -> None:
    """Progress of the trace gives way to that of the replay; that a job cannot be on several types stays its own."""
    trace = Trace.of([1], [1], [0], [9], comment=["slurmsched: mixed=no progress=3/10"])
    model = IdealSettings(tells_progress=True)
    cluster = PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([4, 4]).nodes), Mixing(), model)
    cluster.advance(0.0)
    hints = parse_hints(cluster.read().jobs.comment[0])
    assert (hints.progress, hints.mixed, hints.warnings) == (0.0, False, ())


def test_physics__progress_needs_physics() -> None:
    """Nobody learns from it where jobs are as fast anywhere."""
    with pytest.raises(ConfigError) as caught:
        ideal_cluster(Trace.of([1], [1], [0], [9]), (4,), PublishedSettings(tells_progress=True))
    assert caught.value.key == "model.tells_progress"
    with pytest.raises(ConfigError):
        IdealSettings(tells_progress=1)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Typed(ByNode):
    """Physics whose models run on the GPU types that their names list."""

    def runs_on(self, model: str, gpus: int, types: Iterable[str]) -> frozenset[str]:
        return frozenset(types) & frozenset(model.split())


def typed(models: Sequence[str], physics: Any, gpus: int = 4) -> PhysicsCluster:
    jobs = len(models)
    trace = Trace.of(range(1, jobs + 1), [gpus] * jobs, [0] * jobs, [10] * jobs, model=models)
    return PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([4, 4], ["k80", "v100"]).nodes), physics)


def test_physics__a_job_gets_no_gpus_it_does_not_run_on() -> None:
    """Jobs 1 and 2 wait for each other on the V100, though the K80 are idle; job 3 takes those."""
    cluster = typed(["v100", "v100", "k80 v100"], Typed())
    replay_events(cluster, FIFO, CarryStore())
    assert cluster.outcomes().end_s.tolist() == [20.0, 40.0, 10.0]


@pytest.mark.parametrize(("model", "gpus"), [("h100", 4), ("v100", 8)])
def test_physics__refuses_a_job_that_runs_nowhere(model: str, gpus: int) -> None:
    """On none of the types, or on too few GPUs of them."""
    with pytest.raises(InputError, match=f"job 1 asks for {gpus} GPUs.*; give a larger --cluster"):
        typed([model], Typed(), gpus)


def test_physics__refuses_a_gang_of_another_size() -> None:
    """The ideal cluster has no elastic jobs."""
    with pytest.raises(ConfigError, match="job 1 is given 2 GPUs, it has 4 for good"):
        play([(4, 0, 10)], Script({0: {1: {0: 4}}, 5: {1: {0: 2}}}), RecordedSpeed())


@pytest.mark.parametrize("speed", [0.0, float("nan"), -1.0])
def test_physics__refuses_a_speed_at_which_nothing_ends(speed: float) -> None:
    """The job is named."""
    with pytest.raises(InputError, match="job 2: physics gives no speed above 0"):
        play([(4, 0, 10), (4, 0, 10)], FIFO, ByNode(speeds=(1.0, speed)))


def test_physics__refuses_speeds_of_another_number() -> None:
    """One a job."""

    class Short(ByNode):
        def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
            return np.ones(1)

    with pytest.raises(InputError, match=r"1 speeds for 2 jobs"):
        play([(4, 0, 10), (4, 0, 10)], FIFO, Short())


def test_physics__refuses_the_costs_of_single_simulators() -> None:
    """What they would do to a speed that changes nobody says."""
    request = ReplayRequest("1x4", "fifo", placement="consolidated", physics="spread", settings={"costs_known": True})
    with pytest.raises(ConfigError, match="cannot be combined with restart_cost_by_gpus"):
        ReplaySession(Trace.of([1], [1], [0], [1]), request)


@pytest.mark.parametrize("policy", [Fifo, Srtf])
def test_physics__a_preempting_policy_ends_every_job(policy: Callable[[], Any]) -> None:
    """On the slow node too, where a job outlives its time limit."""
    jobs = [(4, 0, 50), (4, 1, 40), (2, 3, 5), (8, 4, 6), (1, 5, 3)]
    done = play(jobs, DirectPlanner(policy(), Consolidated(), "skip"), ByNode(shared=True))
    assert (len(done.job_id), bool((done.executed_s >= done.useful_s).all())) == (5, True)


@dataclass(frozen=True)
class TwoFrom:
    """A policy that gives every job two GPUs from a time on, and one before."""

    at_s: float = 50.0
    preemptive: bool = True

    def rank(self, snapshot: Snapshot) -> Ranking:
        gpus = np.full(len(snapshot.jobs), 2 if snapshot.now_s >= self.at_s else 1, np.int32)
        return Ranking(np.arange(len(gpus)), changes=JobChanges(gpus=gpus))


def test_sizes__a_change_costs_its_time_and_counts() -> None:
    """50 of 100 s on one GPU; then 10 s for the change, and the other 50 on two GPUs in 25: 85 s. Attained service is
    50 + 2 x 35 GPU s. The job that comes at 50 s starts with two at once, for nothing."""
    hints = "slurmsched: min_gpus=1 max_gpus=2"
    trace = Trace.of([1, 2], [1, 1], [0.0, 50.0], [100.0, 20.0], comment=[hints, hints])
    hardware = ClusterHardware.of(ClusterLayout.of_gpus([4]).nodes)
    cluster = PhysicsCluster(trace, hardware, AmdahlSpeed(serial=0.0), IdealSettings(resize_cost_s=10.0))
    planner, shown = DirectPlanner(TwoFrom(), Consolidated(), "skip"), list[float]()

    class Watching:
        def plan(self, snapshot: Snapshot) -> IdealPlan:
            shown.append(parse_hints(snapshot.jobs.comment[0]).progress or 0.0)
            return planner.plan(snapshot)

    replay_events(cluster, Watching(), CarryStore())
    assert cluster.outcomes().end_s.tolist() == [85.0, 60.0]
    assert cluster.resizes.tolist() == [1, 0]
    assert cluster._service(np.arange(2)).tolist() == [120.0, 20.0]
    assert shown[:2] == [0.0, 0.5]


def test_sizes__need_physics_that_knows_them() -> None:
    """By the recorded speed nobody knows how fast a job is on two GPUs."""
    hints = "slurmsched: min_gpus=1 max_gpus=2"
    trace = Trace.of([1], [1], [0.0], [100.0], comment=[hints])
    cluster = PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([4]).nodes), RecordedSpeed())
    with pytest.raises(ConfigError, match="--physics amdahl"):
        replay_events(cluster, DirectPlanner(TwoFrom(at_s=0.0), Consolidated(), "skip"), CarryStore())
