"""A policy's criteria in words and units: "used 1.0 GPU h, in this queue since 2026-11-30T01:28:00Z"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from slurmsched.model.durations import duration, gpu_hours

# What the planner's own criteria are called; those of a policy are in its PolicyInfo.
WORDS = {
    "decided_by": "decided by {}",
    "over_age_cap": "waited longer than the age cap",
    "joins_shared_gpu": "its part of a shared GPU is free",
    "over_soft_cap": "beyond a soft cap",
    "idle_gpus": "a running job of its user does not use its GPUs",
}
AT, NOT_BELOW_0 = "{at}", "{0+}"  # in place of {}: a Unix time; a number that is not shown below 0


def times_in(words: Mapping[str, str]) -> frozenset[str]:
    """The criteria that are Unix times. words: as PolicyInfo.criteria."""
    return frozenset(name for name, text in words.items() if AT in text)


def criteria(values: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """The criteria of one job in words, without those that are empty. words: as PolicyInfo.criteria."""
    return ", ".join(filter(None, (criterion(name, value, words) for name, value in values.items())))


def criterion(name: str, value: Any, words: Mapping[str, str]) -> str:
    """One criterion; nothing for one that is not known, endless, empty or not the case. Without words: by its name."""
    plain = _name_without_unit(name) if isinstance(value, bool) else f"{_name_without_unit(name)} {{}}"
    text = words.get(name) or WORDS.get(name, plain)
    if "|" in text:
        return _choice(text.split("|"), value)
    if not any(mark in text for mark in ("{}", AT, NOT_BELOW_0)):
        return text if value else ""
    if value == "" or (isinstance(value, float) and not isfinite(value)) or (NOT_BELOW_0 in text and value < 0):
        return ""
    if AT in text:
        return text.replace(AT, f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return text.replace("{}", _value_with_unit(name, value)).replace(NOT_BELOW_0, _value_with_unit(name, value))


def _choice(texts: Sequence[str], value: float) -> str:
    return texts[int(value)] if 0 <= value < len(texts) else ""


def _name_without_unit(name: str) -> str:
    """The name of a criterion without its unit."""
    if "_per_" in name:
        return name.replace("_gpu_s", "_GPU_s").replace("_", " ")
    for unit in ("_gpu_s", "_s"):
        if name.endswith(unit):
            return name.removesuffix(unit).replace("_", " ")
    return name.replace("_", " ")


def _value_with_unit(name: str, value: Any) -> str:
    """A value with its unit, which ends the name."""
    unit = next((show for end, show in _UNITS.items() if name.endswith(end)), None)
    if unit is not None and "_per_" not in name:
        return unit(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_UNITS: dict[str, Callable[[float], str]] = {"_gpu_s": gpu_hours, "_s": duration}
