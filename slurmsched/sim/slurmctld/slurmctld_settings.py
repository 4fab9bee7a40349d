"""How slurmctld behaves in time, as numbers; and the ideal cluster of the simulators of papers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model.durations import MINUTE_S
from slurmsched.model.slurm_text import setting_s

RESETS = ("none", "now", "daily", "weekly", "monthly", "quarterly", "yearly")


@dataclass(frozen=True, slots=True)
class SlurmctldSettings:
    """slurmctld's delays, limits and weights; defaults are Slurm's own, but for the priority ones. Times in seconds.

    epoch_s: Unix time of the model's 0.
    tick_s: slurmctld's clock counts in these, and as often it looks whether a pass is asked for: for the main scheduler
        at whole multiples of it, for backfill at bf_phase_s, bf_phase_s + tick_s, ..., never before.
    batch_sched_delay_s: least time between two main passes that were asked for.
    has_epilog: with an Epilog the end of a job starts a pass of its own at once, unless `defer` is set; without one it
        asks for the next.
    sched_interval_s: between two passes over the whole queue, of which one is at sched_phase_s; the others look at the
        first queue_depth records.
    backfill: "slurm" as slurmctld does, "easy" reserves for the first job only, "none" leaves the main scheduler alone.
    bf_clock: while jobs wait, backfill passes come every bf_interval_s by a clock of their own, as slurmctld's do; on
        for a site's settings. Else a change brings the next pass at once where the last is that long ago.
    bf_interval_s: from a backfill pass to the next.
    bf_window_s: how far ahead reservations go.
    bf_resolution_s: slots of reservations are rounded to it.
    bf_max_job_test: jobs looked at.
    bf_max_job_array_resv: tasks of an array that get a reservation.
    bf_node_space_size: records of reservations, at which a pass ends, 0 = bf_max_job_test.
    bf_max_job_user, bf_max_job_part, bf_max_job_user_part, bf_max_job_start: per pass, 0 = no limit.
    bf_min_age_reserve_s, bf_min_prio_reserve: age and priority from which a job gets a reservation.
    preempt_type: PreemptType.
    preempt_mode: how a preempted job ends whose partition or QOS has no mode of its own.
    preempt_exempt_s: how long a job runs before it may be preempted.
    shortest_run: a job of one node takes it from the shortest run of neighbouring nodes that fit, as Slurm 24.11 does;
        else the lowest that fits.
    last_of_all: backfill has a job begin when the last of the running jobs that it took away ends, wherever that runs,
        as Slurm 24.11 does; else the last of those on the nodes that the job gets.
    weight_*: PriorityWeight*.
    max_age_s: PriorityMaxAge.
    favor_small: PriorityFavorSmall.
    calc_period_s: ages are brought up to date this often.
    base_priority: what the other factors add, equal for all.
    decay_half_life_s: PriorityDecayHalfLife, 0 = usage never fades.
    usage_reset: PriorityUsageResetPeriod, "none", "now", "daily", "weekly", "monthly", "quarterly" or "yearly".
    fair_tree: unless NO_FAIR_TREE.
    damping: FairShareDampeningFactor.
    billing_max: PriorityFlags=MAX_TRES.
    safe_limits: AccountingStorageEnforce=safe, a job starts only if what its limits leave lasts to its end.
    submit_late_s: a job comes so much after its recorded Submit, which sacct rounds down to a second; half a second for
        a site's settings.
    epilog_s: from the end of a job to the return of what it held, a second for a site's settings.
    kill_wait_s: from a requeue to that.
    message_timeout_s: MessageTimeout; so long after KillWait a pass may end jobs that have had their GraceTime.
    requeue_delay_s: from then until it may start again (cred_expire; from 25.11 on requeue_delay).
    time_limit_check_s: a job is found over its limit at most this much late. A run beyond its time limit ends half of
        it late. One whose GPU minutes or wall time are used up ends at the next whole multiple.
    rpc_latency_s, writes_per_s: each lever we write takes effect so long after it was planned, and that many a second;
        0 writes a second = all at once. Steps of preemptions take effect at once: each waits for the answer before it.
    min_job_age_s: how long an ended job is shown.
    restart_cost_s: run time without progress after every restart.
    checkpoint_s: progress made in a run survives in steps of this; 0 = all that was made until the requeue, infinite =
        nothing but what a signal saved.
    save_s: from the signal that a job's ckpt hint asks for until the work it had done by then is safe; it works on
        meanwhile.
    leaves_saved: it requeues itself then; else it works until it is told to go.
    resizes: a running job that is asked for another size requeues itself at its next checkpoint. Jobs report their
        progress.
    serial: share of a job's work that other numbers of GPUs do not change, by Amdahl's law.
    """

    epoch_s: float = 0.0
    tick_s: float = 1.0
    bf_phase_s: float = 0.0
    batch_sched_delay_s: float = 3.0
    sched_interval_s: float = 60.0
    sched_phase_s: float = 0.0
    queue_depth: int = 100
    has_epilog: bool = False
    defer: bool = False
    backfill: Literal["slurm", "easy", "none"] = "slurm"
    bf_interval_s: float = 30.0
    bf_clock: bool = False
    bf_window_s: float = 86_400.0
    bf_resolution_s: float = 60.0
    bf_max_job_test: int = 500
    bf_max_job_array_resv: int = 20
    bf_node_space_size: int = 0
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_start: int = 0
    bf_min_age_reserve_s: float = 0.0
    bf_min_prio_reserve: int = 0
    preempt_type: Literal["none", "partition", "qos"] = "none"
    preempt_mode: Literal["off", "cancel", "requeue"] = "off"
    preempt_exempt_s: float = 0.0
    shortest_run: bool = False
    last_of_all: bool = False
    weight_age: int = 1_000
    weight_job_size: int = 0
    weight_partition: int = 0
    weight_qos: int = 0
    weight_tres: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of GPUs, CPUs and memory
    weight_fairshare: int = 0
    decay_half_life_s: float = 7 * 86_400.0
    usage_reset: str = "none"
    fair_tree: bool = True
    damping: float = 1.0
    billing_max: bool = False
    safe_limits: bool = False
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    calc_period_s: float = 300.0
    base_priority: int = 10_000
    submit_late_s: float = 0.0
    epilog_s: float = 0.0
    kill_wait_s: float = 30.0
    message_timeout_s: float = 10.0
    requeue_delay_s: float = 120.0
    time_limit_check_s: float = 30.0
    rpc_latency_s: float = 0.0
    writes_per_s: float = 0.0
    min_job_age_s: float = 300.0
    restart_cost_s: float = 30.0
    checkpoint_s: float = 0.0
    save_s: float = 10.0
    leaves_saved: bool = False
    resizes: bool = False
    serial: float = 0.02

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, str | tuple) and "phase" not in name and not value >= 0:
                raise ConfigError(f"must not be negative, got {value}", key=f"model.{name}")
        if self.backfill not in ("slurm", "easy", "none"):
            raise ConfigError(f'must be "slurm", "easy" or "none", got {self.backfill!r}', key="model.backfill")
        if self.serial > 1:
            raise ConfigError(f"must be at most 1, got {self.serial}", key="model.serial")
        if not self.damping > 0:
            raise ConfigError(f"must be above 0, got {self.damping}", key="model.damping")
        if 0 < self.decay_half_life_s < 1:
            raise ConfigError(f"must be 0 or at least 1, got {self.decay_half_life_s}", key="model.decay_half_life_s")
        if self.usage_reset not in RESETS:
            raise ConfigError(f"must be one of {', '.join(RESETS)}, got {self.usage_reset!r}", key="model.usage_reset")

    @property
    def preemption_text(self) -> str:
        """What a requeue costs a job, as text."""
        if math.isinf(self.checkpoint_s):
            kept = "loses all its work"
        else:
            kept = f"keeps its work in steps of {self.checkpoint_s:g} s" if self.checkpoint_s else "keeps all its work"
        if not self.checkpoint_s and not self.restart_cost_s:
            return "free but for the requeue delay: a job keeps all its work"
        return f"a job {kept} and restarts in {self.restart_cost_s:g} s"

    def whole_ticks(self, time_s: Any) -> Any:
        """The time as slurmctld's clock has it: whole ticks of Unix time, rounded down. A number or an array."""
        return self.floor(time_s, self.tick_s)

    def floor(self, time_s: Any, step_s: float) -> Any:
        """The time rounded down to a multiple of step_s in Unix time; unchanged if step_s is 0."""
        if not step_s:
            return time_s
        phase_s = -self.epoch_s % step_s
        return np.floor((time_s - phase_s) / step_s + 1e-9) * step_s + phase_s

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **others: float) -> SlurmctldSettings:
        """The model of a site: `scontrol show config` as slurm.site.parse_settings gives it.

        others: fields that slurm.conf does not tell (epilog_s, rpc_latency_s, restart_cost_s, ...).
        Raises ConfigError for a value that is not Slurm's, naming its key.
        """
        values = scheduler_settings(settings) | priority_settings(settings)
        return cls(**(values | time_settings(settings) | others))


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of SlurmctldSettings by name, as given. Raises ConfigError for an unknown name or no number."""
    known = {spec.name: spec.default for spec in fields(SlurmctldSettings)}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"is no setting of the model; there are {', '.join(known)}", key=f"model.{name}")
        if isinstance(known[name], bool) and not isinstance(value, bool):
            raise ConfigError(f"must be true or false, got {value!r}", key=f"model.{name}")
        if isinstance(known[name], int | float) and not isinstance(value, int | float):
            raise ConfigError(f"must be a number, got {value!r}", key=f"model.{name}")
    return dict(given)


def ideal(backfill: Literal["easy", "none"] = "none") -> SlurmctldSettings:
    """The cluster of papers' simulators: every event is acted on at once, nothing costs time, order is by submit."""
    return SlurmctldSettings(
        tick_s=0.0, batch_sched_delay_s=0.0, sched_interval_s=0.0, queue_depth=10**9, backfill=backfill,
        bf_interval_s=0.0, bf_window_s=math.inf, bf_resolution_s=0.0, bf_max_job_test=10**9, weight_age=0,
        kill_wait_s=0.0, requeue_delay_s=0.0, time_limit_check_s=0.0, restart_cost_s=0.0,
    )  # fmt: skip


