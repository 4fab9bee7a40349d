"""What `usage` shows: one row for each job with what it makes of its GPUs, and the sums over jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from slurmsched.model.gpu_use import GpuJob, GpuUseSum, JobGpuUse, MeasuredUse, use_sums


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
