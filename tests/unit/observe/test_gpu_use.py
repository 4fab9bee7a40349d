"""Measured use of GPUs: sums, Slurm's accounting, files, and what is said where there is none."""

from __future__ import annotations

import http.client
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from slurmsched.config import MeasuredUseConfig
from slurmsched.errors import InputError, MeasurementError, SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model.gpu_use import (
    GpuJob,
    GpuSample,
    JobGpuUse,
    MeasuredUse,
    gpu_use_row,
    gpu_use_sums,
    job_gpu_use,
    use_sums,
)
from slurmsched.observe.gpu_use_sources import PeriodicUse, prometheus_gpu_use, read_gpu_use, read_use_file
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.gpu_accounting import ended_gpu_jobs, slurm_gpu_use
from slurmsched.slurm.gpu_accounting import parse_gpu_use as read_accounting
from slurmsched.testing import snapshot


def test_job_gpu_use__counts_idle_gpus_and_the_mean() -> None:
    """One of four GPUs computes; of two values of one GPU the higher counts."""
    samples = [GpuSample(7, f"n1 {gpu}", 0.0) for gpu in range(4)] + [GpuSample(7, "n1 0", 0.8, 2_000.0)]
    assert job_gpu_use(samples) == {7: JobGpuUse(7, 4, 3, 0.2, 2_000.0)}


def test_summed__most_unused_first() -> None:
    """ann held 4 GPU h and used 1; bob held 2 and used all."""
    rows = [
        ("bob", JobGpuUse(1, 1, 0, 1.0), 2.0),
        ("ann", JobGpuUse(2, 2, 1, 0.5), 2.0),
        ("ann", JobGpuUse(3, 1, 1, 0.0), 2.0),
    ]
    assert [(one.name, one.jobs, one.gpus, one.gpu_h, one.used_gpu_h) for one in use_sums(rows)] == [
        ("ann", 2, 3, 4.0, 1.0), ("bob", 1, 1, 2.0, 2.0)]  # fmt: skip


def test_accounting__percent_of_all_gpus_by_job() -> None:
    """A task's gpuutil counts all its GPUs: 200 of four is a half. The busiest step counts; the allocation has none."""
    text = (
        "7||\n7.batch|cpu=3,gres/gpumem=0,gres/gpuutil=0|gres/gpumem=0\n"
        "7.0|cpu=3,gres/gpumem=8G,gres/gpuutil=200|gres/gpumem=3221225472\n8.0|cpu=1|\n9.0|gres/gpuutil=50|\n"
        "10.0|gres/gpuutil=18446744073709551615|gres/gpumem=18446744073709551614\n"
    )
    found = read_accounting(text, {7: 4, 8: 1, 10: 1})
    assert found == {7: JobGpuUse(7, 4, None, 0.5, 3_072.0)}


def test_accounting__units_and_other_output() -> None:
    """Memory with a unit; more than all GPUs is all; a row of another form is an error."""
    (use,) = read_accounting("7.0|gres/gpuutil=900|gres/gpumem=2G\n", {7: 4}).values()
    assert (use.use, use.memory_mib) == (1.0, 2_048.0)
    with pytest.raises(UnreadableError):
        read_accounting("7.0|a|b|c\n", {7: 4})


def rows_of(*records: tuple[str, ...]) -> object:
    """sacct that has these records."""

    class Sacct:
        def run(self, program: str, *options: str) -> str:
            mark = next(word for word in options if word.startswith("--delimiter=")).removeprefix("--delimiter=")
            return "".join("".join(f"{value}{mark}" for value in record) + "\n" for record in records)

    return Sacct()


