"""Rules of slurmctld on schedules worked out by hand. Nodes of 8 GPUs and 64 CPUs, passes at whole seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.model import JobState, Plan, Ranking, SetNice
from slurmsched.placements.best_fit import BestFit
from slurmsched.placements.consolidated import Consolidated
from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.engine import replay
from slurmsched.replay.jobtable import Phase
from slurmsched.replay.layout import BARRED, Closure, Layout, Limits, Node, Partition
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace

NODES = tuple(Node(f"n{n}", 8, 64, 512_000.0) for n in (1, 2))
PLAIN = SlurmModel(backfill="none", batch_sched_delay_s=0.0)
Row = dict[str, Any]


def cluster(rows: list[Row], model: SlurmModel = PLAIN, layout: Layout | None = None) -> EmbeddedCluster:
    """Jobs 1, 2, ... of rows: gpus, submit_s, duration_s, limit_s and columns of Requests."""
    base = {"gpus": 8, "submit_s": 0.0, "duration_s": 10.0, "limit_s": 60.0}
    full = [base | row for row in rows]
    columns = [[row[name] for row in full] for name in base]
    ids = list(range(1, len(rows) + 1))
    trace = Trace.of(ids, *columns)
    named = {name for row in rows for name in row if name not in base}
    default = Requests.plain(1)
    asked = {name: [row.get(name, getattr(default, name)[0]) for row in rows] for name in named}
    return EmbeddedCluster(trace, layout or Layout(NODES), model, requests=Requests.of(trace, ids, asked))


def starts(*arguments: Any) -> list[float]:
    made = cluster(*arguments)
    replay(made)
    first = dict(zip(made.trace.job_id.tolist(), made.job.first_start_s.tolist(), strict=True))
    return [first[job] for job in sorted(first)]


def test_partitions__one_blocked_keeps_its_nodes_from_the_other() -> None:
    """Job 2 waits for both nodes, so job 3 of the other partition gets none though one is free; n3 is not shared."""
    layout = Layout(
        (*NODES, Node("n3", 8, 64)), (Partition("gpu", ("n1", "n2")), Partition("all"), Partition("own", ("n3",)))
    )
    rows = [{}, {"gpus": 16}, {"partition": "all", "gpus": 16}, {"partition": "own"}]
    assert starts(rows, PLAIN, layout) == [0, 10, 20, 0]


def test_partitions__higher_tier_goes_first() -> None:
    """Whatever the priority."""
    layout = Layout(NODES[:1], (Partition("gpu"), Partition("urgent", tier=2)))
    assert starts([{"nice": -500}, {"partition": "urgent"}], PLAIN, layout) == [10, 0]


def test_pinned__blocks_only_its_nodes() -> None:
    """Job 2 waits for n1; job 3 takes n2."""
    assert starts([{"pin": "n1"}, {"pin": "n1"}, {}]) == [0, 10, 0]


@pytest.mark.parametrize("column", [{"cpus": 40}, {"memory_mib": 300_000.0}])
def test_cpus_and_memory__count_beside_gpus(column: Row) -> None:
    """Two jobs of one GPU each do not fit on a node that has too few CPUs or too little memory for both."""
    assert starts([{"gpus": 1, **column}, {"gpus": 1, **column}], PLAIN, Layout(NODES[:1])) == [0, 10]


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
    made = cluster([{"cancel_s": 4.0}, {}, {"cancel_s": 2.0}], PLAIN, Layout(NODES[:1]))
    replay(made)
    ended = (made.job.end_s.tolist(), made.job.ended_as.tolist())
    assert ended == ([4, 14, 2], [JobState.CANCELLED, JobState.COMPLETED, JobState.CANCELLED])


@pytest.mark.parametrize(
    "limits",
    [
        Limits("q", max_jobs_per_user=1),
        Limits("q", max_gpus_per_user=2),
        Limits("q", group_gpus=2),
        Limits("q", group_jobs=1),
    ],
)
def test_limits__hold_a_job_back_without_blocking(limits: Limits) -> None:
    """The second job of the QOS waits for the first; the third, of none, does not."""
    rows = [{"gpus": 2, "qos": "q"}, {"gpus": 2, "qos": "q"}, {"gpus": 2}]
    assert starts(rows, PLAIN, Layout(NODES, qos=(limits,))) == [0, 10, 0]


def test_limits__per_user_are_of_each_user() -> None:
    """MaxJobsPU of an account."""
    layout = Layout(NODES, accounts=(Limits("a", max_jobs_per_user=1),))
    rows = [{"gpus": 1, "account": "a", "user": user} for user in ("x", "x", "y")]
    assert starts(rows, PLAIN, layout) == [0, 10, 0]


def test_closure__planned_is_not_run_into() -> None:
    """n1 closes at 50 for 100 s: a job limited to 60 s would run into it, so both nodes serve the short one only."""
    layout = Layout(NODES[:1], closures=(Closure(("n1",), 50.0, 150.0, planned=True),))
    assert starts([{"limit_s": 60.0}, {"limit_s": 20.0, "submit_s": 1.0}], PLAIN, layout) == [150, 1]


def test_closure__down_requeues_what_runs_there() -> None:
    """Node down at 4 for 100 s: the job waits for it, since the requeue delay is over by then."""
    layout = Layout(NODES[:1], closures=(Closure(("n1",), 4.0, 104.0, down=True),))
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


FOUR = Layout(tuple(Node(f"n{n}", 8, 64, 512_000.0) for n in (1, 2, 3, 4)))


@pytest.mark.parametrize(("shortest", "node"), [(False, 0), (True, 3)])
def test_one_node__is_the_lowest_or_of_the_shortest_run(shortest: bool, node: int) -> None:
    """n3 is full, n1 and n2 have room beside a job each, n4 is idle: n1 is the lowest, n4 a run of its own."""
    rows: list[Row] = [{"gpus": 4, "pin": name} for name in ("n1", "n2")]
    rows += [{"gpus": 8, "pin": "n3"}, {"gpus": 1, "submit_s": 1.0}]
    made = cluster(rows, replace(PLAIN, shortest_run=shortest), FOUR)
    made.advance(1.0)
    assert made.holdings.of(3)[0].tolist() == [node]


LATE = SlurmModel(bf_phase_s=5.0, batch_sched_delay_s=1.0, sched_phase_s=90.0)


def test_backfill__a_try_reaches_to_where_the_next_begins() -> None:
    """n1: 4 GPUs until 60, 2 until 300, 2 free; n2: all until 61, then job 4 has it until 161. Job 5, of 4 GPUs, finds
    n1 at 60, so that job 6 may not run there until then. Were job 4 there until 361, the try for job 5 would go on past
    the end of n2, which is none of its own, to 300, and job 6 would start at once.
    """
    held = ((4, "n1", 60.0), (2, "n1", 300.0), (8, "n2", 61.0))
    rows: list[Row] = [{"gpus": gpus, "pin": pin, "limit_s": end_s, "duration_s": end_s} for gpus, pin, end_s in held]
    rest: list[Row] = [{"gpus": gpus, "limit_s": 100.0, "submit_s": 1.0} for gpus in (8, 4, 2)]
    assert starts([*rows, *rest], LATE)[5] == 60
    assert starts([*rows, rest[0] | {"limit_s": 300.0}, *rest[1:]], LATE)[5] == 5


def test_backfill__of_jobs_that_end_together_the_one_of_the_lowest_id_is_first() -> None:
    """As above, both ends at 61 and job 5 on n2 until 361: job 3, on n1, comes before job 4, on n2, though it waited
    for job 1; so the try for job 6 goes on past both to 300, and job 7 starts at once. Were it behind job 4, the try
    would end with it, and n1 be reserved from 61 on.
    """
    rows: list[Row] = [{"gpus": 8, "pin": "n2", "duration_s": 0.5}, {"gpus": 2, "pin": "n1", "limit_s": 300.0,
                                                                    "duration_s": 300.0}]  # fmt: skip
    both = {"limit_s": 60.0, "duration_s": 60.0}
    rows += [{"gpus": 4, "pin": "n1", "dependency": "afterany:1", **both}, {"gpus": 8, "pin": "n2", **both}]
    rows += [{"gpus": 8, "limit_s": 300.0, "submit_s": 2.0}]
    rows += [{"gpus": gpus, "limit_s": 100.0, "submit_s": 2.0} for gpus in (4, 2)]
    made = starts(rows, LATE)
    assert made[2] == made[3] == 1
    assert made[6] == 5


def test_backfill__a_gang_held_up_takes_as_few_completing_nodes_as_it_can() -> None:
    """n1 and n2 are completing at 5: job 3, of two nodes, is held up on n1 and n3, so that job 4 may not have n3."""
    rows: list[Row] = [{"duration_s": 4.0, "pin": "n1"}, {"duration_s": 4.0, "pin": "n2"}]
    rows += [{"gpus": 16, "submit_s": 4.5}, {"gpus": 8, "submit_s": 4.6}]
    model = SlurmModel(bf_phase_s=5.0, batch_sched_delay_s=100.0, sched_phase_s=90.0, epilog_s=3.0)
    three = Layout((*NODES, Node("n3", 8, 64, 512_000.0)))
    assert starts(rows, model, three)[3] > 7
    assert starts([*rows[:2], rows[3]], model, three)[2] == 5


def test_backfill__passes_over_nodes_that_are_completing() -> None:
    """n1 is completing when the pass at 5 comes: job 2 takes n2 at once; job 3, for which there is only n1, waits."""
    rows = [{"duration_s": 4.0}, {"submit_s": 4.5, "gpus": 8}, {"submit_s": 4.6, "gpus": 8}]
    model = SlurmModel(bf_phase_s=5.0, batch_sched_delay_s=100.0, sched_phase_s=90.0, epilog_s=3.0)
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
    layout = Layout(NODES, qos=(Limits("q", group_jobs=1),))
    rows = [{"gpus": 1, "qos": "q", "duration_s": 100.0}, *[{"gpus": 1, "qos": "q", "submit_s": 1.0}] * 2,
            {"gpus": 1, "submit_s": 2.0}]  # fmt: skip
    assert starts(rows, replace(PLAIN, queue_depth=1), layout)[3] == 60


def test_backfill__keeps_the_nodes_of_a_reservation_free() -> None:
    """Job 2 gets both nodes when job 1 reaches its limit, 120; job 3 of 60 s ends before, job 4 of 300 s does not."""
    model = SlurmModel(bf_phase_s=5.0)
    rows = [{"limit_s": 120.0, "duration_s": 100.0}, {"gpus": 16, "submit_s": 1.0},
            {"submit_s": 2.0, "gpus": 4, "limit_s": 300.0}, {"submit_s": 3.0, "gpus": 4}]  # fmt: skip
    assert starts(rows, model) == [0, 100, 110, 5]


@pytest.mark.parametrize("limit", ["bf_max_job_test", "bf_max_job_user", "bf_max_job_part", "bf_max_job_user_part"])
def test_backfill__looks_at_so_many_jobs(limit: str) -> None:
    """With 1 only the blocked head is tested."""
    rows = [{"duration_s": 50.0}, {"gpus": 16, "submit_s": 1.0}, {"submit_s": 2.0, "duration_s": 4.0, "limit_s": 5.0}]
    assert starts(rows, SlurmModel(bf_phase_s=5.0, **{limit: 2}))[2] == 5
    assert starts(rows, SlurmModel(bf_phase_s=5.0, **{limit: 1}))[2] == 60


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
    """Factors and nice act on nothing, and the snapshot says pinned."""
    made = cluster([{"fixed_priority": 77, "nice": 5}])
    made.advance(0.0)
    jobs = made.read().jobs
    assert (jobs.priority.tolist(), jobs.pinned.tolist()) == ([77], [True])


def below(**limits: Any) -> Layout:
    """One big node; account "team" in "lab", with limits for one of the three, by name."""
    made = {name: Limits(name.partition("_")[0], **each) for name, each in limits.items()}
    users = [Limits(each.name, **{**limits[name], "user": "ann"}) for name, each in made.items() if name == "team_ann"]
    accounts = [made.get("lab", Limits("lab")), replace(made.get("team", Limits("team")), parent="lab"), *users]
    return Layout((Node("n1", 64, 64, 512_000.0),), accounts=tuple(accounts))


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
def test_limits__of_users_accounts_and_parents(layout: Layout, expected: list[float]) -> None:
    """Of ann's two jobs and bob's one in team and one of lab itself: groups hold on every level, MaxJobs is the
    nearest one's, of each user."""
    rows = [{"user": user, "account": account} for user, account in (("ann", "team"), ("ann", "team"), ("bob", "team"),
                                                                     ("bob", "lab"))]  # fmt: skip
    assert starts(rows, PLAIN, layout) == expected


