"""Some hours of a site on the Slurm of a lab whose clock runs fast, kept with what an administrator would have of it.

    python -m tests.twin.site_day alone|srsf [calm]

as root inside a lab; tests/recorded/twin/site/record.py calls it. It leaves VERSION-CASE-NODES.json.gz, or
VERSION-CASE-calm-NODES.json.gz, in /var/tmp/twin/site.
"""

from __future__ import annotations

import math
import os
import random
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.live import clock
from tests.live.lab import Installed, run, until
from tests.live.more_nodes import more_nodes
from tests.live.test_twin import cycles
from tests.twin.recorder import Recorder
from tests.twin.recording import Recording
from tests.twin.workload import QOS, USERS, Submission

RATE, CYCLE_S = 20, 60.0
NODES = int(os.environ.get("TWIN_NODES", "32"))  # of few nodes the schedule turns on chance: docs/fidelity.md
OLD_WAITS_S = 35.0  # slurmctld's waits that began before its clock was fast are over then
KEPT = Path("/var/tmp/twin/site")
JOBS, OVER_S = 20 * NODES, 7_200.0
LIMITS_MIN = (5, 10, 15, 30, 60, 120, 240)
# Slurm's own scheduling settings in place of the lab's hasty ones; and waits for messages, which a fast clock shortens.
CONF = {
    "SchedulerParameters": "bf_continue", "PriorityCalcPeriod": "5", "Epilog": "/bin/true", "SlurmctldDebug": "debug2",
    "KillWait": "30", "MessageTimeout": "100", "TCPTimeout": "60", "BatchStartTimeout": "600", "SlurmdTimeout": "3000",
    "UnkillableStepTimeout": "600",
}  # fmt: skip
FIELDS = ("Cluster,JobID,JobIDRaw,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,Suspended,"
          "TimelimitRaw,NNodes,NodeList,AllocTRES,ReqTRES,SubmitLine,JobName")  # fmt: skip
CALM_SEED, CALM_JOBS, CALM_OVER_S = 53, 320, 4 * 3600.0  # the first seed from 51 on whose load is 0.9 to 1.1
CALM_SIZES = ([1, 2, 4, 8, 16, 32], [30, 15, 15, 25, 10, 5])  # GPUs, and in how many of 100 submissions
CALM_RUN_S = (1200.0, 1.1, 60.0, 7200.0)  # median, sigma of the logarithm, shortest, longest
SACCT = ("env", "SLURM_TIME_FORMAT=%s", "sacct", "-aXDP", "--noconvert", "--delimiter=;|;", "-o", FIELDS)


def workload(jobs: int, seed: int) -> list[Submission]:
    """Submissions over two hours that make at least `jobs` jobs: a minute to an hour each, and time limits as users
    give them; arrays, dependencies, a QOS with limits, cancellations."""
    draw, made, count = random.Random(seed), list[Submission](), 0
    while count < jobs:
        made.append(_submission(draw, len(made), OVER_S * (count + draw.random()) / jobs))
        count += made[-1].tasks
    return made


def _submission(draw: random.Random, place: int, at_s: float) -> Submission:
    kind, gpus = draw.random(), draw.choices([1, 2, 4, 8, 16], [35, 25, 25, 13, 2])[0]
    tasks, limited = draw.randint(3, 6) if kind < 0.05 else 1, 0.05 <= kind < 0.15
    run_s = round(60 * 60 ** draw.random())
    limit_min = draw.choice([limit for limit in LIMITS_MIN if 60 * limit > 1.1 * run_s][:3])
    return Submission(
        at_s=at_s,
        user=draw.choice(USERS),
        gpus=min(gpus, 2) if tasks > 1 or limited else gpus,
        sleep_s=run_s,
        limit_min=limit_min,
        partition="short" if limit_min <= 60 and draw.random() < 0.25 else "gpu",
        qos=QOS.name if limited else "",
        tasks=tasks,
        after=draw.randrange(max(0, place - 20), place) if 0.15 <= kind < 0.25 and place else -1,
        cancel_s=draw.uniform(60.0, 1800.0) if 0.25 <= kind < 0.30 else 0.0,
    )


def calm_workload(jobs: int = CALM_JOBS, seed: int = CALM_SEED) -> list[Submission]:
    """Submissions over four hours that make at least `jobs` jobs, longer and fewer than those of `workload`.

    Run times are log-normal, and a user's time limit is one to four times the run time, rounded up to a usual one.
    Arrays, dependencies, the QOS and cancellations are as frequent as there.
    """
    draw, made, count = random.Random(seed), list[Submission](), 0
    while count < jobs:
        made.append(_calm_submission(draw, len(made), CALM_OVER_S * (count + draw.random()) / jobs))
        count += made[-1].tasks
    return made


