"""How much jobs use their GPUs, by Slurm's own accounting: gres/gpuutil and gres/gpumem of steps.

slurmd measures them where it finds GPUs by NVML or RSMI (AutoDetect in gres.conf). They need gres/gpu in
AccountingStorageTRES. gpuutil is in percent and counts all GPUs of a task: 400 is four GPUs that compute all the time.
sacct has steps that have ended, sstat those that run. sstat asks every node of the job.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model.gpu_use import GpuJob, JobGpuUse, MeasuredUse
from slurmsched.model.gres import count_gpus, parse_gres
from slurmsched.model.slurm_text import MIB_OF_UNIT, MOST_COUNT, whole_number
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands, argument_batches
from slurmsched.slurm.squeue import fresh_mark

MOST_RUNNING = 200  # running jobs that sstat is asked about: each question goes to all nodes of the job
BATCH = 20  # jobs of one sstat: one that gives no answer costs no more than these
PATIENCE_S = 30.0  # for all sstat together
EXTERN = ".extern|"  # of a row: the step that has what runs outside of all others
UTIL, MEMORY = "gres/gpuutil", "gres/gpumem"
NONE = ("Slurm's accounting has no gres/gpuutil of these jobs; slurmd measures it with AutoDetect=nvml or rsmi, "
        "and AccountingStorageTRES must have gres/gpu")  # fmt: skip


def slurm_gpu_use(
    commands: Commands, gpus: Mapping[int, int], running: Iterable[int], clock: Callable[[], float] = time.monotonic
) -> MeasuredUse:
    """Use of the jobs of `gpus`, which holds the GPUs of each by its job id (JobIDRaw). running: those that run.

    A running job is measured only if sstat told the use of a step that runs: its ended steps alone may have been idle.
    clock: in seconds; sstat is asked no more after PATIENCE_S. Raises SlurmError where sacct does not answer.
    """
    ended = "".join(
        commands.run("sacct", "--allusers", "--noheader", "--parsable2", "--noconvert", "--duplicates",
                     "--starttime=1970-01-02", f"--jobs={batch}", "--format=JobIDRaw,TRESUsageInTot,TRESUsageInMax")
        for batch in argument_batches(sorted(gpus))
    )  # fmt: skip
    asked = sorted(running)
    now = _running_steps(commands, asked, clock)
    own = "".join(line for line in now.splitlines(keepends=True) if EXTERN not in line)
    answered, measured = {job_id for job_id, _, _ in _steps(own)}, parse_gpu_use(own, gpus)
    unknown = {job_id for job_id in asked if job_id not in measured}
    by_job = {job_id: use for job_id, use in parse_gpu_use(ended + now, gpus).items() if job_id not in unknown}
    return MeasuredUse(by_job, "Slurm's accounting", not_asked=sum(job_id not in answered for job_id in asked))


def _running_steps(commands: Commands, running: Sequence[int], clock: Callable[[], float]) -> str:
    """Output of sstat about as many jobs as there is time for.

    If it refuses to answer about a batch, its jobs are asked about one by one; a batch without an answer in time is
    left out.
    """
    text, until_s = "", clock() + PATIENCE_S
    last = min(len(running), MOST_RUNNING)
    waiting = deque(running[at : min(at + BATCH, last)] for at in range(0, last, BATCH))
    while waiting and (remaining_s := until_s - clock()) > 0:
        jobs = waiting.popleft()
        try:
            text += _sstat(replace(commands, timeout_s=min(commands.timeout_s, remaining_s)), jobs)
        except SlurmUnreachableError:
            continue
        except SlurmError:
            waiting.extend([job_id] for job_id in jobs if len(jobs) > 1)
    return text


def _sstat(commands: Commands, jobs: Sequence[int]) -> str:
    """Output of sstat. Raises SlurmUnreachableError where there is no answer in time.

    Raises SlurmError where one of the jobs has no step that is this user's to see, or has just ended.
    """
    names = ",".join(map(str, jobs))
    return commands.run("sstat", "--allsteps", "--noheader", "--parsable2", "--noconvert", f"--jobs={names}",
                        "--format=JobID,TRESUsageInTot,TRESUsageInMax")  # fmt: skip


def parse_gpu_use(text: str, gpus: Mapping[int, int]) -> dict[int, JobGpuUse]:
    """Use by job, of rows of id, TRESUsageInTot and TRESUsageInMax. Jobs without a measured step are left out.

    Of several steps the one with the highest use counts. Raises UnreadableError for a row of another form.
    """
    found: dict[int, JobGpuUse] = {}
    for job_id, total, most in _steps(text):
        held = gpus.get(job_id, 0)
        util = _percent(total.get(UTIL, ""))
        if not held or math.isnan(util):
            continue
        use = JobGpuUse(job_id, held, None, min(util / 100.0 / held, 1.0), _mib(most.get(MEMORY, "")))
        if job_id not in found or use.use > found[job_id].use:
            found[job_id] = use
    return dict(sorted(found.items()))


def _steps(text: str) -> Iterator[tuple[int, dict[str, str], dict[str, str]]]:
    for line in filter(str.strip, text.splitlines()):
        parts = line.split("|")
        if len(parts) != 3:
            raise UnreadableError("sacct or sstat printed something other than what was asked for", text=line[:200])
        job, dot, _ = parts[0].partition(".")
        if dot and (job_id := whole_number(job)):
            yield job_id, _parsed_pairs(parts[1]), _parsed_pairs(parts[2])


def _parsed_pairs(text: str) -> dict[str, str]:
    """The values of "cpu=1,gres/gpuutil=53"."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _percent(text: str) -> float:
    """NaN for no number and for Slurm's marks of infinity and of no value (2^64 - 1, 2^64 - 2)."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if 0 <= value < 1e9 else math.nan


def _mib(text: str) -> float:
    """Memory in bytes or with a unit. [MiB], NaN for no number and for 0, which slurmd writes where it found none."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    try:
        value = float(text[: len(text) - len(unit)]) * (MIB_OF_UNIT[unit] if unit else 1 / (1 << 20))
    except (ValueError, KeyError):
        return math.nan
    return value if 0 < value < 1e9 else math.nan