def test_ended__a_name_forges_no_row() -> None:
    """Line breaks and "|" are part of it; a task has its array's id; a job without GPUs is left out."""
    evil = "a|b\n9|9|root|x|gpu|normal|60|gres/gpu=8|forged"
    tres, rest = "cpu=1,gres/gpu=2,gres/gpu:a100=2", ("ann", "ml", "gpu", "normal", "3600")
    sacct = rows_of(("7", "5_3", *rest, tres, evil), ("8", "8", *rest, tres, "b"), ("9", "9", *rest, "cpu=1", "c"))
    found = ended_gpu_jobs(sacct, 60.0)  # type: ignore[arg-type]
    assert [(one.job_id, one.array_job_id, one.user, one.name, one.gpus) for one in found] == [
        (7, 5, "ann", evil, 2), (8, 0, "ann", "b", 2)]  # fmt: skip
    with pytest.raises(UnreadableError):
        ended_gpu_jobs(rows_of(("7", "7")), 60.0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sstat:
    """sstat that takes so long for each question. It gives no answer about the job `away`, and none about a batch with
    the job `gone`. sacct: what sacct prints; step: of the rows of sstat."""

    takes_s: float = 0.0
    away: str = ""
    gone: str = ""
    sacct: str = ""
    step: str = "0"
    timeout_s: float = 60.0
    asked: list[str] = field(default_factory=list)

    def run(self, program: str, *options: str) -> str:
        if program == "sacct":
            return self.sacct
        jobs = next(word for word in options if word.startswith("--jobs=")).removeprefix("--jobs=")
        self.asked.append(jobs)
        if self.away in jobs.split(","):
            raise SlurmUnreachableError("no answer")
        if self.gone in jobs.split(","):
            raise SlurmError("no steps found")
        return "".join(f"{job}.{self.step}|gres/gpuutil=50|\n" for job in jobs.split(","))

    def clock(self) -> float:
        return self.takes_s * len(self.asked)


@pytest.mark.parametrize(
    ("slurm", "asked", "measured", "not_asked"),
    [(Sstat(), 3, 50, 0), (Sstat(20.0), 2, 40, 10), (Sstat(away="25"), 3, 30, 20), (Sstat(gone="25"), 23, 49, 1),
     (Sstat(9.0, gone="25"), 4, 31, 19)],
)  # fmt: skip
def test_accounting__asks_about_few_running_jobs_at_a_time(slurm: Sstat, asked, measured, not_asked) -> None:
    """A batch without an answer in time costs its own jobs, one that sstat refuses only the job that it refuses. After
    the time is over no more is asked."""
    gpus = dict.fromkeys(range(1, 51), 1)
    found = slurm_gpu_use(slurm, gpus, gpus, slurm.clock)  # type: ignore[arg-type]
    assert (len(slurm.asked), len(found.by_job), found.not_asked) == (asked, measured, not_asked)


@pytest.mark.parametrize(
    ("slurm", "use", "not_asked"),
    [(Sstat(), {7: 0.5, 8: 0.0}, 0), (Sstat(gone="7"), {8: 0.0}, 1), (Sstat(away="7"), {8: 0.0}, 1),
     (Sstat(step="extern"), {8: 0.0}, 1)],
)  # fmt: skip
def test_accounting__ended_steps_alone_do_not_make_a_running_job_idle(slurm: Sstat, use, not_asked) -> None:
    """Job 7 runs after a step without use; what it does now is known by its running step only. Job 8 has ended."""
    slurm = replace(slurm, sacct="7.0|gres/gpuutil=0|\n8.0|gres/gpuutil=0|\n")
    found = slurm_gpu_use(slurm, {7: 1, 8: 1}, [7])  # type: ignore[arg-type]
    assert ({job: one.use for job, one in found.by_job.items()}, found.not_asked) == (use, not_asked)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("job_id,use\n7,1\n", "has no column gpu, use_pct"),
        ("job_id,gpu,use_pct\n7,0,50\n7,1,fast\n", r"use.csv:3: cannot be read"),
        ("job_id,gpu,use_pct\n7,0,120\n", r"use.csv:2: needs a job_id from 1 and a use_pct from 0 to 100"),
        ("job_id,gpu,use_pct\n0,0,20\n", r"use.csv:2: needs a job_id"),
        ("job_id,gpu,use_pct,memory_mib\n7,0,20,-5\n", r"use.csv:2: needs a memory_mib from 0, got -5"),
        pytest.param("job_id,gpu,use_pct\n7," + "x" * 140_000 + ",1\n", "cannot be read: field larger", id="long"),
    ],
)
def test_file__says_which_line_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    """Column, line, and what is expected."""
    (path := tmp_path / "use.csv").write_text(text)
    with pytest.raises(InputError, match=error):
        list(read_use_file(path))


def test_file__is_read(tmp_path: Path) -> None:
    """Memory may be left out, and the file may begin with a byte order mark."""
    (path := tmp_path / "use.csv").write_text("\ufeffjob_id,gpu,use_pct,memory_mib\n7,n1:0,50,1000\n7,n1:1,0,\n")
    use = read_gpu_use(MeasuredUseConfig(source="file", file=str(path)), Commands(), {7: 2}, [7])
    assert use.by_job == {7: JobGpuUse(7, 2, 1, 0.25, 1_000.0)}
    assert math.isnan(use.window_s)


def test_sources__say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is configured; Prometheus does not answer, or breaks off."""

    def cut(*_: object, **__: object) -> None:
        raise http.client.IncompleteRead(b"{")

    with pytest.raises(InputError, match=r"set measured_use\.source"):
        read_gpu_use(MeasuredUseConfig(), Commands(), {}, [])
    away = MeasuredUseConfig(source="prometheus", prometheus_url="http://127.0.0.1:1")
    with pytest.raises(MeasurementError, match=r"does not answer: .*see measured_use\.prometheus_url"):
        prometheus_gpu_use(away)
    monkeypatch.setattr("urllib.request.urlopen", cut)
    with pytest.raises(MeasurementError, match=r"does not answer: "):
        prometheus_gpu_use(away)
    with pytest.raises(ValueError, match="needs prometheus_url"):
        MeasuredUseConfig(source="prometheus", prometheus_url="ftp://x")


def test_periodic_use__is_read_now_and_then_and_kept_for_a_while():
    """Columns of the running jobs; while the source is away the last values stay for a while, with a warning."""
    answers = iter([MeasuredUse({1: JobGpuUse(1, 4, 3, 0.25, 1024.0)}, "x"), MeasurementError("away"),
                    MeasurementError("away"), MeasuredUse({}, "x")])  # fmt: skip
    asked = []

    def read(gpus):
        asked.append(dict(gpus))
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    times = iter([0.0, 50.0, 100.0, 500.0, 600.0])
    config = MeasuredUseConfig(source="slurm", every_s=100)
    reader = PeriodicUse(config, read, lambda: next(times))
    queue = snapshot(jobs=[{"job_id": 1, "state": "R", "gpus": 4}, {"job_id": 2, "state": "PD"}])
    seen = [reader(queue) for _ in range(5)]
    use = [each.jobs.gpu_use[0] for each in seen]
    assert (use[:3], [math.isnan(value) for value in use[3:]]) == ([0.25] * 3, [True, True])
    assert (seen[0].jobs.idle_gpus[0], seen[0].jobs.gpu_memory_mib[0], math.isnan(seen[0].jobs.gpu_use[1])) == (
        3,
        1024,
        True,
    )
    assert [len(each.warnings) for each in seen] == [0, 0, 1, 1, 0]
    assert asked == [{1: 4}] * 4


# Rows and sums of `usage`.


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
