"""Kernels run compiled or plain, alike."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numba
import numpy as np
import pytest

from slurmsched.kernels._jit import kernel, kernel_part


@kernel
def twice(values: np.ndarray) -> np.ndarray:
    return 2 * values


@kernel_part
def one_more(value: float) -> float:
    return value + 1


@kernel
def four_times_and_one(values: np.ndarray) -> float:
    return one_more(twice(twice(values)).sum())


def test_kernel__may_call_kernels() -> None:
    """Kernels and parts are compiled into the one that calls them; a part alone stays a Python function."""
    assert four_times_and_one(np.arange(3.0)) == 13.0
    assert one_more([1].pop()) == 2


def test_kernel__runs_plain_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMBA_DISABLE_JIT=1 gives the function itself: here one numba could not compile."""
    monkeypatch.setitem(os.environ, "NUMBA_DISABLE_JIT", "1")
    sizes = kernel(lambda values: {"rows": len(values)})
    assert sizes(np.arange(3)) == {"rows": 3}
    assert kernel(lambda first, second: {first: second})(1, 2) == {1: 2}


def test_kernel__is_compiled_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cron job without a home must not fail for want of a folder; it compiles each time."""
    njit = numba.njit

    def without_cache(*, cache: bool = False, **settings: bool) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'thrice': no locator available")
        return njit(**settings)

    monkeypatch.setattr(numba, "njit", without_cache)
    monkeypatch.setitem(os.environ, "NUMBA_DISABLE_JIT", "0")
    thrice = kernel(lambda values: 3 * values)
    assert thrice(np.arange(3.0)).tolist() == [0.0, 3.0, 6.0]


def test_kernel__of_a_short_queue_does_not_load_numba() -> None:
    """Spacing a few jobs anew runs plain, down to the kernels that kernels call."""
    script = """
import sys
import numpy as np
from slurmsched.kernels.nice_spacing import keep_with_margin
stays = keep_with_margin(np.array([9_000, 1, 5_000, 4_999]), np.array([True, False, True, True]), 10, 1, 10_000)
assert "numba" not in sys.modules
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_kernel__called_again_and_again_loads_numba_in_the_end() -> None:
    """A daemon with a queue of some length: its calls have cost what numba costs. Calls of a few rows never do."""
    script = """
import sys
import numpy as np
from slurmsched.kernels import _jit
from slurmsched.kernels.nice_spacing import keep_with_margin
_jit.MANY_ROWS = 4 * _jit.FEW_ROWS
asked = []
for rows in [_jit.FEW_ROWS - 1] * 10 + [_jit.FEW_ROWS] * 5:
    keep_with_margin(np.zeros(rows, np.int64), np.ones(rows, np.bool_), 10, 1, 10_000)
    asked.append("numba" in sys.modules)
assert asked == [False] * 14 + [True], asked
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_kernel__of_a_cold_process_orders_as_a_compiled_one() -> None:
    """2D-LAS without numba (numpy's sort) gives the order and the memory it gives with it."""
    script = """
import sys
from slurmsched.kernels import _jit
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.testing.builders import mixed_snapshot
given, policy = mixed_snapshot(60, seed=1), DiscretizedLas()
cold = policy.rank(given)
assert "numba" not in sys.modules
_jit.load()
warm = policy.rank(given)
assert cold.order.tolist() == warm.order.tolist()
assert dict(cold.carry) == dict(warm.carry)
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
