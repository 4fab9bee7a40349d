"""qssf, lucid, spin and mlfs: orders by expected run time, six jobs each by hand as on their pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig, ScopeConfig
from slurmsched.errors import ConfigError
from slurmsched.estimators.boosted_trees import Additive
from slurmsched.estimators.past_run_times import RollingHistory
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Past, Rights, SetStart, Site, Snapshot
from slurmsched.planning.planner import Planner
from slurmsched.policies.lucid import Lucid
from slurmsched.policies.mlfs import Mlfs
from slurmsched.policies.qssf import Qssf
from slurmsched.policies.spin import Spin, drawn
from slurmsched.testing import snapshot

# (user, GPUs) of six jobs; what ended says that ann's take 100 s, bob's 30 s, others the mean of both, 65 s
SIX = (("ann", 1), ("ann", 4), ("bob", 8), ("bob", 2), ("eve", 1), ("eve", 8))


def six() -> Snapshot:
    """The six jobs, after one job of ann and one of bob that had 16 GPUs."""
    ended = Past.build(2, {"user": ["ann", "bob"], "gpus": [16, 16], "executed_s": [100.0, 30.0], "end_s": [1.0, 2.0]})
    return snapshot([{"user": user, "gpus": gpus} for user, gpus in SIX], now_s=9.0, past=ended)


@pytest.mark.parametrize(
    "policy", [Qssf(estimator=RollingHistory(np.inf)), Lucid(Additive(estimator=RollingHistory(np.inf)))]
)
def test_expected_service__six_jobs_by_hand(policy: Any) -> None:
    """100, 400, 240, 60, 65 and 520 GPU s: least first."""
    ranking = policy.rank(six())
    assert ranking.why["expected_gpu_s"].tolist() == [100.0, 400.0, 240.0, 60.0, 65.0, 520.0]
    assert ranking.order.tolist() == [3, 4, 0, 2, 1, 5]


@pytest.mark.parametrize(("policy", "name"), [(Qssf(), "qssf"), (Lucid(), "lucid")])
def test_expected_service__says_that_nothing_has_ended(policy: Any, name: str) -> None:
    """Without a past the time limits count, and the plan says so."""
    given = snapshot([{"time_limit_s": 50.0}, {"time_limit_s": 10.0}])
    ranking = policy.rank(given)
    assert (ranking.order.tolist(), len(ranking.notes), name in ranking.notes[0]) == ([1, 0], 1, True)


def test_qssf__says_that_the_trees_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn the rolling estimate alone counts; told only where the trees were to count."""
    monkeypatch.setattr("slurmsched.policies.qssf.scikit_learn_installed", lambda: False)
    told = [Qssf(trees_share=share).rank(six()).notes for share in (0.5, 0.0)]
    assert [["scikit-learn is not installed" in note for note in notes] for notes in told] == [[True], []]


def test_lucid__says_that_its_model_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn history alone counts; told only where the model was to count."""
    monkeypatch.setattr("slurmsched.policies.lucid.scikit_learn_installed", lambda: False)
    told = [policy.rank(six()).notes for policy in (Lucid(), Lucid(estimator=Hint()))]
    assert [["scikit-learn is not installed" in note for note in notes] for notes in told] == [[True], []]


def test_qssf__trees_share_mixes_both_estimates() -> None:
    """Two estimates of the same job: a share of 0.25 lies a quarter of the way from the rolling one to the trees'."""
    rows = 400
    ended = Past.build(rows, {"user": ["ann"] * rows, "gpus": [1] * rows, "end_s": np.arange(rows) + 1.0,
                              "executed_s": np.where(np.arange(rows) < 300, 1_000.0, 10.0)})  # fmt: skip
    given = snapshot([{"user": "ann"}], now_s=90_000.0, past=ended)
    rolling, mixed, trees = (Qssf(share).rank(given).why["run_s"][0] for share in (0.0, 0.25, 1.0))
    assert (mixed == pytest.approx(0.75 * rolling + 0.25 * trees), rolling != trees) == (True, True)


