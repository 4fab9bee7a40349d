"""GPUs where the loss of a job falls most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.allocation.loss_curves import LossCurves
from slurmsched.model.hints import loss_columns
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import Scattered
from slurmsched.policies.slaq import Slaq
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import EventCluster, replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.scaling_speed import TrainingSpeed
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.testing import check_policy, snapshot

ANY = "min_gpus=1 max_gpus=4"
SIX = ((1, f"dur=20h progress=1/10 loss=1:0.9:0.8 {ANY}"), (1, f"dur=20h progress=2/10 loss=1:0.65:0.6 {ANY}"),
       (1, f"dur=10h progress=8/10 loss=1:0.21:0.2 {ANY}"), (1, f"dur=10h {ANY}"), (2, "dur=4h"),
       (1, "dur=1h"))  # fmt: skip
ROWS = [{"gpus": gpus, "comment": f"slurmsched: {hints}"} for gpus, hints in SIX]
HOURLY = Slaq(interval_s=3_600.0, serial=0.0)


def test_slaq__conforms() -> None:
    """The rules of all policies."""
    check_policy(HOURLY)


def test_slaq__six_jobs_by_hand() -> None:
    """The page's: three of the four GPUs over all least sizes to job 1, for 0.5 each, then one to job 2 for 0.25."""
    ranking = HOURLY.rank(snapshot(ROWS, "1x11"))
    assert ranking.why["given_gpus"].tolist() == [4, 2, 1, 1, 2, 1]
    assert ranking.why["fall"].tolist() == pytest.approx([2.0, 0.5, 0.125, 0.1, 0.25, 1.0])
    assert (ranking.order + 1).tolist() == [1, 6, 2, 5, 3, 4]
    assert ranking.notes == ("3 of 6 jobs report no loss: counted as if it fell in equal parts",)


def test_slaq__a_job_that_has_converged_gives_its_gpus_to_one_that_learns() -> None:
    """Told over five rounds: the loss of job 1 stays, that of job 2 falls by a fifth each time."""
    carry: dict[str, object] = {}
    hints = "dur=10h min_gpus=1 max_gpus=8"
    for step in range(6):
        flat = (1.0, 0.5, 0.49, 0.487, 0.486, 0.4858)[step]
        told = [f"loss=1:{flat}:{flat}", f"loss=1:{0.8**step}:{0.8**step}"]
        rows = [{"gpus": 4, "state": "RUNNING", "executed_s": 600.0 * step,
                 "comment": f"slurmsched: {hints} progress={step}/10 {each}"} for each in told]  # fmt: skip
        held = [{"job_id": job, "node": "n1", "gpus": 4} for job in (1, 2)]
        ranking = Slaq().rank(snapshot(rows, "1x8", now_s=600.0 * step, carry=carry, allocations=held))
        carry = dict(ranking.carry)
    assert ranking.why["given_gpus"].tolist() == [1, 7]
    assert (ranking.order + 1).tolist() == [2, 1]


def test_slaq__a_job_that_must_not_stop_holds_its_size() -> None:
    """Its loss falls by less than that of the other, which gets what is over."""
    rows = [{"gpus": 4, "state": "RUNNING", "comment": f"slurmsched: dur=100h {ANY} preempt=no"},
            {"gpus": 4, "comment": f"slurmsched: dur=1h {ANY}"}]  # fmt: skip
    ranking = Slaq().rank(snapshot(rows, "1x6", allocations=[{"job_id": 1, "node": "n1", "gpus": 4}]))
    assert ranking.why["given_gpus"].tolist() == [4, 2]


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_slaq__the_pace_is_what_was_measured(speed: float) -> None:
    """A job that made half or twice the progress that its run time says falls half or twice as far."""
    rows = [{"gpus": 1, "comment": "slurmsched: dur=10h", "state": "RUNNING"}]
    held = [{"job_id": 1, "node": "n1", "gpus": 1}]
    first = HOURLY.rank(snapshot(rows, "1x1", allocations=held))
    rows = [{**rows[0], "executed_s": 3_600.0, "comment": f"slurmsched: dur=10h progress={speed}/10"}]
    then = HOURLY.rank(snapshot(rows, "1x1", now_s=3_600.0, carry=first.carry, allocations=held))
    assert then.why["fall"].tolist() == pytest.approx([0.1 * speed])


@pytest.mark.parametrize("curve", [lambda k: 1 / (20 * k + 1) + 0.2, lambda k: 0.1 * np.exp(-6 * k) + 0.3])
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e200])
def test_loss_curves__follow_both_families(curve: Any, unit: float) -> None:
    """From six points of the first third of the work the fall until the half is predicted within a third of it."""
    done = np.linspace(0.02, 0.33, 6)[None]
    fall = LossCurves.of(done, curve(done) * unit).fall(np.array([0.33]), np.array([[0.4, 0.5]]))[0] / unit
    assert fall == pytest.approx(curve(0.33) - curve(np.array([0.4, 0.5])), rel=1 / 3)


def test_loss_curves__few_points_and_rising_losses_are_no_curve() -> None:
    """Two points: a straight line. A loss that rises: no fall at all. None: not known."""
    done = np.array([[0.0, 0.1, 0.2, 0.3, 0.4]] * 3)
    loss = np.array([[np.nan, np.nan, np.nan, 0.9, 0.8], [0.1, 0.2, 0.3, 0.4, 0.5], [np.nan] * 5])
    fall = LossCurves.of(done, loss).fall(np.full(3, 0.4), np.full((3, 1), 0.7))
    assert fall[:2, 0].tolist() == pytest.approx([0.3, 0.0])
    assert np.isnan(fall[2, 0])


def test_loss_columns__are_as_told() -> None:
    """Of a hint given twice the last counts; a wrong one is none."""
    texts = ["slurmsched: loss=3:2:1 loss=4:2:1", "slurmsched: loss=much", ""]
    found = loss_columns(snapshot([{"comment": text} for text in texts]).jobs)
    assert found[0].tolist() == [4.0, 2.0, 1.0]
    assert np.isnan(found[1:]).all()


def test_training_speed__jobs_tell_the_loss_of_their_epochs() -> None:
    """Only where the replay asks for it; the first epoch of bert is half of its work."""
    comment = "slurmsched: min_gpus=1 max_gpus=2"
    trace = Trace.of([1], [1], [0.0], [4_000.0], model=["bert (batch size 24)"], comment=[comment])
    for tells, told in ((False, {""}), (True, {"", "loss=0.132905842:0.132905842:0.132905842"})):
        hardware = ClusterHardware.of(ClusterLayout.of_gpus([4]).nodes)
        cluster = PhysicsCluster(trace, hardware, TrainingSpeed(tells_loss=tells))
        seen = set[str]()

        def look(now: EventCluster, seen: set[str] = seen) -> None:
            texts = now.read().jobs.comment  # type: ignore[attr-defined]
            seen.update(next((word for word in text.split() if word.startswith("loss=")), "") for text in texts)

        replay_events(cluster, DirectPlanner(Slaq(), Scattered(), "skip"), CarryStore(), on_progress=look)
        assert seen == told