def shared_gpu_jobs(snapshot: Snapshot) -> list[GpuJob]:
    """The running jobs with a part of one GPU, as of that GPU."""
    jobs, types = snapshot.jobs, dict(zip(snapshot.nodes.name, snapshot.nodes.gpu_types, strict=True))
    rows = np.flatnonzero(jobs.running & (jobs.gpus == 0) & ~jobs.shared_gpu.isin([""]))
    of_node = {row: parse_gres(types.get(jobs.shared_gpu[row].partition(" ")[0], "")) for row in rows.tolist()}
    return [
        GpuJob(int(jobs.job_id[row]), jobs.user[row], jobs.account[row], jobs.partition[row], jobs.qos[row],
               jobs.name[row], 1, ",".join(sorted({entry.type for entry in entries if entry.kind == "gpu"})),
               float(jobs.run_s[row]), array_job_id=int(jobs.array_job_id[row]))
        for row, entries in of_node.items()
    ]  # fmt: skip


def running_gpu_jobs(snapshot: Snapshot) -> list[GpuJob]:
    """The running jobs with whole GPUs."""
    jobs = snapshot.jobs
    types: dict[int, set[str]] = {}
    for job_id, gpu_type in zip(snapshot.allocations.job_id.tolist(), snapshot.allocations.gpu_type, strict=True):
        types.setdefault(job_id, set()).add(gpu_type)
    return [
        GpuJob(int(jobs.job_id[row]), jobs.user[row], jobs.account[row], jobs.partition[row], jobs.qos[row],
               jobs.name[row], int(jobs.gpus[row]), ",".join(sorted(types.get(int(jobs.job_id[row]), ()))),
               float(jobs.run_s[row]), array_job_id=int(jobs.array_job_id[row]))
        for row in np.flatnonzero(jobs.running & (jobs.gpus > 0)).tolist()
    ]  # fmt: skip


_JOB_FIELDS = ("JobIDRaw", "JobID", "User", "Account", "Partition", "QOS", "ElapsedRaw", "AllocTRES", "JobName")


def ended_gpu_jobs(commands: Commands, since_s: float) -> list[GpuJob]:
    """Jobs with whole GPUs that ended within the last since_s seconds, by sacct.

    Raises SlurmError if there is no accounting or it does not answer, UnreadableError for an answer of another form.
    """
    mark = fresh_mark()  # a name may have line breaks and "|"
    text = commands.run("sacct", "--allusers", "--allocations", "--noheader", "--parsable", f"--delimiter={mark}",
                        "--noconvert", f"--starttime=now-{since_s:.0f}seconds", "--endtime=now",
                        "--state=CD,F,TO,CA,OOM,NF,PR,DL", f"--format={','.join(_JOB_FIELDS)}")  # fmt: skip
    cells = text.split(mark)
    if len(cells) % len(_JOB_FIELDS) != 1:
        raise UnreadableError("sacct printed something other than what was asked for", text="|".join(cells[:9])[:200])
    found = []
    for at in range(0, len(cells) - 1, len(_JOB_FIELDS)):
        job, shown, user, account, partition, qos, elapsed, tres, name = cells[at : at + len(_JOB_FIELDS)]
        array, task, _ = shown.partition("_")
        entries = parse_gres(tres)
        run_s = whole_number(elapsed, -1, MOST_COUNT)
        if (gpus := count_gpus(entries)) and run_s > 0:
            types = ",".join(sorted({entry.type for entry in entries if entry.kind == "gpu" and entry.type}))
            found.append(GpuJob(whole_number(job.strip()), user, account, partition, qos, name, gpus, types, run_s,
                                False, whole_number(array) if task else 0))  # fmt: skip
    return found
