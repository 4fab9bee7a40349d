"""Plays a workload on the Slurm of a lab, and reads from its log and accounting what became of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from slurmsched.sim.cluster_slurm_conf import ACCOUNTS_FILE, MADE_BY, QOS_FILE
from slurmsched.slurm.site import parse_settings
from tests.live.lab import run, until
from tests.twin.recording import Ran, Recording
from tests.twin.workload import Submission

LOG, CONF = Path("/var/log/slurm/slurmctld.log"), Path("/etc/slurm/slurm.conf")
_STAMP = r"\[(\S+?)\] "
_JOB = r"JobId=(?:\d+_\d+\()?(\d+)\)?"
_SUBMITTED = re.compile(_STAMP + r"_slurm_rpc_submit_batch_job: " + _JOB, re.MULTILINE)
_LAUNCHED = re.compile(_STAMP + r"debug2: +acct_policy_job_begin: after adding " + _JOB, re.MULTILINE)
_ENDED = re.compile(_STAMP + r"_job_complete: " + _JOB + r" done", re.MULTILINE)
_OVER = re.compile(_STAMP + _JOB + r" timed out, ", re.MULTILINE)
_PREEMPTED = re.compile(_STAMP + r"preempted " + _JOB + r" has been killed", re.MULTILINE)
_CANCELLED = re.compile(_STAMP + r"_slurm_rpc_kill_job: REQUEST_KILL_JOB " + _JOB, re.MULTILINE)
_FREED = re.compile(_STAMP + r"debug2: +_slurm_rpc_epilog_complete: " + _JOB, re.MULTILINE)
_FREED_NODE = re.compile(_FREED.pattern + r" Node=(\S+)", re.MULTILINE)
_BEGUN = "Running as primary controller"  # slurmctld counts from then on
_BACKFILL = re.compile(
    _STAMP + rf"(?:(?:debug: +)?sched/backfill: _attempt_backfill: beginning|{_BEGUN})", re.MULTILINE
)
_FULL_PASS = re.compile(_STAMP + rf"(?:debug: +sched: Running job scheduler for full queue|{_BEGUN})", re.MULTILINE)


_PASSES = {
    "backfill": _STAMP + r"(?:debug: +)?sched/backfill: _attempt_backfill: beginning",
    "full": _STAMP + r"(?:debug: +)?sched: Running job scheduler for full queue",
    "usage": _STAMP + r"(?:debug: +)?priority/multifactor: _decay_thread: PRIO: Decay factor over",
    "check": _STAMP + r"debug2: +Testing job time limits",
    "main": _STAMP + r"(?:debug: +)?sched: Running job scheduler for default depth",
}

_READ = _STAMP + r"debug2: Processing RPC: REQUEST_JOB_INFO from UID={uid}\b"
_WRITTEN = _STAMP + r"_slurm_rpc_update_job: complete JobId=\S+ uid={uid}\b"


@dataclass
class Recorder:
    """Submits, waits, and reads what became of it.

    rate: so many times as fast as ours Slurm's clock runs. to_last_start: cancel what runs when the last job has
    started, which saves the time until it ends.
    """

    submissions: Sequence[Submission]
    ids: list[int] = field(default_factory=list)
    rate: float = 1.0
    to_last_start: bool = False

    def play(self) -> None:
        """Submit and cancel at the planned times; return when the queue is empty."""
        warm_up()
        begun_s = time.monotonic()
        for at_s, place, cancel in self._plan():
            time.sleep(max(0.0, begun_s + at_s / self.rate - time.monotonic()))
            if cancel:
                run("scancel", "-Q", str(self.ids[place]), check=False)
            else:
                one = self.submissions[place]
                self.ids.append(int(run(*one.command(self.ids), user=one.user).out.split(";")[0]))
        while self.to_last_start and run("squeue", "-h", "-a", "-t", "PD").out:
            time.sleep(1)
        if self.to_last_start:
            run("scancel", "-Q", "-t", "RUNNING", check=False)
        while run("squeue", "-h", "-a").out:
            time.sleep(1)
        time.sleep(2)  # slurmdbd's last records

    def _plan(self) -> list[tuple[float, int, bool]]:
        submits = [(one.at_s, place, False) for place, one in enumerate(self.submissions)]
        cancels = [(one.at_s + one.cancel_s + 1, p, True) for p, one in enumerate(self.submissions) if one.cancel_s]
        return sorted([*submits, *cancels])

    def recording(
        self,
        uid: int = 0,
        done_s: Sequence[float] = (),
        *,
        limited: bool = False,
        placed: bool = False,
        **of_daemon: float,
    ) -> Recording:
        """Every job, by id. uid, done_s: user of the daemon, and when its cycles ended. limited: see Recording.
        placed: with the nodes of each job, and the slurm.conf that they are from.

        Times come from slurmctld's log (milliseconds), else from sacct (seconds).
        """
        log = LOG.read_text(errors="replace")
        kinds = (_SUBMITTED, _CANCELLED, _ENDED, _OVER, _PREEMPTED, _FREED)
        submit, cancel, end, over, preempted, freed = (_last(each, log) for each in kinds)
        start = {int(m[2]): stamp(m[1]) for m in reversed(list(_LAUNCHED.finditer(log)))}
        spread = spreads(log, end | over)
        place = {job: at for at, job in enumerate(self.ids)}
        made = []
        for job, array, begun_s, ended_s, nodes in accounted(self.ids):
            record = array or job
            one, cancel_s = self.submissions[place[record]], cancel.get(record)
            # a job that is cancelled, or ended for a limit, logs no end
            ends = [at for at in (end.get(job), over.get(job), preempted.get(job), cancel_s) if at is not None]
            made.append(Ran(
                job, array, f"afterany:{self.ids[one.after]}" if one.after >= 0 else "", one.user, one.gpus, one.nodes,
                one.limit_min, one.partition, one.qos or "normal", submit[record],
                begun_s and start.get(job, begun_s), min(ends, default=ended_s), freed.get(job, ended_s), cancel_s,
                spread.get(job, 0.0), one.account, job in over or job in preempted, one.throttle if array else 0,
                one.cpus_per_node * one.nodes, one.gpu_type, one.constraint, one.licenses, one.exclusive,
                nodes if placed else "",
            ))  # fmt: skip
        settings = parse_settings(run("scontrol", "show", "config").out)
        first_s = min(each.submit_s for each in made)
        passes_s = (_last_before(pattern, log, first_s) for pattern in (_BACKFILL, _FULL_PASS))
        until_s = max(each.end_s or 0.0 for each in made)
        told = {"passes": passes_of(log, first_s, until_s), "cycles": cycles_of(log, uid, done_s),
                "writes": tuple(writes for *_, writes in written_in(log, uid, done_s))}  # fmt: skip
        files = {name: run(*MADE_BY[name].split()).out for name in (QOS_FILE, ACCOUNTS_FILE)} if limited else {}
        files |= {CONF.name: CONF.read_text()} if placed else {}
        return Recording(tuple(made), settings, *passes_s, **of_daemon, **told, limited=limited, files=files)


def spreads(log: str, end: Mapping[int, float]) -> dict[int, float]:
    """How much later than its first node by name a job's last one was done with its end [s]."""
    nodes = dict[int, dict[str, float]]()
    for match in _FREED_NODE.finditer(log):
        if (at := stamp(match[1])) >= end.get(job := int(match[2]), 0.0):
            nodes.setdefault(job, {})[match[3]] = at
    return {job: each[max(each)] - each[min(each)] for job, each in nodes.items() if len(each) > 1}


