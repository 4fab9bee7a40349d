"""Where the use of GPUs is measured: Slurm's accounting, a Prometheus, or a file. One is configured, or none."""

from __future__ import annotations

import csv
import http.client
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmsched.config import MeasuredUseConfig
from slurmsched.errors import InputError, MeasurementError, SlurmschedError
from slurmsched.model.gpu_use import GpuSample, JobGpuUse, MeasuredUse, job_gpu_use
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.gpu_accounting import running_gpu_jobs, slurm_gpu_use

TIMEOUT_S = 20.0
KEPT = 3.0  # a value is taken for that many times every_s while the source does not answer
MOST_BYTES = 64 << 20  # of an answer
NOT_CONFIGURED = ("the use of GPUs is not measured here: set measured_use.source to slurm, prometheus or file "
                  "(docs/measured-use.md)")  # fmt: skip
# Series that have, for each GPU, the job that holds it. use: 0 to 100. job: the label with the job id.
_HELD = 'count_values by (instance, minor_number) ("job_id", nvidia_gpu_jobId > 0)'
EXPORTERS: Mapping[str, tuple[str, str, str]] = {  # name -> use, memory in MiB, label of the job id
    "dcgm": ('DCGM_FI_DEV_GPU_UTIL{hpc_job=~"[0-9]+"}', 'DCGM_FI_DEV_FB_USED{hpc_job=~"[0-9]+"}', "hpc_job"),
    "jobstats": (
        f"nvidia_gpu_duty_cycle * on (instance, minor_number) group_left(job_id) {_HELD}",
        f"nvidia_gpu_memory_used_bytes / 1048576 * on (instance, minor_number) group_left(job_id) {_HELD}",
        "job_id",
    ),
}
GPU_LABELS = ("instance", "Hostname", "gpu", "minor_number", "GPU_I_ID", "UUID", "uuid")


def read_gpu_use(
    config: MeasuredUseConfig, commands: Commands, gpus: Mapping[int, int], running: Sequence[int]
) -> MeasuredUse:
    """Measured use of these jobs, as configured.

    gpus: GPUs that each job holds, by job id. running: ids of those that run.
    Raises InputError where no source is configured and for a bad file, MeasurementError where Prometheus does not
    answer, SlurmError where Slurm does not.
    """
    if config.source == "slurm":
        return slurm_gpu_use(commands, gpus, running)
    if config.source == "prometheus":
        return prometheus_gpu_use(config)
    if config.source == "file":
        return MeasuredUse(job_gpu_use(read_use_file(Path(config.file))), config.file)
    raise InputError(NOT_CONFIGURED)


