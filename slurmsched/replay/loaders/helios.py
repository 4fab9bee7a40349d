"""Logs of SenseTime's Helios clusters, and of Lucid, which adds models to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import NAN, Dropped, Job, RowLoader, number, wall_s, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


@dataclass(frozen=True, slots=True)
class Helios(RowLoader):
    """cluster_log.csv: wall-clock times, run time is `duration`, states are Slurm's.

    A job of 0 s that was cancelled is taken for one that never started: Slurm may tell its end as its start.

    Source: S-Lab-System-Group/HeliosData; Hu et al., SC '21.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns() and "amp" not in head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        gpus, start = whole(row, "gpu_num"), row.get("start_time")
        if gpus == 0:
            raise Dropped("without GPUs")
        duration_s = number(row, "duration")
        if duration_s == 0 and (not start or row["state"] == "CANCELLED"):
            raise Dropped("ran 0 s without a start, or was cancelled: it hardly started")
        return Job(
            job_id=whole(row, "job_id"),
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
class Lucid(Helios):
    """cluster_full_log.csv: Helios's columns with model, batch size and measured utilisation.

    Times are wall clock, or seconds in the lists made of Pollux's workloads.
    Source: S-Lab-System-Group/Lucid; Hu et al., ASPLOS '23.
    """

    def sniff(self, head: Head) -> bool:
        return {*COLUMNS, "amp", "model"} <= head.columns()


def _time_s(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return wall_s(text)