# A site's slurm.conf as the numbers of the slurmctld model.

WITHIN_SECOND_S = 0.5  # the mean of what sacct leaves off
LEAST_EPILOG_S = 1.0  # slurmctld counts in seconds, and a node is never back in the second in which its job ends
BEFORE = 26  # of the year of 26.05: it chooses a single node, and guesses starts, in another way than 24.11 does
# SchedulerParameters -> field of SlurmctldSettings, unit of Slurm's number [s], 0 for counts.
_PARAMETERS: dict[str, tuple[str, float]] = {
    "batch_sched_delay": ("batch_sched_delay_s", 1), "sched_interval": ("sched_interval_s", 1),
    "default_queue_depth": ("queue_depth", 0), "bf_interval": ("bf_interval_s", 1),
    "bf_window": ("bf_window_s", MINUTE_S), "bf_resolution": ("bf_resolution_s", 1),
    "bf_max_job_test": ("bf_max_job_test", 0), "bf_max_job_array_resv": ("bf_max_job_array_resv", 0),
    "bf_node_space_size": ("bf_node_space_size", 0), "bf_max_job_user": ("bf_max_job_user", 0),
    "bf_max_job_part": ("bf_max_job_part", 0),
    "bf_max_job_user_part": ("bf_max_job_user_part", 0), "bf_max_job_start": ("bf_max_job_start", 0),
    "bf_min_age_reserve": ("bf_min_age_reserve_s", 1), "bf_min_prio_reserve": ("bf_min_prio_reserve", 0),
    "requeue_delay": ("requeue_delay_s", 1),
}  # fmt: skip
_WEIGHTS = {
    "PriorityWeightAge": "weight_age", "PriorityWeightJobSize": "weight_job_size",
    "PriorityWeightPartition": "weight_partition", "PriorityWeightQOS": "weight_qos",
    "PriorityWeightFairShare": "weight_fairshare",
}  # fmt: skip
_TRES = ("gres/gpu", "cpu", "mem")
_EPILOG = re.compile(r"Epilog(\[\d+\])?")