class PeriodicUse:
    """Adds the measured use of running jobs to snapshots. The use is read once in config.every_s.

    While the source does not answer the last values stay, up to KEPT times that long, and a warning says so.
    read: asks the source, see read_gpu_use.
    clock: in seconds.
    """

    def __init__(
        self, config: MeasuredUseConfig, read: Callable[[Mapping[int, int]], MeasuredUse],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._config, self._ask, self._clock = config, read, clock
        self._use: Mapping[int, JobGpuUse] = {}
        self._asked_s = self._known_s = -math.inf
        self._warning = ""

    @classmethod
    def of(cls, config: MeasuredUseConfig, commands: Commands) -> PeriodicUse:
        return cls(config, lambda gpus: read_gpu_use(config, commands, gpus, list(gpus)))

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        jobs, now_s = snapshot.jobs, self._clock()
        if now_s - self._asked_s >= self._config.every_s:
            self._read({one.job_id: one.gpus for one in running_gpu_jobs(snapshot)}, now_s)
        found = [self._use.get(job) for job in jobs.job_id.tolist()] if self._use else []
        if found:
            nothing = JobGpuUse(0, 0, None, math.nan)
            rows = [one or nothing for one in found]
            jobs = jobs.with_columns(
                gpu_use=[one.use for one in rows],
                idle_gpus=[math.nan if one.idle is None else float(one.idle) for one in rows],
                gpu_memory_mib=[one.memory_mib for one in rows],
            )
        warnings = (*snapshot.warnings, self._warning) if self._warning else snapshot.warnings
        return replace(snapshot, jobs=jobs, warnings=warnings)

    def _read(self, gpus: Mapping[int, int], now_s: float) -> None:
        self._asked_s = now_s
        try:
            self._use, self._known_s, self._warning = self._ask(gpus).by_job, now_s, ""
        except SlurmschedError as error:
            self._warning = f"the use of GPUs is not known: {error}"
            if now_s - self._known_s > KEPT * self._config.every_s:
                self._use = {}


def prometheus_gpu_use(config: MeasuredUseConfig) -> MeasuredUse:
    """Mean use and most memory of each GPU over the window. Raises MeasurementError."""
    use, memory, label = EXPORTERS[config.exporter]
    window = f"[{config.window_s:.0f}s:{config.step_s:.0f}s]"
    most_mib = {_gpu(one["metric"], label): _value(one) for one in _query(config, f"max_over_time(({memory}){window})")}
    samples = []
    for one in _query(config, f"avg_over_time(({use}){window})"):
        key = job, gpu = _gpu(one["metric"], label)
        if job > 0:
            samples.append(GpuSample(job, gpu, min(max(_value(one) / 100.0, 0.0), 1.0), most_mib.get(key, math.nan)))
    return MeasuredUse(job_gpu_use(samples), f"{config.exporter} at {config.prometheus_url}", config.window_s)


def _gpu(labels: Mapping[str, str], label: str) -> tuple[int, str]:
    """Job id and name of the GPU of a series; 0 for a label that is no job id."""
    job = labels.get(label, "")
    return int(job) if job.isdecimal() and len(job) < 11 else 0, " ".join(labels.get(one, "") for one in GPU_LABELS)


def _value(one: Mapping[str, Any]) -> float:
    return float(one["value"][1])


def _query(config: MeasuredUseConfig, expression: str) -> list[dict[str, Any]]:
    """The vector that Prometheus computes. Raises MeasurementError."""
    url = f"{config.prometheus_url.rstrip('/')}/api/v1/query"
    body = urllib.parse.urlencode({"query": expression}).encode()
    try:
        with urllib.request.urlopen(url, body, timeout=TIMEOUT_S) as answer:
            text = answer.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        raise MeasurementError(f"{url} answered {error.code}: {_message(error.read(2000))}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise MeasurementError(f"{url} does not answer: {reason}; see measured_use.prometheus_url") from error
    try:
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        for one in found:
            one["metric"].items(), _value(one)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MeasurementError(f"{url} answered with something other than a vector: {text[:100]!r}") from error
    return found


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:100].decode(errors="replace")


def read_use_file(path: Path) -> Iterator[GpuSample]:
    """Samples of a CSV file with the columns job_id, gpu, use_pct and, if known, memory_mib.

    Raises InputError with the line for a row that cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = {"job_id", "gpu", "use_pct"} - set(rows.fieldnames or ())
            if missing:
                raise InputError(f"has no column {', '.join(sorted(missing))}", source=str(path))
            for row in rows:
                yield _sample(row, str(path), rows.line_num)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from error


def _sample(row: Mapping[str, str | None], source: str, line: int) -> GpuSample:
    try:
        use_pct, memory = float(row["use_pct"] or ""), row.get("memory_mib") or "nan"
        job_id, memory_mib = int(row["job_id"] or ""), float(memory)
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", source=source, line=line) from error
    if not 0 <= use_pct <= 100 or job_id < 1:
        wrong = f"needs a job_id from 1 and a use_pct from 0 to 100, got {job_id} and {use_pct:g}"
        raise InputError(wrong, source=source, line=line)
    if memory_mib < 0 or math.isinf(memory_mib):
        raise InputError(f"needs a memory_mib from 0, got {memory_mib:g}", source=source, line=line)
    return GpuSample(job_id, row["gpu"] or "", use_pct / 100.0, memory_mib)
