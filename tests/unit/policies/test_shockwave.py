"""Shockwave: the example of its page, beliefs about batch sizes, fair ends, and the market."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.allocation.fisher_market import (
    RoundBuyers,
    RoundOffer,
    buy_rounds,
    fair_ends,
    jobs_of_rounds,
    remaining_work,
)
from slurmsched.errors import ConfigError
from slurmsched.policies.shockwave import Shockwave
from slurmsched.testing import snapshot

PAGE = snapshot(
    [{"job_id": n, "comment": f"slurmsched: dur=50m progress={0 if n < 5 else 8}/10"} for n in range(1, 7)], "1x2"
)


def offer(**others: float) -> RoundOffer:
    made = {"rounds": 2, "gpus": 2.0, "round_s": 600.0, "now_s": 0.0, "k": 1e-3, "power": 12.0, "rho_max": 1.0}
    return RoundOffer(**{**made, **others})  # type: ignore[arg-type]


def buyers(done: list[float], fair_s: float = 9_000.0) -> RoundBuyers:
    share, count = np.array(done), len(done)
    whole = np.full(count, 3_000.0)
    return RoundBuyers(np.ones(count, np.int64), share, (1 - share) * whole, whole, np.full(count, fair_s),
                  np.zeros(count))  # fmt: skip


def test_shockwave__the_example_of_the_page() -> None:
    """Jobs that begin buy a round each; 1 and 2 run in the first."""
    ranking = Shockwave(window=2, round_s=600.0).rank(PAGE)
    assert PAGE.jobs.job_id[ranking.why["in_round"] > 0].tolist() == [1, 2]
    assert ranking.carry["window"]["ids"] == [[1, 2], [3, 4]]


def test_shockwave__a_round_stands_until_it_is_over() -> None:
    """Within 600 s the choice stays; then the next round of the window is played."""
    policy = Shockwave(window=2, round_s=600.0)
    carry = policy.rank(PAGE).carry
    played = [policy.rank(replace(PAGE, now_s=now_s, carry=carry)).why["in_round"].tolist() for now_s in (300.0, 600.0)]
    assert played == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]


def test_shockwave__plans_anew_when_a_job_comes() -> None:
    """A window planned for other jobs is not played on."""
    policy = Shockwave(window=2, round_s=600.0)
    carry = policy.rank(PAGE).carry
    one = snapshot([{"job_id": 9, "comment": "slurmsched: dur=50m"}], "1x2", now_s=60.0, carry=carry)
    assert policy.rank(one).carry["window"]["ids"] == [[9], [9]]


def test_bought__all_in_time() -> None:
    """Four places go to the four jobs to which a round is worth most, and nobody weighs more."""
    rounds, weight = buy_rounds(buyers([0.0] * 4 + [0.8] * 2), offer())
    assert (rounds.tolist(), weight.tolist()) == ([1, 1, 1, 1, 0, 0], [1.0] * 6)


def test_bought__late_jobs_weigh_more() -> None:
    """Nobody can be in time: weights are how late a job is by the plan, to the power."""
    _, weight = buy_rounds(buyers([0.0, 0.0, 0.0, 0.0], fair_s=5_000.0), offer(power=2.0))
    assert weight == pytest.approx([(6_000 / 5_000) ** 2] * 4)


@pytest.mark.parametrize("zero_s", [0.0, -1e6, 1.764e9])
def test_shockwave__a_late_job_weighs_more_at_any_clock(zero_s: float) -> None:
    """Job 1 came ten hours before the others and is past its fair end: it buys, whatever the clock counts from."""
    late = {"submit_s": zero_s, "executed_s": 1_800.0, "comment": "slurmsched: dur=1h progress=50/100"}
    rows = [late, *({"submit_s": zero_s + 36_000.0 + n, "comment": "slurmsched: dur=1h"} for n in range(4))]
    ranking = Shockwave(window=2).rank(snapshot(rows, "1x2", now_s=zero_s + 36_060.0))
    assert ranking.why["in_round"].tolist() == [1, 1, 0, 0, 0]


def test_bought__lateness_counts_from_submission() -> None:
    """Who came later took less of its time: of two jobs due at the same time the older one is less late."""
    both = replace(buyers([0.0] * 2, fair_s=1_000.0), came_s=np.array([-9_000.0, 0.0]))
    _, weight = buy_rounds(both, offer(power=2.0, gpus=2.0))
    assert weight == pytest.approx([(12_000 / 10_000) ** 2, (3_000 / 1_000) ** 2])


def test_timetable__within_gpus_and_rounds_as_bought() -> None:
    """No round has more than its GPUs; a job that bought all rounds is in each."""
    made = jobs_of_rounds(np.array([2, 1, 1]), buyers([0.0] * 3), offer(), np.ones(3), np.zeros(3, np.bool_))
    assert made == [[0, 1], [0, 2]]


def test_rest__a_belief_about_batch_sizes(tmp_path: Path) -> None:
    """32 takes 1,000 s and 64 half: first half of each is believed, after half a job with 32 a third of it is."""
    table = tmp_path / "table.csv"
    table.write_text("model,batch,gpus,gpu_type,steps_per_s\nm,32,1,v100,10\nm,64,1,v100,10\n")

    def given(progress: int, carry=None):
        hint = f"slurmsched: model=m batch=32 batches=32:64 progress={progress}/10"
        return snapshot([{"job_id": 1, "comment": hint}], "1x1", carry=carry or {})

    whole_s = np.array([1_000.0])
    before = remaining_work(given(0), whole_s, str(table), "v100")
    after = remaining_work(given(5, dict(before.carry)), whole_s, str(table), "v100")
    assert before.remaining_s.tolist() == pytest.approx([750.0])
    assert (after.remaining_s.tolist(), after.made_s.tolist()) == (pytest.approx([1_000 / 3]), [500.0])


def test_rest__without_hints_the_run_time_counts() -> None:
    """A job of an hour that ran for a quarter of it has three quarters to come."""
    given = snapshot([{"executed_s": 900.0}], "1x1")
    left = remaining_work(given, np.array([3_600.0]), "", "v100")
    assert (left.done.tolist(), left.remaining_s.tolist()) == ([0.25], [2_700.0])


def test_fair_ends__share_of_those_that_are_here() -> None:
    """Six jobs on two GPUs: an hour takes three. The mean over time lags behind when the share grows."""
    jobs = [{"job_id": n} for n in range(1, 7)]
    given = snapshot(jobs, "1x2")
    left = remaining_work(given, np.full(6, 3_600.0), "", "v100")
    first = fair_ends(given, np.ones(6, np.bool_), left)
    alone = snapshot(jobs[:1], "1x2", now_s=100.0, carry=dict(first.carry))
    later = fair_ends(alone, np.ones(1, np.bool_), remaining_work(alone, np.full(1, 3_600.0), "", "v100"))
    assert first.fair_s.tolist() == [10_800.0] * 6
    assert later.fair_s.tolist() == pytest.approx([0.9 * 10_800 + 0.1 * 3_600])


def test_shockwave__says_what_it_does_not_know() -> None:
    """Jobs without an expected run time are counted in one note."""
    assert Shockwave().rank(snapshot([{}], "1x1")).notes == (
        "no expected run time, counted as 3600 s from the end: 1 job",
    )


@pytest.mark.parametrize(("parameters", "key"), [({"window": 0}, "policy.window"), ({"round_s": 0.0}, "policy.round_s"),
                                                 ({"k": -1.0}, "policy.k"), ({"fill": 2}, "policy.fill")])  # fmt: skip
def test_shockwave__refuses_bad_parameters(parameters, key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Shockwave(**parameters)
    assert caught.value.key == key
