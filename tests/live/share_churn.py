"""A mixed workload on 16 nodes with shards, by Slurm alone and with `lever.share`: how much of the held GPUs is idle.

`python -m tests.live.share_churn MINUTES SEED` inside the lab prints the figures. Both runs get the same jobs at the
same times. A job that says gpu_part=0.25 and holds a whole GPU strands 0.75 of it.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.live.churn import _HELD, _INDEX, _PARTS, _USED, NODES
from tests.live.lab import USERS, Installed, run, sacct
from tests.live.more_nodes import more_nodes

GPUS, SHARDS = 8 * len(NODES), 4 * 8
SHARING, BETWEEN_S = 0.7, 0.6  # part of the jobs that may share; between two jobs on average
PARTS = (0.25, 0.5)


def workload(minutes: float, seed: int) -> list[tuple[float, int, float, int]]:
    """When each job comes [s], its GPUs, the part of one that it uses (1 = whole), and how long it runs [s]."""
    draw, at_s, jobs = random.Random(seed), 0.0, []
    while at_s < 60 * minutes:
        part = draw.choice(PARTS) if draw.random() < SHARING else 1.0
        jobs.append((at_s, 1 if part < 1 else draw.choice((1, 2, 4, 8)), part, draw.choice((40, 60, 90))))
        at_s += draw.expovariate(1 / BETWEEN_S)
    return jobs


def submit(gpus: int, part: float, seconds: int, user: str) -> int:
    hints = f"--comment=slurmsched: share=yes gpu_part={part}" if part < 1 else "--comment="
    words = ("--parsable", "--output=/dev/null", "-psoak", "-N1", f"--gres=gpu:{gpus}", "--mem=1G", "--time=10", hints)
    return int(run("sbatch", *words, f"--wrap=sleep {seconds}", user=user).out)


def look(parts: dict[int, float]) -> tuple[int, float, bool]:
    """GPUs that jobs hold, what they use of them, and whether jobs wait."""
    nodes, jobs = (run("scontrol", "-o", "-d", "show", what).out for what in ("node", "job"))
    shared = sum(part[0] not in "-0" for _, gres in _USED.findall(nodes) for text in _PARTS.findall(gres)
                 for part in text.split(","))  # fmt: skip
    whole, used = 0, 0.0
    for line in jobs.splitlines():
        if "JobState=RUNNING" not in line or not _HELD.search(line):
            continue
        job = int(re.search(r"JobId=(\d+)", line)[1])  # type: ignore[index]
        held = sum(_count(text) for _, gres in _HELD.findall(line) for text in _INDEX.findall(gres))
        whole += held
        used += parts[job] if parts[job] < 1 else held
    return whole + shared, used, "JobState=PENDING" in jobs


def _count(indices: str) -> int:
    ends = (text.split("-") for text in indices.split(","))
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ends)


def measure(minutes: float, seed: int, *, shares: bool) -> dict[str, float]:
    """One run. The figures are means over the times at which jobs waited, after the first minute."""
    site, parts, seen = Installed(Path("/var/lib/slurmsched-test")), dict[int, float](), Counter[str]()
    site.configure(policy='{ name = "fifo" }', scope__partitions='["soak"]', cycle__interval_s="2.0",
                   lever__share=str(shares).lower(), lever__admin_comment="false")  # fmt: skip
    with more_nodes(len(NODES), "soak", SHARDS):
        daemon = site.begin("daemon", "--apply", log="daemon.log") if shares else None
        begun_s = time.monotonic()
        for number, (at_s, gpus, part, seconds) in enumerate(workload(minutes, seed)):
            time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
            parts[submit(gpus, part, seconds, USERS[number % len(USERS)])] = part
            if number % 5 == 0 and time.monotonic() - begun_s > 60:
                held, used, waits = look(parts)
                seen.update({"looks": 1, "held": held, "used": used} if waits else {})
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=60)
            site("undo", "--apply", "--yes", check=False)
        started = [row for row in sacct("State,Start,Submit", sorted(parts)) if row[1].isdigit()]
        waits_s = [int(row[1]) - int(row[2]) for row in started]
    shutil.rmtree(site.folder, ignore_errors=True)
    looks = seen["looks"] or 1
    return {"jobs": len(parts), "started": len(started), "mean_wait_s": sum(waits_s) / max(len(waits_s), 1),
            "looks": seen["looks"], "held": seen["held"] / looks / GPUS, "used": seen["used"] / looks / GPUS,
            "stranded": (seen["held"] - seen["used"]) / max(seen["held"], 1)}  # fmt: skip


if __name__ == "__main__":
    figures = []
    for shares in (False, True):
        run("labctl", "reset")
        figures.append(measure(float(sys.argv[1]), int(sys.argv[2]), shares=shares))
        print("lever.share" if shares else "Slurm alone", figures[-1], flush=True)
    print("stranded, ratio:", figures[1]["stranded"] / figures[0]["stranded"])
    run("labctl", "reset")
