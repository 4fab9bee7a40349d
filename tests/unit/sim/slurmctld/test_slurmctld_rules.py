"""Rules of slurmctld on schedules worked out by hand. Nodes of 8 GPUs and 64 CPUs, passes at whole seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import InputError
from slurmsched.model import JobState, Labels, Plan, Ranking, Reserve, SetNice
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.placements.baselines import BestFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.sim.cluster_layout import BARRED, ClusterLayout, LimitSpec, NodeOutage, NodeSpec, PartitionSpec
from slurmsched.sim.event_loop import replay
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from slurmsched.sim.traces.trace_selection import Selection, selected

NODES = tuple(NodeSpec(f"n{n}", 8, 64, 512_000.0) for n in (1, 2))
PLAIN = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0)
Row = dict[str, Any]


def cluster(
    rows: list[Row], model: SlurmctldSettings = PLAIN, layout: ClusterLayout | None = None
) -> SimulatedSlurmctld:
    """Jobs 1, 2, ... of rows: gpus, submit_s, duration_s, limit_s and columns of Requests."""
    base = {"gpus": 8, "submit_s": 0.0, "duration_s": 10.0, "limit_s": 60.0}
    full = [base | row for row in rows]
    columns = [[row[name] for row in full] for name in base]
    ids = list(range(1, len(rows) + 1))
    trace = Trace.of(ids, *columns)
    named = {name for row in rows for name in row if name not in base}
    default = SubmittedRequests.plain(1)
    asked = {name: [row.get(name, getattr(default, name)[0]) for row in rows] for name in named}
    return SimulatedSlurmctld(
        trace, layout or ClusterLayout(NODES), model, requests=SubmittedRequests.of(trace, ids, asked)
    )


def starts(*arguments: Any) -> list[float]:
    made = cluster(*arguments)
    replay(made)
    first = dict(zip(made.trace.job_id.tolist(), made.job.first_start_s.tolist(), strict=True))
    return [first[job] for job in sorted(first)]


def test_partitions__one_blocked_keeps_its_nodes_from_the_other() -> None:
    """Job 2 waits for both nodes, so job 3 of the other partition gets none though one is free; n3 is not shared."""
    layout = ClusterLayout(
        (*NODES, NodeSpec("n3", 8, 64)),
        (PartitionSpec("gpu", ("n1", "n2")), PartitionSpec("all"), PartitionSpec("own", ("n3",))),
    )
    rows = [{}, {"gpus": 16}, {"partition": "all", "gpus": 16}, {"partition": "own"}]
    assert starts(rows, PLAIN, layout) == [0, 10, 20, 0]


def of_history(layout: ClusterLayout, **columns: Any) -> list[float]:
    """When jobs of a history start: of a node each, 100 s each, submitted at once."""
    jobs = len(next(iter(columns.values())))
    given = {"gpus": [8] * jobs, "submit_s": [0.0] * jobs, "nodes": [1] * jobs} | columns
    trace = Trace.of(range(1, jobs + 1), given.pop("gpus"), given.pop("submit_s"), [100.0] * jobs, **given)
    made = SimulatedSlurmctld(trace, layout, PLAIN, requests=SubmittedRequests.of_trace(trace, layout, cpus_known=True))
    replay(made)
    return made.job.first_start_s.tolist()


def test_partitions__a_job_of_several_starts_where_there_is_room() -> None:
    """Job 2 ran in b, but asked for both, and gets a. At 100 job 4 gets b, which has the higher tier, and job 3 a."""
    layout = ClusterLayout(NODES, (PartitionSpec("a", ("n1",)), PartitionSpec("b", ("n2",), tier=2)))
    columns = {"partition": ["b", "b", "a", "b"], "partitions": ["", "a,b,gone", "", "a,b"]}
    assert of_history(layout, **columns) == [0, 0, 100, 100]


def test_partitions__of_several_one_gives_all_nodes() -> None:
    """One node of each is idle from 0 on: job 2 waits for job 1, which holds the other one of b."""
    nodes = (*NODES, NodeSpec("n3", 8, 64, 512_000.0))
    layout = ClusterLayout(nodes, (PartitionSpec("a", ("n1",)), PartitionSpec("b", ("n2", "n3"))))
    rows: list[Row] = [{"partition": "b"}, {"partition": "a,b", "gpus": 16, "nodes": 2}, {"partition": "a"}]
    assert starts(rows, PLAIN, layout) == [0, 10, 0]
    assert starts(rows, SlurmctldSettings(), layout) == [0, 10, 0]


@pytest.mark.parametrize(("model", "more"), [(PLAIN, {"tier": 2}), (replace(PLAIN, weight_partition=500),
                                                                    {"factor": 9})])  # fmt: skip
def test_partitions__each_has_its_own_place_in_the_queue(model: SlurmctldSettings, more: dict[str, int]) -> None:
    """Job 3 may have n1 by a partition of a lower tier or factor than that of job 4, which comes before it there."""
    parts = PartitionSpec("low", ("n1",)), PartitionSpec("far", ("n2",), **more), PartitionSpec("high", ("n1",), **more)
    rows: list[Row] = [{"partition": "low"}, {"partition": "far", "duration_s": 60.0},
                       {"partition": "far,low", "submit_s": 1.0}, {"partition": "high", "submit_s": 2.0}]  # fmt: skip
    assert starts(rows, model, ClusterLayout(NODES, parts)) == [0, 0, 20, 10]


def test_submission__comes_within_its_second() -> None:
    """sacct rounds Submit down: the pass of that second has not seen the job."""
    assert starts([{"submit_s": 3.0}], replace(PLAIN, submit_late_s=0.5)) == [4]


def test_warm_start__jobs_run_where_they_ran() -> None:
    """Jobs 1 and 2 hold half of a node each, so job 3 has none to itself. Lists that cannot be do not count: nodes
    that are not there, or too few of them free."""
    layout, half = (
        ClusterLayout(NODES),
        {"gpus": [4, 4, 8], "submit_s": [0.0, 0.0, 1.0], "running": [True, True, False]},
    )
    assert of_history(layout, **half, node_list=["n1", "n2", ""]) == [0, 0, 100]
    assert of_history(layout, **half, node_list=["n1", "n9", ""]) == [0, 0, 1]
    assert of_history(layout, **(half | {"gpus": [6, 6, 1]}), node_list=["n2", "n2", ""]) == [0, 0, 1]


def test_warm_start__a_window_repeats_the_history_it_is_cut_from() -> None:
    """On the nodes on which its first jobs ran. Without them the mean wait is off by more than a tenth."""
    jobs, draw = 500, np.random.default_rng(3)
    trace = Trace.of(
        range(1, jobs + 1), draw.choice([1, 2, 4, 8, 16], jobs, p=[0.5, 0.2, 0.1, 0.15, 0.05]),
        np.sort(draw.integers(0, 250_000, jobs)), draw.lognormal(7.3, 1.2, jobs).round(), [90_000.0] * jobs,
    ).with_columns(partition=Labels.constant("all", jobs))  # fmt: skip
    layout = ClusterLayout(tuple(NodeSpec(f"n{n}", 8, 64) for n in range(1, 5)), (PartitionSpec("all"),))

    def played(history: Trace) -> SimulatedSlurmctld:
        asked = SubmittedRequests.of_trace(history, layout, cpus_known=True)
        made = SimulatedSlurmctld(history, layout, SlurmctldSettings(), requests=asked)
        replay(made)
        return made

    whole = played(trace)
    held = [whole.job.nodes[row] + 1 for row in range(jobs)]
    history = trace.with_columns(
        start_s=whole.job.first_start_s.copy(), nodes=np.array([len(each) for each in held]),
        node_list=Labels.of([",".join(f"n{n}" for n in each) for each in held]),
    )  # fmt: skip
    errors = []
    for known in (history, history.with_columns(node_list=Labels.constant("", jobs))):
        window = selected(RecordedTrace(known), Selection(since="1d", warm_start=True)).recorded.trace
        made_s = played(window).job.first_start_s - window.submit_s
        errors.append(made_s[window.counted].mean() / window.wait_s[window.counted].mean() - 1)
    assert abs(errors[0]) < 0.02 and abs(errors[1]) > 0.1, errors


def test_partitions__higher_tier_goes_first() -> None:
    """Whatever the priority."""
    layout = ClusterLayout(NODES[:1], (PartitionSpec("gpu"), PartitionSpec("urgent", tier=2)))
    assert starts([{"nice": -500}, {"partition": "urgent"}], PLAIN, layout) == [10, 0]


def test_bound__blocks_only_its_nodes() -> None:
    """Job 2 waits for n1; job 3 takes n2."""
    assert starts([{"node_list": "n1"}, {"node_list": "n1"}, {}]) == [0, 10, 0]


@pytest.mark.parametrize("column", [{"cpus": 40}, {"memory_mib": 300_000.0}])
def test_cpus_and_memory__count_beside_gpus(column: Row) -> None:
    """Two jobs of one GPU each do not fit on a node that has too few CPUs or too little memory for both."""
    assert starts([{"gpus": 1, **column}, {"gpus": 1, **column}], PLAIN, ClusterLayout(NODES[:1])) == [0, 10]


@pytest.mark.parametrize("backfill", ["none", "slurm"])
@pytest.mark.parametrize(("most", "asked", "expected"), [
    (32, [("cpu", 16), ("gpu", 16), ("cpu", 16), ("cpu", 16)], [0, 0, 0, 10]),
    (48, [("cpu", 16), ("gpu", 16), ("cpu", 16), ("cpu", 16)], [0, 0, 0, 0]),
    (0, [("cpu", 16), ("gpu", 16), ("cpu", 16), ("cpu", 16)], [0, 0, 0, 0]),
    (32, [("gpu", 16), ("cpu", 40), ("cpu", 8)], [0, 0, 10]),
])  # fmt: skip
def test_max_cpus_per_node__is_of_all_jobs_of_the_partition(
    most: int, asked: list[tuple[str, int]], expected: list[float], backfill: Any
) -> None:
    """On each of the two nodes, which every job takes. A job over the limit by itself takes all of it."""
    layout = ClusterLayout(NODES, (PartitionSpec("gpu"), PartitionSpec("cpu", max_cpus_per_node=most)))
    rows: list[Row] = [{"gpus": 2, "nodes": 2, "partition": part, "cpus": 2 * cpus} for part, cpus in asked]
    assert starts(rows, replace(PLAIN, backfill=backfill), layout) == expected


def test_array__tasks_start_one_by_one_and_show_as_one_record() -> None:
    """Three tasks of 8 GPUs on two nodes: the last, with the array's own id, waits; nice on the array reaches it."""
    made = cluster([{"array_id": 1}] * 3 + [{}])
    made.advance(5.0)
    jobs = made.read().jobs
    assert (jobs.job_id.tolist(), jobs.pending.tolist()) == ([1, 2, 3, 4], [True, False, False, True])
    status = made.apply(Plan((SetNice(1, 0.0, "test", new=50),))).outcomes[0].status
    replay(made)
    assert (status, made.job.first_start_s.tolist()) == ("written", [10, 0, 0, 10])
    waiting = cluster([{"gpus": 16}, *[{"array_id": 2}] * 3])
    waiting.advance(5.0)
    jobs = waiting.read().jobs
    assert (jobs.job_id.tolist(), jobs.array_tasks.tolist(), jobs.array_job_id.tolist()) == ([1, 2], [1, 3], [0, 2])


