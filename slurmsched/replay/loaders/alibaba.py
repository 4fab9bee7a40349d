"""Alibaba's GPU traces: PAI of 2020 (tables, and the list of its simulator) and the pods of 2023 ("openb")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.replay.loaders.csv_rows import csv_records, csv_rows
from slurmsched.replay.loaders.joining import Groups, grouped
from slurmsched.replay.loaders.rows import NAN, Columns, Dropped, Job, RowLoader, number, shares, whole
from slurmsched.replay.loaders.source import Head, Source

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
class Pai2020(RowLoader):
    """pai_task_table.csv: the tasks of a job as one gang; with pai_job_table.csv beside it, users and submit times.

    GPUs are instances times plan_gpu / 100, a part of a GPU as one GPU with that share. Without the job table the
    submit time is the start. Ids are numbers of the jobs in file order.
    Source: alibaba/clusterdata, cluster-trace-gpu-v2020; Weng et al., NSDI '22.
    """

    job_table: str = ""

    def sniff(self, head: Head) -> bool:
        if head.columns() >= set(TASK_COLUMNS):
            return True
        fields = head.lines[0].split(",")
        return len(fields) == len(TASK_COLUMNS) and fields[3] in ("Terminated", "Failed", "Running", "Waiting")

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        source.origin_s, source.utc_offset_s = 0.0, CHINA_S
        jobs, numbers = self._jobs(source), dict[str, int]()
        for line, fields in _table(source, TASK_COLUMNS):
            number_of = numbers.setdefault(fields[0], len(numbers))
            yield line, (number_of, jobs.get(fields[0], ("", NAN)), fields)

    def job(self, record: Any) -> Job:
        job_id, (user, submit_s), fields = record
        row = dict(zip(TASK_COLUMNS, fields, strict=True))
        if not row["plan_gpu"] or number(row, "plan_gpu") == 0:
            raise Dropped("tasks without GPUs")
        if row["status"] not in PAI_STATES or not row["start_time"] or not row["end_time"]:
            raise Dropped("tasks that had not ended, or without times")
        start_s, end_s = number(row, "start_time"), number(row, "end_time")
        each, share = shares(number(row, "plan_gpu") / 100)
        return Job(
            job_id=job_id,
            gpus=each * whole(row, "inst_num"),
            gpu_share=share,
            submit_s=start_s if submit_s != submit_s else submit_s,
            start_s=start_s,
            duration_s=end_s - start_s,
            user=user,
            name=row["task_name"],
            gpu_type=row["gpu_type"],
            state=PAI_STATES[row["status"]],
        )

    def finish(self, columns: Columns, source: Source) -> Columns:
        return grouped(columns, _gang)

    def _jobs(self, source: Source) -> dict[str, tuple[str, float]]:
        """User and submit time by job name, from the job table if there is one."""
        path = Path(self.job_table) if self.job_table else _beside(source.path)
        if path is None:
            return {}
        found: dict[str, tuple[str, float]] = {}
        for _, fields in _table(Source(path), JOB_COLUMNS):
            row = dict(zip(JOB_COLUMNS, fields, strict=False))
            found[fields[0]] = (row.get("user", ""), number(row, "start_time") if row.get("start_time") else NAN)
        return found


@dataclass(frozen=True, slots=True)
class PaiList(RowLoader):
    """The job list of PAI's own simulator: num_gpu an instance (parts allowed), num_inst, seconds.

    Source: alibaba/clusterdata, cluster-trace-gpu-v2020/simulator.
    """

    def sniff(self, head: Head) -> bool:
        return set(LIST_COLUMNS) <= head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, LIST_COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        if not row["num_gpu"] or number(row, "num_gpu") == 0:
            raise Dropped("without GPUs")
        each, share = shares(number(row, "num_gpu"))
        wait_s = number(row, "wait_time") if row.get("wait_time") else NAN
        return Job(
            job_id=whole(row, "job_id"),
            gpus=each * (whole(row, "num_inst") if row["num_inst"] else 1),
            gpu_share=share,
            submit_s=number(row, "submit_time"),
            start_s=number(row, "submit_time") + wait_s,
            duration_s=max(number(row, "duration"), 1.0),
            user=row.get("user") or "",
            name=row.get("group") or "",
            gpu_type=row.get("gpu_type") or "",
            state=PAI_STATES.get(row.get("status") or "", ""),
        )


@dataclass(frozen=True, slots=True)
class OpenB(RowLoader):
    """openb_pod_list_*.csv: pods of 2023, with parts of a GPU in thousandths; run time is scheduled to deleted.

    A pod deleted while it ran keeps the state RUNNING. Ids are the numbers in the names.
    Source: alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al., USENIX ATC '23.
    """

    def sniff(self, head: Head) -> bool:
        return set(POD_COLUMNS) <= head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, POD_COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        gpus = whole(row, "num_gpu")
        if gpus == 0:
            raise Dropped("without GPUs")
        if not row["scheduled_time"] or row["pod_phase"] == "Pending":
            raise Dropped("never started")
        start_s, end_s = number(row, "scheduled_time"), number(row, "deletion_time")
        return Job(
            job_id=int(row["name"].rpartition("-")[2]),
            gpus=gpus,
            gpu_share=shares(number(row, "gpu_milli") / 1000)[1] if gpus == 1 else 1.0,
            submit_s=number(row, "creation_time"),
            start_s=start_s,
            duration_s=end_s - start_s,
            gpu_type=row.get("gpu_spec") or "",
            state=POD_STATES.get(row["pod_phase"], ""),
        )


def _table(source: Source, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of a CSV table with or without its header line."""
    for line, fields in csv_rows(source):
        if fields and not (line == 1 and fields[0] == names[0]):
            yield line, fields


def _beside(path: Path) -> Path | None:
    other = path.with_name(path.name.replace("task_table", "job_table"))
    return other if other != path and other.exists() else None


def _gang(columns: Columns, rows: Groups) -> dict[str, Any]:
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
