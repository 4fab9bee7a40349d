"""What a site's Slurm should look like: every setting that decides how well the levers work, judged.

Source: Slurm's manual pages slurm.conf(5), gres.conf(5) and sacctmgr(1), and its source code where they are silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurmsched.model.snapshot import Rights, Site
from slurmsched.slurm.facts import Facts, seconds
from slurmsched.slurm.finding import Finding, operator_line
from slurmsched.words import some

OURS = "slurmsched_hints.lua"  # what our job_submit.lua loads
OLDEST = (21, 8)  # the oldest release that the readers are tested with
Verdict = tuple[str, str, str]  # verdict, what was found, the line to change


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the list: what it is called, why it matters, how it is judged."""

    name: str
    why: str
    judge: Callable[[Facts], Verdict]


def checklist(
    site: Site,
    *,
    lever: str = "nice",
    writes_per_s: float = 100.0,
    preemption: bool = False,
    node_lists: bool = False,
    gres_conf: str | None = None,
    qos_thresholds: Mapping[str, int] | None = None,
    job_submit: tuple[str, ...] = (),
) -> tuple[Finding, ...]:
    """Every check in its order. lever, writes_per_s: as configured. preemption: whether jobs may be requeued.
    node_lists: whether waiting jobs get lists of nodes."""
    facts = Facts(site, lever, writes_per_s, preemption, gres_conf, qos_thresholds or {}, job_submit, node_lists)
    return tuple(_finding(check, facts) for check in CHECKS)


def _finding(check: Check, facts: Facts) -> Finding:
    verdict, detail, remedy = check.judge(facts)
    return Finding(check.name, verdict, detail, check.why, "" if verdict == "ok" else remedy)


def _version(facts: Facts) -> Verdict:
    if facts.release == (0, 0):
        return "warn", "slurmctld did not tell its version", "scontrol version"
    old = facts.release < OLDEST
    return "fail" if old else "ok", facts.site.version, f"Slurm {OLDEST[0]}.{OLDEST[1]:02d} or newer"


def _rights(facts: Facts) -> Verdict:
    user, rights = facts.site.user, facts.site.rights
    verdict = "ok" if rights >= Rights.OPERATOR else "fail"
    return verdict, f"{user} is {rights.name.capitalize()}", operator_line(user)


def _private_data(facts: Facts) -> Verdict:
    hidden = "jobs" in facts.words("PrivateData") or "all" in facts.words("PrivateData")
    blind = hidden and facts.site.rights < Rights.OPERATOR
    return "fail" if blind else "ok", facts.text("PrivateData") or "nothing hidden", _rights(facts)[2]


def _priority_type(facts: Facts) -> Verdict:
    found = facts.text("PriorityType") or "not told"
    if facts.site.multifactor:
        return "ok", found, ""
    return "fail", found, "PriorityType=priority/multifactor"


def _priority_period(facts: Facts) -> Verdict:
    text = facts.text("PriorityCalcPeriod")
    return "warn" if seconds(text) > 60 else "ok", text or "not told", "PriorityCalcPeriod=1"


def _incr_only(facts: Facts) -> Verdict:
    flags = facts.words("PriorityFlags")
    line = facts.without("PriorityFlags", "incr_only", "incremental_only")
    bad = "incr_only" in flags or "incremental_only" in flags
    return "warn" if bad else "ok", facts.text("PriorityFlags") or "no flags", line


def _weights(facts: Facts) -> Verdict:
    total = facts.site.priority_weights
    negative = facts.site.rights >= Rights.OPERATOR
    detail = f"priority weights add up to {total:g}"
    return "ok" if total > 0 or negative else "fail", detail, "PriorityWeightAge=1000"


def _site_plugin(facts: Facts) -> Verdict:
    plugin = facts.text("PrioritySiteFactorPlugin")
    if not plugin or plugin.endswith("/none"):
        return "ok", "no plug-in", ""
    return "fail" if facts.lever == "site_factor" else "ok", plugin, 'lever = { kind = "nice" }  # slurmsched.toml'


def _bf_continue(facts: Facts) -> Verdict:
    backfill = facts.text("SchedulerType").endswith("backfill")
    ok = "bf_continue" in facts.words("SchedulerParameters") or not backfill
    return (
        "ok" if ok else "fail",
        facts.text("SchedulerParameters") or "no parameters",
        facts.added("SchedulerParameters", "bf_continue"),
    )


def _sched_delay(facts: Facts) -> Verdict:
    delay = facts.words("SchedulerParameters").get("batch_sched_delay", "3")
    return "warn" if delay == "0" else "ok", f"{delay} s", facts.added("SchedulerParameters", "batch_sched_delay=3")


def _bf_min_prio(facts: Facts) -> Verdict:
    floor = facts.words("SchedulerParameters").get("bf_min_prio_reserve", "")
    line = facts.without("SchedulerParameters", "bf_min_prio_reserve")
    return "warn" if floor not in ("", "0") else "ok", floor or "not set", line


