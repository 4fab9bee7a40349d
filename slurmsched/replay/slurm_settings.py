"""A site's slurm.conf as the numbers of the slurmctld model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from slurmsched.errors import ConfigError

MINUTE_S = 60.0
BEFORE = 26  # of the year of 26.05: it chooses a single node, and guesses starts, in another way than 24.11 does
# SchedulerParameters -> field of SlurmModel, unit of Slurm's number [s], 0 for counts.
_PARAMETERS: dict[str, tuple[str, float]] = {
    "batch_sched_delay": ("batch_sched_delay_s", 1), "sched_interval": ("sched_interval_s", 1),
    "default_queue_depth": ("queue_depth", 0), "bf_interval": ("bf_interval_s", 1),
    "bf_window": ("bf_window_s", MINUTE_S), "bf_resolution": ("bf_resolution_s", 1),
    "bf_max_job_test": ("bf_max_job_test", 0), "bf_max_job_array_resv": ("bf_max_job_array_resv", 0),
    "bf_node_space_size": ("bf_node_space_size", 0), "bf_max_job_user": ("bf_max_job_user", 0),
    "bf_max_job_part": ("bf_max_job_part", 0),
    "bf_max_job_user_part": ("bf_max_job_user_part", 0), "bf_max_job_start": ("bf_max_job_start", 0),
    "requeue_delay": ("requeue_delay_s", 1),
}  # fmt: skip
_WEIGHTS = {
    "PriorityWeightAge": "weight_age", "PriorityWeightJobSize": "weight_job_size",
    "PriorityWeightPartition": "weight_partition", "PriorityWeightQOS": "weight_qos",
    "PriorityWeightFairShare": "weight_fairshare",
}  # fmt: skip
_TRES = ("gres/gpu", "cpu", "mem")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", re.ASCII)
_EPILOG = re.compile(r"Epilog(\[\d+\])?")
_SECONDS = re.compile(r"(\d+)(?: sec)?", re.ASCII)


def scheduler(settings: Mapping[str, str]) -> dict[str, Any]:
    """SchedulerType and SchedulerParameters as fields of SlurmModel. Raises ConfigError."""
    given = dict(part.partition("=")[::2] for part in settings.get("SchedulerParameters", "").split(",") if part)
    values: dict[str, Any] = {}
    for key, (name, unit_s) in _PARAMETERS.items():
        if key in given:
            number = _number(f"SchedulerParameters.{key}", given[key])
            values[name] = number * unit_s if unit_s else int(number)
    values["defer"] = not {"defer", "defer_batch"}.isdisjoint(given)
    if not settings.get("SchedulerType", "sched/backfill").endswith("backfill"):
        values["backfill"] = "none"
    year = settings.get("SLURM_VERSION", "").partition(".")[0]
    values["shortest_run"] = values["last_of_all"] = year.isdecimal() and int(year) < BEFORE
    values["has_epilog"] = any(_EPILOG.fullmatch(key) and text != "(null)" for key, text in settings.items())
    expire = re.search(r"cred_expire=(\d+)", settings.get("AuthInfo", ""))
    if expire and "requeue_delay_s" not in values:
        values["requeue_delay_s"] = float(expire[1])
    return values


def priority(settings: Mapping[str, str]) -> dict[str, Any]:
    """Weights of priority/multifactor as fields of SlurmModel, and how usage fades; association's is left out."""
    values: dict[str, Any] = {"base_priority": 0}
    for key, name in _WEIGHTS.items():
        values[name] = int(_number(key, settings.get(key, "0")))
    tres = dict(part.lower().partition("=")[::2] for part in settings.get("PriorityWeightTRES", "").split(","))
    values["weight_tres"] = tuple(_number("PriorityWeightTRES", tres.get(name, "0")) for name in _TRES)
    values["favor_small"] = settings.get("PriorityFavorSmall", "no").lower() == "yes"
    values |= _read(settings, {"PriorityMaxAge": "max_age_s", "PriorityCalcPeriod": "calc_period_s",
                               "PriorityDecayHalfLife": "decay_half_life_s"}, _time_s)  # fmt: skip
    values |= _read(settings, {"FairShareDampeningFactor": "damping"}, _number)
    flags = {flag.strip().upper() for flag in settings.get("PriorityFlags", "").split(",")}
    enforced = {word.strip().lower() for word in settings.get("AccountingStorageEnforce", "").split(",")}
    values |= {"fair_tree": "NO_FAIR_TREE" not in flags, "billing_max": "MAX_TRES" in flags}
    values["safe_limits"] = not enforced.isdisjoint({"safe", "all"})
    return values | {"usage_reset": settings.get("PriorityUsageResetPeriod", "none").lower()}


def times(settings: Mapping[str, str]) -> dict[str, Any]:
    """KillWait and MinJobAge as fields of SlurmModel."""
    return _read(settings, {"KillWait": "kill_wait_s", "MinJobAge": "min_job_age_s"}, _time_s)


def _read(settings: Mapping[str, str], names: Mapping[str, str], value: Callable[[str, str], float]) -> dict[str, Any]:
    return {name: value(key, settings[key]) for key, name in names.items() if key in settings}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"is {text!r}, not a number; give the output of `scontrol show config`", key=key) from None


def _time_s(key: str, text: str) -> float:
    """Seconds of "30 sec", "7-00:00:00" or "00:05:00", as `scontrol show config` prints them."""
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * MINUTE_S + seconds
    if match := _SECONDS.fullmatch(text):
        return float(match[1])
    raise ConfigError(f"is {text!r}, not a time; give the output of `scontrol show config`", key=key)