def test_limits__of_a_qos_stand_before_those_of_accounts() -> None:
    """GrpJobs of the QOS is 2, so that GrpJobs of lab is not looked at; without the QOS it is."""
    layout = replace(below(lab={"group_jobs": 1}), qos=(Limits("q", group_jobs=2),))
    rows = [{"account": "lab", "qos": name} for name in ("q", "q", "q", "plain", "plain")]
    assert starts(rows, PLAIN, layout)[:3] == [0, 0, 10]
    assert starts(rows[3:], PLAIN, layout) == [0, 10]


def refused(rows: list[Row], layout: Layout) -> list[str]:
    """Why each job was not let in, by job id; "" = it ran."""
    made = cluster(rows, PLAIN, layout)
    replay(made)
    assert made.finished
    assert (np.isnan(made.job.end_s) == made.job.refused).all()
    return [made.entry.why[row] or "MaxSubmitJobs" * bool(made.job.refused[row]) for row in range(len(rows))]


def test_partition__refuses_what_it_does_not_allow() -> None:
    """MaxTime, MinNodes and MaxNodes; a job that tells no nodes takes MinNodes, and who needs more is refused."""
    layout = Layout(NODES, (Partition("gpu", max_time_s=60.0, max_nodes=1), Partition("wide", min_nodes=2)))
    rows = [{}, {"limit_s": 61.0}, {"gpus": 16}, {"partition": "wide", "nodes": 1}, {"partition": "wide"}]
    assert refused(rows, layout) == ["", "PartitionTimeLimit", "PartitionNodeLimit", "PartitionNodeLimit", ""]
    assert cluster(rows, PLAIN, layout).demand.nodes.tolist() == [1, 1, 2, 1, 2]


