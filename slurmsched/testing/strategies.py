"""Hypothesis strategies: clusters of every shape, small enough to read when a test fails."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from slurmsched.model import Snapshot
from slurmsched.testing.builders import snapshot

_STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "PENDING,COMPLETING", "PENDING,REQUEUED")
_COMMENTS = (
    "",
    "no hint",
    "slurmsched: dur=1h",
    "slurmsched: dur=90m preempt=yes topo=nvlink",
    "slurmsched: dur=",
    "slurmsched: dur=2h deadline=+6h min_gpus=1 max_gpus=8",
    "slurmsched: dur=1h deadline=+1h progress=1/3",
)
_SOME_S = st.sampled_from([0.0, 1.0, 60.0, 3_600.0, 3_600.0, 86_400.0])


@st.composite
def job_rows(draw: st.DrawFn, job_id: int) -> dict[str, Any]:
    """One job as `builders.jobs` takes it. Few distinct values, so that ties are common."""
    state = draw(st.sampled_from(_STATES))
    submit_s = draw(_SOME_S)
    return {
        "job_id": job_id,
        "state": state,
        "submit_s": submit_s + draw(st.sampled_from([0.0, 0.0, 7_200.0])),  # as a requeue moves it
        "first_submit_s": submit_s,
        "start_s": float("nan") if "PENDING" in state else submit_s + draw(_SOME_S),
        "executed_s": draw(_SOME_S),
        "waiting_s": draw(_SOME_S),
        "gpus": draw(st.sampled_from([0, 1, 2, 4, 8, 32])),
        "time_limit_s": draw(st.sampled_from([float("inf"), 3_600.0, 86_400.0])),
        "comment": draw(st.sampled_from(_COMMENTS)),
    }


@st.composite
def snapshots(draw: st.DrawFn, *, most_jobs: int = 20) -> Snapshot:
    """A snapshot of up to most_jobs jobs on a small fleet, with or without a history."""
    ids = sorted(draw(st.sets(st.integers(1, 10_000), max_size=most_jobs)))
    return snapshot(
        [draw(job_rows(job_id)) for job_id in ids],
        draw(st.sampled_from(["0x0", "1x8", "4x8", "2x4"])),
        now_s=200_000.0,
        history_gpu_s=draw(st.lists(st.floats(0.0, 1e6), max_size=150)),
        seed=draw(st.integers(0, 3)),
    )