def test_lucid__shows_source_and_sharing_score() -> None:
    """share=yes scores 0, share=no bars, anything else 2; source 2 is "user, name" and 6 "all" of history, behind the
    additive model, which two jobs teach nothing."""
    given = six()
    assert Lucid().rank(given).why["estimate_source"].tolist() == [2, 2, 2, 2, 6, 6]
    told = snapshot([{"comment": "slurmsched: share=yes"}, {"comment": "slurmsched: share=no"}, {}])
    assert Lucid().rank(told).why["sharing_score"].tolist() == [0.0, np.inf, 2.0]


def test_lucid__shows_pairs_only_where_asked() -> None:
    """As on its page: a tiny job on both GPUs of a node, jobs of one and of two GPUs wait; with pack the one of two is
    shown beside it, if the words and most_gpus allow it."""
    rows = [{"gpus": 2, "state": "RUNNING", "start_s": 0.0, "comment": "slurmsched: model=ncf"},
            *({"gpus": gpus, "comment": "slurmsched: model=bert"} for gpus in (1, 2))]  # fmt: skip
    full = snapshot(rows, "1x2", allocations=[{"job_id": 1, "node": "n1", "gpus": 2, "gpu_mask": 3}])
    policies = (Lucid(pack=True, tiny=("ncf",)), Lucid(pack=True), Lucid(pack=True, tiny=("ncf",), most_gpus=1))
    assert [policy.rank(full).why["beside"].tolist() for policy in policies] == [[-1, -1, 1], [-1] * 3, [-1] * 3]
    assert "beside" not in Lucid(tiny=("ncf",)).rank(full).why


def test_mlfs__six_jobs_by_hand() -> None:
    """alpha 0.5, weights 1, 1 and 0.5 over hours; at time 0 by (left, progress, deadline, waited):
    (1, 0, -, 0) 0.5 + 0.5 = 1; (1, 50 %, -, 0) 0.25 + 0.5 = 0.75; (2, 0, -, 0), a quarter
    of the loss in the last step, 0.125 + 0.25 = 0.375;
    (2, 0, 1, 0) 0.5 + 0.75 = 1.25; (2, 0, -, 4) 0.5 + 1.25 = 1.75; (4, 0, -, 0) 0.5 + 0.125 = 0.625."""
    told = (("dur=1h", 0.0), ("dur=1h progress=1/2", 0.0), ("dur=2h loss=5:2:1", 0.0),
            ("dur=2h deadline=+1h", 0.0),
            ("dur=2h", 4.0), ("dur=4h", 0.0))  # fmt: skip
    rows = [{"comment": f"slurmsched: {hint}", "waiting_s": 3_600.0 * waited} for hint, waited in told]
    ranking = Mlfs(alpha=0.5, waiting_weight=0.5, estimator=Hint()).rank(snapshot(rows))
    assert ranking.why["priority"].tolist() == [1.0, 0.75, 0.375, 1.25, 1.75, 0.625]
    assert ranking.order.tolist() == [4, 3, 0, 1, 5, 2]
    assert ranking.notes == ("5 of 6 jobs report no progress: ordered by deadline, remaining time and waiting",
                             "5 of 6 jobs report no loss: counted as if at the first step")  # fmt: skip