def scheduler_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """SchedulerType and SchedulerParameters as fields of SlurmctldSettings. Raises ConfigError."""
    given = dict(part.partition("=")[::2] for part in settings.get("SchedulerParameters", "").split(",") if part)
    values: dict[str, Any] = {}
    for key, (name, unit_s) in _PARAMETERS.items():
        if key in given:
            number = _number(f"SchedulerParameters.{key}", given[key])
            values[name] = number * unit_s if unit_s else int(number)
    values |= {"bf_clock": True, "submit_late_s": WITHIN_SECOND_S, "epilog_s": LEAST_EPILOG_S}
    values["defer"] = not {"defer", "defer_batch"}.isdisjoint(given)
    if not settings.get("SchedulerType", "sched/backfill").endswith("backfill"):
        values["backfill"] = "none"
    year = settings.get("SLURM_VERSION", "").partition(".")[0]
    values["shortest_run"] = values["last_of_all"] = year.isdecimal() and int(year) < BEFORE
    values |= _preemption(settings)
    values["has_epilog"] = any(_EPILOG.fullmatch(key) and text != "(null)" for key, text in settings.items())
    expire = re.search(r"cred_expire=(\d+)", settings.get("AuthInfo", ""))
    if expire and "requeue_delay_s" not in values:
        values["requeue_delay_s"] = float(expire[1])
    return values