def test_dependency__starts_after_the_end_and_ages_from_then() -> None:
    """Job 2 may start once job 1 is done; an afterok on a failed job is never satisfied and ends it."""
    rows = [{"duration_s": 30.0, "fails": True}, {"dependency": "afterany:1"}, {"dependency": "afterok:1"}]
    made = cluster(rows)
    made.advance(5.0)
    shown = made.read().jobs
    assert (shown.reason[1], shown.dependency[1]) == ("Dependency", "afterany:1")
    replay(made)
    assert (made.job.first_start_s[1], made.job.eligible_s[1], made.job.ended_as[2]) == (30, 30, JobState.CANCELLED)


def test_cancel__ends_waiting_and_running_jobs() -> None:
    """Job 1 stops at 4 and job 2 starts; job 3 never does."""
    made = cluster([{"cancel_s": 4.0}, {}, {"cancel_s": 2.0}], PLAIN, ClusterLayout(NODES[:1]))
    replay(made)
    ended = (made.job.end_s.tolist(), made.job.ended_as.tolist())
    assert ended == ([4, 14, 2], [JobState.CANCELLED, JobState.COMPLETED, JobState.CANCELLED])


@pytest.mark.parametrize(
    "limits",
    [
        LimitSpec("q", max_jobs_per_user=1),
        LimitSpec("q", max_gpus_per_user=2),
        LimitSpec("q", group_gpus=2),
        LimitSpec("q", group_jobs=1),
    ],
)
def test_limits__hold_a_job_back_without_blocking(limits: LimitSpec) -> None:
    """The second job of the QOS waits for the first; the third, of none, does not."""
    rows = [{"gpus": 2, "qos": "q"}, {"gpus": 2, "qos": "q"}, {"gpus": 2}]
    assert starts(rows, PLAIN, ClusterLayout(NODES, qos=(limits,))) == [0, 10, 0]


@pytest.mark.parametrize(("asked", "expected"), [
    (["matlab", "matlab", "", "matlab:1"], [0, 10, 0, 20]),
    (["matlab:2", "matlab", "", ""], [0, 10, 0, 10]),
    (["matlab,ansys", "ansys", "", "matlab"], [0, 10, 0, 10]),
    (["other:9", "a|b", "", ""], [0, 0, 10, 10]),
    (["matlab:3", "", "", ""], [np.nan, 0, 0, 10]),
])  # fmt: skip
@pytest.mark.parametrize("backfill", ["none", "slurm"])
def test_licenses__hold_a_job_back_without_blocking(asked: list[str], expected: list[float], backfill: Any) -> None:
    """Two of matlab here, of which job 4 leaves none. Who asks for more than there are never comes in; licences that
    the cluster lacks do not count."""
    have = {"matlab": 1 if "matlab:1" in asked else 2, "ansys": 1}
    rows = [{"licenses": text} for text in asked]
    model = replace(PLAIN, backfill=backfill)
    assert starts(rows, model, ClusterLayout(NODES, licenses=have)) == pytest.approx(expected, nan_ok=True)


