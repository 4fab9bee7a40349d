"""The site checklist: every setting that decides how well the levers work, judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.model import Rights, Site
from slurmsched.model.slurm_text import setting_s
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.doctor.settings_checks import CHECKS, check_settings

GOOD = {
    "PriorityType": "priority/multifactor",
    "PriorityCalcPeriod": "00:01:00",
    "PriorityFlags": "",
    "PriorityWeightAge": "1000",
    "PrioritySiteFactorPlugin": "(null)",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "bf_continue,bf_interval=30",
    "PreemptType": "(null)",
    "PreemptMode": "OFF",
    "SlurmUser": "slurm(64030)",
    "SlurmctldParameters": "(null)",
    "JobSubmitPlugins": "(null)",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
    "AccountingStoreFlags": "job_comment",
    "MinJobAge": "300 sec",
    "KillWait": "30 sec",
    "PrivateData": "none",
}
OWN = (Path(__file__).parents[4] / "plugin/job_submit/job_submit.lua").read_text(encoding="utf-8")
QUICK = "if modify_uid is that of slurmsched: return slurm.SUCCESS first in slurm_job_modify"
GRES = "NodeName=n[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-7]\n"


def found(name: str, version: str = "25.11.2", rights: Rights = Rights.OPERATOR, user: str = "slurmsched",
          gres_conf: str | None = GRES, qos: dict[str, int] | None = None, preemption: bool = False,
          node_lists: bool = False, shares: bool = False, lever: str = "nice", job_submit: tuple[str, ...] = (),
          **settings: str) -> CheckResult:  # fmt: skip
    """The finding of one check at a good site with these settings changed."""
    site = Site("lab", version, rights, user, GOOD | settings)
    findings = check_settings(site, lever=lever, preemption=preemption, gres_conf=gres_conf, qos_thresholds=qos,
                         node_lists=node_lists, shares=shares, job_submit=job_submit)  # fmt: skip
    (match,) = [finding for finding in findings if finding.name == name]
    return match


def test_checklist__good_site_has_nothing_to_change():
    """Every check is ok, in the order of the list, and offers no change."""
    findings = check_settings(Site("lab", "25.11.2", Rights.OPERATOR, "slurmsched", GOOD), gres_conf=GRES)
    assert [finding.name for finding in findings] == [check.name for check in CHECKS]
    assert [finding for finding in findings if not finding.ok or finding.remedy] == []


def test_checklist__our_script_without_its_line_in_slurm_conf():
    """It lies beside slurm.conf and nobody calls it: no plug-in runs, and none is said to."""
    for unset in ("", "(null)"):
        assert found("JobSubmitPlugins", job_submit=(OWN,), JobSubmitPlugins=unset).detail == "none"
    assert found("JobSubmitPlugins", job_submit=(OWN,), JobSubmitPlugins="lua").detail == "slurmsched's own"


def test_checklist__empty_site_is_judged_without_error():
    """Settings that an old slurmctld does not print are not told, never a crash."""
    findings = check_settings(Site())
    assert len(findings) == len(CHECKS)
    assert all(finding.detail and finding.why for finding in findings)


def test_checklist__everything_but_ok_names_a_change():
    """A verdict without a line to change helps nobody."""
    bad = Site("lab", "20.11", Rights.NONE, "x", {"PriorityType": "priority/basic", "MinJobAge": "2 sec"})
    assert all(finding.remedy for finding in check_settings(bad) if not finding.ok)


OPERATOR = (
    "sacctmgr add user slurmsched account=root adminlevel=Operator "
    "(if it has an association: sacctmgr modify user slurmsched set adminlevel=Operator)"
)
CASES = [
    ("Slurm version", {"version": "20.11.9"}, "fail", "Slurm 21.08 or newer"),
    ("Slurm version", {"version": "21.08.8"}, "ok", ""),
    ("Slurm version", {"version": ""}, "warn", "scontrol version"),
    ("admin level", {"rights": Rights.USER}, "fail", OPERATOR),
    ("admin level", {"rights": Rights.ADMINISTRATOR}, "ok", ""),
    ("PrivateData", {"PrivateData": "jobs,usage"}, "ok", ""),
    ("PrivateData", {"PrivateData": "jobs,usage", "rights": Rights.USER}, "fail", OPERATOR),
    ("PriorityType", {"PriorityType": "priority/basic"}, "fail", "PriorityType=priority/multifactor"),
    ("PriorityCalcPeriod", {"PriorityCalcPeriod": "00:05:00"}, "warn", "PriorityCalcPeriod=1"),
    ("PriorityFlags", {"PriorityFlags": "INCR_ONLY,FAIR_TREE"}, "warn", "PriorityFlags=FAIR_TREE"),
    ("priority weights", {"PriorityWeightAge": "0"}, "ok", ""),
    ("priority weights", {"PriorityWeightAge": "0", "rights": Rights.USER}, "fail", "PriorityWeightAge=1000"),
    ("PrioritySiteFactorPlugin", {"PrioritySiteFactorPlugin": "site_factor/example"}, "ok", ""),
    ("PrioritySiteFactorPlugin", {"PrioritySiteFactorPlugin": "site_factor/example", "lever": "site_factor"}, "fail",
     'lever = { kind = "nice" }  # slurmsched.toml'),
    ("bf_continue", {"SchedulerParameters": "(null)"}, "fail", "SchedulerParameters=bf_continue"),
    ("bf_continue", {"SchedulerParameters": "bf_interval=60"}, "fail",
     "SchedulerParameters=bf_interval=60,bf_continue"),
    ("bf_continue", {"SchedulerParameters": "(null)", "SchedulerType": "sched/builtin"}, "ok", ""),
    ("batch_sched_delay", {"SchedulerParameters": "bf_continue,batch_sched_delay=0"}, "warn",
     "SchedulerParameters=bf_continue,batch_sched_delay=3"),
    ("bf_min_prio_reserve", {"SchedulerParameters": "bf_continue,bf_min_prio_reserve=5000"}, "warn",
     "SchedulerParameters=bf_continue"),
    ("QOS MinPrioThres", {"qos": {"high": 9, "a": 7}}, "warn", "sacctmgr modify qos a set MinPrioThres=-1"),
    ("preemption thresholds", {"PreemptParameters": "min_exempt_priority=100,reclaim"}, "warn",
     "PreemptParameters=reclaim"),
    ("preemption thresholds", {"PreemptMode": "REQUEUE,PRIORITY"}, "warn", "PreemptMode=REQUEUE"),
    ("preemption thresholds", {"PreemptMode": "GANG,SUSPEND"}, "ok", ""),
    ("PreemptType", {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}, "ok", ""),
    ("PreemptType", {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "preemption": True}, "warn",
     "PreemptType=preempt/none"),
    ("PreemptType", {"PreemptType": "preempt/qos", "PreemptMode": "OFF", "preemption": True}, "ok", ""),
    ("rl_enable", {"SlurmctldParameters": "rl_enable"}, "warn", "SlurmctldParameters=rl_enable,rl_refill_rate=100"),
    ("rl_enable", {"SlurmctldParameters": "rl_enable,rl_refill_rate=200"}, "ok", ""),
    ("rl_enable", {"SlurmctldParameters": "rl_enable,rl_refill_rate=200,rl_refill_period=10"}, "warn",
     "SlurmctldParameters=rl_enable,rl_refill_period=10,rl_refill_rate=100"),
    ("rl_enable", {"SlurmctldParameters": "rl_enable", "user": "slurm"}, "ok", ""),
    ("enable_user_top", {"SchedulerParameters": "enable_user_top,bf_continue"}, "warn",
     "SchedulerParameters=bf_continue"),
    ("JobSubmitPlugins", {"JobSubmitPlugins": "lua"}, "warn", QUICK),
    ("JobSubmitPlugins", {"JobSubmitPlugins": "lua", "job_submit": ("-- theirs",)}, "warn", QUICK),
    ("JobSubmitPlugins", {"JobSubmitPlugins": "lua", "job_submit": (OWN,)}, "ok", ""),
    ("JobSubmitPlugins", {"JobSubmitPlugins": "lua", "job_submit": (OWN, "-- theirs")}, "warn", QUICK),
    ("JobSubmitPlugins", {"JobSubmitPlugins": "throttle,lua", "job_submit": (OWN,)}, "warn", QUICK),
    ("accounting", {"AccountingStorageType": "(null)"}, "warn", "AccountingStorageType=accounting_storage/slurmdbd"),
    ("AccountingStorageTRES", {"AccountingStorageTRES": "cpu,mem"}, "warn", "AccountingStorageTRES=cpu,mem,gres/gpu"),
    ("shards in accounting", {}, "ok", ""),
    ("shards in accounting", {"shares": True, "AccountingStorageTRES": "cpu,gres/gpu"}, "fail",
     "AccountingStorageTRES=cpu,gres/gpu,gres/shard"),
    ("shards in accounting", {"shares": True, "AccountingStorageTRES": "cpu", "GresTypes": "gpu,mps"}, "fail",
     "AccountingStorageTRES=cpu,gres/mps"),
    ("shards in accounting", {"shares": True, "AccountingStorageTRES": "cpu,gres/gpu,gres/shard"}, "ok", ""),
    ("AccountingStoreFlags", {"AccountingStoreFlags": "(null)"}, "warn", "AccountingStoreFlags=job_comment"),
    ("MinJobAge", {"MinJobAge": "60 sec"}, "warn", "MinJobAge=300"),
    ("JobRequeue", {"JobRequeue": "0"}, "ok", ""),
    ("JobRequeue", {"JobRequeue": "0", "preemption": True}, "fail", "JobRequeue=1"),
    ("KillWait", {"KillWait": "5 sec"}, "ok", ""),
    ("KillWait", {"KillWait": "5 sec", "preemption": True}, "warn", "KillWait=30"),
    ("requeue delay", {"preemption": True}, "warn", "SchedulerParameters=bf_continue,bf_interval=30,requeue_delay=5"),
    ("requeue delay", {"preemption": True, "version": "24.11.5", "AuthInfo": "socket=/run/m,cred_expire=120"}, "warn",
     "AuthInfo=socket=/run/m,cred_expire=30"),
    ("requeue delay", {"preemption": True, "version": "24.11.5", "AuthInfo": "cred_expire=30"}, "ok", ""),
    ("disable_job_shrink", {"preemption": True}, "warn",
     "SchedulerParameters=bf_continue,bf_interval=30,disable_job_shrink"),
    ("disable_job_shrink", {"node_lists": True}, "warn",
     "SchedulerParameters=bf_continue,bf_interval=30,disable_job_shrink"),
    ("SelectType", {"SelectType": "select/linear"}, "fail", "SelectType=select/cons_tres"),
    ("SelectType", {"SelectType": "select/cons_res"}, "warn", "SelectType=select/cons_tres"),
    ("SelectType", {"SelectType": "select/cons_tres"}, "ok", ""),
    ("SelectTypeParameters", {"SelectTypeParameters": "CR_CORE"}, "warn", "SelectTypeParameters=CR_CORE_Memory"),
    ("SelectTypeParameters", {"SelectTypeParameters": "CR_Core_Memory,CR_ONE_TASK_PER_CORE"}, "ok", ""),
    ("Links", {"version": "23.11.4", "gres_conf": "Name=gpu File=/dev/nvidia0 Links=-1,4"}, "ok", ""),
    ("Links", {"version": "24.05.0", "gres_conf": "Name=gpu File=/dev/nvidia0 Links=-1,4"}, "warn",
     "gres.conf: drop Links=, or one Type= per NVLink island"),
    ("Links", {"gres_conf": "# Name=gpu Links=0\nName=gpu File=/dev/nvidia0"}, "ok", ""),
    ("Links", {"gres_conf": None}, "warn", "look for Links= in gres.conf"),
    ("GPU files", {"gres_conf": "Name=gpu Count=8"}, "warn", "gres.conf: File=/dev/nvidia[0-7]"),
    ("GPU files", {"gres_conf": "AutoDetect=nvml\nName=gpu Count=8"}, "ok", ""),
    ("GPU files", {"gres_conf": "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia1"}, "ok", ""),
    ("GPU files", {"gres_conf": None}, "warn", "look for File= in gres.conf"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "verdict", "remedy"), CASES)
def test_checklist__verdict_and_line_to_change(name, changes, verdict, remedy):
    """One setting at a time: the verdict, and the line that makes it good (none where it is)."""
    finding = found(name, **changes)
    assert (finding.verdict, finding.remedy) == (verdict, remedy)


def test_cases__cover_every_check():
    """A check that is never judged bad in a test is not tested."""
    judged = {name for name, _, verdict, _ in CASES if verdict != "ok"}
    assert judged == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("text", "expected"), [("00:05:00", 300.0), ("1-00:00:01", 86_401.0), ("300 sec", 300.0), ("5", 5.0)]
)
def test_seconds__forms_that_scontrol_prints(text, expected):
    """Clock times with or without days, and plain seconds."""
    assert setting_s(text) == expected
