"""Published cases of preemption gone wrong, replayed by the daemon's own cycle on the model of slurmctld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from slurmsched.config import GangsConfig, PreemptionConfig, ScopeConfig
from slurmsched.model import JobState, Plan, Requeue, Reserve, Signal, Snapshot, Step
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.trace import Trace
from slurmsched.planning.planner import Planner
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.sim.cluster_layout import ClusterLayout, NodeOutage, NodeSpec
from slurmsched.sim.event_loop import replay
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

HOUR_S, CYCLE_S, COME_S = 3_600.0, 60.0, 7_200.0
WILLING = "slurmsched: preempt=yes ckpt=USR2@120"
LOSSY = SlurmctldSettings(restart_cost_s=120.0, checkpoint_s=float("inf"))
DEFAULT = "preemption.restart_cost_s"
Row = dict[str, Any]


@dataclass
class Watched:
    """The daemon's planner; keeps what it planned."""

    limits: PreemptionConfig = field(default_factory=lambda: PreemptionConfig(enabled=True))
    gangs: GangsConfig = field(default_factory=GangsConfig)
    plans: list[tuple[Snapshot, Plan]] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        scope = ScopeConfig(partitions=("*",))
        planner = Planner(DiscretizedLas((60.0,)), "las", scope, preemption=self.limits, gangs=self.gangs)
        self.plans.append((snapshot, planner.plan(snapshot)))
        return self.plans[-1][1]

    def steps(self, kind: type[Step]) -> list[tuple[float, Any]]:
        return [(seen.now_s, each) for seen, plan in self.plans for each in plan.actions if isinstance(each, kind)]

    def rules(self, job_id: int) -> list[str]:
        """Why the job got nobody's GPUs, in each cycle."""
        return [refusal.rule for _, plan in self.plans for refusal in plan.refused if refusal.job_id == job_id]


def cluster(
    rows: Sequence[Row], nodes: int, model: SlurmctldSettings = LOSSY, closures: Sequence[NodeOutage] = ()
) -> Any:
    """Jobs 1, 2, ... of 8 GPUs for ten hours from second 0 unless told, on nodes n01, n02, ... of 8 GPUs."""
    base = {"gpus": 8, "submit_s": 0.0, "duration_s": 10 * HOUR_S, "limit_s": 20 * HOUR_S}
    full = [base | row for row in rows]
    ids = list(range(1, len(rows) + 1))
    trace = Trace.of(ids, *[[row[name] for row in full] for name in base])
    texts = {name: [row.get(name, "") for row in rows] for name in ("comment", "node_list")}
    layout = ClusterLayout(tuple(NodeSpec(f"n{n:02}", 8, 64) for n in range(1, nodes + 1)), closures=tuple(closures))
    return SimulatedSlurmctld(trace, layout, model, requests=SubmittedRequests.of(trace, ids, texts))


def cycles(made: SimulatedSlurmctld, planner: Any, until_s: float) -> None:
    """Play until then."""

    class Enough(Exception):
        pass

    def look(cluster: Any) -> None:
        if cluster.now_s >= until_s:
            raise Enough

    with pytest.raises(Enough):
        replay(made, planner, MemoryStore(), interval_s=CYCLE_S, on_progress=look)


def restarts(made: SimulatedSlurmctld) -> dict[int, int]:
    """Jobs that were requeued, and how often."""
    pairs = zip(made.trace.job_id.tolist(), made.job.restarts.tolist(), strict=True)
    return {job: count for job, count in pairs if count}


ELEVEN: list[Row] = [{"comment": WILLING, "node_list": f"n{n:02}"} for n in range(1, 12)]
KEEPER: Row = {"comment": "slurmsched: preempt=no", "node_list": "n12"}


@pytest.mark.parametrize(("closures", "rule"), [((), "victims"), ((NodeOutage(("n12",), 60.0, 1e9),), "nodes")])
def test_eleven__constraint_that_no_victim_node_meets_costs_nobody_anything(closures, rule) -> None:
    """Job 13 may run on the twelfth node only, whose job does not let itself be preempted, or which takes no job: in
    twenty cycles nobody is asked to leave, and one reason is given each time."""
    made = cluster(
        [*ELEVEN, KEEPER, {"submit_s": COME_S, "node_list": "n12", "duration_s": 600.0}], 12, closures=closures
    )
    watched = Watched()
    cycles(made, watched, COME_S + 19 * CYCLE_S)  # the first one when it comes
    assert watched.rules(13) == [rule] * 20
    assert (watched.steps(Step), restarts(made)) == ([], {})