def test_licenses__count_beside_the_tasks_of_an_array_and_a_limit_on_time_used() -> None:
    """Job 4 finds the two licences taken by two tasks of the array, which may run three at once."""
    qos = LimitSpec("normal", group_wall_s=1e6)
    layout = ClusterLayout((*NODES, *(NodeSpec(f"n{n}", 8, 64) for n in (3, 4))), qos=(qos,), licenses={"matlab": 2})
    rows = [{"array_id": 1, "array_limit": 3, "licenses": "matlab"}] * 3 + [{"licenses": "matlab"}, {}]
    assert starts(rows, PLAIN, layout) == [10, 0, 0, 10, 0]


def test_limits__per_user_are_of_each_user() -> None:
    """MaxJobsPU of an account."""
    layout = ClusterLayout(NODES, accounts=(LimitSpec("a", max_jobs_per_user=1),))
    rows = [{"gpus": 1, "account": "a", "user": user} for user in ("x", "x", "y")]
    assert starts(rows, PLAIN, layout) == [0, 10, 0]


@pytest.mark.parametrize("limits", [{"max_jobs_per_account": 1}, {"max_gpus_per_account": 1}])
def test_limits__per_account_are_of_each_account_of_a_qos(limits: Row) -> None:
    """MaxJobsPA and MaxTRESPA: whoever of the account has the job; a job of another QOS does not count."""
    layout = ClusterLayout(NODES, qos=(LimitSpec("q", **limits),))
    asked = (("a", "x", "q"), ("a", "y", "q"), ("b", "x", "q"), ("a", "x", ""))
    rows: list[Row] = [{"gpus": 1, "account": account, "user": user, "qos": qos} for account, user, qos in asked]
    assert starts(rows, PLAIN, layout) == [0, 10, 0, 0]


@pytest.mark.parametrize(("column", "expected"), [
    ("GrpTRES", [0, 10, 0, 20]), ("MaxTRESPU", [0, 10, 0, 0]), ("MaxTRESPA", [0, 10, 0, 0]),
])  # fmt: skip
def test_limits__on_gpus_of_one_type_count_jobs_of_it(column: str, expected: list[float]) -> None:
    """One a100 at a time, of all, of a user or of an account: job 3 asks for another type, job 4 is of another user
    and account."""
    nodes = tuple(NodeSpec(f"n{n}", 8, 64, gpu_types="gpu:a100:4,gpu:v100:4") for n in (1, 2))
    layout = ClusterLayout(nodes, qos=(LimitSpec("q", typed_gpus=((column, "a100", 1),)),))
    asked = (("a100", "x"), ("a100", "x"), ("v100", "x"), ("a100", "y"))
    rows: list[Row] = [{"gpus": 1, "gpu_type": kind, "user": of, "account": of, "qos": "q"} for kind, of in asked]
    assert starts(rows, PLAIN, layout) == expected


def test_limits__on_gpus_of_one_type_of_an_account_above() -> None:
    """GrpTRES of lab holds for team below it."""
    layout = replace(below(lab={"typed_gpus": (("GrpTRES", "a100", 4),)}), nodes=(
        NodeSpec("n1", 64, 64, gpu_types="gpu:a100:64"),
    ))  # fmt: skip
    rows: list[Row] = [{"gpus": 4, "gpu_type": "a100", "account": "team"}, {"gpus": 1, "account": "team"}]
    assert starts([*rows, rows[0]], PLAIN, layout) == [0, 0, 10]


def test_closure__planned_is_not_run_into() -> None:
    """n1 closes at 50 for 100 s: a job limited to 60 s would run into it, so both nodes serve the short one only."""
    layout = ClusterLayout(NODES[:1], closures=(NodeOutage(("n1",), 50.0, 150.0, planned=True),))
    assert starts([{"limit_s": 60.0}, {"limit_s": 20.0, "submit_s": 1.0}], PLAIN, layout) == [150, 1]


def test_closure__down_requeues_what_runs_there() -> None:
    """Node down at 4 for 100 s: the job waits for it, since the requeue delay is over by then."""
    layout = ClusterLayout(NODES[:1], closures=(NodeOutage(("n1",), 4.0, 104.0, down=True),))
    made = cluster([{}], replace(PLAIN, requeue_delay_s=20.0, restart_cost_s=0.0), layout)
    replay(made)
    assert (made.job.restarts[0], made.job.start_s[0], made.job.end_s[0]) == (
        1,
        pytest.approx(float("nan"), nan_ok=True),
        110,
    )


def test_eligible_later__waits_for_the_pass_over_the_whole_queue() -> None:
    """No request is made when a begin time comes: the next full pass sees it."""
    assert starts([{"begin_s": 7.0}]) == [60]


FOUR = ClusterLayout(tuple(NodeSpec(f"n{n}", 8, 64, 512_000.0) for n in (1, 2, 3, 4)))


@pytest.mark.parametrize(("shortest", "node"), [(False, 0), (True, 3)])
def test_one_node__is_the_lowest_or_of_the_shortest_run(shortest: bool, node: int) -> None:
    """n3 is full, n1 and n2 have room beside a job each, n4 is idle: n1 is the lowest, n4 a run of its own."""
    rows: list[Row] = [{"gpus": 4, "node_list": name} for name in ("n1", "n2")]
    rows += [{"gpus": 8, "node_list": "n3"}, {"gpus": 1, "submit_s": 1.0}]
    made = cluster(rows, replace(PLAIN, shortest_run=shortest), FOUR)
    made.advance(1.0)
    assert made.holdings.of(3)[0].tolist() == [node]


WEIGHED = ClusterLayout(
    tuple(NodeSpec(f"n{n}", 8, 64, 512_000.0, weight=weight) for n, weight in ((1, 10), (2, 20), (3, 10), (4, 30))),
    (PartitionSpec("gpu"), PartitionSpec("spread", least_loaded=True)),
)


@pytest.mark.parametrize(("row", "nodes"), [
    ({"gpus": 1}, [0]), ({"gpus": 8}, [2]), ({"gpus": 2, "nodes": 2}, [0, 2]), ({"gpus": 3, "nodes": 3}, [0, 1, 2]),
    ({"gpus": 16, "nodes": 2}, [1, 2]), ({"gpus": 1, "partition": "spread"}, [2]),
    ({"gpus": 9, "nodes": 3, "partition": "spread"}, [0, 1, 2]),
])  # fmt: skip
@pytest.mark.parametrize("shortest", [False, True])
def test_nodes__of_less_weight_come_first(row: Row, nodes: list[int], shortest: bool) -> None:
    """n1 and n3 have the least, n1 a job of one GPU; under LLN the idle n3 comes first."""
    made = cluster([{"gpus": 1, "node_list": "n1"}, row | {"submit_s": 1.0}], replace(PLAIN, shortest_run=shortest),
                   WEIGHED)  # fmt: skip
    made.advance(1.0)
    assert made.holdings.of(1)[0].tolist() == nodes


def test_backfill__waits_for_a_completing_node_of_less_weight() -> None:
    """n1 completes from 10 to 13; job 2 could have n2, of more weight, in the pass at 10."""
    nodes = NodeSpec("n1", 8, 64, 512_000.0), NodeSpec("n2", 8, 64, 512_000.0, weight=2)
    model = SlurmctldSettings(bf_phase_s=10.0, batch_sched_delay_s=100.0, sched_phase_s=90.0, epilog_s=3.0)
    rows: list[Row] = [{"node_list": "n1"}, {"submit_s": 1.0}]
    assert starts(rows, model, ClusterLayout(nodes))[1] > 10


