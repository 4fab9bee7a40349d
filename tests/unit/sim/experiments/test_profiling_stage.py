"""The profiling stage by hand: who runs there, what is left for the cluster, and the figures of both together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.published_settings import ProfilingStage, PublishedSettings, profiled
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_result import ReplayResult
from slurmsched.sim.experiments.replay_session import ReplaySession

# (GPUs, submit, run time): 2 ends in the stage; 3 is too large for it; 4 waits there for 1
JOBS = ((1, 0.0, 500.0), (1, 0.0, 50.0), (4, 0.0, 30.0), (2, 10.0, 100.0), (1, 20.0, 100.5))


def trace(jobs: Any = JOBS) -> Trace:
    gpus, submit_s, run_s = zip(*jobs, strict=True)
    return Trace.of(np.arange(len(jobs)) + 1, gpus, submit_s, run_s)


def stage(jobs: Any = JOBS, **settings: Any) -> ProfilingStage:
    return profiled(trace(jobs), PublishedSettings(**{"profile_gpus": 2, "profile_s": 100.0, **settings}))


def run(jobs: Any = JOBS, cluster: str = "1x4", policy: str = "fifo", **settings: Any) -> ReplayResult:
    settings = {"profile_gpus": 2, "profile_s": 100.0, **settings}
    return ReplaySession(trace(jobs), ReplayRequest(cluster=cluster, policy=policy, settings=settings)).run()


def test_session__tells_jobs_that_ended_in_the_stage() -> None:
    """A progress bar comes to its end."""
    settings, told = {"profile_gpus": 2, "profile_s": 100.0}, list[int]()
    ReplaySession(trace(), ReplayRequest(cluster="1x4", policy="fifo", settings=settings)).run(told.append)
    assert told[-1] == len(JOBS)


def test_profiled__fewest_gpus_first_and_a_capped_time() -> None:
    """Two GPUs: 1 and 2 at once; 2 ends at 50, and 5 passes 4, which asks for more; 4 follows when 5 is stopped."""
    made = stage()
    assert made.start_s.tolist() == pytest.approx([0.0, 0.0, np.nan, 150.0, 50.0], nan_ok=True)
    assert made.end_s.tolist() == pytest.approx([100.0, 50.0, np.nan, 250.0, 150.0], nan_ok=True)
    assert made.done.tolist() == [False, True, False, True, False]


def test_profiled__the_first_that_does_not_fit_holds_back_the_others() -> None:
    """Three jobs of one, two and three GPUs: the third never overtakes the second."""
    made = stage([(1, 0.0, 90.0), (3, 0.0, 10.0), (2, 1.0, 10.0)], profile_gpus=3)
    assert made.start_s.tolist() == [0.0, 90.0, 1.0]


def test_rest__comes_from_the_stage_and_begins_anew() -> None:
    """Jobs 3, 1 and 5 in the order in which they come to the cluster, each with all its run time."""
    rest = stage().rest
    assert (rest.job_id.tolist(), rest.submit_s.tolist()) == ([3, 1, 5], [0.0, 100.0, 150.0])
    assert rest.duration_s.tolist() == [30.0, 500.0, 100.5]


def test_profiled__a_job_that_takes_just_the_time_is_done() -> None:
    """Its last second counts; one that takes longer is stopped."""
    made = stage([(1, 0.0, 100.0), (1, 0.0, 100.1)])
    assert (made.done.tolist(), made.end_s.tolist()) == ([True, False], [100.0, 100.0])


@pytest.mark.parametrize(("most", "ran"), [(1, [1, 2, 5]), (8, [1, 2, 4, 5])])
def test_profiled__larger_jobs_go_past_it(most: int, ran: list[int]) -> None:
    """profile_most_gpus bounds the jobs, and so do the GPUs there are."""
    made = stage(profile_most_gpus=most)
    assert made.trace.job_id[~np.isnan(made.start_s)].tolist() == ran


def test_replay__figures_are_of_stage_and_cluster_together() -> None:
    """1 runs 100 s and then 500 from 100 on; 2 and 4 end in the stage; 3 at 30; 5 at 250.5 after two runs."""
    made = run()
    done = made.outcomes
    assert done.job_id.tolist() == [1, 2, 3, 4, 5]
    assert done.end_s.tolist() == [600.0, 50.0, 30.0, 250.0, 250.5]
    assert done.first_start_s.tolist() == [0.0, 0.0, 0.0, 150.0, 50.0]
    assert done.executed_s.tolist() == [600.0, 50.0, 30.0, 100.0, 200.5]
    assert done.useful_s.tolist() == [500.0, 50.0, 30.0, 100.0, 100.5]
    assert done.preemptions.tolist() == [1, 0, 0, 0, 1]
    assert done.submit_s.tolist() == [0.0, 0.0, 0.0, 10.0, 20.0]
    assert done.cluster_gpus == 6
    figures = made.figures
    assert (figures["jobs"], figures["profiled"], figures["profiled_done"]) == (5, 4, 2)
    assert figures["profile_wait_s"] == pytest.approx((140.0 + 30.0) / 4)
    runs = sorted(zip(made.runs.job_id.tolist(), made.runs.start_s.tolist(), made.runs.end_s.tolist(), strict=True))
    assert runs == [(1, 0.0, 100.0), (1, 100.0, 600.0), (2, 0.0, 50.0), (3, 0.0, 30.0), (4, 150.0, 250.0),
                    (5, 50.0, 150.0), (5, 150.0, 250.5)]  # fmt: skip


def test_replay__all_jobs_may_end_in_the_stage() -> None:
    """Then the cluster has nothing to do."""
    made = run([(1, 0.0, 10.0), (2, 5.0, 20.0)])
    assert made.outcomes.end_s.tolist() == [10.0, 30.0]
    assert (made.complete, made.figures["makespan_s"], made.figures["preemptions"]) == (True, 30.0, 0)


def test_replay__without_a_stage_nothing_is_profiled() -> None:
    """The setting's default: figures have no such names, and nobody runs twice."""
    made = run(profile_gpus=0)
    assert "profiled" not in made.figures and made.stage is None
    assert made.outcomes.preemptions.sum() == 0


def test_replay__a_policy_that_learns_takes_part() -> None:
    """lucid on what is left, one GPU: 5 is expected to take less than 1."""
    made = run(cluster="1x4", policy="lucid")
    assert made.outcomes.job_id.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"profile_gpus": -1}, "profile_gpus"), ({"profile_gpus": 1.5}, "profile_gpus"),
     ({"profile_gpus": True}, "profile_gpus"), ({"profile_most_gpus": 0}, "profile_most_gpus"),
     ({"profile_gpus": 1, "profile_s": 0.0}, "profile_s"), ({"profile_s": -1.0}, "profile_s"),
     ({"profile_gpus": 1, "slowdown": 2.0}, "profile_gpus")],
)  # fmt: skip
def test_model__refuses_settings_that_mean_nothing(settings: dict[str, Any], key: str) -> None:
    """A ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        PublishedSettings(**settings)
    assert caught.value.key == f"model.{key}"
