"""Continuous LAS in one and two dimensions."""

from __future__ import annotations

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
