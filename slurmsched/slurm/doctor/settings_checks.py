"""Checks of Slurm's settings that slurmsched depends on.

Source: the manual pages slurm.conf(5), gres.conf(5) and sacctmgr(1), and Slurm's source code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurmsched.model.gres import SHARING
from slurmsched.model.slurm_text import setting_s
from slurmsched.model.snapshot import Rights, Site
from slurmsched.plain_text import pluralize
from slurmsched.planning.priorities.priority_weights import slurm_weights
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.site import operator_line

UNSET = frozenset({"", "(null)", "none", "n/a"})


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The settings of a site, and what slurm.conf does not contain.

    site: settings of slurmctld, and our rights.
    lever, writes_per_s, preemption, node_lists, shares: slurmsched's own configuration, see check_settings.
    gres_conf: text of gres.conf, None if it cannot be read.
    qos_thresholds: MinPrioThres of each QOS that has one.
    job_submit: text of job_submit.lua and of the site's own script that it calls, as far as they can be read.
    """

    site: Site
    lever: str = "nice"
    writes_per_s: float = 100.0
    preemption: bool = False
    gres_conf: str | None = None
    qos_thresholds: Mapping[str, int] = field(default_factory=dict)
    job_submit: tuple[str, ...] = ()
    node_lists: bool = False
    shares: bool = False

    @property
    def release(self) -> tuple[int, int]:
        """Year and month of slurmctld's release; (0, 0) if unknown."""
        found = re.match(r"(\d+)\.(\d+)", self.site.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def exempt(self) -> bool:
        """Whether the user is root or SlurmUser, who are exempt from the rate limiter."""
        return self.site.user in ("root", self.text("SlurmUser").partition("(")[0])

    def text(self, key: str) -> str:
        """A setting; "" if it is not set."""
        text = self.site.settings.get(key, "").strip()
        return "" if text.lower() in UNSET else text

    def words(self, key: str) -> dict[str, str]:
        """A comma list of words and word=value: lower-case word -> value, "" without one."""
        pairs = (word.partition("=") for word in self.text(key).split(",") if word)
        return {name.strip().lower(): value for name, _, value in pairs}

    def number(self, key: str) -> float:
        """The first number of a setting such as "300 sec"; NaN if there is none."""
        found = re.match(r"-?\d+", self.text(key))
        return float(found[0]) if found else float("nan")

    def added(self, key: str, word: str) -> str:
        """The line of slurm.conf with this word or word=value added to a comma list, or replaced in it."""
        name = word.partition("=")[0]
        rest = [old for old in self.text(key).split(",") if old and old.partition("=")[0].lower() != name]
        return f"{key}={','.join([*rest, word])}"

    def without(self, key: str, *names: str) -> str:
        """The line of slurm.conf without these words in a comma list."""
        rest = [old for old in self.text(key).split(",") if old and old.partition("=")[0].lower() not in names]
        return f"{key}={','.join(rest)}"

    @property
    def gpu_lines(self) -> list[str]:
        """The lines of gres.conf with Name=gpu, without comments."""
        lines = (line.partition("#")[0].strip() for line in (self.gres_conf or "").splitlines())
        return [line for line in lines if re.search(r"\bName=gpu\b", line, re.I)]


# The checks.

OUR_LUA_MODULE = "slurmsched_hints.lua"  # the module that our job_submit.lua loads
OLDEST = (21, 8)  # the oldest release that the readers are tested with
Verdict = tuple[str, str, str]  # verdict, what was found, the line that changes it


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """One check.

    name: the setting.
    why: one sentence on what it does to scheduling.
    judge: gives the verdict for a site.
    """

    name: str
    why: str
    judge: Callable[[SiteSettings], Verdict]


def check_settings(
    site: Site,
    *,
    lever: str = "nice",
    writes_per_s: float = 100.0,
    preemption: bool = False,
    node_lists: bool = False,
    shares: bool = False,
    gres_conf: str | None = None,
    qos_thresholds: Mapping[str, int] | None = None,
    job_submit: tuple[str, ...] = (),
) -> tuple[CheckResult, ...]:
    """The results of all checks, in a fixed order.

    lever, writes_per_s: as configured.
    preemption: whether slurmsched may requeue jobs.
    node_lists: whether slurmsched gives node lists to pending jobs.
    shares: whether slurmsched gives shards to pending jobs.
    gres_conf, qos_thresholds, job_submit: see SiteSettings.
    """
    settings = SiteSettings(
        site, lever, writes_per_s, preemption, gres_conf, qos_thresholds or {}, job_submit, node_lists, shares
    )
    return tuple(_check_result(check, settings) for check in CHECKS)


def _check_result(check: SettingCheck, settings: SiteSettings) -> CheckResult:
    verdict, detail, remedy = check.judge(settings)
    return CheckResult(check.name, verdict, detail, check.why, "" if verdict == "ok" else remedy)


def _version(settings: SiteSettings) -> Verdict:
    if settings.release == (0, 0):
        return "warn", "slurmctld reports no version", "scontrol version"
    old = settings.release < OLDEST
    return "fail" if old else "ok", settings.site.version, f"Slurm {OLDEST[0]}.{OLDEST[1]:02d} or newer"


def _rights(settings: SiteSettings) -> Verdict:
    user, rights = settings.site.user, settings.site.rights
    verdict = "ok" if rights >= Rights.OPERATOR else "fail"
    return verdict, f"{user} is {rights.name.capitalize()}", operator_line(user)


def _private_data(settings: SiteSettings) -> Verdict:
    hidden = "jobs" in settings.words("PrivateData") or "all" in settings.words("PrivateData")
    blind = hidden and settings.site.rights < Rights.OPERATOR
    return "fail" if blind else "ok", settings.text("PrivateData") or "nothing hidden", _rights(settings)[2]


def _priority_type(settings: SiteSettings) -> Verdict:
    found = settings.text("PriorityType") or "unknown"
    if settings.site.multifactor:
        return "ok", found, ""
    return "fail", found, "PriorityType=priority/multifactor"


def _priority_period(settings: SiteSettings) -> Verdict:
    text = settings.text("PriorityCalcPeriod")
    return "warn" if setting_s(text) > 60 else "ok", text or "unknown", "PriorityCalcPeriod=1"


def _incr_only(settings: SiteSettings) -> Verdict:
    flags = settings.words("PriorityFlags")
    line = settings.without("PriorityFlags", "incr_only", "incremental_only")
    bad = "incr_only" in flags or "incremental_only" in flags
    return "warn" if bad else "ok", settings.text("PriorityFlags") or "no flags", line


def _weights(settings: SiteSettings) -> Verdict:
    total = sum(weight.points for weight in slurm_weights(settings.site.settings))
    negative = settings.site.rights >= Rights.OPERATOR
    detail = f"priority weights add up to {total:g}"
    return "ok" if total > 0 or negative else "fail", detail, "PriorityWeightAge=1000"


def _site_plugin(settings: SiteSettings) -> Verdict:
    plugin = settings.text("PrioritySiteFactorPlugin")
    if not plugin or plugin.endswith("/none"):
        return "ok", "no plug-in", ""
    return "fail" if settings.lever == "site_factor" else "ok", plugin, 'lever = { kind = "nice" }  # slurmsched.toml'


def _bf_continue(settings: SiteSettings) -> Verdict:
    backfill = settings.text("SchedulerType").endswith("backfill")
    ok = "bf_continue" in settings.words("SchedulerParameters") or not backfill
    return (
        "ok" if ok else "fail",
        settings.text("SchedulerParameters") or "no parameters",
        settings.added("SchedulerParameters", "bf_continue"),
    )


def _sched_delay(settings: SiteSettings) -> Verdict:
    delay = settings.words("SchedulerParameters").get("batch_sched_delay", "3")
    return "warn" if delay == "0" else "ok", f"{delay} s", settings.added("SchedulerParameters", "batch_sched_delay=3")


def _bf_min_prio(settings: SiteSettings) -> Verdict:
    floor = settings.words("SchedulerParameters").get("bf_min_prio_reserve", "")
    line = settings.without("SchedulerParameters", "bf_min_prio_reserve")
    return "warn" if floor not in ("", "0") else "ok", floor or "not set", line


def _qos_threshold(settings: SiteSettings) -> Verdict:
    found = ", ".join(f"{qos}={value}" for qos, value in sorted(settings.qos_thresholds.items()))
    first = min(settings.qos_thresholds, default="")
    return "warn" if found else "ok", found or "no QOS has one", f"sacctmgr modify qos {first} set MinPrioThres=-1"


def _preempt_threshold(settings: SiteSettings) -> Verdict:
    floor = settings.words("PreemptParameters").get("min_exempt_priority", "")
    mode = {"priority", "within"} & set(settings.words("PreemptMode"))
    if floor:
        return "warn", f"min_exempt_priority={floor}", settings.without("PreemptParameters", "min_exempt_priority")
    return (
        "warn" if mode else "ok",
        settings.text("PreemptMode") or "OFF",
        settings.without("PreemptMode", "priority", "within"),
    )


def _preempt_type(settings: SiteSettings) -> Verdict:
    both = settings.site.preempts and settings.preemption
    return "warn" if both else "ok", settings.text("PreemptType") or "none", "PreemptType=preempt/none"


def _rate_limit(settings: SiteSettings) -> Verdict:
    words = settings.words("SlurmctldParameters")
    if "rl_enable" not in words:
        return "ok", "off", ""
    rate = float(words.get("rl_refill_rate") or 2) / max(float(words.get("rl_refill_period") or 1), 1.0)
    if settings.exempt:
        return "ok", f"on, but {settings.site.user} is exempt", ""
    line = settings.added("SlurmctldParameters", f"rl_refill_rate={settings.writes_per_s:g}")
    return "ok" if rate >= settings.writes_per_s else "warn", f"on, {rate:g} requests/s for {settings.site.user}", line


def _user_top(settings: SiteSettings) -> Verdict:
    on = "enable_user_top" in settings.words("SchedulerParameters")
    line = settings.without("SchedulerParameters", "enable_user_top")
    return "warn" if on else "ok", "enable_user_top" if on else "off", line


def _job_submit(settings: SiteSettings) -> Verdict:
    plugins = settings.text("JobSubmitPlugins")
    quick = f"if modify_uid is that of {settings.site.user}: return slurm.SUCCESS first in slurm_job_modify"
    if settings.words("JobSubmitPlugins").keys() == {"lua"} and any(
        OUR_LUA_MODULE in text for text in settings.job_submit[:1]
    ):
        site = len(settings.job_submit) > 1
        return "warn" if site else "ok", f"slurmsched's own{' and job_submit_site.lua' if site else ''}", quick
    return "warn" if plugins else "ok", plugins or "none", quick


def _database(settings: SiteSettings) -> Verdict:
    kind = settings.text("AccountingStorageType")
    line = "AccountingStorageType=accounting_storage/slurmdbd"
    return "ok" if kind.endswith("slurmdbd") else "warn", kind or "none", line


def _tracked_gpus(settings: SiteSettings) -> Verdict:
    tracked = "gres/gpu" in settings.words("AccountingStorageTRES")
    line = settings.added("AccountingStorageTRES", "gres/gpu")
    return "ok" if tracked else "warn", settings.text("AccountingStorageTRES") or "defaults only", line


def _tracked_shards(settings: SiteSettings) -> Verdict:
    has = [kind for kind in SHARING if kind in settings.words("GresTypes")] or [SHARING[0]]
    missing = [kind for kind in has if not settings.site.accounts_gres(kind)]
    line = settings.added("AccountingStorageTRES", ",".join(f"gres/{kind}" for kind in missing or has))
    if not settings.shares:
        return "ok", "not needed", line
    return "fail" if missing else "ok", settings.text("AccountingStorageTRES") or "none", line


def _store_flags(settings: SiteSettings) -> Verdict:
    stored = "job_comment" in settings.words("AccountingStoreFlags")
    line = settings.added("AccountingStoreFlags", "job_comment")
    return "ok" if stored else "warn", settings.text("AccountingStoreFlags") or "none", line


def _min_job_age(settings: SiteSettings) -> Verdict:
    return (
        "warn" if settings.number("MinJobAge") < 300 else "ok",
        settings.text("MinJobAge") or "unknown",
        "MinJobAge=300",
    )


def _job_requeue(settings: SiteSettings) -> Verdict:
    off = settings.text("JobRequeue") == "0"
    return "fail" if off and settings.preemption else "ok", "off" if off else "on", "JobRequeue=1"


def _kill_wait(settings: SiteSettings) -> Verdict:
    short = settings.number("KillWait") < 30 and settings.preemption
    return "warn" if short else "ok", settings.text("KillWait") or "unknown", "KillWait=30"


def _requeue_delay(settings: SiteSettings) -> Verdict:
    new = settings.release >= (25, 11)
    key, word = ("SchedulerParameters", "requeue_delay") if new else ("AuthInfo", "cred_expire")
    delay = settings.words(key).get(word, "120")
    line = settings.added(key, f"{word}={5 if new else 30}")
    long = float(delay) > 60 if delay.isdecimal() else True
    return "warn" if long and settings.preemption else "ok", f"{delay} s", line


def _job_shrink(settings: SiteSettings) -> Verdict:
    off = "disable_job_shrink" in settings.words("SchedulerParameters")
    line = settings.added("SchedulerParameters", "disable_job_shrink")
    return (
        "ok" if off or not (settings.preemption or settings.node_lists) else "warn",
        "off" if off else "allowed",
        line,
    )


def _select_type(settings: SiteSettings) -> Verdict:
    found = settings.text("SelectType") or "unknown"
    verdict = {"select/linear": "fail", "select/cons_res": "warn"}.get(found.lower(), "ok")
    return verdict, found, "SelectType=select/cons_tres"


def _memory_given(settings: SiteSettings) -> Verdict:
    text = settings.text("SelectTypeParameters")
    kinds = [word.strip() for word in text.split(",") if word.strip()]
    kinds = [f"{kind}_Memory" if kind.upper() in ("CR_CORE", "CR_CPU", "CR_SOCKET") else kind for kind in kinds]
    line = f"SelectTypeParameters={','.join(kinds)}"
    return "ok" if not text or "MEMORY" in text.upper() else "warn", text or "unknown", line


def _links(settings: SiteSettings) -> Verdict:
    if settings.release < (24, 5):
        return "ok", "best linked GPUs first", ""
    if settings.gres_conf is None:
        return "warn", "gres.conf is not readable from here", "look for Links= in gres.conf"
    linked = [line for line in settings.gpu_lines if re.search(r"\bLinks=", line, re.I)]
    detail = f"{pluralize(len(linked), 'GPU line')} with Links=" if linked else "no Links="
    return "warn" if linked else "ok", detail, "gres.conf: drop Links=, or one Type= per NVLink island"


def _gpu_files(settings: SiteSettings) -> Verdict:
    if settings.gres_conf is None:
        return "warn", "gres.conf is not readable from here", "look for File= in gres.conf"
    detected = re.search(r"^\s*AutoDetect=(?!off)", settings.gres_conf, re.I | re.M)
    indexed = re.compile(r"\b(File|MultipleFiles)=|\bAutoDetect=(?!off)", re.I)
    bare = [line for line in settings.gpu_lines if not indexed.search(line)]
    bad = bool(bare) and not detected
    return "warn" if bad else "ok", bare[0] if bad else "GPUs have indices", "gres.conf: File=/dev/nvidia[0-7]"


CHECKS = (
    SettingCheck("Slurm version", "slurmsched was not tested with older releases.", _version),
    SettingCheck("admin level", "Negative nice, site factors and other users' jobs need Operator.", _rights),
    SettingCheck("PrivateData", "Slurm hides these jobs from slurmsched without an error.", _private_data),
    SettingCheck(
        "PriorityType", "priority/basic ignores nice and site factor, so nothing is written there.", _priority_type
    ),
    SettingCheck(
        "PriorityCalcPeriod", "Backfill may undo a new priority until the next calculation.", _priority_period
    ),
    SettingCheck(
        "PriorityFlags", "With INCR_ONLY the priority of a job in several partitions cannot go down.", _incr_only
    ),
    SettingCheck(
        "priority weights",
        "The lowest priority is 1. If all weights are 0, only a negative nice can order jobs.",
        _weights,
    ),
    SettingCheck(
        "PrioritySiteFactorPlugin", "Such a plug-in overwrites the site factors that slurmsched sets.", _site_plugin
    ),
    SettingCheck("bf_continue", "Without it every write aborts the current backfill pass.", _bf_continue),
    SettingCheck("batch_sched_delay", "At 0 every write may start a scheduling pass.", _sched_delay),
    SettingCheck("bf_min_prio_reserve", "It compares absolute priorities, which slurmsched changes.", _bf_min_prio),
    SettingCheck("QOS MinPrioThres", "It compares absolute priorities, which slurmsched changes.", _qos_threshold),
    SettingCheck(
        "preemption thresholds", "They compare absolute priorities, which slurmsched changes.", _preempt_threshold
    ),
    SettingCheck("PreemptType", "Slurm's own preemption and that of slurmsched would undo each other.", _preempt_type),
    SettingCheck("rl_enable", "The rate limiter slows the writes of an Operator to its refill rate.", _rate_limit),
    SettingCheck("enable_user_top", "With `scontrol top` users can change the nice of their jobs.", _user_top),
    SettingCheck("JobSubmitPlugins", "They run at every write and may delay, change or refuse it.", _job_submit),
    SettingCheck("accounting", "Without slurmdbd there is no Operator level and no record of earlier runs.", _database),
    SettingCheck("AccountingStorageTRES", "Without gres/gpu earlier runs show no GPUs.", _tracked_gpus),
    SettingCheck(
        "shards in accounting",
        "Without gres/shard or gres/mps limits and fair share see no parts of GPUs (matters with lever.share only).",
        _tracked_shards,
    ),
    SettingCheck(
        "AccountingStoreFlags", "Without job_comment slurmdbd does not keep the hints of ended jobs.", _store_flags
    ),
    SettingCheck("MinJobAge", "If slurmctld forgets ended jobs early, slurmdbd must be asked for them.", _min_job_age),
    SettingCheck(
        "JobRequeue", "Jobs that do not requeue cannot be preempted (matters with preemption only).", _job_requeue
    ),
    SettingCheck("KillWait", "The time to write a checkpoint (matters with preemption only).", _kill_wait),
    SettingCheck(
        "requeue delay", "A preempted job waits at least this long (matters with preemption only).", _requeue_delay
    ),
    SettingCheck(
        "disable_job_shrink",
        "A node list that reaches a running job takes its other nodes away (preemption, pinning).",
        _job_shrink,
    ),
    SettingCheck(
        "SelectType", "Only select/cons_tres allocates single GPUs; select/linear allocates whole nodes.", _select_type
    ),
    SettingCheck(
        "SelectTypeParameters", "Without memory in it, jobs on one node can use up each other's memory.", _memory_given
    ),
    SettingCheck("Links", "From 24.05 on, --gres and --gpus-per-node take the least linked GPUs first.", _links),
    SettingCheck("GPU files", "Without File= Slurm does not show which GPUs a job holds.", _gpu_files),
)
