"""A policy's criteria in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

TIMES = frozenset({"since_s", "started_s", "submit_s"})  # criteria that are Unix seconds
JOBS = frozenset({"beside"})  # criteria that are ids of jobs, -1 = none


def criteria(values: Mapping[str, Any]) -> str:
    """Names and values of one job, "queue 1, service_gpu_s 3600"; those that say nothing are left out."""
    told = ((name, _shown(name, value)) for name, value in values.items())
    return ", ".join(f"{name} {text}" for name, text in told if text)


def _shown(name: str, value: Any) -> str:
    """One value; nothing for one that is not known, endless or not the case."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if name in JOBS and value < 0:
        return ""
    if not isinstance(value, float):
        return str(value)
    if not isfinite(value):
        return ""
    return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}" if name in TIMES else f"{value:.6g}"
