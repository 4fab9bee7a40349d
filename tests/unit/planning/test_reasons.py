"""A policy's criteria in words."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.planning.reasons import criteria


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"queue": 1, "service_gpu_s": 3_600.0}, "queue 1, service_gpu_s 3600"),
        ({"beside": -1, "rho": float("nan"), "in_lease": False, "queue": -1}, "queue -1"),
        ({"beside": 12_345_678}, "beside 12345678"), ({"in_lease": True}, "in_lease yes"),
    ],
)  # fmt: skip
def test_criteria__leave_out_what_says_nothing(values: dict[str, Any], text: str) -> None:
    """A number that is not known, what is not the case, and beside whom who shares nothing is; ids stay whole."""
    assert criteria(values) == text
