"""Logs of Shanghai AI Lab's Acme: clusters Seren (Slurm) and Kalos."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import UNNUMBERED, Dropped, Job, RowLoader, instant, number, shares, wall_s, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time")
UNENDED = frozenset({"RUNNING", "PENDING"})


@dataclass(frozen=True, slots=True)
class Acme(RowLoader):
    """trace_seren.csv, trace_kalos.csv: times with their offsets from UTC, states are Slurm's, the workload type is the
    name.

    Run time is end_time less start_time: Kalos's `duration` counts from the submission, though its page says else.
    Kalos's ids are no numbers: they are numbered in file order. Source: InternLM/AcmeTrace; Hu et al., NSDI '24.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        first = True
        for line, row in csv_records(source, COLUMNS):
            if first and row["submit_time"]:
                first = False
                source.utc_offset_s = _offset_s(row["submit_time"])
            yield line, row

    def job(self, row: dict[str, Any]) -> Job:
        if number(row, "gpu_num") == 0:
            raise Dropped("without GPUs")
        if not row["start_time"]:
            raise Dropped("never started")
        if row["state"] in UNENDED or not row["end_time"]:
            raise Dropped("had not ended")
        gpus, share = shares(number(row, "gpu_num"))
        start_s, end_s = wall_s(row["start_time"]), wall_s(row["end_time"])
        if start_s == end_s and row["state"] == "CANCELLED":
            raise Dropped("ran 0 s and was cancelled: it hardly started")
        job_id = row["job_id"]
        return Job(
            job_id=int(job_id) if job_id.isascii() and job_id.isdecimal() else UNNUMBERED,
            gpus=gpus,
            gpu_share=share,
            submit_s=wall_s(row["submit_time"]),
            start_s=start_s,
            duration_s=end_s - start_s,
            nodes=whole(row, "node_num"),
            cpus=math.ceil(number(row, "cpu_num")),
            user=row["user"],
            name=row["type"],
            state=row["state"],
        )


def _offset_s(text: str) -> float:
    try:
        offset_s = instant(text).offset_s
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(offset_s) else offset_s