def _preemption(settings: Mapping[str, str]) -> dict[str, Any]:
    """PreemptType, PreemptMode and PreemptExemptTime. Suspension is not modelled: then nobody preempts."""
    kinds: dict[str, Any] = {"preempt/partition_prio": "partition", "preempt/qos": "qos"}
    kind, modes = kinds.get(settings.get("PreemptType", "").lower(), "none"), settings.get("PreemptMode", "off").lower()
    if kind == "none" or "suspend" in modes:
        return {}
    mode = next((name for name in ("requeue", "cancel") if name in modes), "off")
    exempt = settings.get("PreemptExemptTime", "")
    exempt_s = 0.0 if exempt in ("", "NONE", "-1") else _time_s("PreemptExemptTime", exempt)
    return {"preempt_type": kind, "preempt_mode": mode, "preempt_exempt_s": exempt_s}


def priority_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Weights of priority/multifactor as fields of SlurmctldSettings, and how usage fades. No association weight."""
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


def time_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """KillWait, MessageTimeout and MinJobAge as fields of SlurmctldSettings."""
    names = {"KillWait": "kill_wait_s", "MessageTimeout": "message_timeout_s", "MinJobAge": "min_job_age_s"}
    return _read(settings, names, _time_s)


def _read(settings: Mapping[str, str], names: Mapping[str, str], value: Callable[[str, str], float]) -> dict[str, Any]:
    return {name: value(key, settings[key]) for key, name in names.items() if key in settings}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"is {text!r}, not a number; give the output of `scontrol show config`", key=key) from None


def _time_s(key: str, text: str) -> float:
    """Seconds of a time as `scontrol show config` prints it."""
    seconds = setting_s(text)
    if math.isnan(seconds):
        raise ConfigError(f"is {text!r}, not a time; give the output of `scontrol show config`", key=key)
    return seconds
