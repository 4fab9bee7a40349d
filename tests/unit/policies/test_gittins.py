"""1D and 2D-Gittins: the index on a distribution small enough to redo by hand, and the order it makes."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model import Past
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.policies.gittins import Gittins, gittins_index
from slurmsched.testing import check_policy, mixed_snapshot, snapshot

HISTORY = np.array([4.0, 8.0, 12.0])


@pytest.mark.parametrize(
    ("attained", "delta", "index"),
    [
        (0.0, 4.0, (1 / 3) / 4),  # 4 of {4, 8, 12} ends; each is served min(S, 4) = 4
        (0.0, 8.0, (2 / 3) / ((4 + 8 + 8) / 3)),
        (0.0, 12.0, 1 / 8),  # all end; mean of 4, 8, 12
        (4.0, 4.0, (1 / 2) / 4),  # of {8, 12} the 8 ends; each is served 4 more
        (4.0, 8.0, 1 / ((4 + 8) / 2)),
        (6.0, 4.0, (1 / 2) / ((2 + 4) / 2)),
        (8.0, 4.0, 1 / 4),
        (8.0, 3.0, 0.0),  # nothing ends within 3
        (12.0, 4.0, 0.0),  # at the last sample
        (50.0, 4.0, 0.0),  # beyond it
    ],
)
def test_gittins_index__agrees_with_hand(attained: float, delta: float, index: float) -> None:
    """P(S - a <= delta | S > a) / E[min(S - a, delta) | S > a] on S in {4, 8, 12}, each equally likely."""
    assert gittins_index(HISTORY, np.array([attained]), delta)[0] == pytest.approx(index, rel=1e-15)


def test_gittins__likelier_end_goes_first() -> None:
    """With S in {4, 8, 12} a job at 8 (index 1/4) goes before one at 4 (1/8) and one at 0 (1/12)."""
    rows = [{"attained_gpu_s": attained} for attained in (0.0, 4.0, 8.0, 12.0)]
    given = snapshot(rows, history_gpu_s=HISTORY)
    assert Gittins((), delta_gpu_s=4.0, least_samples=3).rank(given).order.tolist() == [2, 1, 0, 3]


def test_gittins__queue_goes_before_index() -> None:
    """Inside discretized queues the index orders only jobs of one queue."""
    rows = [{"attained_gpu_s": attained} for attained in (0.0, 4.0, 8.0, 12.0)]
    given = snapshot(rows, history_gpu_s=HISTORY)
    assert Gittins((6.0,), delta_gpu_s=4.0, least_samples=3).rank(given).order.tolist() == [1, 0, 2, 3]


def test_gittins__short_history_falls_back_and_says_so() -> None:
    """Below least_samples the order is discretized-las by submission, with a note."""
    given = mixed_snapshot(60, seed=4)
    ranking = Gittins(least_samples=1_000).rank(given)
    assert ranking.order.tolist() == DiscretizedLas(fifo_by="submit").rank(given).order.tolist()
    assert ranking.notes == ("200 completed jobs known, 1000 needed: ordered as discretized-las",)


@pytest.mark.parametrize(
    ("parameters", "key"),
    [({"delta_gpu_s": 0.0}, "policy.delta_gpu_s"), ({"least_samples": 0}, "policy.least_samples"),
     ({"thresholds_gpu_s": (2.0, 1.0)}, "policy.thresholds_gpu_s"),
     ({"dimension": "3d"}, "policy.dimension")],
)  # fmt: skip
def test_gittins__refuses_bad_parameters(parameters: dict[str, object], key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Gittins(**parameters)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_gittins__conforms() -> None:
    """Every rule of check_policy."""
    assert check_policy(Gittins()) is None


def test_gittins__promotes_a_job_that_waited_as_long_as_it_ran() -> None:
    """With knob 1 a job that ran 4,000 s is back in queue 0 after 4,000 s of waiting, with the index of a new one."""
    rows = [{"job_id": 1, "executed_s": 4_000.0, "waiting_s": 4_000.0}, {"job_id": 2, "submit_s": 9.0}]
    given = snapshot(rows, now_s=9_000.0, history_gpu_s=[100.0, 5_000.0, 9_000.0])
    stays, returns = Gittins(least_samples=1).rank(given), Gittins(least_samples=1, promote_knob=1.0).rank(given)
    assert [ranking.why["queue"].tolist() for ranking in (stays, returns)] == [[1, 0], [0, 0]]
    assert returns.why["index_per_gpu_s"][0] == returns.why["index_per_gpu_s"][1]
    assert (returns.order.tolist(), stays.order.tolist()) == ([0, 1], [1, 0])


def test_gittins__looks_again_when_a_promotion_is_due() -> None:
    """A job that ran 4,000 s and has waited 1,000 s is promoted 3,000 s from now."""
    given = snapshot([{"executed_s": 4_000.0, "waiting_s": 1_000.0}], now_s=5_000.0)
    policy = Gittins(promote_knob=1.0)
    assert policy.next_change_s(given, policy.rank(given), np.array([False])) == 8_000.0


def test_gittins__1d_counts_run_time_whatever_the_gpus() -> None:
    """Completed jobs ran 4, 8 and 12 s: one that ran 4 s has (1/2) / 4, one that ran 8 s has 1 / 4, for 1 or 8 GPUs."""
    past = Past.build(4, {"executed_s": [12.0, 4.0, 8.0, 99.0], "completed": [True, True, True, False],
                          "end_s": [1.0, 2.0, 3.0, 4.0]})  # fmt: skip
    rows = [
        {"job_id": 1, "gpus": 8, "executed_s": 4.0, "attained_gpu_s": 32.0},
        {"job_id": 2, "gpus": 1, "executed_s": 8.0, "attained_gpu_s": 8.0},
    ]
    one = Gittins(thresholds_gpu_s=(), delta_gpu_s=4.0, least_samples=3, dimension="1d")
    made = one.rank(snapshot(rows, past=past, history_gpu_s=[1e6] * 9))
    assert made.order.tolist() == [1, 0]
    assert [pytest.approx((1 / 2) / 4), pytest.approx(1 / 4)] == made.why["index_per_s"].tolist()
    assert made.why["queue"].tolist() == [0, 0]


def test_gittins__1d_drops_a_queue_by_run_time() -> None:
    """A job that ran 10 s on 2 GPUs reaches a threshold of 30 in 20 s; in 2d in 5 s."""
    rows = [{"job_id": 1, "gpus": 2, "state": "running", "executed_s": 10.0, "attained_gpu_s": 20.0}]
    given, running = snapshot(rows, now_s=100.0), np.array([True])
    one, two = (Gittins(thresholds_gpu_s=(30.0,), dimension=each) for each in ("1d", "2d"))
    assert one.next_change_s(given, one.rank(given), running) == 120.0
    assert two.next_change_s(given, two.rank(given), running) == 105.0


@pytest.mark.parametrize("knob", [2.0, float("inf")])
def test_gittins__1d_conforms_and_asks_for_the_past(knob: float) -> None:
    """Only run times are learnt from the past: the GPU seconds of 2d come from the ledger."""
    one = Gittins(dimension="1d", promote_knob=knob)
    check_policy(one)
    assert registry.learns(one)
    assert not registry.learns(Gittins(promote_knob=knob))
