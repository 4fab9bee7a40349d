"""Rows and sums of `usage`."""

from __future__ import annotations

from slurmsched.model.gpu_use import GpuJob, JobGpuUse, MeasuredUse
from slurmsched.observe.gpu_use_rows import gpu_use_row, gpu_use_sums

ANN = GpuJob(5, "ann", "a", "gpu", "normal", "train", gpus=4, gpu_type="a100", run_s=7_200.0)
BOB = GpuJob(6, "bob", "a", "gpu", "normal", "train", gpus=1, gpu_type="", run_s=3_600.0)
USE = JobGpuUse(5, gpus=4, idle=3, use=0.25)


def test_gpu_use_row__what_is_not_known_is_none():
    """GPU hours are known of every job; the memory is NaN where it was not measured."""
    row = gpu_use_row(ANN, USE)
    assert (row.used, row.gpu_h, row.unused_gpu_h, row.memory_mib) == (1, 8.0, 6.0, None)
    unmeasured = gpu_use_row(BOB, None)
    assert [unmeasured.gpu_h, unmeasured.use, unmeasured.used, unmeasured.unused_gpu_h] == [1.0, None, None, None]


def test_gpu_use_sums__over_measured_jobs_alone():
    """A job of which nothing was measured is in no sum."""
    sums = gpu_use_sums((ANN, BOB), MeasuredUse({5: USE, 6: JobGpuUse(6, 1, 0, 1.0)}, "a file"), "type")
    assert [(one.name, one.jobs, one.unused_gpu_h) for one in sums] == [("a100", 1, 6.0), ("-", 1, 0.0)]
    assert [one.name for one in gpu_use_sums((ANN, BOB), MeasuredUse({5: USE}, "a file"), "account")] == ["a"]
