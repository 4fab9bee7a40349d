"""A mixed workload on 16 nodes with shards, by Slurm alone and with the ways to share a GPU: how much is stranded.

`python -m tests.live.share_churn MINUTES SEED [WAY ...]` inside the lab prints the figures. Every way gets the same
jobs at the same times. Several seeds (`1,2`) run beside each other, each on nodes and in a partition of its own.

A GPU is held if a job has it whole, or jobs have some of its shards. A job that says gpu_part=0.25 uses a quarter of
one; a job that says nothing uses its GPUs. What is held and not used is stranded. The means are over the time in which
jobs waited, after the first minute; a look counts until the next one.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.live.churn import _PARTS, _USED, NODES
from tests.live.lab import USERS, Installed, run, sacct, until
from tests.live.more_nodes import more_nodes

GPUS, PER_GPU = 8 * len(NODES), 4  # GPUs of a partition, shards of each
SHARING, BETWEEN_S = 0.7, 0.6  # part of the jobs that may share; between two jobs on average
PARTS = (0.25, 0.5)
LOOK_S, WARM_S = 3.0, 60.0
LEVER = {"lever__share": "true"}
# What slurmsched's file says; None: no slurmsched.
WAYS: dict[str, dict[str, str] | None] = {
    "alone": None,
    "lever": LEVER,
    "always": LEVER | {"lever__share_always": "true"},
    "submitted": None,
}
DEEP = "default_queue_depth=10000,bf_max_job_test=10000"  # a long queue is looked at to its end


@dataclass(frozen=True)
class Arrival:
    """at_s: after the begin. part: of one GPU that it uses, 1 = its GPUs whole."""

    at_s: float
    seed: int
    gpus: int
    part: float
    runs_s: int
    user: str

    def submit(self) -> int:
        hints = f"--comment=slurmsched: share=yes gpu_part={self.part}" if self.part < 1 else "--comment="
        options = ("--parsable", "--output=/dev/null", f"-pchurn{self.seed}", "-N1", f"--gres=gpu:{self.gpus}",
                   "--mem=1G", "--time=10", hints)  # fmt: skip
        return int(run("sbatch", *options, f"--wrap=sleep {self.runs_s}", user=self.user).out)


def workload(minutes: float, seed: int) -> list[Arrival]:
    draw, at_s, jobs = random.Random(seed), 0.0, list[Arrival]()
    while at_s < 60 * minutes:
        part = draw.choice(PARTS) if draw.random() < SHARING else 1.0
        gpus = 1 if part < 1 else draw.choice((1, 2, 4, 8))
        jobs.append(Arrival(at_s, seed, gpus, part, draw.choice((40, 60, 90)), USERS[len(jobs) % len(USERS)]))
        at_s += draw.expovariate(1 / BETWEEN_S)
    return jobs


@dataclass
class Watch:
    """What one partition does. jobs: by id. sums: GPU-seconds while jobs waited, by name."""

    seed: int
    nodes: frozenset[str]
    jobs: dict[int, Arrival] = field(default_factory=dict)
    sums: Counter[str] = field(default_factory=Counter)
    last: tuple[float, dict[str, float]] | None = None

    def look(self, now_s: float, nodes: str, queue: list[list[str]]) -> None:
        """nodes: of scontrol. queue: job id, state and GRES of each waiting or running job."""
        if self.last is not None:
            since_s, seen = self.last
            self.sums.update({name: (now_s - since_s) * value for name, value in seen.items()})  # type: ignore[arg-type]
        shared = sum(part[0] not in "-0" for node, gres in _USED.findall(nodes) if node in self.nodes
                     for text in _PARTS.findall(gres) for part in text.split(","))  # fmt: skip
        ours = [(self.jobs[int(job)], state, gres) for job, state, gres in queue if int(job) in self.jobs]
        runs = [(job, "shard" in gres) for job, state, gres in ours if state == "RUNNING"]
        small = [(job, shares) for job, shares in runs if job.part < 1]
        alone = sum(not shares for _, shares in small)
        seen = {
            "waited_s": 1.0,
            "held": shared + sum(job.gpus for job, shares in runs if not shares),
            "used": sum(job.gpus * job.part for job, _ in runs),
            "stranded_whole": alone - sum(job.part for job, shares in small if not shares),
            "stranded_shared": shared - sum(job.part for job, shares in small if shares),
            "small_whole": alone,
            "small_shared": len(small) - alone,
            "shared_gpus": shared,
        }
        waits = any(state == "PENDING" for _, state, _ in ours)
        self.last = (now_s, seen) if waits and now_s > WARM_S else None

    def figures(self, begun_s: float, end_s: float) -> dict[str, float]:
        """begun_s, end_s: of the run, in Unix s. Of each job sacct says when it ran."""
        started, waits_s, done = 0, dict[bool, list[int]]({True: [], False: []}), Counter[bool]()
        rows = sacct("JobIDRaw,Start,End,Submit", sorted(self.jobs))
        for job, start, end, submit in ((self.jobs[int(row[0])], *row[1:]) for row in rows):
            if not start.isdigit():
                continue
            started += 1
            waits_s[job.part < 1].append(int(start) - int(submit))
            until_s = min(float(end) if end.isdigit() else end_s, end_s)
            done[job.part < 1] += job.gpus * job.part * max(until_s - max(float(start), begun_s + WARM_S), 0)  # type: ignore[assignment]
        waited_s = self.sums["waited_s"] or 1
        means = {name: round(value / waited_s, 2) for name, value in self.sums.items() if name != "waited_s"}
        mean_s = {small: round(sum(each) / max(len(each), 1), 1) for small, each in waits_s.items()}
        return {
            "seed": self.seed,
            "waited_s": round(waited_s),
            "jobs": len(self.jobs),
            "started": started,
            "started_small": len(waits_s[True]),
            "wait_small_s": mean_s[True],
            "wait_whole_s": mean_s[False],
            "gpu_s_used": round(done.total()),
            "gpu_s_used_small": round(done[True]),
            **means,
            "stranded_share": round((self.sums["held"] - self.sums["used"]) / max(self.sums["held"], 1), 4),
        }


def measure(minutes: float, seeds: list[int], way: str) -> Iterable[dict[str, float]]:
    """One run."""
    keys, site = WAYS[way], Installed(Path("/var/lib/slurmsched-test"))
    scope = ", ".join(f'"churn{seed}"' for seed in seeds)
    site.configure(policy='{ name = "fifo" }', scope__partitions=f"[{scope}]", cycle__interval_s="2.0",
                   lever__admin_comment="false", log__format='"json"', **(keys or {}))  # fmt: skip
    _slurm(shares_at_submission=way == "submitted")
    with more_nodes(len(NODES) * len(seeds), "soak", PER_GPU * 8):
        watches = [_partition(number, seed) for number, seed in enumerate(seeds)]
        daemon = site.begin("daemon", "--apply", log="daemon.log") if keys is not None else None
        begun_s = time.time()
        _go(sorted((job for seed in seeds for job in workload(minutes, seed)), key=lambda job: job.at_s), watches)
        end_s = time.time()
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=60)
            site("undo", "--apply", "--yes", check=False)
        found = [watch.figures(begun_s, end_s) for watch in watches]
        print(way, *found, sep="\n", flush=True)
        for seed in seeds:
            run("scancel", f"--partition=churn{seed}", check=False)
        until(lambda: not run("squeue", "-h").out, "all jobs have left", limit_s=400)
    shutil.rmtree(site.folder, ignore_errors=True)
    return found


def _slurm(*, shares_at_submission: bool) -> None:
    """Settings of slurmctld, before it is restarted for the nodes."""
    conf, etc = Path("/etc/slurm/slurm.conf"), Path("/etc/slurm")
    conf.write_text(conf.read_text().replace("SchedulerParameters=", f"SchedulerParameters={DEEP},"))
    if shares_at_submission:
        for file in [*Path("/src/plugin/lua").glob("*.lua"), Path("/src/plugin/job_submit/job_submit.lua")]:
            shutil.copy(file, etc)
        (etc / "slurmsched_settings.lua").write_text(f"return {{ shards_per_gpu = {PER_GPU} }}")
        conf.write_text(conf.read_text() + "JobSubmitPlugins=lua\n")


def _partition(number: int, seed: int) -> Watch:
    nodes = [f"n{number * len(NODES) + each}" for each in range(1, len(NODES) + 1)]
    run("scontrol", "create", f"partitionname=churn{seed}", f"nodes={','.join(nodes)}", "maxtime=60")
    return Watch(seed, frozenset(nodes))


def _go(arrivals: list[Arrival], watches: list[Watch]) -> None:
    by_seed, begun_s, look_s = {watch.seed: watch for watch in watches}, time.monotonic(), LOOK_S
    for job in arrivals:
        while look_s < job.at_s:
            time.sleep(max(0.0, begun_s + look_s - time.monotonic()))
            nodes = run("scontrol", "-o", "-d", "show", "node").out
            queue = [line.split() for line in run("squeue", "-h", "-o", "%A %T %b").out.splitlines()]
            now_s = time.monotonic() - begun_s
            for watch in watches:
                watch.look(now_s, nodes, queue)
            look_s = max(look_s, now_s) + LOOK_S
        time.sleep(max(0.0, begun_s + job.at_s - time.monotonic()))
        by_seed[job.seed].jobs[job.submit()] = job


if __name__ == "__main__":
    minutes, seeds, ways = float(sys.argv[1]), [int(seed) for seed in sys.argv[2].split(",")], sys.argv[3:]
    shares: dict[int, float] = {}
    for way in ways or WAYS:
        run("labctl", "reset")
        for found in measure(minutes, seeds, way):
            first = shares.setdefault(int(found["seed"]), found["stranded_share"])
            print(way, int(found["seed"]), "ratio:", round(found["stranded_share"] / first, 3) if first else "")
    run("labctl", "reset")