LATE = SlurmctldSettings(bf_phase_s=5.0, batch_sched_delay_s=1.0, sched_phase_s=90.0)


def test_backfill__a_try_reaches_to_where_the_next_begins() -> None:
    """n1: 4 GPUs until 60, 2 until 300, 2 free; n2: all until 61, then job 4 has it until 161. Job 5, of 4 GPUs, finds
    n1 at 60, so that job 6 may not run there until then. Were job 4 there until 361, the try for job 5 would go on past
    the end of n2, which is none of its own, to 300, and job 6 would start at once.
    """
    held = ((4, "n1", 60.0), (2, "n1", 300.0), (8, "n2", 61.0))
    rows: list[Row] = [
        {"gpus": gpus, "node_list": pin, "limit_s": end_s, "duration_s": end_s} for gpus, pin, end_s in held
    ]
    rest: list[Row] = [{"gpus": gpus, "limit_s": 100.0, "submit_s": 1.0} for gpus in (8, 4, 2)]
    assert starts([*rows, *rest], LATE)[5] == 60
    assert starts([*rows, rest[0] | {"limit_s": 300.0}, *rest[1:]], LATE)[5] == 5


def test_backfill__of_jobs_that_end_together_the_one_of_the_lowest_id_is_first() -> None:
    """As above, both ends at 61 and job 5 on n2 until 361: job 3, on n1, comes before job 4, on n2, though it waited
    for job 1; so the try for job 6 goes on past both to 300, and job 7 starts at once. Were it behind job 4, the try
    would end with it, and n1 be reserved from 61 on.
    """
    rows: list[Row] = [{"gpus": 8, "node_list": "n2", "duration_s": 0.5},
                       {"gpus": 2, "node_list": "n1", "limit_s": 300.0, "duration_s": 300.0}]  # fmt: skip
    both = {"limit_s": 60.0, "duration_s": 60.0}
    rows += [{"gpus": 4, "node_list": "n1", "dependency": "afterany:1", **both}, {"gpus": 8, "node_list": "n2", **both}]
    rows += [{"gpus": 8, "limit_s": 300.0, "submit_s": 2.0}]
    rows += [{"gpus": gpus, "limit_s": 100.0, "submit_s": 2.0} for gpus in (4, 2)]
    made = starts(rows, LATE)
    assert made[2] == made[3] == 1
    assert made[6] == 5


def test_backfill__a_gang_held_up_takes_as_few_completing_nodes_as_it_can() -> None:
    """n1 and n2 are completing at 5: job 3, of two nodes, is held up on n1 and n3, so that job 4 may not have n3."""
    rows: list[Row] = [{"duration_s": 4.0, "node_list": "n1"}, {"duration_s": 4.0, "node_list": "n2"}]
    rows += [{"gpus": 16, "submit_s": 4.5}, {"gpus": 8, "submit_s": 4.6}]
    model = SlurmctldSettings(bf_phase_s=5.0, batch_sched_delay_s=100.0, sched_phase_s=90.0, epilog_s=3.0)
    three = ClusterLayout((*NODES, NodeSpec("n3", 8, 64, 512_000.0)))
    assert starts(rows, model, three)[3] > 7
    assert starts([*rows[:2], rows[3]], model, three)[2] == 5


def test_backfill__passes_over_nodes_that_are_completing() -> None:
    """n1 is completing when the pass at 5 comes: job 2 takes n2 at once; job 3, for which there is only n1, waits."""
    rows = [{"duration_s": 4.0}, {"submit_s": 4.5, "gpus": 8}, {"submit_s": 4.6, "gpus": 8}]
    model = SlurmctldSettings(bf_phase_s=5.0, batch_sched_delay_s=100.0, sched_phase_s=90.0, epilog_s=3.0)
    assert starts(rows, model)[:2] == [0, 5]
    assert starts(rows, model)[2] > 7


def test_partition__is_blocked_by_a_job_whose_nodes_are_completing() -> None:
    """At 5 n1 is completing, so job 2 of both nodes does not fit until 7; job 3 does not pass it onto n2, but
    waits until those of job 2 are back.
    """
    rows = [{"duration_s": 4.0}, {"submit_s": 4.5, "gpus": 16, "nodes": 2}, {"submit_s": 4.6}]
    assert starts(rows, replace(PLAIN, epilog_s=3.0)) == [0, 7, 20]


def test_epilog__time_never_goes_back() -> None:
    """One of two nodes is back 5 s before the other, by an epilog of no time: both at the end of the job."""
    rows = [{"gpus": 16, "nodes": 2, "epilog_spread_s": 5.0}, {"gpus": 8}]
    made = cluster(rows, PLAIN)
    replay(made)
    times_s = made.history.steps()[0]
    assert (np.diff(times_s) > 0).all()
    assert made.job.first_start_s.tolist() == [0, 10]


def test_epilog__makes_ends_start_a_pass() -> None:
    """Without one job 2 waits for the next whole second; with one it starts when the nodes are back."""
    rows = [{"duration_s": 9.3, "gpus": 16}, {"gpus": 16}]
    slow = replace(PLAIN, epilog_s=0.1)
    assert starts(rows, slow) == [0, 10]
    assert starts(rows, replace(slow, has_epilog=True)) == [0, pytest.approx(9.4)]
    assert starts(rows, replace(slow, has_epilog=True, defer=True)) == [0, 10]


def test_queue_depth__leaves_the_rest_to_the_full_pass() -> None:
    """Two records are held back by a limit; the third is past the depth of 1, so it waits for the pass at 60."""
    layout = ClusterLayout(NODES, qos=(LimitSpec("q", group_jobs=1),))
    rows = [{"gpus": 1, "qos": "q", "duration_s": 100.0}, *[{"gpus": 1, "qos": "q", "submit_s": 1.0}] * 2,
            {"gpus": 1, "submit_s": 2.0}]  # fmt: skip
    assert starts(rows, replace(PLAIN, queue_depth=1), layout)[3] == 60


def test_backfill__keeps_the_nodes_of_a_reservation_free() -> None:
    """Job 2 gets both nodes when job 1 reaches its limit, 120; job 3 of 60 s ends before, job 4 of 300 s does not."""
    model = SlurmctldSettings(bf_phase_s=5.0)
    rows = [{"limit_s": 120.0, "duration_s": 100.0}, {"gpus": 16, "submit_s": 1.0},
            {"submit_s": 2.0, "gpus": 4, "limit_s": 300.0}, {"submit_s": 3.0, "gpus": 4}]  # fmt: skip
    assert starts(rows, model) == [0, 100, 110, 5]


@pytest.mark.parametrize("limit", ["bf_max_job_test", "bf_max_job_user", "bf_max_job_part", "bf_max_job_user_part"])
def test_backfill__looks_at_so_many_jobs(limit: str) -> None:
    """With 1 only the blocked head is tested."""
    rows = [{"duration_s": 50.0}, {"gpus": 16, "submit_s": 1.0}, {"submit_s": 2.0, "duration_s": 4.0, "limit_s": 5.0}]
    assert starts(rows, SlurmctldSettings(bf_phase_s=5.0, **{limit: 2}))[2] == 5
    assert starts(rows, SlurmctldSettings(bf_phase_s=5.0, **{limit: 1}))[2] == 60


