"""The twin experiment: a random workload on the lab's Slurm, what became of it, and the same jobs in the model."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from slurmsched.replay.embedded import EmbeddedCluster
from slurmsched.replay.layout import Layout, Limits, Node, Partition
from slurmsched.replay.requests import Requests
from slurmsched.replay.slurm_model import SlurmModel
from slurmsched.replay.traces import Trace
from slurmsched.slurm.site import parse_settings
from tests.live.lab import USERS, run

LOG = Path("/var/log/slurm/slurmctld.log")
QOS = Limits("twin", max_jobs_per_user=2, group_gpus=6)
LAYOUT = Layout(
    tuple(Node(f"n{n}", 8, 64, 512_000.0) for n in range(1, 5)),
    (Partition("gpu"), Partition("short")),
    qos=(QOS,),
)
MIB = 1024.0
CPUS_PER_GPU = 4
_STAMP = r"\[(\S+?)\] "
_JOB = r"JobId=(?:\d+_\d+\()?(\d+)\)?"
_SUBMITTED = re.compile(_STAMP + r"_slurm_rpc_submit_batch_job: " + _JOB, re.MULTILINE)
_STARTED = re.compile(_STAMP + r"sched: Allocate " + _JOB, re.MULTILINE)
_LAUNCHED = re.compile(_STAMP + r"debug2: +acct_policy_job_begin: after adding " + _JOB, re.MULTILINE)
_ENDED = re.compile(_STAMP + r"_job_complete: " + _JOB + r" done", re.MULTILINE)
_FREED = re.compile(_STAMP + r"debug2: +_slurm_rpc_epilog_complete: " + _JOB, re.MULTILINE)
_BACKFILL = re.compile(
    _STAMP + r"(?:(?:debug: +)?sched/backfill: _attempt_backfill: beginning|Running as primary controller)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Submission:
    """One sbatch: at_s after the begin. after: place of the submission it depends on, -1 = none."""

    at_s: float
    user: str
    gpus: int
    sleep_s: float
    limit_min: int
    partition: str = "gpu"
    qos: str = ""
    tasks: int = 1
    after: int = -1
    cancel_s: float = 0.0  # after its submission, 0 = never

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // 8)

    def command(self, ids: Sequence[int]) -> list[str]:
        """The sbatch command; ids: of the submissions before."""
        each = self.gpus // self.nodes
        options = [
            f"--nodes={self.nodes}", f"--gpus-per-node={each}", "--ntasks-per-node=1", "--mem=1G", "--output=/dev/null",
            f"--cpus-per-task={CPUS_PER_GPU * each}", f"--time={self.limit_min}", f"--partition={self.partition}",
        ]  # fmt: skip
        options += [f"--qos={self.qos}"] if self.qos else []
        options += [f"--array=1-{self.tasks}"] if self.tasks > 1 else []
        options += [f"--dependency=afterany:{ids[self.after]}"] if self.after >= 0 else []
        return ["sbatch", "--parsable", *options, f"--wrap=sleep {self.sleep_s}"]


def workload(jobs: int, seed: int, over_s: float) -> list[Submission]:
    """Submissions over over_s seconds that make at least `jobs` jobs, all kinds among them."""
    draw, made, count = random.Random(seed), list[Submission](), 0
    while count < jobs:
        kind, place = draw.random(), len(made)
        gpus = draw.choices([1, 2, 4, 8, 16], [40, 20, 17, 15, 8])[0]
        tasks = draw.randint(3, 6) if kind < 0.05 else 1
        limited = 0.05 <= kind < 0.15
        after = draw.randrange(max(0, place - 20), place) if 0.15 <= kind < 0.25 and place else -1
        made.append(
            Submission(
                at_s=over_s * count / jobs + draw.random(),
                user=draw.choice(USERS),
                gpus=min(gpus, 2) if tasks > 1 or limited else gpus,
                sleep_s=round(draw.uniform(0.6, 3.6), 1),
                limit_min=draw.choice([1, 1, 2, 3, 5, 10]),
                partition=draw.choices(["gpu", "short"], [3, 1])[0],
                qos=QOS.name if limited else "",
                tasks=tasks,
                after=after,
                cancel_s=draw.uniform(0.0, 20.0) if 0.25 <= kind < 0.30 else 0.0,
            )
        )
        count += tasks
    return sorted(made, key=lambda one: one.at_s)


@dataclass(frozen=True)
class Ran:
    """One job as Slurm ran it; times are Unix seconds, NaN where it never came to that.

    end_s: its nodes begin to complete. freed_s: they are done with that.
    """

    job_id: int
    array_id: int
    of: Submission
    dependency: str
    submit_s: float
    start_s: float
    end_s: float
    freed_s: float
    cancel_s: float
    nodes: str
    by_backfill: bool


@dataclass
class Recorder:
    """Submits, waits, and reads what became of it."""

    submissions: Sequence[Submission]
    ids: list[int] = field(default_factory=list)
    cancelled_s: dict[int, float] = field(default_factory=dict)

    def play(self) -> None:
        """Submit and cancel at the planned times; return when the queue is empty."""
        begun_s = time.monotonic()
        for at_s, place, cancel in self._plan():
            time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
            if cancel:
                run("scancel", "-Q", str(self.ids[place]), check=False)
                self.cancelled_s[self.ids[place]] = time.time()
            else:
                one = self.submissions[place]
                self.ids.append(int(run(*one.command(self.ids), user=one.user).out.split(";")[0]))
        while run("squeue", "-h", "-a").out:
            time.sleep(1)
        time.sleep(2)  # slurmdbd's last records

    def _plan(self) -> list[tuple[float, int, bool]]:
        submits = [(one.at_s, place, False) for place, one in enumerate(self.submissions)]
        cancels = [(one.at_s + one.cancel_s + 1, p, True) for p, one in enumerate(self.submissions) if one.cancel_s]
        return sorted([*submits, *cancels])

    def result(self) -> list[Ran]:
        """Every job, by id. Starts and ends come from slurmctld's log (milliseconds), else from sacct (seconds)."""
        log = LOG.read_text(errors="replace")
        submit = {int(m[2]): stamp(m[1]) for m in _SUBMITTED.finditer(log)}
        start = {int(m[2]): stamp(m[1]) for m in reversed(list(_LAUNCHED.finditer(log)))}
        by_main = {int(m[2]) for m in _STARTED.finditer(log)}
        end = {int(m[2]): stamp(m[1]) for m in _ENDED.finditer(log)}
        freed = {int(m[2]): stamp(m[1]) for m in _FREED.finditer(log)}
        place = {job: at for at, job in enumerate(self.ids)}
        made = []
        for job, array, begun, ended, nodes in accounted(self.ids):
            record = array or job
            one = self.submissions[place[record]]
            at = start.get(job, begun) if np.isfinite(begun) else np.nan
            text = f"afterany:{self.ids[one.after]}" if one.after >= 0 else ""
            made.append(Ran(job, array, one, text, submit[record], at, end.get(job, ended), freed.get(job, ended),
                            self.cancelled_s.get(record, np.inf), nodes, job not in by_main))  # fmt: skip
        return made