@pytest.mark.parametrize("told", [{"partition": "wide"}, {"nodes": 4}])
def test_demand__holds_just_the_gpus_asked_for(told: Row) -> None:
    """Of 4 nodes a job of 2 GPUs holds one on 2, one of 5 two on 2 and one on another, one of 8 two on each."""
    layout = Layout(tuple(Node(f"n{i}", 4, 8) for i in range(4)), (Partition("gpu"), Partition("wide", min_nodes=4)))
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
    layout = Layout(tuple(Node(f"n{i}", size, 64) for i, size in enumerate(sizes)))
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
    layout = replace(below(lab={"max_wall_s": 30.0, "max_gpus_per_job": 4}), qos=(Limits("q", max_wall_s=90.0),))
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
        layout = Layout(NODES[:1], accounts=(Limits("trace", **limits),))
        assert refused(rows, layout) == ["", "", "MaxSubmitJobs", "", *["MaxSubmitJobs"] * 3]


@pytest.mark.parametrize(("limits", "looks"), [((), 0), ((Limits("trace", max_submit_per_user=50),), 1)])
def test_array__is_gathered_once_and_only_for_a_limit(
    limits: tuple[Limits, ...], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 tasks that come at once: their rows are looked up at the first, and not at all if nothing counts them."""
    made, asked = cluster([{"array_id": 7, "gpus": 1}] * 50, PLAIN, Layout(NODES, accounts=limits)), list[int]()
    rows_of = EmbeddedCluster.rows_of
    monkeypatch.setattr(EmbeddedCluster, "rows_of", lambda self, job: asked.append(job) or rows_of(self, job))
    made.advance(0.0)
    assert (len(asked), made.refused, bool((made.job.phase == Phase.FUTURE).any())) == (looks, {}, False)


def test_refused__ends_what_needs_its_success() -> None:
    """Job 2 waits for job 1, which is not let in; job 3 waits for its end only."""
    layout = Layout(NODES, (Partition("gpu", max_time_s=30.0),))
    rows = [{}, {"dependency": "afterok:1", "limit_s": 20.0}, {"dependency": "afterany:1", "limit_s": 20.0}]
    made = cluster(rows, PLAIN, layout)
    replay(made)
    assert (made.job.refused.tolist(), made.job.first_start_s[2]) == ([True, False, False], 0)
    assert made.job.ended_as[1] == JobState.CANCELLED


def test_default_time__is_taken_by_jobs_whose_limit_is_not_known() -> None:
    """DefaultTime, else MaxTime or the MaxWall of the QOS if that is less; never less than the job ran."""
    trace = Trace.of([1, 2, 3, 4], [1] * 4, [0.0] * 4, [10.0, 500.0, 10.0, 10.0])
    layout = Layout(NODES, (Partition("gpu", max_time_s=400.0, default_time_s=60.0), Partition("b", max_time_s=300.0)),
                    qos=(Limits("q", max_wall_s=200.0),))  # fmt: skip
    asked = Requests.of(trace, [1, 2, 3, 4], {"partition": ["gpu", "gpu", "b", "b"], "qos": ["n", "n", "n", "q"]})
    made = EmbeddedCluster(trace, layout, PLAIN, requests=asked)
    replay(made)
    assert made.trace.time_limit_s.tolist() == [60, 500, 300, 200]
    assert not made.job.refused.any()
