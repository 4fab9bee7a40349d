"""Jobs that tell how they do and read what is wanted of them, by a shared folder and by the comment; idle GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.lab import Installed, column, nices, partition, run, submit, until
from tests.live.operations import cut_tick, ticks

pytestmark = [pytest.mark.live]
JOB = "/src/plugin/job"
HINTS = "--comment=slurmsched: min_gpus=1 max_gpus=8 dur=1h"
SPOOL, STATE = Path("/tmp/talking"), Path("/home/alice/elastic.json")


def hints(job: int, site: Installed) -> str:
    """What `explain` says that a job tells."""
    return " ".join(line for line in site("explain", str(job)).out.splitlines() if line.startswith("hint"))


def runs() -> list[Any]:
    """First step and GPUs of the runs of the elastic job that have saved themselves."""
    return json.loads(STATE.read_text())["runs"] if STATE.exists() else []


def again(job: int, site: Installed, number: int, *cuts: tuple[str, str]) -> str:
    """The request of the elastic job once it has saved itself for this time and waits, and a cycle has seen it.

    cuts: where cycles before that die."""
    until(lambda: len(runs()) == number and job in column("%A", "PENDING"), "it saves and goes back to the queue")
    for point in cuts:
        until(lambda point=point: cut_tick(site, [point]), f"a cycle dies {point}", 20)
    site.tick()
    request = column("%b")[job]
    run("scontrol", "update", f"jobid={job}", "starttime=now", check=False)  # on a busy machine it may run already
    until(lambda: job in column("%A", "RUNNING"), "it runs again")
    return request


def test_elastic__grows_and_shrinks_between_steps_and_loses_none(site: Installed) -> None:
    """The policy gives it eight GPUs on an idle cluster: it is asked, saves itself, and gets them while it waits.

    Asked by hand it goes on one. Others cannot tell for it, and it cannot be asked for more than its hints allow."""
    run("rm", "-rf", str(SPOOL), str(STATE))
    run("mkdir", "-p", f"{SPOOL}/wants")
    run("mkdir", "-m", "1777", f"{SPOOL}/reports")
    run("chown", f"{site.user}:", f"{SPOOL}/wants")
    keys = {"folder": f'"{SPOOL}"', "sizes": "true", "least_run_s": "1"}
    site.configure(policy='{ name = "dorm" }', lever__size="true", preemption__restart_cost_s="0",
                   **{f"job_reports__{key}": value for key, value in keys.items()})  # fmt: skip
    script = f"export SLURMSCHED_JOBS={SPOOL}; exec python3 {JOB}/examples/elastic.py 100000 {STATE}"
    job = submit("alice", 2, HINTS, "--requeue", script=script)
    until((SPOOL / "reports" / str(job)).exists, "it tells how far it is")
    assert "progress=" in hints(job, site) and "throughput=" in hints(job, site)
    planted = SPOOL / "reports" / str(job + 1)
    run("sh", "-c", f"echo progress=1/2 >{planted}", user="bob")
    other = submit("carol", 1)
    until(lambda: other in column("%A", "RUNNING"), "another job runs under the next id")
    assert f"job {other} belongs to uid" in site("plan").out and "progress" not in hints(other, site)
    site.tick()
    assert "gpus=8" in (SPOOL / "wants" / str(job)).read_text()
    assert again(job, site, 1, ("retype", "after")) == "gres/gpu:8"
    assert "allow 1 to 8" in site("job", "wants", str(job), "--size", "9", check=False).err
    site("job", "wants", str(job), "--size", "1")
    assert again(job, site, 2) == "gres/gpu:1"
    site("job", "wants", str(job), "--stop")
    until(lambda: job not in column("%A", "RUNNING", "COMPLETING"), "it ends: what it does is of no use")
    state = json.loads(STATE.read_text())
    assert [gpus for _, gpus in state["runs"]] == [2, 8, 1]
    assert state["sum"] == sum((step * 64 + sample) % 1000 for step in range(state["step"]) for sample in range(64))


def test_report__without_a_folder_is_in_the_comment(site: Installed) -> None:
    """By the job's own right, beside its other hints; the next cycle sees it. For a checkpoint it gets the signal that
    it asked for, and goes on."""
    run("rm", "-f", "/tmp/slurmsched-saved")
    tell = f"SLURMSCHED_JOBS=/none {JOB}/slurmsched-job report progress=30/90 throughput=512"
    job = submit("alice", 1, f"{HINTS} save=USR1", script=f"trap 'touch /tmp/slurmsched-saved' USR1; {tell}; "
                 "while true; do sleep 0.2; done")  # fmt: skip
    until(lambda: "progress" in column("%k").get(job, ""), "the comment has it")
    said = "slurmsched: min_gpus=1 max_gpus=8 dur=1h save=USR1 slurmsched: progress=30/90 throughput=512"
    assert column("%k")[job] == said
    assert "progress=30/90" in hints(job, site)
    site("job", "wants", str(job), "--checkpoint")
    assert "signal USR1" in site("history", str(job), check=False).out  # there is no ledger
    until(Path("/tmp/slurmsched-saved").exists, "it saves itself")
    assert job in column("%A", "RUNNING")


def admin_comment(job: int) -> str:
    """The AdminComment of a job: an Operator writes it to slurmdbd, an Administrator to slurmctld."""
    here = run("squeue", "-h", "-j", str(job), "-O", "admin_comment:0").out
    return here + run("sacct", "-nXP", "-j", str(job), "-oAdminComment").out


def test_idle_gpus__are_told_and_put_the_users_jobs_last(site: Installed) -> None:
    """In the job's AdminComment as long as it holds, and in the order; undo takes both back."""
    idle = submit("alice", 2)
    until(lambda: idle in column("%A", "RUNNING"), "it runs")
    partition("DOWN")
    mine, other = submit("alice", 1), submit("bob", 1)
    (use := site.folder / "use.csv").write_text(f"job_id,gpu,use_pct\n{idle},0,0\n{idle},1,0\n")
    site.configure(policy='{ name = "fifo" }', measured_use=f'{{ source = "file", file = "{use}", every_s = 1 }}',
                   idle_gpus="{ tell = true, last = true, after_s = 1 }")  # fmt: skip
    ticks(site, lambda: "idle 2 of 2 GPUs" in admin_comment(idle), "its AdminComment says so")
    assert nices()[mine] > nices()[other]
    assert "0 of 2 GPUs used" in site("explain", str(idle)).out
    use.write_text(f"job_id,gpu,use_pct\n{idle},0,90\n{idle},1,90\n")
    site.tick()
    assert nices()[mine] < nices()[other]
    assert "idle" not in admin_comment(idle)
    site("undo", "--apply", "--yes")
    assert set(nices().values()) == {0}
    partition("UP")