def _qos_threshold(facts: Facts) -> Verdict:
    found = ", ".join(f"{qos}={value}" for qos, value in sorted(facts.qos_thresholds.items()))
    first = min(facts.qos_thresholds, default="")
    return "warn" if found else "ok", found or "no QOS has one", f"sacctmgr modify qos {first} set MinPrioThres=-1"


def _preempt_threshold(facts: Facts) -> Verdict:
    floor = facts.words("PreemptParameters").get("min_exempt_priority", "")
    mode = {"priority", "within"} & set(facts.words("PreemptMode"))
    if floor:
        return "warn", f"min_exempt_priority={floor}", facts.without("PreemptParameters", "min_exempt_priority")
    return (
        "warn" if mode else "ok",
        facts.text("PreemptMode") or "OFF",
        facts.without("PreemptMode", "priority", "within"),
    )


def _preempt_type(facts: Facts) -> Verdict:
    kind, mode = facts.text("PreemptType"), facts.words("PreemptMode")
    off = not kind or kind.endswith("/none") or set(mode) <= {"off"}
    return "ok" if off or not facts.preemption else "warn", kind or "none", "PreemptType=preempt/none"


def _rate_limit(facts: Facts) -> Verdict:
    words = facts.words("SlurmctldParameters")
    if "rl_enable" not in words:
        return "ok", "off", ""
    rate = float(words.get("rl_refill_rate") or 2) / max(float(words.get("rl_refill_period") or 1), 1.0)
    if facts.exempt:
        return "ok", f"on, but {facts.site.user} is exempt", ""
    line = facts.added("SlurmctldParameters", f"rl_refill_rate={facts.writes_per_s:g}")
    return "ok" if rate >= facts.writes_per_s else "warn", f"on, {rate:g} requests/s for {facts.site.user}", line


def _user_top(facts: Facts) -> Verdict:
    on = "enable_user_top" in facts.words("SchedulerParameters")
    line = facts.without("SchedulerParameters", "enable_user_top")
    return "warn" if on else "ok", "enable_user_top" if on else "off", line


def _job_submit(facts: Facts) -> Verdict:
    plugins = facts.text("JobSubmitPlugins")
    quick = f"if modify_uid is that of {facts.site.user}: return slurm.SUCCESS first in slurm_job_modify"
    if facts.words("JobSubmitPlugins").keys() == {"lua"} and any(OURS in text for text in facts.job_submit[:1]):
        site = len(facts.job_submit) > 1
        return "warn" if site else "ok", f"slurmsched's own{' and job_submit_site.lua' if site else ''}", quick
    return "warn" if plugins else "ok", plugins or "none", quick


def _database(facts: Facts) -> Verdict:
    kind = facts.text("AccountingStorageType")
    line = "AccountingStorageType=accounting_storage/slurmdbd"
    return "ok" if kind.endswith("slurmdbd") else "warn", kind or "none", line


def _tracked_gpus(facts: Facts) -> Verdict:
    tracked = "gres/gpu" in facts.words("AccountingStorageTRES")
    line = facts.added("AccountingStorageTRES", "gres/gpu")
    return "ok" if tracked else "warn", facts.text("AccountingStorageTRES") or "defaults only", line


def _store_flags(facts: Facts) -> Verdict:
    kept = "job_comment" in facts.words("AccountingStoreFlags")
    line = facts.added("AccountingStoreFlags", "job_comment")
    return "ok" if kept else "warn", facts.text("AccountingStoreFlags") or "none", line


def _min_job_age(facts: Facts) -> Verdict:
    return "warn" if facts.number("MinJobAge") < 300 else "ok", facts.text("MinJobAge") or "not told", "MinJobAge=300"


def _job_requeue(facts: Facts) -> Verdict:
    off = facts.text("JobRequeue") == "0"
    return "fail" if off and facts.preemption else "ok", "off" if off else "on", "JobRequeue=1"


def _kill_wait(facts: Facts) -> Verdict:
    short = facts.number("KillWait") < 30 and facts.preemption
    return "warn" if short else "ok", facts.text("KillWait") or "not told", "KillWait=30"


def _requeue_delay(facts: Facts) -> Verdict:
    new = facts.release >= (25, 11)
    key, word = ("SchedulerParameters", "requeue_delay") if new else ("AuthInfo", "cred_expire")
    delay = facts.words(key).get(word, "120")
    line = facts.added(key, f"{word}={5 if new else 30}")
    long = float(delay) > 60 if delay.isdecimal() else True
    return "warn" if long and facts.preemption else "ok", f"{delay} s", line


def _job_shrink(facts: Facts) -> Verdict:
    off = "disable_job_shrink" in facts.words("SchedulerParameters")
    line = facts.added("SchedulerParameters", "disable_job_shrink")
    return "ok" if off or not (facts.preemption or facts.node_lists) else "warn", "off" if off else "allowed", line


