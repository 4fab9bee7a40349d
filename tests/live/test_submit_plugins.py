"""job_submit.lua, cli_filter.lua and the SPANK plug-in on a real Slurm."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.lab import Installed, column, nices, run, submit, until

pytestmark = pytest.mark.live
ETC, PLUGIN = Path("/etc/slurm"), Path("/src/plugin")
SETTINGS = """return { defaults = { phantom = "share=no" }, gpus_per_node = true, explain = true, cli_filter = true,
    guard = { nice = true, comment = true } }"""
SITE = """function slurm_job_submit(job, parts, uid) job.admin_comment = "site saw " .. tostring(job.comment)
    return slurm.SUCCESS end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS"""
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")


@pytest.fixture
def plugins(site: Installed) -> Installed:
    """All three as docs/plugins.md installs them, and a script of the site's own."""
    for file in [*PLUGIN.glob("lua/*.lua"), *PLUGIN.glob("job_submit/*.lua"), *PLUGIN.glob("cli_filter/*.lua")]:
        shutil.copy(file, ETC)
    (ETC / "slurmsched_settings.lua").write_text(SETTINGS)
    (ETC / "job_submit_site.lua").write_text(SITE)
    library = ETC / "slurmsched_spank.so"
    run("gcc", *FLAGS, "-o", str(library), str(PLUGIN / "spank" / "slurmsched_spank.c"))
    (ETC / "plugstack.conf").write_text(f"optional {library}\n")
    run("labctl", "conf", "JobSubmitPlugins", "lua")
    run("labctl", "conf", "CliFilterPlugins", "lua")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    return site


def told(job: int | str) -> dict[str, str]:
    """The lines KEY=TEXT of `scontrol show job`, the last key of a line with all the text after it."""
    lines = run("scontrol", "show", "job", str(job)).out.splitlines()
    return dict(line.strip().partition("=")[::2] for line in lines if "=" in line)


def edited(later_s: int) -> None:
    """job_submit.lua as Slurm sees it after an edit: with a later time, in whole seconds."""
    now_s = time.time()
    os.utime(ETC / "job_submit.lua", (now_s, now_s + later_s))


def test_plugins__hints_reach_the_comment_from_everywhere(plugins):
    """--comment, --sched-* of sbatch, salloc and srun, defaults of the partition; faults are told at the terminal."""
    asked = ("-p", "phantom", "-N1", "--gpus=4", "--wrap=true", "--output=/dev/null")
    done = run("sbatch", "--parsable", *asked, "--comment=mine slurmsched: TOPO=NVLink dur=2", "--sched-ckpt=usr1@60",
               user="alice")  # fmt: skip
    job = int(done.out)
    assert column("%k")[job] == "mine slurmsched: ckpt=USR1@60 topo=nvlink share=no dur=2"
    assert told(job)["AdminComment"] == f"site saw {column('%k')[job]}"
    assert told(job)["TresPerNode"] == "gres/gpu:4"
    assert "TresPerJob" not in told(job)
    assert "slurmsched: dur='2' is no duration with a unit" in done.err
    assert "slurmsched: topo=nvlink: The widest cell" in done.err
    assert run("sbatch", *asked, "--sched-topo=a b", user="alice", check=False).rc != 0
    shown = run("srun", "-N1", "--gres=gpu:1", "--sched-topo=numa", "sh", "-c", "squeue -h -o %k -j $SLURM_JOB_ID",
                user="alice")  # fmt: skip
    assert shown.out.strip() == "slurmsched: topo=numa"
    run("salloc", "--no-shell", "-N1", "--sched-preempt=yes", user="bob")
    until(lambda: "slurmsched: preempt=yes" in column("%k").values(), "salloc's hints")


