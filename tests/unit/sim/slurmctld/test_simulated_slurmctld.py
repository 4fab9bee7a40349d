"""The simulated slurmctld on schedules worked out by hand."""

from __future__ import annotations

import pytest

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.errors import InputError
from slurmsched.model import JobState, Plan, Requeue, SetNice, SetSiteFactor
from slurmsched.model.trace import Trace
from slurmsched.planning.planner import Planner
from slurmsched.policies.oasis import Oasis
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay
from slurmsched.sim.replay_stores import MemoryStore
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings, ideal

# Two nodes of 4 GPUs. Job 3 needs a whole node, job 5 both.
SIX = {
    "job_id": [1, 2, 3, 4, 5, 6], "gpus": [4, 2, 4, 2, 8, 1], "submit_s": [0, 0, 10, 10, 20, 30],
    "duration_s": [100, 50, 40, 20, 10, 5],
}  # fmt: skip
LONE = {"job_id": [7], "gpus": [1], "submit_s": [0], "duration_s": [1000], "time_limit_s": [4000]}


def starts(cluster: SimulatedSlurmctld) -> dict[int, float]:
    replay(cluster)
    return dict(zip(cluster.trace.job_id.tolist(), cluster.job.first_start_s.tolist(), strict=True))


def operation(cluster: SimulatedSlurmctld, kind: type, job_id: int, submit_s: float, **values: int) -> str:
    return cluster.apply(Plan((kind(job_id, submit_s, "test", **values),))).outcomes[0].status


def test_fifo__first_that_does_not_fit_blocks_all() -> None:
    """Job 4 would fit beside job 2, but job 3 waits before it; job 6 waits behind job 5."""
    cluster = SimulatedSlurmctld(Trace.of(**SIX), [4, 4], ideal("none"))
    assert starts(cluster) == {1: 0, 2: 0, 3: 50, 4: 90, 5: 110, 6: 120}


def test_gpu_type__waits_for_its_own() -> None:
    """Job 2 asks for v100 while both are held: the idle a100 of the other node are not for it. It holds back job 3 in
    the main passes, as they are of one partition, and backfill starts that one. Policies see the type."""
    trace = Trace.of([1, 2, 3], [2, 1, 1], [0, 1, 2], [100, 10, 10], gpu_type=["v100", "v100", "a100"])
    layout = ClusterLayout.of_gpus([4, 2], ["a100", "v100"])
    cluster = SimulatedSlurmctld(trace, layout, SlurmctldSettings(), requests=SubmittedRequests.of_trace(trace, layout))
    cluster.advance(1.0)
    assert list(cluster.read().jobs.gpu_request) == ["gpu:v100:2", "gpu:v100:1"]
    assert starts(cluster) == {1: 0, 2: 100, 3: 30}


def test_easy__fills_without_delaying_the_head() -> None:
    """Jobs 4 and 6 end before job 3 can start at 50, so they go first; job 5 follows job 1."""
    cluster = SimulatedSlurmctld(Trace.of(**SIX), [4, 4], ideal("easy"))
    assert starts(cluster) == {1: 0, 2: 0, 3: 50, 4: 10, 5: 100, 6: 30}


def test_slurm__passes_wait_for_their_times() -> None:
    """Job 2 comes 1 s after a main pass, so it waits for the next, 3 s after that one. Job 3 blocks job 4, which
    backfill starts at its next multiple of 30 s; job 3 starts with the end of job 1."""
    columns = {
        "job_id": [1, 2, 3, 4], "gpus": [4, 1, 8, 3], "submit_s": [0, 1, 4, 5], "duration_s": [1000, 10, 10, 10],
    }  # fmt: skip
    cluster = SimulatedSlurmctld(Trace.of(**columns), [4, 4], SlurmctldSettings())
    assert starts(cluster) == {1: 0, 2: 3, 3: 1000, 4: 30}


def test_slurm__short_job_is_backfilled_behind_a_blocked_one() -> None:
    """With backfill off the short job waits behind the blocked one."""
    columns = {"job_id": [1, 2, 3], "gpus": [4, 8, 4], "submit_s": [0, 1, 2], "duration_s": [1000, 10, 10]}
    cluster = SimulatedSlurmctld(Trace.of(**columns), [4, 4], SlurmctldSettings(backfill="none"))
    assert starts(cluster) == {1: 0, 2: 1000, 3: 1010}


def test_requeue__waits_kill_and_delay_and_pays_the_restart() -> None:
    """Stopped at 100: GPUs back at 130, may start at 250, 900 s left and 30 s of restart, so it ends at 1180."""
    cluster = SimulatedSlurmctld(Trace.of(**LONE), [1], SlurmctldSettings())
    cluster.advance(100)
    assert operation(cluster, Requeue, 7, 0) == "written"
    held = cluster.read()
    assert (held.jobs.state[0], held.nodes.gpus_used[0]) == (
        JobState.PENDING | JobState.COMPLETING | JobState.REQUEUED, 1,
    )  # fmt: skip
    cluster.advance(200)
    waiting = cluster.read().jobs
    assert (waiting.pending[0], waiting.reason[0], waiting.submit_s[0], waiting.first_submit_s[0]) == (
        True, "BeginTime", 130, 0,
    )  # fmt: skip
    assert (waiting.attained_gpu_s[0], waiting.waiting_s[0]) == (100, 100)
    replay(cluster)
    assert (cluster.job.end_s[0], cluster.job.executed_s[0], cluster.job.wasted_s[0]) == (1180, 1030, 30)