def _calm_submission(draw: random.Random, place: int, at_s: float) -> Submission:
    kind, gpus = draw.random(), draw.choices(*CALM_SIZES)[0]
    tasks, limited = draw.randint(3, 6) if kind < 0.05 else 1, 0.05 <= kind < 0.15
    median_s, sigma, least_s, most_s = CALM_RUN_S
    run_s = round(min(max(draw.lognormvariate(math.log(median_s), sigma), least_s), most_s))
    wish_s = run_s * draw.uniform(1.1, 4.0)
    limit_min = next((limit for limit in LIMITS_MIN if 60 * limit >= wish_s), LIMITS_MIN[-1])
    return Submission(
        at_s=at_s,
        user=draw.choice(USERS),
        gpus=min(gpus, 2) if tasks > 1 or limited else gpus,
        sleep_s=run_s,
        limit_min=limit_min,
        partition="short" if limit_min <= 60 and draw.random() < 0.25 else "gpu",
        qos=QOS.name if limited else "",
        tasks=tasks,
        after=draw.randrange(max(0, place - 20), place) if 0.15 <= kind < 0.25 and place else -1,
        cancel_s=draw.uniform(60.0, 3600.0) if 0.25 <= kind < 0.30 else 0.0,
    )


def main() -> None:
    case, calm, seed = sys.argv[1], "calm" in sys.argv[2:], int(os.environ.get("TWIN_SEED", "38"))
    submissions = calm_workload() if calm else workload(JOBS, seed)
    prepare()
    with clock.settable(), more_nodes(NODES, "spare"):
        widen()
        until(lambda: len(run("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle").out.splitlines()) == NODES, "all idle")
        clock.run_at(RATE)
        time.sleep(OLD_WAITS_S)
        recorder = Recorder(submissions, rate=RATE, to_last_start=calm)
        recording = alone(recorder) if case == "alone" else under_the_daemon(recorder)
        files = {**site_files(), "sacct.txt": sacct(recorder.ids)}
        KEPT.mkdir(parents=True, exist_ok=True)
        replace(recording, files=files).write(
            KEPT / f"{recording.version}-{case}{'-calm' if calm else ''}-{NODES}.json.gz"
        )


def alone(recorder: Recorder) -> Recording:
    recorder.play()
    return recorder.recording()


def under_the_daemon(recorder: Recorder) -> Recording:
    """With srsf, and a cycle a minute of the site's clock; Python sleeps by the machine's."""
    site = Installed(Path("/var/tmp/slurmsched-site-day"))
    site.configure(policy='{ name = "srsf" }', cycle__interval_s=str(CYCLE_S / RATE), log__format='"json"')
    daemon = site.start("daemon", "--apply")
    recorder.play()
    daemon.send_signal(signal.SIGTERM)
    _, log = daemon.communicate(timeout=120)
    first_s, lateness_s, done_s = cycles(log, CYCLE_S)
    of_daemon = {"first_cycle_s": first_s, "interval_s": CYCLE_S, "lateness_s": lateness_s}
    return recorder.recording(int(run("id", "-u", site.user).out), done_s, **of_daemon)


def prepare() -> None:
    """The settings of a site, and its QOS with limits."""
    for key, value in CONF.items():
        run("labctl", "conf", key, value)
    sacctmgr = ("sacctmgr", "-iQ")
    each, together = (limit * NODES // 8 for limit in (QOS.max_jobs_per_user, QOS.group_gpus))
    limits = f"MaxJobsPerUser={each}", f"GrpTRES=gres/gpu={together}"
    run(*sacctmgr, "add", "qos", QOS.name, check=False)
    run(*sacctmgr, "modify", "qos", QOS.name, "set", *limits)
    allowed = f"qos=normal,high,{QOS.name}"
    run(*sacctmgr, "modify", "account", "root", "set", allowed, "where", "cluster=lab")


def widen() -> None:
    """All nodes in the lab's partitions."""
    conf = Path("/etc/slurm/slurm.conf")
    conf.write_text(re.sub(r"(?m)^(PartitionName=(?:gpu|short) Nodes=)n\[1-4\]", rf"\1n[1-{NODES}]", conf.read_text()))
    run("scontrol", "reconfigure")


def site_files() -> dict[str, str]:
    """slurm.conf, and what Slurm's commands print of limits and of its passes."""
    printed = {"qos.txt": ("sacctmgr", "-P", "show", "qos"), "sdiag.txt": ("sdiag",)}
    return {"slurm.conf": Path("/etc/slurm/slurm.conf").read_text()} | {
        name: run(*command).out for name, command in printed.items()
    }


def sacct(ids: Sequence[int]) -> str:
    """The history of these jobs, as docs/traces.md has an administrator fetch it."""
    return run(*SACCT, "-j", ",".join(map(str, ids))).out


if __name__ == "__main__":
    main()
