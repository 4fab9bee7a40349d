"""Readers of published logs of clusters: Philly, Helios, Lucid, Acme, Alibaba, and the Parallel Workloads Archive."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.input_files import FileHead, InputFile, csv_records, csv_rows, json_records
from slurmsched.model.trace_rows import (
    NAN,
    UNNUMBERED,
    Columns,
    RowGroups,
    RowLoader,
    SkippedRow,
    TraceJob,
    gpus_and_share,
    group_rows,
    parse_integer,
    parse_number,
    parse_time,
    parse_time_s,
)

PHILLY_STATES = {"Pass": "COMPLETED", "Killed": "CANCELLED", "Failed": "FAILED"}
PHILLY_LIST_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_NO_TIME = (None, "", "None")


@dataclass(frozen=True, slots=True)
class PhillyTrace(RowLoader):
    """cluster_job_log: a JSON array of jobs with their attempts.

    Run time is the sum of the attempts, GPUs those of the widest attempt, requeues the attempts after the first.
    Ids are places in the file. Source: msr-fiddle/philly-traces; Jeon et al., USENIX ATC '19.
    """

    calendar = True

    def sniff(self, head: FileHead) -> bool:
        text = head.start.lstrip()[:1]
        return text == b"[" and b'"attempts"' in head.start and b'"submitted_time"' in head.start

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return json_records(source)

    def job(self, record: Any) -> TraceJob:
        attempts = record["attempts"]
        if not attempts:
            raise SkippedRow("no attempt recorded: it never started")
        spans = [(a["start_time"], a["end_time"]) for a in attempts]
        if any(begin in _NO_TIME or end in _NO_TIME for begin, end in spans):
            raise SkippedRow("an attempt without start or end: it still ran, or the log has a gap")
        starts, ends = [parse_time_s(begin) for begin, _ in spans], [parse_time_s(end) for _, end in spans]
        duration_s = sum(ends) - sum(starts)
        gpus = max(sum(len(node["gpus"]) for node in a["detail"]) for a in attempts)
        if gpus == 0:
            raise SkippedRow("without GPUs")
        return TraceJob(
            gpus=gpus,
            submit_s=parse_time_s(record["submitted_time"]),
            duration_s=duration_s,
            start_s=min(starts),
            requeues=len(attempts) - 1,
            user=str(record.get("user") or ""),
            account=str(record["vc"]),
            state=PHILLY_STATES.get(record["status"], ""),
        )


@dataclass(frozen=True, slots=True)
class PhillyListTrace(RowLoader):
    """timestamp, duration, num_gpus, gpu_time, cluster: jobs with at least one finished attempt, without users.

    duration is the wall time from first start to last end. Ids are places in the file.
    Source: petuum/adaptdl, branch osdi21-artifact, simulator/traces/philly.csv; Qiao et al., OSDI '21.
    """

    calendar = True

    def sniff(self, head: FileHead) -> bool:
        return head.columns() == set(PHILLY_LIST_COLUMNS)

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, PHILLY_LIST_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        return TraceJob(
            gpus=parse_integer(row, "num_gpus"),
            submit_s=parse_time_s(row["timestamp"]),
            duration_s=parse_number(row, "duration"),
            account=row["cluster"],
        )


# Helios and Lucid.

HELIOS_COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


@dataclass(frozen=True, slots=True)
class HeliosTrace(RowLoader):
    """cluster_log.csv: wall-clock times, run time is `duration`, states are Slurm's.

    A job of 0 s that was cancelled is taken for one that never started: Slurm may tell its end as its start.

    Source: S-Lab-System-Group/HeliosData; Hu et al., SC '21.
    """

    calendar = True

    def sniff(self, head: FileHead) -> bool:
        return set(HELIOS_COLUMNS) <= head.columns() and "amp" not in head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, HELIOS_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        gpus, start = parse_integer(row, "gpu_num"), row.get("start_time")
        if gpus == 0:
            raise SkippedRow("without GPUs")
        duration_s = parse_number(row, "duration")
        if duration_s == 0 and (not start or row["state"] == "CANCELLED"):
            raise SkippedRow("ran 0 s without a start, or was cancelled: it hardly started")
        return TraceJob(
            job_id=parse_integer(row, "job_id"),
            gpus=gpus,
            submit_s=_time_s(row["submit_time"]),
            duration_s=duration_s,
            start_s=_time_s(start) if start else NAN,
            user=row["user"],
            account=row["vc"],
            name=row.get("jobname") or "",
            model=row.get("model") or "",
            state=row["state"],
        )


@dataclass(frozen=True, slots=True)
class LucidTrace(HeliosTrace):
    """cluster_full_log.csv: Helios's columns with model, batch size and measured utilisation.

    Times are wall clock, or seconds in the lists made of Pollux's workloads.
    Source: S-Lab-System-Group/Lucid; Hu et al., ASPLOS '23.
    """

    def sniff(self, head: FileHead) -> bool:
        return {*HELIOS_COLUMNS, "amp", "model"} <= head.columns()


def _time_s(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return parse_time_s(text)


# Acme (Shanghai AI Lab).

ACME_COLUMNS = (
    "job_id",
    "user",
    "node_num",
    "gpu_num",
    "cpu_num",
    "type",
    "state",
    "submit_time",
    "start_time",
    "end_time",
)
UNENDED = frozenset({"RUNNING", "PENDING"})


@dataclass(frozen=True, slots=True)
class AcmeTrace(RowLoader):
    """trace_seren.csv, trace_kalos.csv: times with their offsets from UTC, states are Slurm's, the workload type is the
    name.

    Run time is end_time less start_time: Kalos's `duration` counts from the submission, though its page says else.
    Kalos's ids are no numbers: they are numbered in file order. Source: InternLM/AcmeTrace; Hu et al., NSDI '24.
    """

    calendar = True

    def sniff(self, head: FileHead) -> bool:
        return set(ACME_COLUMNS) <= head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        first = True
        for line, row in csv_records(source, ACME_COLUMNS):
            if first and row["submit_time"]:
                first = False
                source.utc_offset_s = _offset_s(row["submit_time"])
            yield line, row

    def job(self, row: dict[str, Any]) -> TraceJob:
        if parse_number(row, "gpu_num") == 0:
            raise SkippedRow("without GPUs")
        if not row["start_time"]:
            raise SkippedRow("never started")
        if row["state"] in UNENDED or not row["end_time"]:
            raise SkippedRow("had not ended")
        gpus, share = gpus_and_share(parse_number(row, "gpu_num"))
        start_s, end_s = parse_time_s(row["start_time"]), parse_time_s(row["end_time"])
        if start_s == end_s and row["state"] == "CANCELLED":
            raise SkippedRow("ran 0 s and was cancelled: it hardly started")
        job_id = row["job_id"]
        return TraceJob(
            job_id=int(job_id) if job_id.isascii() and job_id.isdecimal() else UNNUMBERED,
            gpus=gpus,
            gpu_share=share,
            submit_s=parse_time_s(row["submit_time"]),
            start_s=start_s,
            duration_s=end_s - start_s,
            nodes=parse_integer(row, "node_num"),
            cpus=math.ceil(parse_number(row, "cpu_num")),
            user=row["user"],
            name=row["type"],
            state=row["state"],
        )


def _offset_s(text: str) -> float:
    try:
        offset_s = parse_time(text).offset_s
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(offset_s) else offset_s


# Alibaba's GPU traces.

TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
LIST_COLUMNS = ("job_id", "num_gpu", "submit_time", "num_inst", "duration")
POD_COLUMNS = ("name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
PAI_STATES = {"Terminated": "COMPLETED", "Failed": "FAILED"}
POD_STATES = {"Succeeded": "COMPLETED", "Failed": "FAILED", "Running": "RUNNING"}
CHINA_S = 8 * 3_600.0  # PAI's times keep the hour of the day of UTC+8


@dataclass(frozen=True, slots=True)
class Pai2020Trace(RowLoader):
    """pai_task_table.csv: the tasks of a job as one gang; with pai_job_table.csv beside it, users and submit times.

    GPUs are instances times plan_gpu / 100, a part of a GPU as one GPU with that share. Without the job table the
    submit time is the start. Ids are numbers of the jobs in file order.
    Source: alibaba/clusterdata, cluster-trace-gpu-v2020; Weng et al., NSDI '22.
    """

    job_table: str = ""

    def sniff(self, head: FileHead) -> bool:
        if head.columns() >= set(TASK_COLUMNS):
            return True
        fields = head.lines[0].split(",")
        return len(fields) == len(TASK_COLUMNS) and fields[3] in ("Terminated", "Failed", "Running", "Waiting")

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        source.origin_s, source.utc_offset_s = 0.0, CHINA_S
        jobs, numbers = self._jobs(source), dict[str, int]()
        for line, fields in _pai_table(source, TASK_COLUMNS):
            number_of = numbers.setdefault(fields[0], len(numbers))
            yield line, (number_of, jobs.get(fields[0], ("", NAN)), fields)

    def job(self, record: Any) -> TraceJob:
        job_id, (user, submit_s), fields = record
        row = dict(zip(TASK_COLUMNS, fields, strict=True))
        if not row["plan_gpu"] or parse_number(row, "plan_gpu") == 0:
            raise SkippedRow("tasks without GPUs")
        if row["status"] not in PAI_STATES or not row["start_time"] or not row["end_time"]:
            raise SkippedRow("tasks that had not ended, or without times")
        start_s, end_s = parse_number(row, "start_time"), parse_number(row, "end_time")
        each, share = gpus_and_share(parse_number(row, "plan_gpu") / 100)
        return TraceJob(
            job_id=job_id,
            gpus=each * parse_integer(row, "inst_num"),
            gpu_share=share,
            submit_s=start_s if submit_s != submit_s else submit_s,
            start_s=start_s,
            duration_s=end_s - start_s,
            user=user,
            name=row["task_name"],
            gpu_type=row["gpu_type"],
            state=PAI_STATES[row["status"]],
        )

    def finish(self, columns: Columns, source: InputFile) -> Columns:
        return group_rows(columns, _gang)

    def _jobs(self, source: InputFile) -> dict[str, tuple[str, float]]:
        """User and submit time by job name, from the job table if there is one."""
        path = Path(self.job_table) if self.job_table else _file_beside(source.path)
        if path is None:
            return {}
        found: dict[str, tuple[str, float]] = {}
        for _, fields in _pai_table(InputFile(path), JOB_COLUMNS):
            row = dict(zip(JOB_COLUMNS, fields, strict=False))
            found[fields[0]] = (row.get("user", ""), parse_number(row, "start_time") if row.get("start_time") else NAN)
        return found


@dataclass(frozen=True, slots=True)
class PaiListTrace(RowLoader):
    """The job list of PAI's own simulator: num_gpu an instance (parts allowed), num_inst, seconds.

    Source: alibaba/clusterdata, cluster-trace-gpu-v2020/simulator.
    """

    def sniff(self, head: FileHead) -> bool:
        return set(LIST_COLUMNS) <= head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, LIST_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        if not row["num_gpu"] or parse_number(row, "num_gpu") == 0:
            raise SkippedRow("without GPUs")
        each, share = gpus_and_share(parse_number(row, "num_gpu"))
        wait_s = parse_number(row, "wait_time") if row.get("wait_time") else NAN
        return TraceJob(
            job_id=parse_integer(row, "job_id"),
            gpus=each * (parse_integer(row, "num_inst") if row["num_inst"] else 1),
            gpu_share=share,
            submit_s=parse_number(row, "submit_time"),
            start_s=parse_number(row, "submit_time") + wait_s,
            duration_s=max(parse_number(row, "duration"), 1.0),
            user=row.get("user") or "",
            name=row.get("group") or "",
            gpu_type=row.get("gpu_type") or "",
            state=PAI_STATES.get(row.get("status") or "", ""),
        )


@dataclass(frozen=True, slots=True)
class OpenBTrace(RowLoader):
    """openb_pod_list_*.csv: pods of 2023, with parts of a GPU in thousandths; run time is scheduled to deleted.

    CPUs are rounded up to whole ones. A pod deleted while it ran keeps the state RUNNING. Ids are the numbers in the
    names.
    Source: alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al., USENIX ATC '23.
    """

    def sniff(self, head: FileHead) -> bool:
        return set(POD_COLUMNS) <= head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, POD_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        gpus = parse_integer(row, "num_gpu")
        if gpus == 0:
            raise SkippedRow("without GPUs")
        if not row["scheduled_time"] or row["pod_phase"] == "Pending":
            raise SkippedRow("never started")
        start_s, end_s = parse_number(row, "scheduled_time"), parse_number(row, "deletion_time")
        return TraceJob(
            job_id=int(row["name"].rpartition("-")[2]),
            gpus=gpus,
            gpu_share=gpus_and_share(parse_number(row, "gpu_milli") / 1000)[1] if gpus == 1 else 1.0,
            cpus=math.ceil(parse_number(row, "cpu_milli") / 1000) if row.get("cpu_milli") else 0,
            memory_mib=parse_number(row, "memory_mib") if row.get("memory_mib") else 0.0,
            submit_s=parse_number(row, "creation_time"),
            start_s=start_s,
            duration_s=end_s - start_s,
            gpu_type=row.get("gpu_spec") or "",
            state=POD_STATES.get(row["pod_phase"], ""),
        )


def _pai_table(source: InputFile, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of a CSV table with or without its header line."""
    for line, fields in csv_rows(source):
        if fields and not (line == 1 and fields[0] == names[0]):
            yield line, fields