WAITING: list[Row] = [{"duration_s": 50.0}, *[{"array_id": 2, "gpus": 16, "submit_s": 1.0}] * 9]
SHORT: Row = {"submit_s": 2.0, "gpus": 4, "duration_s": 4.0, "limit_s": 5.0}


@pytest.mark.parametrize(("tested", "reserved", "start_s"), [(3, 2, 5), (2, 2, 60), (3, 3, 60), (2, 1, 5)])
def test_backfill__an_array_counts_with_the_tasks_that_get_a_reservation(
    tested: int, reserved: int, start_s: float
) -> None:
    """Nine tasks wait for both nodes. Their array takes as many of the jobs that a pass tests as it gets reservations;
    the short job behind it is tested where one is left, and starts beside job 1. Else it waits for the main pass."""
    model = SlurmctldSettings(
        bf_phase_s=5.0, bf_max_job_test=tested, bf_max_job_array_resv=reserved, bf_node_space_size=99
    )
    found = starts([*WAITING, SHORT], model)[10]
    assert found == 5 if start_s == 5 else found >= start_s


def test_array__runs_no_more_tasks_at_once_than_it_may() -> None:
    """Two of four at once; the job behind them is not kept back."""
    rows: list[Row] = [{"array_id": 1, "array_limit": 2, "gpus": 1}] * 4
    assert sorted(starts([*rows, {"gpus": 1}])) == [0, 0, 0, 10, 10]


def test_array__gets_no_more_reservations_than_tasks_may_run() -> None:
    """Of an array that runs one task at once only one waits with a reservation: of the jobs that a pass tests, the
    second is the short one."""
    rows = [WAITING[0], *[{**row, "array_limit": 1} for row in WAITING[1:]], SHORT]
    assert starts(rows, SlurmctldSettings(bf_phase_s=5.0, bf_max_job_test=2))[10] == 5


@pytest.mark.parametrize("setting", [{"bf_min_age_reserve_s": 30.0}, {"bf_min_prio_reserve": 10**9}])
def test_backfill__reserves_for_nobody_too_young_or_of_too_low_priority(setting: Row) -> None:
    """Job 3, of a long limit, starts beside job 1 and delays job 2, which has no reservation."""
    rows: list[Row] = [{"duration_s": 50.0}, {"gpus": 16, "submit_s": 1.0}]
    rows += [{"submit_s": 2.0, "duration_s": 300.0, "limit_s": 300.0}]
    assert starts(rows, SlurmctldSettings(bf_phase_s=5.0))[2] > 5
    assert starts(rows, SlurmctldSettings(bf_phase_s=5.0, **setting))[2] == 5


FEATURED = ClusterLayout((
    NodeSpec("n1", 8, 64, features=("a100", "ib")), NodeSpec("n2", 8, 64, features=("v100", "ib")),
    NodeSpec("c1", 0, 64, features=("cpu",)),
))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("", [0, 1, 2]), ("ib", [0, 1]), ("ib&v100", [1]), ("a100|v100&ib", [0, 1]), ("ib&(cpu|v100)", [1]),
     ("[a100*2|cpu]", [0, 2]), ("ib,a100", [0]), ("none", [])],
)  # fmt: skip
def test_features__of_a_constraint(text: str, nodes: list[int]) -> None:
    """The nodes with the features that the text asks for."""
    assert np.flatnonzero(FEATURED.with_features(text)).tolist() == nodes


@pytest.mark.parametrize("text", ["a&", "(a|b", "a)b", "&a", "|"])
def test_features__a_text_that_is_no_constraint_is_refused(text: str) -> None:
    """The error shows one that is."""
    with pytest.raises(InputError, match="is no constraint such as a100&ib"):
        FEATURED.with_features(text)


def test_constraint__keeps_a_job_to_nodes_with_the_features() -> None:
    """Job 2 waits for n2 though n1 is idle, which a job before it takes."""
    assert starts([{"constraint": "v100"}, {}, {"constraint": "v100&ib"}], PLAIN, FEATURED) == [0, 0, 10]


@pytest.mark.parametrize("layout", [
    ClusterLayout(NODES), ClusterLayout(NODES, (PartitionSpec("gpu", exclusive=True),)),
])  # fmt: skip
def test_exclusive__has_its_node_alone(layout: ClusterLayout) -> None:
    """Jobs of one GPU and CPU: by their own wish, or by their partition's."""
    rows: list[Row] = [{"gpus": 1, "cpus": 1, "exclusive": layout.partitions[0].name == "gpu"}] * 3
    rows = rows if layout.partitions[0].exclusive else [{**row, "exclusive": True} for row in rows]
    assert starts(rows, PLAIN, layout) == [0, 0, 10]


def test_job_without_gpus__takes_cpus_of_gpu_nodes() -> None:
    """60 of 64 CPUs: the job of 8 GPUs and 8 CPUs waits for them. Such a job counts in no figure; one that no node
    can hold is not admitted, whatever else there is."""
    trace = Trace.of([1, 2, 3], [0, 8, 0], [0.0, 1.0, 2.0], [10.0] * 3, [60.0] * 3, least_gpus=0,
                     counted=[False, True, False])  # fmt: skip
    asked = SubmittedRequests.build(3, {"cpus": [60, 8, 65]})
    made = SimulatedSlurmctld(trace, ClusterLayout(NODES[:1]), PLAIN, requests=asked)
    replay(made)
    assert made.job.first_start_s.tolist()[:2] == [0, 10]
    assert made.refused == {"BadConstraints": 1}


def test_writes__arrive_late_and_paced() -> None:
    """2 s latency, one a second: the second write takes effect at 8."""
    made = cluster([{"gpus": 16, "duration_s": 50.0}, {}, {}], replace(PLAIN, rpc_latency_s=2.0, writes_per_s=1.0))
    made.advance(5.0)
    made.apply(Plan(tuple(SetNice(job, 0.0, "test", new=7) for job in (2, 3))))
    seen = []
    for now_s in (6.9, 7.0, 7.9, 8.0):
        made.advance(now_s)
        seen.append(made.job.nice.tolist()[1:])
    assert seen == [[0, 0], [7, 0], [7, 0], [7, 7]]


def test_fixed_priority__is_what_an_operator_set() -> None:
    """Factors and nice act on nothing, and the snapshot says fixed_priority."""
    made = cluster([{"fixed_priority": 77, "nice": 5}])
    made.advance(0.0)
    jobs = made.read().jobs
    assert (jobs.priority.tolist(), jobs.fixed_priority.tolist()) == ([77], [True])


