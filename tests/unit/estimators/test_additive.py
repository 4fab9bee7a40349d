"""The additive estimator: what it learns, and that its factors make up the estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError
from slurmsched.estimators import boosted_trees
from slurmsched.estimators.boosted_trees import Additive, training_features
from slurmsched.estimators.requested_time import NoEstimate
from slurmsched.model import Past, Snapshot
from slurmsched.model.durations import DAY_S
from slurmsched.observe.explain.explanation import run_time_terms
from slurmsched.planning.planner import Planner
from slurmsched.testing import check_estimator, mixed_snapshot, snapshot

USERS = {"ann": 3_600.0, "bob": 60.0}  # run time of each on one GPU; on four it is half


def ended(rows: int = 400) -> Past:
    """Jobs of ann and bob in a drawn order, on one GPU and on four, every one of them run as its user's do."""
    drawn = np.random.default_rng(1).integers(0, 4, rows).tolist()
    users = [("ann", "bob")[each % 2] for each in drawn]
    gpus = [(1, 4)[each // 2] for each in drawn]
    run_s = [USERS[user] / (1 if size == 1 else 2) for user, size in zip(users, gpus, strict=True)]
    return Past.build(rows, {"user": users, "name": ["train"] * rows, "gpus": gpus, "executed_s": run_s,
                             "submit_s": np.arange(rows) * 100.0, "end_s": np.arange(rows) + 40_000.0})  # fmt: skip


def asked(*jobs: tuple[str, int], past: Past | None = None, **more: Any) -> Snapshot:
    """Jobs (user, GPUs) that wait on the day after."""
    rows = [{"user": user, "gpus": gpus, "name": "train", "time_limit_s": 9.0} for user, gpus in jobs]
    return snapshot(rows, **{"now_s": DAY_S, "past": ended() if past is None else past, **more})


FOUR = (("ann", 1), ("ann", 4), ("bob", 1), ("bob", 4))


def test_additive__learns_what_users_and_sizes_do() -> None:
    """Each of the four kinds is expected to run as long as its like did, within a quarter."""
    total_s = Additive().estimate(asked(*FOUR)).total_s
    assert total_s == pytest.approx([3_600.0, 1_800.0, 60.0, 30.0], rel=0.25)


def test_additive__factors_make_up_the_estimate() -> None:
    """The usual time and the factors multiply to the estimate; a job that differs in GPUs alone differs in that
    factor alone, and by as much as the estimate does."""
    given = asked(*FOUR)
    terms, total_s = Additive().terms(given), Additive().estimate(given).total_s
    assert terms is not None
    assert terms.usual_s * terms.factor.prod(axis=1) == pytest.approx(total_s, rel=1e-9)
    gpus = terms.names.index("GPUs")
    one, four = terms.factor[0], terms.factor[1]
    assert np.flatnonzero(one != four).tolist() == [gpus]
    assert one[gpus] / four[gpus] == pytest.approx(total_s[0] / total_s[1], rel=1e-9)


def test_additive__factors_are_one_in_the_mean() -> None:
    """Over the jobs that taught, the logarithm of each factor has mean 0: what is usual is usual."""
    past = ended()
    wide = asked(*zip(past.user, past.gpus.tolist(), strict=True), past=past)
    terms = Additive().terms(wide)
    assert terms is not None
    gpus = terms.names.index("GPUs")
    assert np.log(terms.factor[:, gpus]).mean() == pytest.approx(0.0, abs=1e-9)
    assert terms.usual_s == pytest.approx(float(np.exp(np.log(past.executed_s).mean())), rel=0.05)


@pytest.mark.parametrize("least", [401, 10_000])
def test_additive__too_few_jobs_teach_nothing(least: int) -> None:
    """Then the other estimator speaks, and there are no factors; nor are there for nobody."""
    policy = Additive(least_samples=least, estimator=NoEstimate())
    assert np.isnan(policy.estimate(asked(*FOUR)).total_s).all()
    assert policy.estimate(asked(*FOUR)).source.tolist() == [1] * 4
    assert policy.terms(asked(*FOUR)) is None
    assert Additive().terms(asked()) is None
    assert Additive(least_samples=400).terms(asked(*FOUR)) is not None


def test_additive__does_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other estimator speaks: the mean of the user's like jobs of that size."""
    monkeypatch.setattr(boosted_trees, "scikit_learn_installed", lambda: False)
    estimates = Additive().estimate(asked(("ann", 4)))
    assert (estimates.total_s.tolist(), estimates.sources[estimates.source[0]]) == (
        [pytest.approx(1_800.0)], "user, name, GPUs",
    )  # fmt: skip


def test_additive__one_run_time_for_all_is_learnt() -> None:
    """Jobs that all took no time, or the same: the usual one is told, with factors of 1."""
    past = ended().with_columns(executed_s=np.zeros(400))
    terms = Additive().terms(asked(("ann", 1), past=past))
    assert terms is not None
    assert (terms.usual_s, terms.factor.tolist()) == (pytest.approx(1.0), [pytest.approx([1.0] * 5)])


def test_additive__conforms() -> None:
    """Every rule of check_estimator, with a past too, and a past of one user who is not there any more."""
    assert (
        check_estimator(registry.make_plugin("estimators", "additive"), [asked(*FOUR), mixed_snapshot(50, seed=3)])
        is None
    )
    stranger = asked(("eve", 2))
    terms = Additive().terms(stranger)
    assert terms is not None
    means = [terms.names.index(name) for name in terms.names if name.startswith("mean")]
    assert np.isnan(terms.value[0, means]).all() and np.isfinite(terms.factor).all()


def test_additive__features_of_the_past_are_those_of_jobs() -> None:
    """As many columns as names."""
    assert training_features(ended()).shape == (400, 5)


@pytest.mark.parametrize("parameters", [{"least_samples": 0}, {"most_samples": 0}, {"rounds": 0}, {"leaves": 1}])
def test_additive__refuses_bad_parameters(parameters: dict[str, int]) -> None:
    """A parameter out of range is a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        Additive(**parameters)
    assert caught.value.key == f"policy.{next(iter(parameters))}"


def test_expected__tells_the_greatest_factor_first() -> None:
    """ann's jobs are long, which is told before that four GPUs halve it; bob's own mean is told as a time."""
    given = asked(*FOUR)
    lines = run_time_terms(Additive(), given, 1)
    assert lines[0].startswith("run time 00:2") or lines[0].startswith("run time 00:3")
    assert "mean of the user" in lines[1] and len(lines) == 6
    assert any(line.endswith("for GPUs: 4") for line in lines)
    assert any(line.endswith("for weekday: Thursday, UTC") for line in lines)
    factors = [float(line.split()[1]) for line in lines[1:]]
    strength = [max(factor, 1 / max(factor, 0.005)) for factor in factors]
    assert strength == sorted(strength, reverse=True)


def planner(name: str) -> Planner:
    return Planner.from_config(parse_config({"policy": {"name": name}}))


def test_expected__is_what_the_planner_of_lucid_tells() -> None:
    """By the estimator of its policy."""
    given = asked(*FOUR)
    assert run_time_terms(planner("lucid"), given, 1) == run_time_terms(Additive(), given, 1) != ()


def test_expected__nothing_to_tell() -> None:
    """A policy without an estimator, one that has learnt nothing, and no planner at all."""
    given = replace(asked(*FOUR), past=Past.build(0, {}))
    assert run_time_terms(planner("fifo"), given, 0) == run_time_terms(None, given, 0) == ()
    assert run_time_terms(planner("lucid"), given, 0) == ()


def test_expected__tells_what_is_not_known_of_a_stranger() -> None:
    """A user of whom nothing ended."""
    lines = run_time_terms(Additive(), asked(("eve", 1)), 0)
    assert sum(line.endswith("none is known") for line in lines) == 2