def test_plugins__guard_the_levers_and_let_the_daemon_work(plugins):
    """The daemon writes nice as always; the owner may raise it, not lower it."""
    jobs = [submit("alice", 1, "--partition=phantom", f"--time={limit}") for limit in (50, 10)]
    plugins.configure(policy='{ name = "srsf" }')
    plugins.tick()
    written = max(jobs, key=lambda job: nices()[job])
    assert nices()[written] > min(nices().values())
    before = nices()[written]
    lowered = run("scontrol", "update", f"jobid={written}", f"nice={before - 1}", user="alice", check=False)
    assert (lowered.rc != 0, nices()[written]) == (True, before)
    assert "slurmsched: this site's scheduler sets nice" in lowered.err
    found = plugins("doctor", "--json", check=False).json()["findings"]
    (mine,) = [one for one in found if one["name"] == "JobSubmitPlugins"]
    assert (mine["verdict"], mine["detail"]) == ("warn", "slurmsched's own and job_submit_site.lua")
    if before >= 0:
        run("scontrol", "update", f"jobid={written}", f"nice={before + 5}", user="alice")
        assert nices()[written] == before + 5
    run("labctl", "conf", "PriorityWeightJobSize", "100000")  # priorities that differ from nice
    run("labctl", "reconfigure")
    kept = nices()[written]
    until(lambda: int(column("%Q")[written]) > 2, "a priority to lower")
    lowered = run("scontrol", "update", f"jobid={written}", "priority=2", user="alice", check=False)
    assert (lowered.rc != 0, nices()[written]) == (True, kept)
    assert "raise nice, or hold the job" in lowered.err
    for lever in ("hold", "release"):
        run("scontrol", lever, str(written), user="alice")
    again = run("scontrol", "update", f"jobid={written}", "comment=slurmsched: PREEMPT=Yes", user="alice")
    assert (again.rc, column("%k")[written]) == (0, "slurmsched: preempt=yes")


def test_plugins__hold_whatever_a_user_sends(plugins):
    """A job tells its progress alone; its owner cannot take back a hint. The longest comment that Slurm takes, and one
    that it refuses only after the script has seen it: squeue is answered meanwhile, who submits reads a few lines."""
    job = submit("alice", 1, "--comment=run 7 slurmsched: preempt=yes")
    until(lambda: told(job)["JobState"].startswith("RUNNING"), "the job to start")
    run("scontrol", "update", f"jobid={job}", "comment=slurmsched: progress=2/9", user="alice")
    assert column("%k")[job] == "slurmsched: preempt=yes progress=2/9"
    refused = run("scontrol", "update", f"jobid={job}", "comment=slurmsched: preempt=no", user="alice", check=False)
    assert (refused.rc != 0, column("%k")[job]) == (True, "slurmsched: preempt=yes progress=2/9")
    script = Path("/tmp/long_comment.sh")
    for length in (1_000, 600_000):
        script.write_text(f'#!/bin/sh\n#SBATCH --comment="slurmsched: {"aa=1 " * (length // 5 - 3)}"\n')
        script.chmod(0o644)
        with ThreadPoolExecutor(1) as pool:
            asked = ("sbatch", "-p", "phantom", "--output=/dev/null", str(script))
            sent = pool.submit(run, *asked, user="alice", check=False)
            while not sent.done():
                run("squeue", "-h")  # fails after MessageTimeout
        done = sent.result()
        assert ((done.rc == 0), done.err.count("slurmsched: ") <= 4) == (length < 1_024, True)


def test_plugins__whatever_fails_jobs_go_in_unchanged(plugins):
    """Without its grammar, and with settings that make no sense."""
    (ETC / "slurmsched_settings.lua").write_text("return { defaults = 7 }")
    edited(5)
    job = submit("alice", 1, "--partition=phantom", "--comment=slurmsched: PREEMPT=yes")
    assert column("%k")[job] == "slurmsched: PREEMPT=yes"
    (ETC / "slurmsched_hints.lua").unlink()
    edited(10)
    job = submit("alice", 1, "--partition=phantom", "--comment=slurmsched: TOPO=numa")
    assert column("%k")[job] == "slurmsched: TOPO=numa"
    log = Path("/var/log/slurm/slurmctld.log").read_text()
    assert "slurmsched: /etc/slurm/slurmsched_hints.lua cannot be read" in log
