"""`slurmsched init` and `doctor` on a real Slurm: a configuration that works, and the faults of one that does not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.live.lab import BINARY, PYTHON, Installed, nices, run, submit

pytestmark = pytest.mark.live

# Lines of slurm.conf that make the levers work worse, and the check that each is seen by.
WORSE = [
    ("PriorityCalcPeriod", "10", "PriorityCalcPeriod", "warn"),
    ("PriorityFlags", "INCR_ONLY", "PriorityFlags", "warn"),
    ("SchedulerParameters", "batch_sched_delay=0,bf_min_prio_reserve=10,enable_user_top", "bf_continue", "fail"),
    ("", "", "batch_sched_delay", "warn"),
    ("", "", "bf_min_prio_reserve", "warn"),
    ("", "", "enable_user_top", "warn"),
    ("AuthInfo", "", "requeue delay", "warn"),  # what decides it before 25.11
    ("", "", "disable_job_shrink", "warn"),
    ("PreemptType", "preempt/qos", "PreemptType", "warn"),
    ("PreemptMode", "REQUEUE", "", ""),
    ("PreemptParameters", "min_exempt_priority=5", "preemption thresholds", "warn"),
    ("SlurmctldParameters", "rl_enable,rl_bucket_size=1000", "rl_enable", "warn"),
    ("JobSubmitPlugins", "require_timelimit", "JobSubmitPlugins", "warn"),
    ("AccountingStoreFlags", "", "AccountingStoreFlags", "warn"),
    ("MinJobAge", "10", "MinJobAge", "warn"),
    ("JobRequeue", "0", "JobRequeue", "fail"),
    ("KillWait", "5", "KillWait", "warn"),
    ("SelectTypeParameters", "CR_Core", "SelectTypeParameters", "warn"),
]
# And those without which nothing works.
BROKEN = [
    ("AccountingStorageType", "", "accounting", "warn"),
    ("AccountingStorageEnforce", "", "admin level", "fail"),
    ("AccountingStorageTRES", "", "AccountingStorageTRES", "warn"),
    ("PrivateData", "jobs", "PrivateData", "fail"),
    ("PriorityType", "priority/basic", "PriorityType", "fail"),
    ("PriorityWeightAge", "0", "priority weights", "fail"),
    ("GresTypes", "", "GPUs", "fail"),
    ("SelectType", "select/linear", "SelectType", "fail"),
    ("SelectTypeParameters", "CR_Memory", "", ""),
]


def test_init__its_file_serves_at_once(site: Installed):
    """Doctor and plan run with it, in dry-run; a second init leaves it alone."""
    file = site.folder / "first.toml"
    done = run(BINARY, "init", str(file), "-p", "gpu", "-p", "phantom", user="slurmsched", check=False)
    assert done.rc in (0, 10), done.err  # 10: doctor misses /var/lib/slurmsched
    assert "adminlevel=Operator" in done.out
    text = file.read_text()
    assert tomllib.loads(text)["scope"]["partitions"] == ["gpu", "phantom"]
    assert "# gpu: 32 GPUs (a100) on 4 nodes" in text
    jobs = [submit("alice", 1, "-p", "phantom", f"--time={limit}") for limit in (50, 10)]
    run(BINARY, "--config", str(file), "plan", user="slurmsched")
    order = run(BINARY, "--config", str(file), "queue", user="slurmsched")
    assert all(str(job) in order.out for job in jobs)
    assert not any(nices().values())
    assert run(BINARY, "init", str(file), user="slurmsched", check=False).rc == 2
    assert file.read_text() == text


def verdicts(site: Installed, *options: str, user: str = "") -> dict[str, str]:
    """What doctor says of each thing, and its exit code."""
    told = site("doctor", "--json", *options, check=False, user=user)
    return {"exit": str(told.rc)} | {finding["name"]: finding["verdict"] for finding in told.json()["findings"]}


def worsened(lines: list[tuple[str, str, str, str]]) -> dict[str, str]:
    """Put them into slurm.conf; what doctor has to say of each."""
    for key, value, _, _ in lines:
        _ = key and run("labctl", "conf", key, value)
    run("labctl", "restart", "slurmctld")
    return {check: verdict for _, _, check, verdict in lines if check}


def differing(found: dict[str, str], expected: dict[str, str]) -> dict[str, str]:
    return {name: found.get(name, "absent") for name, verdict in expected.items() if found.get(name) != verdict}


def test_doctor__sees_each_fault(site: Installed):
    """Of the lab it says nothing bad. Then all that can be wrong is wrong: settings that make the levers work worse
    with what is in the queue, then those without which nothing works, with our own configuration and files."""
    tag = "import sys; from pathlib import Path; from slurmsched.config_file import load_config; "
    tag += "from slurmsched.slurm.site import installation_tag; print(installation_tag(load_config(Path(sys.argv[1]))))"
    orphan = f"slurmsched-{run(PYTHON, '-c', tag, str(site.file)).out.strip()}-5-6"
    _, job = (submit("alice", 1, "-p", "phantom", f"--time={limit}") for limit in (60, 5))
    site.configure(policy='{ name = "srsf" }')
    site.tick()
    site.configure(preemption__enabled="true", placement__pin='"hints"', lever__kind='"site_factor"')
    assert [name for name, verdict in verdicts(site).items() if verdict == "fail"] == []
    expected = worsened(WORSE) | {"exit": "10", "stop file": "warn"}
    expected |= {"GPU files": "warn", "Links": "warn", "QOS MinPrioThres": "warn"}
    expected |= {"others' site_factor": "warn", "operations": "warn", "lever.kind": "warn", "scope.partitions": "fail"}
    lines = [f"NodeName=n[1-4] Name=gpu Type=a100 Count=4 Links={links}" for links in ("-1,4", "4,-1")]
    Path("/etc/slurm/gres.conf").write_text("\n".join([*lines, ""]))
    threshold = ("sacctmgr", "-i", "modify", "qos", "high", "set")
    run("scontrol", "update", f"jobid={job}", "sitefactor=5000")
    run("scontrol", "create", f"reservationname={orphan}", "nodes=n4", "users=root", "starttime=now+3600", "duration=1")
    (site.folder / "stop").touch()
    site.configure(scope__partitions='["gpu", "gpuu"]')
    run(*threshold, "minpriothres=5")
    try:
        found = verdicts(site)
    finally:
        run(*threshold, "minpriothres=-1")
    assert differing(found, expected) == {}
    run("labctl", "stop", "slurmdbd")
    assert differing(verdicts(site, user="root"), {"who looks": "warn", "read earlier runs": "warn"}) == {}
    run("sed", "-i", "s/Gres=gpu:a100:8//", "/etc/slurm/slurm.conf")
    expected = worsened(BROKEN) | {"write levers": "fail", "plug-ins": "fail", "configuration file": "fail"}
    expected |= {"journal": "fail", "lock": "fail", "ledger": "fail"}
    site.configure(policy='{ name = "sfsr" }', ledger__journal='"/etc/slurmsched-none/j"')
    site.configure(ledger__lock='"/etc/slurmsched-none/lock"', ledger__url='"sqlite:////etc/slurmsched-none/l"')
    site.file.chmod(0o666)
    assert differing(verdicts(site), expected) == {}
