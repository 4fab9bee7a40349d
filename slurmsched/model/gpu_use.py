"""How much jobs use their GPUs, as measured: one row a job, and sums over users, accounts or types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

IDLE_BELOW = 0.01  # a GPU that computes for less of the time is idle


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU of one job. use: share of the time in which it computed, 0 to 1. memory_mib: the most, NaN unknown."""

    job_id: int
    gpu: str
    use: float
    memory_mib: float = math.nan


@dataclass(frozen=True, slots=True)
class JobGpuUse:
    """What one job makes of its GPUs.

    gpus: measured GPUs.
    idle: those of them that were idle; None where only the sum over all GPUs is known.
    use: mean share of the time in which they computed, 0 to 1.
    memory_mib: the most memory used on one of them [MiB], NaN unknown.
    """

    job_id: int
    gpus: int
    idle: int | None
    use: float
    memory_mib: float = math.nan


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A job whose use is asked for.

    gpus: whole GPUs that it holds or held.
    gpu_type: "" unknown, "," between several.
    run_s: time that it ran [s].
    array_job_id: of the array that it is a task of, 0 = none.
    """

    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    gpus: int
    gpu_type: str
    run_s: float
    running: bool = True
    array_job_id: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """Measured use by job id.

    source: where it is from, as text.
    window_s: over the last that many seconds, NaN: over the whole run.
    not_asked: running jobs that are not measured, for lack of time or of an answer.
    """

    by_job: Mapping[int, JobGpuUse]
    source: str
    window_s: float = math.nan
    not_asked: int = 0


@dataclass(frozen=True, slots=True)
class GpuUseSum:
    """Use of the GPUs of several jobs under one name. gpu_h, used_gpu_h: GPU hours held, and those of them computed."""

    name: str
    jobs: int
    gpus: int
    gpu_h: float
    used_gpu_h: float

    @property
    def use(self) -> float:
        """Share of the GPU hours that were used, 0 to 1; NaN without any."""
        return self.used_gpu_h / self.gpu_h if self.gpu_h else math.nan

    @property
    def unused_gpu_h(self) -> float:
        """GPU hours that were held and not used."""
        return self.gpu_h - self.used_gpu_h


def job_gpu_use(samples: Iterable[GpuSample]) -> dict[int, JobGpuUse]:
    """Samples by job. Of several samples of one GPU of a job the highest counts."""
    found: dict[int, dict[str, GpuSample]] = {}
    for sample in samples:
        gpus = found.setdefault(sample.job_id, {})
        if sample.gpu not in gpus or sample.use > gpus[sample.gpu].use:
            gpus[sample.gpu] = sample
    return {job: _use_of_job(job, list(gpus.values())) for job, gpus in sorted(found.items())}


def _use_of_job(job_id: int, samples: Sequence[GpuSample]) -> JobGpuUse:
    idle = sum(sample.use < IDLE_BELOW for sample in samples)
    memory = max((sample.memory_mib for sample in samples if not math.isnan(sample.memory_mib)), default=math.nan)
    return JobGpuUse(job_id, len(samples), idle, sum(sample.use for sample in samples) / len(samples), memory)


def use_sums(rows: Iterable[tuple[str, JobGpuUse, float]]) -> list[GpuUseSum]:
    """Sums by name, most unused GPU hours first. rows: name, use of a job, GPU hours that it held."""
    sums: dict[str, GpuUseSum] = {}
    for name, use, gpu_h in rows:
        old = sums.get(name, GpuUseSum(name, 0, 0, 0.0, 0.0))
        sums[name] = GpuUseSum(name, old.jobs + 1, old.gpus + use.gpus, old.gpu_h + gpu_h,
                               old.used_gpu_h + gpu_h * use.use)  # fmt: skip
    return sorted(sums.values(), key=lambda one: (one.used_gpu_h - one.gpu_h, one.name))


# Rows of `usage`.


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUseRow(GpuJob):
    """A job and what it makes of its GPUs. None: not known.

    gpu_h, unused_gpu_h: GPU hours held, and those of them in which the GPUs did not compute.
    used: GPUs that computed at least 1 % of the time.
    use: mean share of the time in which its GPUs computed, 0 to 1.
    memory_mib: the most memory used on one GPU [MiB].
    """

    gpu_h: float
    used: int | None = None
    use: float | None = None
    memory_mib: float | None = None
    unused_gpu_h: float | None = None


def gpu_use_row(job: GpuJob, use: JobGpuUse | None) -> GpuUseRow:
    """The job with its use. use: None = not measured."""
    gpu_h = job.gpus * job.run_s / 3600
    if use is None:
        return GpuUseRow(**asdict(job), gpu_h=gpu_h)
    return GpuUseRow(
        **asdict(job),
        gpu_h=gpu_h,
        used=None if use.idle is None else use.gpus - use.idle,
        use=use.use,
        memory_mib=None if math.isnan(use.memory_mib) else use.memory_mib,
        unused_gpu_h=gpu_h * (1 - use.use),
    )


def gpu_use_sums(jobs: Iterable[GpuJob], use: MeasuredUse, by: str) -> list[GpuUseSum]:
    """Sums over the measured jobs, most unused GPU hours first. by: a field of GpuJob, or "type"."""
    key = "gpu_type" if by == "type" else by
    known = ((one, use.by_job[one.job_id]) for one in jobs if one.job_id in use.by_job)
    return use_sums((getattr(job, key) or "-", found, job.gpus * job.run_s / 3600) for job, found in known)


def sum_records(sums: Iterable[GpuUseSum], by: str) -> list[dict[str, Any]]:
    """The sums as JSON has them. by: the key of their names."""
    return [
        {by: one.name, "jobs": one.jobs, "gpus": one.gpus, "gpu_h": one.gpu_h, "use": one.use,
         "unused_gpu_h": one.unused_gpu_h}
        for one in sums
    ]  # fmt: skip