def accounted(ids: Sequence[int]) -> Iterator[tuple[int, int, float, float, str]]:
    """Job id, id of its array or 0, start, end and nodes of each job, as sacct has them."""
    listed, fields = ",".join(map(str, ids)), "JobIDRaw,JobID,Start,End,NodeList"
    rows = run("env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-n", "-P", "-a", "-j", listed, "-o", fields).out
    for line in rows.splitlines():
        raw, shown, start, end, nodes = line.split("|")
        array = int(shown.partition("_")[0]) if "_" in shown else 0
        yield int(raw), array, number(start), number(end), nodes


def number(text: str) -> float:
    return float(text) if text.isdigit() else np.nan


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def last_backfill_s(before_s: float) -> float:
    """When slurmctld's last backfill pass before then began, or slurmctld itself."""
    seen = [stamp(m[1]) for m in _BACKFILL.finditer(LOG.read_text(errors="replace"))]
    return max((at for at in seen if at < before_s), default=0.0)


def twin(ran: Sequence[Ran], origin_s: float, **others: float) -> EmbeddedCluster:
    """The model of this very Slurm with the same jobs; its time 0 is origin_s. others: fields of SlurmModel."""
    settings = parse_settings(run("scontrol", "show", "config").out)
    model = SlurmModel.from_settings(settings, tick_phase_s=-origin_s % 1, **others)
    begun_s = last_backfill_s(min(each.submit_s for each in ran)) - origin_s
    model = replace(model, bf_phase_s=begun_s + model.bf_interval_s)
    started = [np.isfinite(each.start_s) for each in ran]
    lasted = [max(each.end_s - each.start_s, 0.01) if ok else 1.0 for each, ok in zip(ran, started, strict=True)]
    ids = [each.job_id for each in ran]
    # The run times of cancelled jobs are cut short by the cancellation itself.
    duration = [max(length, 3600.0) if np.isfinite(each.cancel_s) and each.cancel_s <= each.end_s + 1
                else length for each, length in zip(ran, lasted, strict=True)]  # fmt: skip
    limit = [60.0 * each.of.limit_min for each in ran]
    trace = Trace.of(ids, [e.of.gpus for e in ran], [e.submit_s - origin_s for e in ran], duration, limit)
    requests = Requests.of(trace, ids, {
        "nodes": [e.of.nodes for e in ran],
        "cpus": [e.of.gpus * CPUS_PER_GPU for e in ran],
        "memory_mib": [e.of.nodes * MIB for e in ran],
        "partition": [e.of.partition for e in ran],
        "user": [e.of.user for e in ran],
        "qos": [e.of.qos or "normal" for e in ran],
        "array_id": [e.array_id for e in ran],
        "dependency": [e.dependency for e in ran],
        "epilog_s": [max(e.freed_s - e.end_s, 0.0) if ok else 0.0 for e, ok in zip(ran, started, strict=True)],
        "cancel_s": [e.cancel_s - origin_s for e in ran],
    })  # fmt: skip
    return EmbeddedCluster(trace, LAYOUT, model, requests=requests)