def _file_beside(path: Path) -> Path | None:
    other = path.with_name(path.name.replace("task_table", "job_table"))
    return other if other != path and other.exists() else None


def _gang(columns: Columns, rows: RowGroups) -> dict[str, Any]:
    """One job of its tasks: GPUs add up, from the first start to the last end; the share is the mean over GPUs."""
    gpus = columns["gpus"][rows]
    start_s = columns["start_s"][rows]
    end_s = start_s + columns["duration_s"][rows]
    widest = int(rows[np.argmax(gpus)])
    return {
        "row": widest,
        "gpus": gpus.sum(),
        "gpu_share": float((columns["gpu_share"][rows] * gpus).sum() / gpus.sum()),
        "start_s": start_s.min(),
        "submit_s": columns["submit_s"][rows].min(),
        "duration_s": end_s.max() - start_s.min(),
    }


# The Standard Workload Format of the Parallel Workloads Archive.

SWF_FIELDS = 18
CANCELLED = 5
SWF_STATES = {0: "FAILED", 1: "COMPLETED", CANCELLED: "CANCELLED"}
_START = re.compile(r";\s*UnixStartTime:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class SwfTrace(RowLoader):
    """18 numbers a line, -1 where unknown; lines with ";" are comments.

    processors_per_gpu: SWF counts processors; that many are taken for one GPU, rounded up.
    Partial records (status 2 to 4) are left out: their summary line holds the job. A job of 0 s counts as started where
    its wait and its processors are given and it was not cancelled.
    Source: Chapin et al., JSSPP 1999; the archive's page "The Standard Workload Format", version 2.2.
    """

    processors_per_gpu: int = 1

    def __post_init__(self) -> None:
        if self.processors_per_gpu < 1:
            raise ConfigError("must be at least 1", key="trace.processors_per_gpu")

    def sniff(self, head: FileHead) -> bool:
        rows = [line.split() for line in head.lines[:500] if line.strip() and not line.startswith(";")]
        return bool(rows) and len(rows[0]) == SWF_FIELDS and all(_is_number(text) for text in rows[0])

    def records(self, source: InputFile) -> Iterator[tuple[int, list[str]]]:
        with source.text() as file:
            for line, text in enumerate(file, 1):
                if start := _START.match(text):
                    source.origin_s = float(start[1])
                elif text.strip() and not text.startswith(";"):
                    yield line, text.split()

    def job(self, fields: list[str]) -> TraceJob:
        if len(fields) != SWF_FIELDS:
            raise ValueError(f"has {len(fields)} fields, not {SWF_FIELDS}")
        value = [float(text) for text in fields]
        processors = value[4] if value[4] > 0 else value[7]
        if value[10] in (2, 3, 4):
            raise SkippedRow("part of a job that has its own line")
        at_once = value[3] == 0 and value[2] >= 0 and value[4] > 0 and value[10] != CANCELLED
        if processors <= 0 or not (value[3] > 0 or at_once):
            raise SkippedRow("never started")
        return TraceJob(
            job_id=int(value[0]),
            gpus=-int(-processors // self.processors_per_gpu),
            submit_s=value[1],
            duration_s=value[3],
            start_s=value[1] + value[2] if value[2] >= 0 else NAN,
            time_limit_s=value[8] if value[8] > 0 else NAN,
            user=_swf_label("user", value[11]),
            account=_swf_label("group", value[12]),
            name=_swf_label("app", value[13]),
            state=SWF_STATES.get(int(value[10]), ""),
        )


def _swf_label(kind: str, value: float) -> str:
    return f"{kind}{value:.0f}" if value >= 0 else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