def test_eleven__one_feasible_node_costs_one_victim_once() -> None:
    """Job 13 may run on the sixth node: its job is signalled once and requeued once, and while it completes, and ever
    after, nobody else is asked. Then all is as if nothing had been reserved."""
    made = cluster([*ELEVEN, KEEPER, {"submit_s": COME_S, "node_list": "n06", "duration_s": 600.0}], 12)
    watched = Watched()
    cycles(made, watched, COME_S + 20 * CYCLE_S)
    assert [step.job_id for _, step in watched.steps(Signal)] == [6]
    assert [step.job_id for _, step in watched.steps(Requeue)] == [6]
    completing = [seen.jobs.is_state(JobState.COMPLETING).sum() for seen, _ in watched.plans]
    assert max(completing) == 1
    assert (restarts(made), made.job.phase[12] > 2) == ({6: 1}, True)
    assert (made.operations, len(made.read().reservations)) == ((), 0)


def test_hint__signal_once_then_its_time_then_requeue() -> None:
    """The signal goes out once, the requeue 120 s later, not before; what was done until the signal is kept, what was
    done after it and the restart are lost, and the plan says so beforehand."""
    made = cluster([{"comment": WILLING}, {"submit_s": COME_S, "duration_s": 600.0}], 1)
    watched = Watched()
    replay(made, watched, MemoryStore(), interval_s=CYCLE_S)
    ((warned_s, signal),), ((requeued_s, requeue),) = watched.steps(Signal), watched.steps(Requeue)
    assert (signal.job_id, signal.signal, requeued_s - warned_s) == (1, "USR2", 120.0)
    assert requeue.reason == "job 2 gets its GPUs; it loses about 120 s of work on 8 GPUs, a restart by " + DEFAULT
    assert made.job.wasted_s.tolist() == [120.0 + 120.0, 0.0]
    assert made.job.first_start_s[1] - (requeued_s + LOSSY.kill_wait_s) <= LOSSY.batch_sched_delay_s


def test_hint__job_that_leaves_by_itself_loses_its_saving_only() -> None:
    """One that requeues itself when it has saved is not requeued again, and the other one starts at once."""
    made = cluster([{"comment": WILLING}, {"submit_s": COME_S, "duration_s": 600.0}], 1,
                   SlurmctldSettings(restart_cost_s=120.0, checkpoint_s=float("inf"), leaves_saved=True))  # fmt: skip
    watched = Watched()
    replay(made, watched, MemoryStore(), interval_s=CYCLE_S)
    ((warned_s, _),) = watched.steps(Signal)
    assert (watched.steps(Requeue), restarts(made)) == ([], {1: 1})
    assert made.job.wasted_s[0] == made.model.save_s + 120.0
    assert made.job.first_start_s[1] - (warned_s + made.model.save_s) <= made.model.batch_sched_delay_s


def test_no_hint__left_alone_unless_the_site_allows_plain_requeue() -> None:
    """Without a ckpt hint the whole run would be lost: nobody is touched. Where the site allows it the requeue comes
    at once, with no signal, and its reason and the replay tell the loss of the whole run."""
    rows: list[Row] = [{"comment": "slurmsched: preempt=yes"}, {"submit_s": COME_S, "duration_s": 600.0}]
    watched, made = Watched(), cluster(rows, 1)
    cycles(made, watched, COME_S + 20 * CYCLE_S)
    assert (watched.steps(Step), restarts(made), set(watched.rules(2))) == ([], {}, {"victims"})
    watched, made = Watched(PreemptionConfig(enabled=True, without_checkpoint=True)), cluster(rows, 1)
    replay(made, watched, MemoryStore(), interval_s=CYCLE_S)
    ((requeued_s, requeue),) = watched.steps(Requeue)
    assert (watched.steps(Signal), restarts(made)) == ([], {1: 1})
    assert requeue.reason.endswith(f"it loses about {requeued_s + 120:.0f} s of work on 8 GPUs, a restart by {DEFAULT}")
    assert made.job.wasted_s[0] == requeued_s + 120.0


def test_gang__starts_as_promised_while_short_jobs_use_its_nodes() -> None:
    """64 one-GPU jobs with limits of an hour end at spread times, a gang of four nodes waits at the head, and one-GPU
    jobs never stop coming. It starts within the longest remaining time and a cycle; until then ten-minute jobs run on
    the nodes that are kept for it."""
    spread = [{"gpus": 1, "duration_s": 60.0 + 55.0 * n, "limit_s": HOUR_S} for n in range(64)]
    gang = {"gpus": 32, "submit_s": 30.0, "duration_s": HOUR_S, "limit_s": HOUR_S}
    short = [{"gpus": 1, "submit_s": 60.0 + 20.0 * n, "duration_s": 600.0, "limit_s": 660.0} for n in range(400)]
    made = cluster([*spread, gang, *short], 8, SlurmctldSettings())
    watched = Watched(PreemptionConfig(), GangsConfig(reserve=True))
    replay(made, watched, MemoryStore(), interval_s=CYCLE_S)
    started_s = float(made.job.first_start_s[made.trace.job_id == 65][0])
    assert started_s <= HOUR_S + SlurmctldSettings().kill_wait_s + CYCLE_S
    kept = {name for _, step in watched.steps(Reserve) for name in expand_hostlist(step.nodes)}
    held = [seen.allocations for seen, _ in watched.plans if seen.now_s < started_s]
    places = {place for each in held for place in zip(each.job_id.tolist(), each.node, strict=True)}
    shorter = {job for job, node in places if node in kept and job > 65}
    assert len(shorter) > 30
    assert (made.operations, restarts(made)) == ((), {})