def test_requeue__loses_what_was_done_since_the_checkpoint() -> None:
    """With a checkpoint every 60 s, 40 of 100 s are done again."""
    cluster = SimulatedSlurmctld(Trace.of(**LONE), [1], SlurmctldSettings(checkpoint_s=60))
    cluster.advance(100)
    operation(cluster, Requeue, 7, 0)
    replay(cluster)
    assert (cluster.job.end_s[0], cluster.job.wasted_s[0]) == (1220, 70)


def test_time_limit__ends_a_job() -> None:
    """A job past its limit is found there half a check late, ends as TIMEOUT, and is shown for min_job_age_s."""
    cluster = SimulatedSlurmctld(Trace.of(**LONE | {"time_limit_s": [400]}), [1], SlurmctldSettings())
    cluster.advance(500)
    jobs = cluster.read().jobs
    assert (cluster.job.end_s[0], jobs.state[0]) == (415, JobState.TIMEOUT)
    cluster.advance(716)
    assert len(cluster.read().jobs) == 0


@pytest.mark.parametrize("kind", [SetNice, SetSiteFactor])
def test_levers__decide_who_starts_first(kind: type) -> None:
    """priority = factors + site - nice: job 3 passes job 2."""
    columns = {"job_id": [1, 2, 3], "gpus": [1, 1, 1], "submit_s": [0, 1, 1], "duration_s": [100, 10, 10]}
    cluster = SimulatedSlurmctld(Trace.of(**columns), [1], SlurmctldSettings())
    cluster.advance(50)
    assert operation(cluster, kind, 3, 1, new=-5 if kind is SetNice else 5) == "written"
    assert starts(cluster) == {1: 0, 2: 110, 3: 100}


def test_priority__is_never_below_one() -> None:
    """A huge nice leaves priority 1, as in Slurm; 0 would mean held."""
    cluster = SimulatedSlurmctld(Trace.of(**SIX), [4, 4], SlurmctldSettings())
    cluster.advance(30)
    operation(cluster, SetNice, 5, 20, new=2_000_000)
    jobs = cluster.read().jobs
    assert (jobs.priority[jobs.job_id == 5].tolist(), jobs.held.any()) == ([1], False)


@pytest.mark.parametrize(
    ("kind", "job_id", "submit_s"), [(SetNice, 1, 0), (SetNice, 99, 0), (SetNice, 5, 0), (Requeue, 5, 20)]
)
def test_apply__refuses_what_slurmctld_would(kind: type, job_id: int, submit_s: float) -> None:
    """A running job, an unknown one, one of another submission, and a requeue of a pending one."""
    cluster = SimulatedSlurmctld(Trace.of(**SIX), [4, 4], ideal("none"))
    cluster.advance(40)
    assert operation(cluster, kind, job_id, submit_s) == "refused"


def test_job_that_never_fits__is_refused_at_once() -> None:
    """The error names the largest, how many there are besides, and what helps."""
    told = r"job 5 asks for 8 GPUs, .* hold 2, too few for 2 other jobs as well \(1, 3\); .*--cluster, with at least 8"
    with pytest.raises(InputError, match=told):
        SimulatedSlurmctld(Trace.of(**SIX), [2])
    with pytest.raises(InputError, match=r"job 5 asks for 8 GPUs, .* hold 4; .* or leave it out"):
        SimulatedSlurmctld(Trace.of(**SIX), [4])


def test_read__gpu_states_add_up_to_all() -> None:
    """The states of GPUs add up to all GPUs; held GPUs are those of running jobs."""
    cluster = SimulatedSlurmctld(Trace.of(**SIX), [4, 4], ideal("none"))
    cluster.advance(45)
    snapshot = cluster.read()
    assert snapshot.nodes.gpu_totals() == {
        "idle": 2, "boot": 0, "allocated": 6, "draining": 0, "down": 0, "unknown": 0, "all": 8,
    }  # fmt: skip
    assert int(snapshot.jobs.gpus[snapshot.jobs.running].sum()) == int(snapshot.allocations.gpus.sum()) == 6


def test_defer__a_job_waits_for_the_start_that_the_policy_wants() -> None:
    """Slots of 600 s without filling, lever.start on: the second job waits for its slot though the GPUs are free from
    100 on; a start that slurmsched does not renew lapses."""
    columns = {"job_id": [1, 2], "gpus": [4, 4], "submit_s": [0, 0], "duration_s": [100] * 2, "time_limit_s": [600] * 2}
    planner = Planner(
        Oasis(fill=False, serial=0.0), scope=ScopeConfig(partitions=("*",)), lever=LeverConfig(start=True)
    )
    cluster = SimulatedSlurmctld(Trace.of(**columns), [4], ideal("easy"))
    replay(cluster, planner, MemoryStore(), interval_s=30)
    begun = cluster.job.first_start_s.tolist()
    assert (begun[0], 600 <= begun[1] <= 631) == (0, True)
    assert [record.open for record in cluster.overrides] == [True]  # reached, not given back