def test_mlfs__loss_and_progress_multiply_and_their_absence_counts_as_the_first_step() -> None:
    """Half done and half of the fall in the last step: a quarter. A loss that does not fall teaches nothing."""
    told = ["progress=1/2 loss=4:3:2", "loss=4:2:2", "loss=4:2:3", "loss=1:1:2", "loss=2:2:2", "loss=4:4:1", ""]
    given = snapshot([{"comment": f"slurmsched: {hint}"} for hint in told])
    assert Mlfs().rank(given).why["learning"].tolist() == [0.25, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_mlfs__without_a_feed_nothing_is_said_of_losses() -> None:
    """Nobody tells one; and nobody is there."""
    assert [note for note in Mlfs().rank(snapshot([{}, {}])).notes if "loss" in note] == []
    assert Mlfs().rank(snapshot(())).notes == ()


@pytest.mark.parametrize(("lot", "slot"), [(0.0, 0.0), (0.24, 0.0), (0.26, 2.0), (0.99, 2.0)])
def test_drawn__a_slot_by_its_share(lot: float, slot: float) -> None:
    """A quarter of the lots falls on slot 0, the rest on slot 2, none on slot 1."""
    assert drawn(np.array([[0.25, 0.0, 0.75]]), np.array([lot])).tolist() == [slot]


SPIN_SIX = [{"gpus": 8, "comment": f"slurmsched: dur={minutes}m"} for minutes in (60, 50, 40, 30, 20, 10)]


def test_spin__six_jobs_one_after_the_other() -> None:
    """Six jobs that each fill the cluster for 60 to 10 min: the sum of ends is least in the order of length."""
    ranking = Spin(slots=21, estimator=Hint()).rank(snapshot(SPIN_SIX, "1x8"))
    assert ranking.why["slot"].tolist() == [15.0, 10.0, 6.0, 3.0, 1.0, 0.0]
    assert ranking.order.tolist() == [5, 4, 3, 2, 1, 0]


def test_spin__running_jobs_hold_their_gpus_in_the_plan() -> None:
    """Of four GPUs two are held for an hour and two for ten: both that wait start after the hour, the short one first.
    Slots are 30 min long: eight hours of all GPUs, in 16."""
    rows = [
        {"gpus": 2, "state": "RUNNING", "start_s": 0.0, "comment": f"slurmsched: dur={hours}h"} for hours in (1, 10)
    ]
    rows += [
        {"gpus": 2, "submit_s": 10.0 * n, "comment": f"slurmsched: dur={run}"} for n, run in ((1, "5h"), (2, "1m"))
    ]
    held = [
        {"job_id": 1, "node": "n1", "gpus": 2, "gpu_mask": 3},
        {"job_id": 2, "node": "n1", "gpus": 2, "gpu_mask": 12},
    ]
    ranking = Spin(estimator=Hint()).rank(snapshot(rows, "1x4", now_s=30.0, allocations=held))
    assert ranking.why["slot"].tolist() == [np.inf, np.inf, 3.0, 2.0]
    assert ranking.order.tolist() == [3, 2, 0, 1]


def test_spin__a_job_that_overran_holds_its_gpus_for_the_first_slot() -> None:
    """It should have ended long ago: its GPUs are free from the next slot on."""
    rows = [{"gpus": 8, "state": "RUNNING", "start_s": 0.0, "executed_s": 9_000.0, "comment": "slurmsched: dur=1h"},
            {"gpus": 8, "comment": "slurmsched: dur=1h"}]  # fmt: skip
    held = [{"job_id": 1, "node": "n1", "gpus": 8, "gpu_mask": 255}]
    ranking = Spin(estimator=Hint()).rank(snapshot(rows, "1x8", now_s=9_000.0, allocations=held))
    assert ranking.why["slot"].tolist() == [np.inf, 1.0]


def test_spin__a_plan_stands_for_its_round() -> None:
    """A job that comes within the round goes behind the plan; in the next round it is part of it."""
    policy = Spin(slots=21, estimator=Hint(), round_s=600.0)
    carry = policy.rank(snapshot(SPIN_SIX[:2], "1x8")).carry
    three = [*SPIN_SIX[:2], {"gpus": 8, "comment": "slurmsched: dur=1m"}]
    within, later = (policy.rank(snapshot(three, "1x8", now_s=now_s, carry=carry)) for now_s in (599.0, 600.0))
    assert (within.order.tolist(), later.order.tolist()) == ([1, 0, 2], [2, 1, 0])


def test_spin__without_filling_jobs_wait_for_their_slots() -> None:
    """Slots of ten minutes: the job of slot 3 starts after half an hour, also as a later look has it; one that came
    after the plan waits until it is in one."""
    policy = Spin(slots=21, estimator=Hint(), fill=False)
    first = snapshot(SPIN_SIX, "1x8", now_s=1_000.0)
    told = policy.rank(first)
    assert told.changes is not None and told.changes.start_s is not None
    assert told.changes.start_s.tolist() == [1_000.0 + 600.0 * slot for slot in (15, 10, 6, 3, 1, 0)]
    rows = [*SPIN_SIX, {"job_id": 99, "submit_s": 1_100.0, "gpus": 8}]
    later = policy.rank(snapshot(rows, "1x8", now_s=1_200.0, carry=told.carry))
    assert later.changes is not None and later.changes.start_s is not None
    assert later.changes.start_s.tolist() == [*told.changes.start_s.tolist(), np.inf]
    assert Spin(slots=21, estimator=Hint()).rank(first).changes is None


def test_spin__without_filling_only_jobs_that_could_start_wait() -> None:
    """One that is not eligible yet is told no start; one beyond most_jobs is."""
    rows = [{"gpus": 8}, {"gpus": 8}, {"gpus": 8, "eligible_s": 9_000.0}]
    wants = Spin(fill=False, most_jobs=1).rank(snapshot(rows, "1x8", now_s=1_000.0)).changes
    assert wants is not None and wants.start_s is not None
    assert np.isfinite(wants.start_s).tolist() == [True, False, False]
    assert wants.start_s[1:].tolist() == [np.inf, -np.inf]


def test_spin__a_new_round_writes_starts_of_its_own_jobs_only() -> None:
    """20 jobs, 2 in a plan, starts written for an hour at most: after the first cycle no start of a job outside the
    plan ends with the round, and the next plan writes none of them again."""
    planner = Planner(Spin(fill=False, most_jobs=2, estimator=Hint()), scope=ScopeConfig(partitions=("gpu",)),
                      lever=LeverConfig(start=True, start_most_s=3_600))  # fmt: skip
    rows = [{"job_id": number, "submit_s": 900.0, "eligible_s": 900.0, "gpus": 8} for number in range(1, 21)]
    plan = planner.plan(snapshot(rows, "1x8", now_s=1_000.0, site=Site(rights=Rights.OPERATOR)))
    starts = {each.job_id: each.new for each in plan.actions if isinstance(each, SetStart)}
    assert [starts[job] for job in range(3, 21)] == [4_600.0] * 18
    held = [{**row, "eligible_s": starts.get(row["job_id"], 900.0)} for row in rows]
    later = snapshot(held, "1x8", now_s=1_600.0, site=Site(rights=Rights.OPERATOR), carry=plan.ranking.carry,
                     overrides=plan.overrides)  # fmt: skip
    written = {each.job_id for each in planner.plan(later).actions if isinstance(each, SetStart)}
    assert written <= {1, 2}


def test_spin__the_same_seed_draws_the_same_plan() -> None:
    """Chance comes from the seed alone; most_jobs bounds the plan, the others wait behind it."""
    rows = [{"gpus": 1 + i % 4, "time_limit_s": 60.0 * (1 + i * 7 % 11)} for i in range(40)]
    one, other = (Spin(most_jobs=30).rank(snapshot(rows, "2x8", seed=4)) for _ in range(2))
    assert one.order.tolist() == other.order.tolist()
    assert int(np.isfinite(one.why["slot"]).sum()) == 30


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [(Qssf, {"trees_share": 1.5}), (Mlfs, {"alpha": 2.0}), (Mlfs, {"round_s": 0.0}), (Spin, {"slots": 1}),
     (Spin, {"most_jobs": 0}), (Lucid, {"most_gpus": 0}), (Lucid, {"pack": 1}), (Lucid, {"tiny": "ncf"}),
     (Lucid, {"medium": ("",)})],
)  # fmt: skip
def test_duration__refuses_bad_parameters(kind: Any, parameters: dict[str, Any]) -> None:
    """A parameter out of range is a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert caught.value.key == f"policy.{next(iter(parameters))}"