def test_gang__the_live_case_comes_out_as_on_slurm() -> None:
    """The case of tests/live/test_promise.py with its nodes, limits and KillWait, a cycle every two seconds: the same
    nodes are kept, the gang starts on them when the last job has left, two cycles later at most, one-minute jobs run
    there until then, and no ten-minute job does."""
    minute_s = 60.0
    far = [{"duration_s": 500.0, "limit_s": 10 * minute_s, "node_list": node} for node in ("n03", "n04")]
    near = [{"gpus": 2, "duration_s": 5.0 + 10.0 * part, "limit_s": 2 * minute_s, "node_list": node}
            for node in ("n01", "n02") for part in range(4)]  # fmt: skip
    gang = {"gpus": 16, "submit_s": 3.0, "duration_s": 20.0, "limit_s": 5 * minute_s}
    short = [{"gpus": 1, "submit_s": 4.0 + 2.0 * n, "duration_s": 3.0, "limit_s": minute_s} for n in range(60)]
    long = [{"gpus": 1, "submit_s": 4.5 + 2.0 * n, "duration_s": 500.0, "limit_s": 10 * minute_s} for n in range(60)]
    made = cluster([*far, *near, gang, *short, *long], 4, SlurmctldSettings(kill_wait_s=5.0))
    watched = Watched(PreemptionConfig(), GangsConfig(reserve=True, least_gpus=16, least_gain_s=5.0))
    replay(made, watched, MemoryStore(), interval_s=2.0)
    started_s = float(made.job.first_start_s[made.trace.job_id == 11][0])
    kept = {step.nodes for _, step in watched.steps(Reserve)}
    remaining_s = float(made.job.end_s[made.trace.job_id == 10][0])
    assert kept == {"n[01-02]"}
    assert remaining_s <= started_s <= remaining_s + 2 * 2.0 + SlurmctldSettings().batch_sched_delay_s
    before = [seen.allocations for seen, _ in watched.plans if seen.now_s < started_s]
    guests = {job for each in before for job, node in zip(each.job_id.tolist(), each.node, strict=True)
              if node in ("n01", "n02") and job > 11}  # fmt: skip
    assert guests
    assert not [job for job in guests if job > 11 + len(short)]
    assert (made.operations, restarts(made)) == ((), {})


def test_gang__the_published_case_in_full_comes_out_as_on_slurm() -> None:
    """That of tests/live/test_promise.py with its jobs, limits and cycle: the gang starts when the last job has left
    its four nodes, a cycle later at most; one-minute jobs run there until then, and no ten-minute job does."""
    cycle_s, minute_s = 5.0, 60.0
    busy = [{"gpus": 1, "duration_s": 8.0 + n * 29 % 64 // 2, "limit_s": 2 * minute_s} for n in range(64)]
    gang = {"gpus": 32, "submit_s": 3.0, "duration_s": 300.0, "limit_s": 5 * minute_s}
    short = [{"gpus": 1, "submit_s": 4.0 + 0.4 * n, "duration_s": 6.0, "limit_s": minute_s} for n in range(200)]
    long = [{"gpus": 1, "submit_s": 4.2 + 0.4 * n, "duration_s": 500.0, "limit_s": 10 * minute_s} for n in range(200)]
    made = cluster([*busy, gang, *short, *long], 8, SlurmctldSettings(kill_wait_s=5.0))
    watched = Watched(PreemptionConfig(), GangsConfig(reserve=True, least_gpus=32, least_gain_s=5.0))
    replay(made, watched, MemoryStore(), interval_s=cycle_s)
    jobs, started_s = made.trace.job_id, float(made.job.first_start_s[64])
    seen = [(snapshot.now_s, *row) for snapshot, _ in watched.plans
            for row in zip(snapshot.allocations.job_id.tolist(), snapshot.allocations.node, strict=True)]  # fmt: skip
    kept = {node for _, job, node in seen if job == 65}
    before = {job for now_s, job, node in seen if node in kept and now_s < started_s}
    remaining_s = max(float(end_s) for job, end_s in zip(jobs.tolist(), made.job.end_s, strict=True) if job in before)
    assert len(kept) == 4
    assert remaining_s <= started_s <= remaining_s + cycle_s + SlurmctldSettings().batch_sched_delay_s
    assert started_s <= 2 * minute_s + 5.0 + cycle_s
    assert [job for job in before if 65 < job <= 65 + len(short)]
    assert not [job for job in before if job > 65 + len(short)]
    assert (made.operations, restarts(made)) == ((), {})
