"""What `usage` shows: one row for each job with what it makes of its GPUs, and the sums over jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from slurmsched.model.gpu_use import GpuJob, JobGpuUse, MeasuredUse, summed


def gpu_use_row(job: GpuJob, use: JobGpuUse | None) -> dict[str, Any]:
    """The fields of the job, and its GPU hours held and unused. Values that are not known are None."""
    gpu_h = job.gpus * job.run_s / 3600
    if use is None:
        measured: dict[str, Any] = dict.fromkeys(("used", "use", "memory_mib", "unused_gpu_h"))
    else:
        measured = {
            "used": None if use.idle is None else use.gpus - use.idle, "use": use.use,
            "memory_mib": None if math.isnan(use.memory_mib) else use.memory_mib,
            "unused_gpu_h": gpu_h * (1 - use.use),
        }  # fmt: skip
    return asdict(job) | {"gpu_h": gpu_h} | measured


def gpu_use_sums(jobs: Iterable[GpuJob], use: MeasuredUse, by: str) -> list[dict[str, Any]]:
    """Sums over the measured jobs, most unused GPU hours first. by: a field of GpuJob, or "type"."""
    key = "gpu_type" if by == "type" else by
    known = ((one, use.by_job[one.job_id]) for one in jobs if one.job_id in use.by_job)
    return [
        {by: one.name, "jobs": one.jobs, "gpus": one.gpus, "gpu_h": one.gpu_h, "use": one.use,
         "unused_gpu_h": one.gpu_h - one.used_gpu_h}
        for one in summed((getattr(job, key) or "-", found, job.gpus * job.run_s / 3600) for job, found in known)
    ]  # fmt: skip
