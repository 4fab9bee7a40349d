"""Estimators that learn from jobs that ended: by hand on small pasts, fall-backs, purity."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.estimators import boosted_trees
from slurmsched.estimators.boosted_trees import Trees, one_thread
from slurmsched.estimators.past_run_times import GroupHash, Histogram, RollingHistory, normalized_name
from slurmsched.estimators.requested_time import NoEstimate
from slurmsched.model import Estimates, Past, Snapshot
from slurmsched.model.durations import DAY_S
from slurmsched.testing import check_estimator, mixed_snapshot, snapshot

INF = float("inf")
ENDED = [
    ("ann", "train_1", 2, 100.0),
    ("ann", "train_2", 2, 200.0),
    ("ann", "train_2", 4, 900.0),
    ("ann", "eval", 2, 60.0),
    ("bob", "train_1", 8, 40.0),
]


def past(rows: list[tuple[str, str, int, float]], **more: Any) -> Past:
    """Jobs (user, name, GPUs, executed [s]) that ended one second after the other."""
    user, name, gpus, executed_s = zip(*rows, strict=True)
    columns = {"user": user, "name": name, "gpus": gpus, "executed_s": executed_s, "end_s": np.arange(len(rows)) + 1.0}
    return Past.build(len(rows), columns | more)


def asked(*rows: tuple[str, str, int], **more: Any) -> Snapshot:
    """Pending jobs (user, name, GPUs) of limit 9 s."""
    jobs = [{"user": user, "name": name, "gpus": gpus, "time_limit_s": 9.0} for user, name, gpus in rows]
    return snapshot(jobs, **{"now_s": 10.0, "past": past(ENDED), **more})


def told(estimates: Estimates) -> list[tuple[float, str]]:
    """(expected run time, where from) by job."""
    named = (estimates.sources[source] for source in estimates.source)
    return list(zip(estimates.total_s.tolist(), named, strict=True))


def test_alike__case_and_numbers_do_not_count() -> None:
    """Runs of one script differ in numbers; another script differs in words."""
    assert normalized_name("Train_7-of-10") == normalized_name("train_12-of-9") != normalized_name("eval_7-of-10")


def test_history__goes_from_narrow_to_wide_groups() -> None:
    """User, like name and size; then without size, without name, the user; then by GPUs; then all."""
    given = asked(("ann", "TRAIN_9", 2), ("ann", "train_9", 1), ("ann", "new", 4), ("ann", "new", 1), ("eve", "new", 8),
                  ("eve", "new", 1))  # fmt: skip
    assert told(RollingHistory(INF).estimate(given)) == [
        (150.0, "user, name, GPUs"), (400.0, "user, name"), (900.0, "user, GPUs"), (315.0, "user"), (40.0, "GPUs"),
        (260.0, "all"),
    ]  # fmt: skip


def test_history__late_jobs_weigh_more() -> None:
    """With a half-life of 1 s the job that ended 1 s before the last weighs half: (100 / 2 + 200) / 1.5."""
    given = asked(("ann", "train", 2), past=past([("ann", "train", 2, 100.0), ("ann", "train", 2, 200.0)]))
    assert RollingHistory(1.0).estimate(given).total_s[0] == pytest.approx(250.0 / 1.5, rel=1e-12)


def test_history__very_old_jobs_still_count() -> None:
    """A group whose every job ended thousands of half-lives ago has a mean still."""
    old = past([("ann", "train", 2, 100.0), ("bob", "eval", 1, 5.0)], end_s=[0.0, 1e9])
    assert RollingHistory(1.0).estimate(asked(("ann", "train", 2), past=old)).total_s.tolist() == [100.0]


@pytest.mark.parametrize(("by", "expected"), [("user", 315.0), ("group", 550.0), ("group-gpus", 200.0)])
def test_group_hash__mean_of_the_group(by: str, expected: float) -> None:
    """ann's jobs took 100, 200, 900 and 60 s; those named train_2 200 and 900; of these with two GPUs 200."""
    assert GroupHash(by).estimate(asked(("ann", "train_2", 2))).total_s.tolist() == [expected]


