"""Limits on what has been used, and QOS of partitions, on schedules worked out by hand. Usage is counted every 60 s."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched.model import JobState
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import BARRED, ClusterLayout, LimitSpec, NodeOutage, NodeSpec, PartitionSpec
from slurmsched.sim.event_loop import replay
from slurmsched.sim.slurmctld.association_limits import LEAST, amounts
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

MODEL = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0, calc_period_s=60.0, decay_half_life_s=0.0)
SAFE = replace(MODEL, safe_limits=True)
NEVER = None
Row = dict[str, Any]


def played(rows: list[Row], model: SlurmctldSettings = MODEL, **limits: Any) -> SimulatedSlurmctld:
    """Jobs 1, 2, ... of account lab on a node of 64 GPUs; limits: of the account, or a whole layout."""
    base = {"gpus": 8, "submit_s": 0.0, "duration_s": 60.0, "limit_s": 120.0}
    full, ids = [base | row for row in rows], list(range(1, len(rows) + 1))
    trace = Trace.of(ids, *([row[name] for row in full] for name in base))
    named = {name for row in rows for name in row if name not in base} | {"account"}
    default = {name: getattr(SubmittedRequests.plain(1), name)[0] for name in named} | {"account": "lab"}
    asked = {name: [row.get(name, default[name]) for row in rows] for name in named}
    layout = limits.pop("layout", None) or ClusterLayout(
        (NodeSpec("n1", 64, 64),), accounts=(LimitSpec("lab", **limits),)
    )
    made = SimulatedSlurmctld(trace, layout, model, requests=SubmittedRequests.of(trace, ids, asked))
    replay(made)
    return made


def starts(made: SimulatedSlurmctld) -> list[float | None]:
    return [None if start != start else start for start in made.job.first_start_s.tolist()]


def test_group_gpu_s__holds_back_once_it_is_used_up() -> None:
    """20 GPU minutes: job 1 of 8 GPUs makes 8 a minute, counted at 60, 120 and 180. At 170 16 are used and job 2
    starts; at 180 24 are, so both end, and job 3 waits for ever: it is cancelled.
    """
    rows = [{"duration_s": 600.0, "limit_s": 600.0}, {"submit_s": 170.0, "duration_s": 300.0, "limit_s": 300.0},
            {"submit_s": 200.0}]  # fmt: skip
    made = played(rows, group_gpu_s=1_200.0)
    assert starts(made) == [0.0, 170.0, NEVER]
    assert made.job.end_s.tolist()[:2] == [180.0, 180.0]
    assert [JobState(state) for state in made.job.ended_as.tolist()] == [
        JobState.TIMEOUT, JobState.TIMEOUT, JobState.CANCELLED
    ]  # fmt: skip


@pytest.mark.parametrize(("check_s", "end_s"), [(30.0, 120.0), (70.0, 140.0), (0.0, 100.0)])
def test_group_gpu_s__ends_jobs_when_slurmctld_looks(check_s: float, end_s: float) -> None:
    """12 GPU minutes, 8 a minute, counted every 50 s: used up at 100, and the job ends at the next whole check."""
    model = replace(MODEL, calc_period_s=50.0, time_limit_check_s=check_s)
    made = played([{"duration_s": 600.0, "limit_s": 600.0}], model, group_gpu_s=720.0)
    assert made.job.end_s.tolist() == [end_s]


@pytest.mark.parametrize(
    ("first", "closures"),
    [({"duration_s": 31.0}, ()), ({"cancel_s": 31.0}, ()), ({}, (NodeOutage(("n1",), 31.0, 900.0, down=True),))],
    ids=["ended", "cancelled", "node-failed"],
)
def test_group_gpu_s__ends_jobs_also_for_what_a_stopped_job_used(first: Row, closures: tuple[NodeOutage, ...]) -> None:
    """4 GPU minutes: job 1 of 8 GPUs has used them when it stops at 31, however it does, so job 2 is over at the next
    check, at 60, not only after the count of 100."""
    nodes = NodeSpec("n1", 8, 8), NodeSpec("n2", 8, 8)
    layout = ClusterLayout(nodes, accounts=(LimitSpec("lab", group_gpu_s=240.0),), closures=closures)
    rows = [{"duration_s": 600.0, "limit_s": 600.0} | first, {"gpus": 1, "duration_s": 600.0, "limit_s": 600.0}]
    assert played(rows, replace(MODEL, calc_period_s=100.0), layout=layout).job.end_s.tolist()[1] == 60.0


def test_group_gpu_s__safe_starts_only_what_lasts() -> None:
    """20 GPU minutes, 16 set aside for job 1, which uses 8: job 2 of 16 must wait for its end and then never starts
    (12 are left), job 3 of 8 does at once when job 1 has ended, and nobody is ended.
    """
    rows = [{}, {"submit_s": 1.0}, {"submit_s": 2.0, "limit_s": 60.0, "duration_s": 30.0}]
    made = played(rows, SAFE, group_gpu_s=1_200.0)
    assert starts(made) == [0.0, NEVER, 60.0]
    assert made.job.end_s.tolist()[2] == 90.0
    assert made.budgets.used.tolist() == [8 * 90.0]
    assert made.limits.room.tolist() == [1_200.0 - 8 * 90.0]


def test_group_gpu_s__fades_and_lets_in_again() -> None:
    """With a half-life of an hour what one job used up is below the limit of 8 GPU minutes after a count or two."""
    model = replace(MODEL, decay_half_life_s=3_600.0)
    made = played([{}, {"submit_s": 70.0}], model, group_gpu_s=7 * 60.0)
    assert starts(made) == [0.0, 660.0]  # 7.92 minutes at 60, below 7 only after 0.178 half-lives, at 660


def test_group_gpu_s__of_a_qos_without_decay_stays() -> None:
    """The same under a QOS with NoDecay: never again."""
    qos = LimitSpec("q", group_gpu_s=7 * 60.0, no_decay=True)
    layout = ClusterLayout((NodeSpec("n1", 64, 64),), qos=(qos,))
    rows = [{"qos": "q"}, {"submit_s": 70.0, "qos": "q"}]
    assert starts(played(rows, replace(MODEL, decay_half_life_s=3_600.0), layout=layout)) == [0.0, NEVER]


def test_group_gpu_s__is_forgotten_with_the_usage() -> None:
    """PriorityUsageResetPeriod=DAILY: job 2 starts after the first count of the second day."""
    model = replace(MODEL, usage_reset="daily")
    start = starts(played([{}, {"submit_s": 70.0}], model, group_gpu_s=7 * 60.0))[1]
    assert start == 86_400.0


def test_group_wall__counts_run_time_not_gpus() -> None:
    """Of 2 minutes job 1 uses 1 and job 2 the other, whatever their GPUs; then it is used up."""
    rows = [{"gpus": 1}, {"submit_s": 100.0, "gpus": 16}, {"submit_s": 200.0, "gpus": 1}]
    assert starts(played(rows, group_wall_s=120.0)) == [0.0, 100.0, NEVER]


def test_group_wall__safe_looks_at_each_job_alone() -> None:
    """3 minutes: two jobs of 2 minutes begin before a minute was used, for running ones are not set aside; a third
    after them, when 1 minute is used in whole ones.
    """
    rows = [{"duration_s": 50.0}, {"submit_s": 10.0, "duration_s": 50.0}, {"submit_s": 130.0}]
    assert starts(played(rows, SAFE, group_wall_s=180.0)) == [0.0, 10.0, 130.0]


def test_group_wall__safe_takes_nothing_in_a_pass() -> None:
    """2 minutes: three jobs of 2 minutes start in one pass, each of which alone would use all."""
    assert starts(played([{"duration_s": 20.0}] * 3, SAFE, group_wall_s=120.0)) == [0.0, 0.0, 0.0]


def test_group_run_gpu_s__is_what_running_jobs_may_still_use() -> None:
    """24 GPU minutes: job 1 takes 16, of which 8 are given back at the count of 60; job 2 of 16 starts then."""
    rows = [{"duration_s": 120.0}, {"submit_s": 1.0}]
    made = played(rows, group_run_gpu_s=24 * 60.0)
    assert starts(made) == [0.0, 60.0]
    assert made.limits.room.tolist() == [24 * 60.0]


def test_max_gpu_s_per_job__refuses_what_is_more_in_its_time_limit() -> None:
    """MaxTRESMins: 16 GPU minutes are 2 minutes of 8 GPUs."""
    made = played([{}, {"limit_s": 121.0}], max_gpu_s_per_job=960.0)
    assert starts(made) == [0.0, NEVER]
    assert made.refused == {"MaxGRESMinutesPerJob": 1}


@pytest.mark.parametrize(
    ("name", "why"),
    [("group_gpu_s", "GrpGRESMinutes"), ("group_wall_s", "GrpWallLimit"), ("group_run_gpu_s", "GrpGRESRunMinutes"),
     ("max_gpu_s_per_job", "MaxGRESMinutesPerJob")],
)  # fmt: skip
def test_limits__of_nothing_let_nobody_in(name: str, why: str) -> None:
    """A limit of 0."""
    assert played([{}], **{name: BARRED}).refused == {why: 1}


def in_partition(own: LimitSpec, *, of_partition: LimitSpec, **account: Any) -> ClusterLayout:
    parts = PartitionSpec("gpu", qos=of_partition.name), PartitionSpec("free")
    return ClusterLayout((NodeSpec("n1", 64, 64),), parts, (own, of_partition), (LimitSpec("lab", **account),))


def test_partition_qos__stands_before_the_jobs_own() -> None:
    """GrpJobs of the partition's QOS is 1, the job's own allows 2: one at a time there, two in the other partition.
    With OverPartQOS the job's own counts.
    """
    rows = [{"qos": "own", "partition": name, "submit_s": at} for at, name in enumerate(["gpu", "gpu", "free", "free"])]
    part = LimitSpec("part", group_jobs=1)
    assert starts(played(rows[:2], layout=in_partition(LimitSpec("own", group_jobs=2), of_partition=part))) == [
        0.0,
        60.0,
    ]
    assert starts(played(rows[2:], layout=in_partition(LimitSpec("own", group_jobs=2), of_partition=part))) == [
        2.0,
        3.0,
    ]
    over = LimitSpec("own", group_jobs=2, over_part_qos=True)
    assert starts(played(rows[:2], layout=in_partition(over, of_partition=part))) == [0.0, 1.0]


def test_partition_qos__of_another_kind_leaves_the_jobs_own_in_force() -> None:
    """The partition's limits GPUs of a job, the job's own the jobs: both hold."""
    layout = in_partition(LimitSpec("own", group_jobs=1), of_partition=LimitSpec("part", max_gpus_per_job=8))
    rows = [{"qos": "own"}, {"qos": "own", "submit_s": 1.0}, {"qos": "own", "gpus": 9, "submit_s": 2.0}]
    made = played(rows, layout=layout)
    assert starts(made) == [0.0, 60.0, NEVER]
    assert made.refused == {"MaxGRESPerJob": 1}


def test_limits__count_jobs_that_they_do_not_hold_back() -> None:
    """GrpJobs of the QOS is 2, so that of lab, 1, holds back none of its jobs; but they fill it for one without QOS."""
    layout = ClusterLayout(
        (NodeSpec("n1", 64, 64),), qos=(LimitSpec("q", group_jobs=2),), accounts=(LimitSpec("lab", group_jobs=1),)
    )
    rows = [{"qos": "q"}, {"qos": "q"}, {"qos": "plain", "submit_s": 1.0}]
    assert starts(played(rows, layout=layout)) == [0.0, 0.0, 60.0]


def test_amounts__of_a_job_without_end() -> None:
    """What it may use cannot be set aside."""
    found = amounts(Trace.of([1, 2], [4, 8], [0.0, 0.0], [60.0, 60.0], [120.0, np.inf]), safe=True)
    assert found["run_gpu_s"].tolist() == [480.0, 0.0]
    assert found["gpu_s"].tolist() == [480.0, LEAST]
    assert found["wall_s"].tolist() == [120.0, LEAST]


def test_budgets__time_limits_that_nobody_told_are_held_against_none() -> None:
    """Safe or not: a job whose limit is not known starts while anything is left, and is counted."""
    trace = Trace.of([1, 2], [8, 8], [0.0, 100.0], [60.0, 60.0])
    layout = ClusterLayout((NodeSpec("n1", 64, 64),), accounts=(LimitSpec("lab", group_gpu_s=600.0),))
    requests = SubmittedRequests.of(trace, [1, 2], {"account": ["lab", "lab"]})
    made = SimulatedSlurmctld(trace, layout, SAFE, requests=requests)
    replay(made)
    assert starts(made) == [0.0, 100.0]
    assert made.budgets.used.tolist() == [960.0]
