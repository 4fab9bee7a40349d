"""Sizes chosen at the start in replays, on both clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.model import AskSize, Plan, SetSize
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.comparison import policy_title, with_moldable_starts
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.moldable_starts import planned_starts, with_run_times
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

HINTS = "slurmsched: moldable=yes min_gpus=2 max_gpus=8"
# Job 1 holds half of eight GPUs. Job 2 wants all eight, and may start with four.
TWO = Trace.of(job_id=[1, 2], gpus=[4, 8], submit_s=[0, 1], duration_s=[3_000, 1_000], time_limit_s=[15_000, 5_000],
               comment=["", HINTS])  # fmt: skip
IDEAL = ReplayRequest(cluster="1x8", policy="fifo", placement="consolidated", physics="amdahl")
SLURM = ReplayRequest(cluster="1x8", policy="fifo", model="slurm")
SLOWER = (0.02 + 0.98 / 4) / (0.02 + 0.98 / 8)  # Amdahl's law: four GPUs in place of eight


def runs(request: ReplayRequest, trace: Trace = TWO) -> dict[int, tuple[float, float]]:
    """First start and executed time of each job [s]."""
    session = ReplaySession(trace, request)
    done = session.run().outcomes
    times = zip(done.first_start_s.tolist(), done.executed_s.tolist(), strict=True)
    return dict(zip(done.job_id.tolist(), times, strict=True))


def test_planned_starts__no_job_delays_one_before_it() -> None:
    """Eight GPUs, four are free now and all from 100 s on. The second job fits beside them, the third behind."""
    times, free = np.array([0.0, 100.0]), np.array([4, 8])
    found = planned_starts(times, free, np.array([8, 4, 4, 9]), np.array([50.0, 100.0, 101.0, 1.0]))
    assert found.tolist()[:3] == [100.0, 0.0, 150.0]
    assert np.isnan(found[3])


@pytest.mark.parametrize(("request_", "late_s"), [(IDEAL, 0.0), (SLURM, 70.0)], ids=["ideal", "slurm"])
def test_moldable__starts_with_what_is_free_and_runs_longer(request_: ReplayRequest, late_s: float) -> None:
    """Without it job 2 waits until job 1 has ended. On Slurm a cycle a minute writes the size."""
    plain, chosen = runs(request_), runs(replace(request_, moldable=True))
    assert runs(replace(request_, moldable=True, hints=HINTS))[2] == chosen[2]
    assert plain[2][0] >= 3_000.0
    assert chosen[2][0] <= 1.0 + late_s
    assert chosen[2][1] == pytest.approx(1_000.0 * SLOWER)
    assert chosen[1] == plain[1]


@pytest.mark.parametrize("request_", [IDEAL, SLURM], ids=["ideal", "slurm"])
def test_moldable__not_where_it_would_end_later(request_: ReplayRequest) -> None:
    """Job 1 is to end soon by its limit; a job without the hint keeps its own size anyhow."""
    soon = TWO.with_columns(duration_s=np.array([300.0, 1_000.0]), time_limit_s=np.array([400.0, 5_000.0]))
    for trace in (soon, TWO.with_columns(comment=["", "slurmsched: min_gpus=2 max_gpus=8"])):
        assert runs(replace(request_, moldable=True), trace) == runs(request_, trace)


def test_resize__of_a_waiting_job_and_back() -> None:
    """The model gives it what it asks for now; with its own request again it is as it was. A running job is refused."""
    model = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0)
    made = SimulatedSlurmctld(TWO, [8], model, requests=SubmittedRequests.plain(2))
    made.advance(10.0)
    alike = made.alike.tolist()

    def told(job_id: int, submit_s: float, new: str, old: str) -> str:
        return made.apply(Plan((SetSize(job_id, submit_s, "why", old=old, new=new, base=old),))).outcomes[0].message

    assert told(2, 1.0, "gpu:9", "gpu:8") == "Requested node configuration is not available"
    assert told(1, 0.0, "gpu:2", "gpu:4") == "Job is no longer pending execution"
    assert told(2, 1.0, "gpu:5", "gpu:8") == ""
    assert (made.gpus.tolist(), made.alike[1] in alike) == ([4, 5], False)
    assert told(2, 1.0, "gpu:8", "gpu:5") == ""
    assert (made.gpus.tolist(), made.alike.tolist(), made.job.speed.tolist()) == ([4, 8], alike, [1.0, 1.0])


def test_run_times__moldable_jobs_say_how_long_they_run() -> None:
    """One that says so itself keeps its word."""
    trace = TWO.with_columns(comment=[f"{HINTS} dur=7m", HINTS])
    assert list(with_run_times(trace, "").comment) == [f"{HINTS} dur=7m", f"{HINTS} slurmsched: dur=1000s"]
    assert list(with_run_times(trace, "slurmsched: topo=any").comment) == ["slurmsched: topo=any"] * 2


def test_compare__without_and_with() -> None:
    """Slurm alone has no sizes to choose; the title says which is which."""
    slurm = replace(SLURM, policy="slurm")
    found = with_moldable_starts([replace(SLURM, moldable=True), replace(slurm, moldable=True)])
    assert [policy_title(each) for each in found] == ["fifo", "fifo +moldable", "slurm"]


# Job 1 may have all eight GPUs once job 2 has ended, and is asked for that by the next cycle, at 2,040 s.
GROWS = Trace.of(job_id=[1, 2], gpus=[4, 4], submit_s=[0, 1], duration_s=[20_000, 2_000],
                 time_limit_s=[90_000, 5_000], comment=["slurmsched: min_gpus=1 max_gpus=8", ""])  # fmt: skip


@pytest.mark.parametrize(("checkpoint_s", "leaves_s"), [(0.0, 2_050.0), (900.0, 2_700.0)])
def test_resizes__a_running_job_grows_after_its_next_checkpoint(checkpoint_s: float, leaves_s: float) -> None:
    """It saves for 10 s, or goes on to its checkpoint. It may start 120 s after it went back to the queue, restarts in
    30 s, and has double the GPUs for the rest."""
    request = replace(SLURM, policy="dorm", settings={"resizes": True, "checkpoint_s": checkpoint_s})
    done = ReplaySession(GROWS, request).run().outcomes
    assert done.end_s[0] == pytest.approx(leaves_s + 120.0 + 30.0 + (20_000.0 - leaves_s) / SLOWER)
    assert (done.preemptions.tolist(), done.gpu_share.tolist()) == ([1, 0], [2.0, 1.0])
    without = ReplaySession(GROWS, replace(request, settings={})).run().outcomes
    assert (without.end_s[0], without.preemptions.tolist()) == (20_000.0, [0, 0])


def test_resizes__nothing_is_lost_at_a_checkpoint() -> None:
    """A job leaves at its checkpoint, whenever it started and however fast it is: the work up to there survives."""
    rng, model = np.random.default_rng(1), SlurmctldSettings(checkpoint_s=900.0, resizes=True)
    job = SimulatedSlurmctld(TWO, [8], model, requests=SubmittedRequests.plain(2)).job
    job.trace = TWO.with_columns(duration_s=np.full(2, 1e5))
    for start_s, speed in zip(rng.uniform(0, 1e7, 50).tolist(), rng.choice([1.0, 0.55, 1.7], 50), strict=True):
        job.start_s[0], job.speed[0], job.kept_s[0] = start_s, speed, 0.0
        job.stop(0, job.checkpoint(0, start_s + 1_000.0))
        assert job.kept_s[0] == pytest.approx((1_000.0 * speed // 900.0 + 1) * 900.0)


def test_resizes__not_where_a_restart_costs_more() -> None:
    """With 60 s to go; the job says by its progress how much that is."""
    short = GROWS.with_columns(duration_s=np.array([2_100.0, 2_000.0]))
    found = ReplaySession(short, replace(SLURM, policy="dorm", settings={"resizes": True})).run().outcomes
    assert (found.end_s[0], found.preemptions.tolist()) == (2_100.0, [0, 0])


def test_ask_size__holds_for_one_run_until_it_is_withdrawn() -> None:
    """A job that waits cannot be asked. One that is asked shows it until it starts again."""
    model = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0, requeue_delay_s=0.0, resizes=True)
    made = SimulatedSlurmctld(TWO, [8], model, requests=SubmittedRequests.plain(2))
    made.advance(10.0)

    def told(job_id: int, submit_s: float, gpus: int) -> str:
        return made.apply(Plan((AskSize(job_id, submit_s, "why", gpus=gpus),))).outcomes[0].message

    assert told(2, 1.0, 4) == "Job is not running"
    assert (told(1, 0.0, 2), told(1, 0.0, 0)) == ("", "")
    made.advance(25.0)
    assert made.job.restarts.tolist() == [0, 0]
    told(1, 0.0, 2)
    assert made.read().jobs.wanted_gpus.tolist() == [2, 0]
    made.advance(35.0)
    assert (made.job.restarts.tolist(), made.read().jobs.wanted_gpus.tolist()) == ([1, 0], [2, 0])
    made.advance(1_100.0)  # job 2 was first
    assert (made.job.phase[0], made.wanted.tolist()) == (JobPhase.RUNNING, [0, 0])