def _select_type(facts: Facts) -> Verdict:
    found = facts.text("SelectType") or "not told"
    verdict = {"select/linear": "fail", "select/cons_res": "warn"}.get(found.lower(), "ok")
    return verdict, found, "SelectType=select/cons_tres"


def _memory_given(facts: Facts) -> Verdict:
    text = facts.text("SelectTypeParameters")
    kinds = [word.strip() for word in text.split(",") if word.strip()]
    kinds = [f"{kind}_Memory" if kind.upper() in ("CR_CORE", "CR_CPU", "CR_SOCKET") else kind for kind in kinds]
    line = f"SelectTypeParameters={','.join(kinds)}"
    return "ok" if not text or "MEMORY" in text.upper() else "warn", text or "not told", line


def _links(facts: Facts) -> Verdict:
    if facts.release < (24, 5):
        return "ok", "best linked GPUs first", ""
    if facts.gres_conf is None:
        return "warn", "gres.conf is not readable from here", "look for Links= in gres.conf"
    linked = [line for line in facts.gpu_lines if re.search(r"\bLinks=", line, re.I)]
    detail = f"{some(len(linked), 'GPU line')} with Links=" if linked else "no Links="
    return "warn" if linked else "ok", detail, "gres.conf: drop Links=, or one Type= per NVLink island"


def _gpu_files(facts: Facts) -> Verdict:
    if facts.gres_conf is None:
        return "warn", "gres.conf is not readable from here", "look for File= in gres.conf"
    detected = re.search(r"^\s*AutoDetect=(?!off)", facts.gres_conf, re.I | re.M)
    indexed = re.compile(r"\b(File|MultipleFiles)=|\bAutoDetect=(?!off)", re.I)
    bare = [line for line in facts.gpu_lines if not indexed.search(line)]
    bad = bool(bare) and not detected
    return "warn" if bad else "ok", bare[0] if bad else "GPUs have indices", "gres.conf: File=/dev/nvidia[0-7]"


CHECKS = (
    Check("Slurm version", "Older releases print answers that were never tested.", _version),
    Check("admin level", "Negative nice, site factors and other users' jobs need Operator.", _rights),
    Check("PrivateData", "Jobs hidden from slurmsched are missing without an error.", _private_data),
    Check("PriorityType", "No nice or site factor steers priority/basic, so nothing is written there.", _priority_type),
    Check("PriorityCalcPeriod", "Backfill may undo a new priority until the next calculation.", _priority_period),
    Check("PriorityFlags", "INCR_ONLY keeps the priority of a job in several partitions from going down.", _incr_only),
    Check("priority weights", "Priorities end at 1: without height only negative nice can order jobs.", _weights),
    Check("PrioritySiteFactorPlugin", "Such a plug-in overwrites every site factor it did not set.", _site_plugin),
    Check("bf_continue", "Without it every write aborts the backfill pass that runs.", _bf_continue),
    Check("batch_sched_delay", "At 0 writes may start one scheduling pass each.", _sched_delay),
    Check("bf_min_prio_reserve", "It compares absolute priorities, which the lever moves.", _bf_min_prio),
    Check("QOS MinPrioThres", "It compares absolute priorities, which the lever moves.", _qos_threshold),
    Check("preemption thresholds", "They compare absolute priorities, which the lever moves.", _preempt_threshold),
    Check("PreemptType", "Slurm's own preemption and slurmsched's would undo each other.", _preempt_type),
    Check("rl_enable", "The rate limiter slows an Operator's writes down to its refill rate.", _rate_limit),
    Check("enable_user_top", "`scontrol top` lets users rewrite the nice of their jobs.", _user_top),
    Check("JobSubmitPlugins", "They run at every write and may slow, change or refuse it.", _job_submit),
    Check("accounting", "Without slurmdbd there is no Operator level and no record of earlier runs.", _database),
    Check("AccountingStorageTRES", "Without gres/gpu earlier runs show no GPUs.", _tracked_gpus),
    Check("AccountingStoreFlags", "Without job_comment the hints of finished jobs are lost.", _store_flags),
    Check("MinJobAge", "Finished jobs that are purged early have to be asked of slurmdbd.", _min_job_age),
    Check("JobRequeue", "Jobs that do not requeue cannot be preempted (matters with preemption only).", _job_requeue),
    Check("KillWait", "The time to write a checkpoint (matters with preemption only).", _kill_wait),
    Check("requeue delay", "A preempted job waits this long at least (matters with preemption only).", _requeue_delay),
    Check(
        "disable_job_shrink",
        "A node list on a started job kills its other nodes (preemption, pinning).",
        _job_shrink,
    ),
    Check("SelectType", "Only select/cons_tres gives GPUs one by one; select/linear gives whole nodes.", _select_type),
    Check("SelectTypeParameters", "Without memory in it jobs of one node can use up each other's.", _memory_given),
    Check("Links", "From 24.05 on --gres and --gpus-per-node take the least linked GPUs first.", _links),
    Check("GPU files", "Without File= Slurm does not tell which GPUs a job holds.", _gpu_files),
)
