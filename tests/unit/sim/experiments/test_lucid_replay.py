"""Pairs under lucid in a replay, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_result import ReplayResult
from slurmsched.sim.experiments.replay_session import ReplaySession

TIERS = 'tiers:tiny=["ncf"],kept=[0.8,0.8,0.5,0.5,0.5]'


def run(jobs: Any, cluster: str = "1x2", physics: str = TIERS, policy: str = 'lucid:pack=true,tiny=["ncf"]',
        **settings: Any) -> ReplayResult:  # fmt: skip
    """jobs: (GPUs, submit, run time, model)."""
    gpus, submit_s, run_s, model = zip(*jobs, strict=True)
    trace = Trace.of(np.arange(len(jobs)) + 1, gpus, submit_s, run_s, model=list(model))
    request = ReplayRequest(cluster=cluster, policy=policy, placement="consolidated", physics=physics, backfill="skip",
                      settings=settings)  # fmt: skip
    return ReplaySession(trace, request).run()


def ends(*jobs: Any, **more: Any) -> list[float]:
    return run(jobs, **more).outcomes.end_s.tolist()


def test_lucid__two_tiny_jobs_share_a_node() -> None:
    """Both keep 0.8 of their speed: 100 s take 125."""
    assert ends((2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "ncf")) == [125.0, 125.0]
    assert ends((2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "ncf"), policy="lucid") == [100.0, 200.0]


def test_lucid__the_guest_goes_on_alone_when_its_host_ends() -> None:
    """The second comes at 50, and does 0.8 a second until the first has done its other 50 s, at 112.5; the 50 s left
    of its 100 s it does alone. The third comes beside it then, since it waited and nothing is free."""
    first, second = (2, 0.0, 100.0, "ncf"), (2, 50.0, 100.0, "ncf")
    assert ends(first, second) == [112.5, 162.5]
    assert ends(first, second, (2, 60.0, 40.0, "ncf")) == [112.5, 172.5, 162.5]


def test_lucid__the_host_goes_on_alone_when_its_guest_ends() -> None:
    """The guest comes at 10; its 40 s take 50 s, in which the host does 40, so that 50 are left at 60."""
    assert ends((2, 0.0, 100.0, "ncf"), (2, 10.0, 40.0, "ncf")) == [110.0, 60.0]


def test_lucid__a_much_longer_job_is_no_guest() -> None:
    """The short job starts first; the other one's service is more than twice its."""
    assert ends((2, 0.0, 100.0, "ncf"), (2, 0.0, 40.0, "ncf")) == [140.0, 40.0]


def test_lucid__heavy_jobs_do_not_share() -> None:
    """2 + 2 is more than 2; 0 + 2 is not."""
    assert ends((2, 0.0, 100.0, "bert"), (2, 0.0, 100.0, "bert")) == [100.0, 200.0]
    assert ends((2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "bert")) == [200.0, 200.0]


def test_lucid__a_free_node_is_taken_before_anybody_shares() -> None:
    """Three jobs on two nodes: the third alone shares."""
    jobs = [(2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "ncf"), (2, 0.0, 80.0, "ncf")]
    made = run(jobs, cluster="2x2").outcomes
    assert (made.first_start_s.tolist(), made.end_s[2]) == ([0.0, 0.0, 0.0], pytest.approx(100.0))
    assert sorted(made.end_s[:2].tolist()) == [100.0, pytest.approx(120.0)]


def test_lucid__work_is_done_whole_whoever_shares() -> None:
    """Twelve jobs at random times: each has done its recorded run time when it ends, at speeds of 0.8 to 1."""
    chance = np.random.default_rng(2)
    jobs = [(int(chance.choice([1, 2])), float(at), float(chance.integers(20, 200)), "ncf") for at in range(12)]
    done = run(jobs).outcomes
    assert len(done.job_id) == 12
    assert done.useful_s.tolist() == [job[2] for job in jobs]
    assert ((done.slowdown >= 1 - 1e-9) & (done.slowdown <= 1.25 + 1e-9)).all()
    assert (done.slowdown > 1.01).any()
    assert (done.preemptions == 0).all()


def test_lucid__stage_and_pairs_together() -> None:
    """Both jobs are profiled on two GPUs for 10 s each, one after the other, and then run on the cluster's two."""
    made = run([(2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "ncf")], profile_gpus=2, profile_s=10.0).outcomes
    assert made.first_start_s.tolist() == [0.0, 10.0]
    assert made.end_s == pytest.approx([10.0 + 10.0 + 90.0 / 0.8, 10.0 + 10.0 + 90.0 / 0.8 + 10.0], abs=1e-6)


def test_lucid__pairs_need_physics_that_knows_them() -> None:
    """Without it the first pair is an error that says so."""
    with pytest.raises(ConfigError, match="share"):
        run([(2, 0.0, 100.0, "ncf"), (2, 0.0, 100.0, "ncf")], physics="recorded")
