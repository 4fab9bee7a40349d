"""Traces nobody has seen end as loops end them that were written apart from the engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from tests.reference.preemptive import ORDERS, Order, Queues, preemptive_ends
from tests.reference.schedules import Job, job_ends

GPUS, THRESHOLDS = 8, (3_250.0, 7_200.0)
JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 60, 300, 301, 900, 2_000]), st.integers(1, GPUS),
        st.sampled_from([0, 1, 60, 299, 300, 1_000, 4_000, 9_000]),
    ), min_size=1, max_size=25,
).map(lambda rows: [(float(submit), i, gpus, float(run)) for i, (submit, gpus, run) in enumerate(rows)])  # fmt: skip


def ours(jobs: list[Job], policy: str) -> dict[int, tuple[float, int]]:
    """End and preemptions of every job by id, rows in reverse order."""
    submit_s, number, gpus, run_s = zip(*reversed(jobs), strict=True)
    session = ReplaySession(Trace.of(number, gpus, submit_s, run_s), ReplayRequest(cluster=f"1x{GPUS}", policy=policy))
    done = session.run().outcomes
    return {
        int(job): (end_s, times) for job, end_s, times in zip(done.job_id, done.end_s, done.preemptions, strict=True)
    }


@pytest.mark.parametrize("policy", ["fifo", "easy"])
@settings(deadline=None, max_examples=60)
@given(jobs=JOBS)
def test_replay__ends_every_job_as_a_loop_without_preemption_does(policy: str, jobs: list[Job]) -> None:
    """To the second, whatever comes at the same time, or runs 0 s."""
    ends = job_ends(jobs, GPUS, easy=policy == "easy")
    assert {number: (end_s, 0) for number, end_s in ends.items()} == ours(jobs, policy)


@pytest.mark.parametrize("policy", [*ORDERS, "discretized-las", "discretized-las:dimension=1d"])
@settings(deadline=None, max_examples=60)
@given(jobs=JOBS)
def test_replay__ends_every_job_as_a_loop_with_preemption_does(policy: str, jobs: list[Job]) -> None:
    """To the second, with as many preemptions of each job."""
    order: Order = ORDERS.get(policy) or Queues(THRESHOLDS, two_d="1d" not in policy)
    assert preemptive_ends(jobs, GPUS, order) == ours(jobs, policy)