def below(**limits: Any) -> ClusterLayout:
    """One big node; account "team" in "lab", with limits for one of the three, by name."""
    made = {name: LimitSpec(name.partition("_")[0], **each) for name, each in limits.items()}
    users = [
        LimitSpec(each.name, **{**limits[name], "user": "ann"}) for name, each in made.items() if name == "team_ann"
    ]
    accounts = [made.get("lab", LimitSpec("lab")), replace(made.get("team", LimitSpec("team")), parent="lab"), *users]
    return ClusterLayout((NodeSpec("n1", 64, 64, 512_000.0),), accounts=tuple(accounts))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (below(lab={"group_gpus": 16}), [0, 0, 10, 10]),
        (below(lab={"group_jobs": 3}), [0, 0, 0, 10]),
        (below(team={"group_jobs": 1}), [0, 10, 20, 0]),
        (below(team={"max_jobs_per_user": 1}), [0, 10, 0, 0]),
        (below(lab={"max_jobs_per_user": 1}), [0, 10, 0, 0]),
        (below(team={"max_jobs_per_user": 1}, team_ann={"max_jobs_per_user": 2}), [0, 0, 0, 0]),
        (below(team_ann={"group_gpus": 8}), [0, 10, 0, 0]),
    ],
)
def test_limits__of_users_accounts_and_parents(layout: ClusterLayout, expected: list[float]) -> None:
    """Of ann's two jobs and bob's one in team and one of lab itself: groups hold on every level, MaxJobs is the
    nearest one's, of each user."""
    rows = [{"user": user, "account": account} for user, account in (("ann", "team"), ("ann", "team"), ("bob", "team"),
                                                                     ("bob", "lab"))]  # fmt: skip
    assert starts(rows, PLAIN, layout) == expected


def test_limits__of_a_qos_stand_before_those_of_accounts() -> None:
    """GrpJobs of the QOS is 2, so that GrpJobs of lab is not looked at; without the QOS it is."""
    layout = replace(below(lab={"group_jobs": 1}), qos=(LimitSpec("q", group_jobs=2),))
    rows = [{"account": "lab", "qos": name} for name in ("q", "q", "q", "plain", "plain")]
    assert starts(rows, PLAIN, layout)[:3] == [0, 0, 10]
    assert starts(rows[3:], PLAIN, layout) == [0, 10]


def refused(rows: list[Row], layout: ClusterLayout) -> list[str]:
    """Why each job was not let in, by job id; "" = it ran."""
    made = cluster(rows, PLAIN, layout)
    replay(made)
    assert made.finished
    assert (np.isnan(made.job.end_s) == made.job.refused).all()
    return [made.entry.why[row] or "MaxSubmitJobs" * bool(made.job.refused[row]) for row in range(len(rows))]


def test_partition__refuses_what_it_does_not_allow() -> None:
    """MaxTime, MinNodes and MaxNodes; a job that tells no nodes takes MinNodes, and who needs more is refused."""
    layout = ClusterLayout(
        NODES, (PartitionSpec("gpu", max_time_s=60.0, max_nodes=1), PartitionSpec("wide", min_nodes=2))
    )
    rows = [{}, {"limit_s": 61.0}, {"gpus": 16}, {"partition": "wide", "nodes": 1}, {"partition": "wide"}]
    assert refused(rows, layout) == ["", "PartitionTimeLimit", "PartitionNodeLimit", "PartitionNodeLimit", ""]
    assert cluster(rows, PLAIN, layout).demand.nodes.tolist() == [1, 1, 2, 1, 2]


@pytest.mark.parametrize("told", [{"partition": "wide"}, {"nodes": 4}])
def test_demand__holds_just_the_gpus_asked_for(told: Row) -> None:
    """Of 4 nodes a job of 2 GPUs holds one on 2, one of 5 two on 2 and one on another, one of 8 two on each."""
    layout = ClusterLayout(
        tuple(NodeSpec(f"n{i}", 4, 8) for i in range(4)), (PartitionSpec("gpu"), PartitionSpec("wide", min_nodes=4))
    )
    rows = [{"gpus": gpus, **told} for gpus in (2, 5, 7, 8, 13)]
    made = cluster(rows, PLAIN, layout).demand
    assert made.nodes.tolist() == [2, 3, 4, 4, 4]
    assert (made.need[:, 0] * (made.nodes - 1) + made.last[:, 0]).tolist() == [2, 5, 7, 8, 13]
    assert refused(rows, layout) == [""] * 5


@pytest.mark.parametrize(
    ("gpus", "nodes", "sizes", "shares"),
    [(12, 2, (8, 8), (6, 6)), (12, 0, (8, 8), (8, 4)), (12, 2, (8, 4), (8, 4)), (16, 2, (8, 8), (8, 8))],
)
def test_demand__shares_out_what_a_placement_does(gpus: int, nodes: int, sizes: Any, shares: Any) -> None:
    """Equal parts where the trace tells the nodes, they divide the GPUs and the nodes can hold them. What placements
    see of it, and the EASY backfill, comes to the same."""
    layout = ClusterLayout(tuple(NodeSpec(f"n{i}", size, 64) for i, size in enumerate(sizes)))
    for backfill in ("none", "easy"):
        later = replace(PLAIN, backfill=backfill, batch_sched_delay_s=5.0)
        made = cluster([{"gpus": gpus, "nodes": nodes}], later, layout)
        made.advance(1.0)
        assert (made.demand.need[0, 0], made.demand.last[0, 0]) == shares
        seen = made.read()
        assert sorted(BestFit().place(seen, Ranking(np.arange(1))).gpus.tolist(), reverse=True) == list(shares)
        assert Consolidated().place(seen, Ranking(np.arange(1))).gpus.tolist() == list(shares)
        replay(made)
        assert made.job.end_s.tolist() == (made.job.first_start_s + 10).tolist()


def test_demand__two_nodes_with_six_free_start_a_job_of_six_each() -> None:
    """`-N2 --gpus-per-node=6` beside two jobs of two GPUs."""
    assert starts([{"gpus": 4, "nodes": 2}, {"gpus": 12, "nodes": 2}]) == [0, 0]


def test_qos_and_accounts__refuse_one_job_that_is_too_much() -> None:
    """MaxWall and MaxTRES of the QOS, else of the nearest account."""
    layout = replace(below(lab={"max_wall_s": 30.0, "max_gpus_per_job": 4}), qos=(LimitSpec("q", max_wall_s=90.0),))
    rows = [{"account": "team"}, {"account": "team", "limit_s": 30.0, "gpus": 4}, {"account": "team", "qos": "q"},
            {"account": "team", "qos": "q", "gpus": 4}, {"account": "other"}]  # fmt: skip
    assert refused(rows, layout) == ["MaxWallDurationPerJob", "", "MaxGRESPerJob", "", ""]


@pytest.mark.parametrize(
    ("name", "why"),
    [("group_gpus", "GrpGRES"), ("group_jobs", "GrpJobsLimit"), ("max_jobs_per_user", "MaxJobsLimit"),
     ("max_gpus_per_user", "MaxGRESPerUser"), ("max_gpus_per_job", "MaxGRESPerJob"),
     ("max_wall_s", "MaxWallDurationPerJob"), ("max_submit_per_user", "MaxSubmitJobs")],
)  # fmt: skip
def test_limits__of_nothing_let_nobody_in(name: str, why: str) -> None:
    """Of ann alone, though her account may have much; bob's job runs."""
    layout = below(team={name: 64}, team_ann={name: BARRED})
    rows = [{"user": user, "account": "team", "limit_s": 20.0} for user in ("ann", "bob")]
    assert refused(rows, layout) == [why, ""]


def test_limits__refuse_a_job_that_is_over_one_by_itself() -> None:
    """8 GPUs under GrpTRES of 4, which would wait for ever, after one that is not over it."""
    assert refused([{"account": "lab", "gpus": 4}, {"account": "lab"}], below(lab={"group_gpus": 4})) == ["", "GrpGRES"]


