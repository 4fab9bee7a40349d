"""Continuous LAS in one and two dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.policies.las import Las
from slurmsched.testing import check_policy, snapshot

WIDE_AND_LONG = snapshot([{"executed_s": 100.0, "gpus": 8}, {"executed_s": 300.0, "gpus": 1}])


@pytest.mark.parametrize(("dimension", "order"), [("1d", [0, 1]), ("2d", [1, 0])])
def test_las__dimension_decides_whether_gpus_count(dimension: str, order: list[int]) -> None:
    """100 s on 8 GPUs: less run time than 300 s on one, but more service (800 > 300 GPU s)."""
    assert Las(dimension, quantum_gpu_s=0.0).rank(WIDE_AND_LONG).order.tolist() == order


def test_las__jobs_within_a_quantum_keep_fifo_order() -> None:
    """59 and 1 GPU s are both in the first minute, so the older job stays first; 60 is in the next."""
    rows = [{"executed_s": 59.0}, {"executed_s": 1.0}, {"executed_s": 60.0}]
    assert Las(quantum_gpu_s=60.0).rank(snapshot(rows)).order.tolist() == [0, 1, 2]


def test_las__zero_quantum_is_exact() -> None:
    """Without a quantum the least service goes first, however small the difference."""
    rows = [{"executed_s": 59.0}, {"executed_s": 1.0}]
    assert Las(quantum_gpu_s=0.0).rank(snapshot(rows)).order.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("parameters", "key"),
    [({"dimension": "3d"}, "policy.dimension"), ({"quantum_gpu_s": -1.0}, "policy.quantum_gpu_s")],
)
def test_las__refuses_bad_parameters(parameters: dict[str, object], key: str) -> None:
    """A parameter out of range is a ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        Las(**parameters)  # type: ignore[arg-type]
    assert caught.value.key == key


@pytest.mark.parametrize("policy", [Las(), Las("1d"), Las(quantum_gpu_s=0)])
def test_las__conforms(policy: Las) -> None:
    """Every rule of check_policy."""
    assert check_policy(policy) is None


@pytest.mark.parametrize(("waiting_gpu_s", "change_s"), [(300.0, 1_030.0), (600.0, 1_060.0)])
def test_las__changes_when_a_job_may_fall_behind_one_that_waits(waiting_gpu_s: float, change_s: float) -> None:
    """A job at 60 GPU s runs on 8 GPUs. It meets one that waits at 300 after 30 s; minutes before that do not count.

    One that waits at 600, on one GPU, would leave its minute after 60 s if it were let in at once.
    """
    given = snapshot([{"executed_s": 7.5, "gpus": 8}, {"executed_s": waiting_gpu_s, "gpus": 1}], now_s=1_000.0)
    policy = Las(quantum_gpu_s=60.0)
    assert policy.next_swap_s(given, policy.rank(given), np.array([True, False])) == change_s