@dataclass(frozen=True)
class Fidelity:
    """How far the model's start times are from Slurm's.

    same_order: share of the pairs of jobs that started in different seconds in Slurm and start in the same order in the
    model. longest: length of the longest common subsequence of the two orders of start, over the number of jobs.
    """

    jobs: int
    pairs: int
    same_order: float
    longest: float
    error_s: tuple[float, float, float]  # start-time error: median, 95th percentile, largest
    same_second: float  # share of jobs that start within a second of Slurm's start
    mean_wait_s: tuple[float, float]  # Slurm, model

    @property
    def wait_error(self) -> float:
        """Model's mean wait over Slurm's, less one."""
        return self.mean_wait_s[1] / self.mean_wait_s[0] - 1

    @property
    def row(self) -> str:
        """A row of docs/fidelity.md."""
        mid, high, most = self.error_s
        real, made = self.mean_wait_s
        return (
            f"{self.jobs} | {self.same_order:.2%} of {self.pairs} pairs | {self.longest:.1%} | "
            f"{mid:.2f} / {high:.2f} / {most:.1f} | {self.same_second:.1%} | "
            f"{real:.2f} / {made:.2f} ({self.wait_error:+.2%}) |"
        )


def compare(ran: Sequence[Ran], cluster: EmbeddedCluster, origin_s: float) -> Fidelity:
    """Slurm's starts beside the model's, of jobs that started in both."""
    model = dict(zip(cluster.trace.job_id.tolist(), cluster.job.first_start_s.tolist(), strict=True))
    both = [(e.start_s - origin_s, model[e.job_id], e.submit_s - origin_s) for e in ran]
    real, made, submit = np.array([row for row in both if np.isfinite(row[:2]).all()]).T
    first, second = np.triu_indices(len(real), 1)
    apart = np.abs(real[first] - real[second]) >= 1.0
    agree = (real[first] - real[second]) * (made[first] - made[second]) > 0
    error = np.abs(made - real)
    return Fidelity(
        len(real), int(apart.sum()), float(agree[apart].mean()), longest_common(real, made) / len(real),
        (float(np.median(error)), float(np.percentile(error, 95)), float(error.max())),
        float((error < 1.0).mean()), (float((real - submit).mean()), float((made - submit).mean())),
    )  # fmt: skip


def longest_common(real: np.ndarray, made: np.ndarray) -> int:
    """Jobs in the longest subsequence that both orders have; jobs of one start time may stand in any order."""
    order = np.lexsort((made, np.floor(real)))
    lengths = np.ones(len(order), np.int64)
    for j in range(len(order)):
        fits = made[order[:j]] <= made[order[j]]
        lengths[j] += lengths[:j][fits].max(initial=0)
    return int(lengths.max(initial=0))
