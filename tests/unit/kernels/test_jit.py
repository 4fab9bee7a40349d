"""Kernels run compiled or plain, alike."""

from __future__ import annotations

import os

import numpy as np
import pytest

from slurmsched.kernels._jit import kernel


@kernel
def twice(values: np.ndarray) -> np.ndarray:
    return 2 * values


@kernel
def four_times(values: np.ndarray) -> np.ndarray:
    return twice(twice(values))


def test_kernel__may_call_kernels() -> None:
    """Those it calls are compiled into it; the plain function stays at hand."""
    values = np.arange(3.0)
    assert four_times(values).tolist() == four_times.plain(values).tolist() == [0.0, 4.0, 8.0]


def test_kernel__runs_plain_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMBA_DISABLE_JIT=1 gives the function itself: here one numba could not compile."""
    monkeypatch.setitem(os.environ, "NUMBA_DISABLE_JIT", "1")
    sizes = kernel(lambda values: {"rows": len(values)})
    assert sizes(np.arange(3)) == {"rows": 3}