def passes_of(log: str, from_s: float, until_s: float) -> tuple[tuple[float, str], ...]:
    """Time and kind of every pass between two times, the last pass before included."""
    found = sorted((stamp(match[1]), how) for how, pattern in _PASSES.items() for match in re.finditer(pattern, log))
    return tuple((at, how) for at, how in found if from_s - 1 <= at <= until_s)


def cycles_of(log: str, uid: int, done_s: Sequence[float]) -> tuple[tuple[float, float, float, int], ...]:
    """When the daemon of this user first read the queue in each cycle, its first and last write (its end if it wrote
    nothing), and how many there were. done_s: ends of the cycles."""
    return tuple((read_s, min(written, default=end_s), max(written, default=end_s), len(written))
                 for read_s, end_s, written in written_in(log, uid, done_s))  # fmt: skip


def written_in(log: str, uid: int, done_s: Sequence[float]) -> list[tuple[float, float, tuple[float, ...]]]:
    """When each cycle first read the queue, when it ended, and when its writes came, in their order."""
    reads, writes = (list(map(stamp, re.findall(pattern.format(uid=uid), log))) for pattern in (_READ, _WRITTEN))
    bounds = [done_s[0] - 60, *done_s] if done_s else []
    begun = [(min(read), end_s) for before_s, end_s in pairwise(bounds)
             if (read := [at for at in reads if before_s < at <= end_s])]  # fmt: skip
    found = []
    for (read_s, end_s), (next_s, _) in pairwise([*begun, (math.inf, math.inf)]):
        # slurmctld logs a write after its answer: the line of a cycle's last one may come after the cycle's end
        found.append((read_s, end_s, tuple(sorted(at for at in writes if read_s <= at < next_s))))
    return found


def warm_up() -> None:
    """Wait for a job to come and go: slurmctld makes no pass in its first seconds."""
    job = run("sbatch", "--parsable", "--output=/dev/null", "--wrap=true", user="alice").out.strip()
    until(lambda: not run("squeue", "-h", "-j", job, check=False).out, "the first job ended")


def accounted(ids: Sequence[int]) -> Iterator[tuple[int, int, float | None, float | None, str]]:
    """Job id, id of its array or 0, start, end and nodes of each job, as sacct has them."""
    listed, fields = ",".join(map(str, ids)), "JobIDRaw,JobID,Start,End,NodeList"
    rows = run("env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-n", "-P", "-a", "-j", listed, "-o", fields).out
    for line in rows.splitlines():
        raw, shown, start, end, nodes = line.split("|")
        array = int(shown.partition("_")[0]) if "_" in shown else 0
        yield int(raw), array, _number(start), _number(end), nodes


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _number(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _last(pattern: re.Pattern[str], log: str) -> dict[int, float]:
    """Job id -> time of the last line of this kind."""
    return {int(match[2]): stamp(match[1]) for match in pattern.finditer(log)}


def _last_before(pattern: re.Pattern[str], log: str, before_s: float) -> float:
    """Time of the last line of this kind before then, 0 if there is none."""
    return max((at for match in pattern.finditer(log) if (at := stamp(match[1])) < before_s), default=0.0)