def test_group_hash__models_are_kept_apart() -> None:
    """Equal names with another hint model= are another group."""
    rows = [("ann", "t", 1, 10.0), ("ann", "t", 1, 70.0)]
    job = {"user": "ann", "name": "t", "comment": "slurmsched: model=bert"}
    given = snapshot([job], past=past(rows, model=["gpt", "bert"]))
    assert GroupHash().estimate(given).total_s.tolist() == [70.0]


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 100.0), (0.34, 100.0), (0.33, 60.0), (1.0, 200.0)])
def test_histogram__quantile_of_a_size(quantile: float, expected: float) -> None:
    """Two GPUs took 60, 100 and 200 s: the lowest sample that this share does not exceed."""
    assert Histogram(quantile, least_samples=1).estimate(asked(("eve", "new", 2))).total_s.tolist() == [expected]


@pytest.mark.parametrize("estimator", [RollingHistory(), GroupHash(), Histogram(), Trees()])
def test_learning__without_a_past_the_other_estimator_counts(estimator: Any) -> None:
    """Nothing ended: the time limit, through the default estimator; with `nothing` none at all."""
    given = asked(("ann", "train", 2), past=past(ENDED).take(slice(0, 0)))
    assert told(estimator.estimate(given)) == [(9.0, "time-limit")]
    unknown = type(estimator)(estimator=NoEstimate()).estimate(given)
    assert np.isnan(unknown.total_s).tolist() == [True]


def test_trees__learn_what_users_do() -> None:
    """ann's jobs take about 1 h and bob's 1 min: so are the next ones expected, to a tenth."""
    rows = [("ann", "a", 1, 3_600.0), ("bob", "b", 1, 60.0)] * 200
    given = asked(("ann", "a", 1), ("bob", "b", 1), now_s=DAY_S, past=past(rows))
    assert Trees().estimate(given).total_s == pytest.approx([3_600.0, 60.0], rel=0.1)


def test_trees__learn_at_midnight_only() -> None:
    """What ended today does not teach before midnight: the estimate stays."""
    rows = [("ann", "a", 1, 3_600.0)] * 300 + [("ann", "a", 1, 1.0)] * 300
    table = past(rows, end_s=np.r_[np.full(300, 1.0), np.full(300, DAY_S + 1.0)])
    at_noon, next_day = (asked(("ann", "a", 1), now_s=now_s, past=table) for now_s in (1.5 * DAY_S, 2.5 * DAY_S))
    before, after = (Trees().estimate(given).total_s[0] for given in (at_noon, next_day))
    assert (before == pytest.approx(3_600.0, rel=0.01), after < 1_800.0) == (True, True)


def test_trees__read_a_past_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the very same past digest it once; an equal one is digested anew and gives the same run times."""
    digested: list[int] = []
    digest = boosted_trees.digest_of
    monkeypatch.setattr(boosted_trees, "digest_of", lambda taught: digested.append(len(taught)) or digest(taught))
    given = asked(("ann", "train_1", 2), now_s=DAY_S, past=past(ENDED * 60))
    again = asked(("ann", "train_1", 2), now_s=DAY_S, past=past(ENDED * 60))
    made = [Trees().estimate(each).total_s[0] for each in (given, given, again)]
    assert digested == [300, 300]
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("name", ["nothing", "history", "group-hash", "histogram", "trees"])
def test_learning__conforms(name: str) -> None:
    """Every rule of check_estimator, with a past too."""
    taught = mixed_snapshot(50, seed=3)
    ended = past([("", "", 1 + i % 8, 10.0 * (i + 1)) for i in range(300)])
    assert (
        check_estimator(registry.make_plugin("estimators", name), [asked(("ann", "a", 1), past=ended), taught]) is None
    )


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [(RollingHistory, {"half_life_s": 0.0}), (RollingHistory, {"least_samples": 0}), (GroupHash, {"by": "name"}),
     (Histogram, {"quantile": 1.1}), (Histogram, {"quantile": 0.0}), (Trees, {"leaves": 1})],
)  # fmt: skip
def test_learning__refuses_bad_parameters(kind: Any, parameters: dict[str, Any]) -> None:
    """A parameter out of range is a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert caught.value.key == f"policy.{next(iter(parameters))}"


def test_one_thread__where_cores_cannot_be_counted() -> None:
    """Where /sys is not mounted scikit-learn warns at each fit; no other warning is hidden."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with one_thread():
            warnings.warn("Could not find the number of physical cores for the following reason", stacklevel=1)
            warnings.warn("another", stacklevel=1)
    assert [str(one.message) for one in heard] == ["another"]