def test_max_submit__counts_waiting_and_running_jobs_and_whole_arrays() -> None:
    """Two may be there: the third is refused, one after an end is not; an array of three is refused whole."""
    rows = [{}, {"submit_s": 1.0}, {"submit_s": 2.0}, {"submit_s": 11.0}, *[{"array_id": 5, "submit_s": 40.0}] * 3]
    for limits in ({"max_submit_per_user": 2}, {"group_submit": 2}):
        layout = ClusterLayout(NODES[:1], accounts=(LimitSpec("trace", **limits),))
        assert refused(rows, layout) == ["", "", "MaxSubmitJobs", "", *["MaxSubmitJobs"] * 3]


@pytest.mark.parametrize(("limits", "looks"), [((), 0), ((LimitSpec("trace", max_submit_per_user=50),), 1)])
def test_array__is_gathered_once_and_only_for_a_limit(
    limits: tuple[LimitSpec, ...], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 tasks that come at once: their rows are looked up at the first, and not at all if nothing counts them."""
    made, asked = cluster([{"array_id": 7, "gpus": 1}] * 50, PLAIN, ClusterLayout(NODES, accounts=limits)), list[int]()
    rows_of = SimulatedSlurmctld.rows_of
    monkeypatch.setattr(SimulatedSlurmctld, "rows_of", lambda self, job: asked.append(job) or rows_of(self, job))
    made.advance(0.0)
    assert (len(asked), made.refused, bool((made.job.phase == JobPhase.FUTURE).any())) == (looks, {}, False)


def test_refused__ends_what_needs_its_success() -> None:
    """Job 2 waits for job 1, which is not let in; job 3 waits for its end only."""
    layout = ClusterLayout(NODES, (PartitionSpec("gpu", max_time_s=30.0),))
    rows = [{}, {"dependency": "afterok:1", "limit_s": 20.0}, {"dependency": "afterany:1", "limit_s": 20.0}]
    made = cluster(rows, PLAIN, layout)
    replay(made)
    assert (made.job.refused.tolist(), made.job.first_start_s[2]) == ([True, False, False], 0)
    assert made.job.ended_as[1] == JobState.CANCELLED


def test_default_time__is_taken_by_jobs_whose_limit_is_not_known() -> None:
    """DefaultTime, else MaxTime or the MaxWall of the QOS if that is less; never less than the job ran."""
    trace = Trace.of([1, 2, 3, 4], [1] * 4, [0.0] * 4, [10.0, 500.0, 10.0, 10.0])
    layout = ClusterLayout(
        NODES,
        (PartitionSpec("gpu", max_time_s=400.0, default_time_s=60.0), PartitionSpec("b", max_time_s=300.0)),
        qos=(LimitSpec("q", max_wall_s=200.0),),
    )
    asked = SubmittedRequests.of(
        trace, [1, 2, 3, 4], {"partition": ["gpu", "gpu", "b", "b"], "qos": ["n", "n", "n", "q"]}
    )
    made = SimulatedSlurmctld(trace, layout, PLAIN, requests=asked)
    replay(made)
    assert made.trace.time_limit_s.tolist() == [60, 500, 300, 200]
    assert not made.job.refused.any()


TIERS = ClusterLayout(NODES[:1], (PartitionSpec("low"), PartitionSpec("high", tier=2)))
REQUEUES = replace(PLAIN, preempt_type="partition", preempt_mode="requeue", kill_wait_s=5.0, requeue_delay_s=20.0,
                   restart_cost_s=0.0)  # fmt: skip
FOUR_GPUS: Row = {"gpus": 4, "partition": "low", "duration_s": 100.0, "limit_s": 200.0}
URGENT: Row = {"partition": "high", "gpus": 4, "submit_s": 10.0}


def test_preemption__by_partition_requeues_no_more_than_it_needs() -> None:
    """Two jobs of 4 GPUs run; the urgent one of 4 needs one of them gone, which is back after 25 s and waits for room.
    The other runs on."""
    made = cluster([FOUR_GPUS, FOUR_GPUS, URGENT], REQUEUES, TIERS)
    replay(made)
    assert (made.job.first_start_s.tolist(), made.job.restarts.tolist()) == ([0, 0, 15], [1, 0, 0])
    assert made.job.executed_s.tolist() == [100, 100, 10]


def test_preemption__cancels_where_the_mode_of_the_partition_says_so() -> None:
    """Whatever the cluster's mode; nothing is waited for but the epilog."""
    layout = ClusterLayout(NODES[:1], (PartitionSpec("low", preempt_mode="cancel"), PartitionSpec("high", tier=2)))
    made = cluster([FOUR_GPUS | {"gpus": 8}, URGENT], REQUEUES, layout)
    replay(made)
    assert (made.job.first_start_s.tolist(), made.job.ended_as[0]) == ([0, 10], JobState.PREEMPTED)


@pytest.mark.parametrize(("model", "layout"), [
    (replace(REQUEUES, preempt_type="none"), TIERS),
    (replace(REQUEUES, preempt_mode="off"), TIERS),
    (replace(REQUEUES, preempt_exempt_s=300.0), TIERS),
    (REQUEUES, ClusterLayout(NODES[:1], (PartitionSpec("low", preempt_mode="off"), PartitionSpec("high", tier=2)))),
    (REQUEUES, ClusterLayout(NODES[:1], (PartitionSpec("low"), PartitionSpec("high")))),
])  # fmt: skip
def test_preemption__of_nobody_who_may_not_be_preempted(model: SlurmctldSettings, layout: ClusterLayout) -> None:
    """No PreemptType, mode OFF of cluster or partition, PreemptExemptTime, the same tier."""
    assert starts([FOUR_GPUS | {"gpus": 8}, URGENT], model, layout) == [0, 100]


@pytest.mark.parametrize(("kind", "mode", "check_s", "runs_s", "start_s"), [
    ("partition", "requeue", 0.0, 100.0, 45), ("partition", "cancel", 0.0, 100.0, 40),
    ("qos", "cancel", 0.0, 100.0, 40), ("partition", "cancel", 30.0, 100.0, 60),
    ("partition", "requeue", 0.0, 25.0, 25),
])  # fmt: skip
def test_preemption__leaves_a_job_its_grace_time(
    kind: Any, mode: str, check_s: float, runs_s: float, start_s: float
) -> None:
    """Of 30 s from 10 on, or until it ends by itself. slurmctld ends it when it next looks, a requeued one KillWait
    later. Job 3 waits for job 2."""
    layout = ClusterLayout(
        NODES[:1], (PartitionSpec("low", grace_s=30.0), PartitionSpec("high", tier=2)),
        (LimitSpec("low", grace_s=30.0), LimitSpec("high", preempts=("low",))),
    )  # fmt: skip
    model = replace(REQUEUES, preempt_type=kind, preempt_mode=mode, time_limit_check_s=check_s)
    rows = [{"partition": "low", "qos": "low", "duration_s": runs_s, "limit_s": 200.0},
            *[{"partition": "high", "qos": "high", "submit_s": 10.0}] * 2]  # fmt: skip
    made = cluster(rows, model, layout)
    replay(made)
    assert made.job.first_start_s.tolist() == [0, start_s, start_s + 10]


def test_preemption__a_pass_ends_a_job_whose_grace_time_is_over() -> None:
    """Of 30 s from 10 on; passes end it KillWait and MessageTimeout after the first, at 45 or later."""
    layout = ClusterLayout(NODES[:1], (PartitionSpec("low", grace_s=30.0), PartitionSpec("high", tier=2)))
    model = replace(REQUEUES, preempt_mode="cancel", time_limit_check_s=1000.0, sched_interval_s=1.0)
    rows: list[Row] = [{"partition": "low", "duration_s": 300.0, "limit_s": 400.0},
                       {"partition": "high", "submit_s": 10.0}]  # fmt: skip
    assert starts(rows, replace(model, message_timeout_s=30.0), layout) == [0, 45]
    assert starts(rows, replace(model, message_timeout_s=10.0), layout) == [0, 40]


def test_preemption__by_qos_takes_those_of_the_lowest_first() -> None:
    """Of jobs whose QOS it names, not of another's: job 2 has the lower of two such QOS."""
    named = LimitSpec("top", priority=9, preempts=("mid", "low"))
    layout = ClusterLayout(NODES[:1], qos=(LimitSpec("mid", priority=5), LimitSpec("low"), LimitSpec("own"), named))
    model = replace(REQUEUES, preempt_type="qos")
    rows: list[Row] = [{**FOUR_GPUS, "gpus": gpus, "qos": qos, "partition": ""} for gpus, qos in
                       ((2, "mid"), (2, "low"), (4, "own"))]  # fmt: skip
    made = cluster([*rows, {"gpus": 2, "qos": "top", "submit_s": 10.0}], model, layout)
    replay(made)
    assert (made.job.first_start_s.tolist(), made.job.restarts.tolist()) == ([0, 0, 0, 15], [0, 1, 0, 0])
    assert starts([*rows, {"gpus": 8, "qos": "top", "submit_s": 10.0}], model, layout)[3] == 100


@pytest.mark.parametrize(("first_s", "gpus", "victims"), [(100.0, 4, [1]), (100.0, 16, [1, 2, 3]), (6.0, 16, [2, 3])])
def test_preemption__takes_whom_slurm_takes(first_s: float, gpus: int, victims: list[int]) -> None:
    """Jobs of 8, 4, 4, 8 and 8 GPUs run on four nodes: for a node's half the first is taken, though it is larger than
    those behind it; for two nodes the first three, as Slurm 26.05.5 did in the lab. Slurm 24.11.5 took the first
    likewise, and for two nodes, when the first had gone, the next two."""
    layout = replace(FOUR, partitions=TIERS.partitions)
    rows: list[Row] = [{**FOUR_GPUS, "gpus": count, "submit_s": float(n)} for n, count in enumerate((8, 4, 4, 8, 8))]
    made = cluster([rows[0] | {"duration_s": first_s}, *rows[1:], {**URGENT, "gpus": gpus}], REQUEUES, layout)
    replay(made)
    assert np.flatnonzero(made.job.restarts).tolist() == [victim - 1 for victim in victims]


def test_preemption__of_nobody_on_a_node_that_closes_before_the_job_would_end() -> None:
    """n1 closes at 50, before the limit of 60 s of the urgent job 2, which thus waits and holds nobody up: job 3, of 5
    s, gets the node."""
    layout = replace(TIERS, closures=(NodeOutage(("n1",), 50.0, 150.0, planned=True),))
    rows = [FOUR_GPUS | {"gpus": 8, "limit_s": 40.0, "duration_s": 40.0}, URGENT | {"gpus": 8}]
    made = cluster(rows, REQUEUES, layout)
    replay(made)
    assert (made.job.first_start_s.tolist(), made.job.restarts.tolist()) == ([0, 150], [0, 0])
    short = {**URGENT, "gpus": 8, "limit_s": 5.0, "duration_s": 5.0, "submit_s": 11.0}
    made = cluster([*rows, short], REQUEUES, layout)
    replay(made)
    assert (made.job.first_start_s[2], made.job.restarts[0]) == (16, 1)


def test_preemption__of_nobody_for_a_job_that_waits_for_its_reservation() -> None:
    """Job 2 names a reservation that begins at 500; job 1 runs on."""
    made = cluster([FOUR_GPUS | {"gpus": 8}, URGENT | {"gpus": 8}], REQUEUES, TIERS)
    made.advance(5.0)
    made.book(Reserve(2, 0.0, "test", name="kept", nodes="n1", user="trace", start_s=500.0, end_s=900.0))
    made.bookings.named[1] = "kept"
    replay(made)
    assert (made.job.restarts[0], made.job.first_start_s[1]) == (0, 500)


@pytest.mark.parametrize(("array", "start_s"), [(2, 15), (0, 120)])
def test_preemption__looks_as_deep_as_the_main_pass(array: int, start_s: float) -> None:
    """Jobs 3 to 6 wait behind a limit. As an array they are one record, and job 7 is within the depth of 1. As jobs
    they are four: job 7 preempts at the full pass at 60, and starts at the next."""
    layout = replace(TIERS, qos=(LimitSpec("q", group_jobs=1),))
    held: list[Row] = [{**URGENT, "gpus": 1, "qos": "q", "array_id": array, "submit_s": 2.0}] * 4
    rows = [FOUR_GPUS | {"gpus": 7}, {**URGENT, "gpus": 1, "qos": "q", "submit_s": 1.0, "duration_s": 100.0,
                                      "limit_s": 100.0}, *held, {**URGENT, "gpus": 7}]  # fmt: skip
    made = cluster(rows, replace(REQUEUES, queue_depth=1), layout)
    replay(made)
    first = dict(zip(made.trace.job_id.tolist(), made.job.first_start_s.tolist(), strict=True))
    assert (first[7], made.job.restarts.max()) == (start_s, 1)


def test_exclusive__has_the_cpus_that_it_asks_for() -> None:
    """The small node has 16 CPUs, the large one 64: a job of 32 CPUs goes to the large one, one of 8 to any."""
    layout = ClusterLayout((NodeSpec("n1", 8, 16), NodeSpec("n2", 8, 64)))
    rows: list[Row] = [{"gpus": 1, "cpus": cpus, "exclusive": True} for cpus in (32, 32, 8)]
    assert cluster(rows, PLAIN, layout).demand.need[:, 1].tolist() == [64, 64, 16]
    assert starts(rows, PLAIN, layout)[:2] == [0, 10]


def test_backfill__jobs_without_nodes_do_not_count_as_tested() -> None:
    """However many wait for a closed partition, the small job starts beside job 1 before the main pass may."""
    layout = ClusterLayout((*NODES, NodeSpec("n3", 8, 64, 512_000.0)), (PartitionSpec("gpu", ("n1", "n2")),
                           PartitionSpec("shut", ("n3",))), closures=(NodeOutage(("n3",), 0.0, 900.0),))  # fmt: skip
    busy: list[Row] = [{"duration_s": 500.0, "limit_s": 500.0}, {"gpus": 16, "submit_s": 1.0}]
    model = SlurmctldSettings(bf_phase_s=5.0, bf_max_job_test=2)
    for waiting in (2, 8):
        shut: list[Row] = [{"partition": "shut", "submit_s": 1.0}] * waiting
        assert starts([*shut, *busy, SHORT], model, layout)[-1] == 5
