"""Job lists of the Muri simulator: Tiresias's columns, in milliseconds, with more behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")


@dataclass(frozen=True, slots=True)
class Muri(RowLoader):
    """Milliseconds; run time is iterations times iteration_time, rounded to a second, as Muri runs them.

    Its `duration` column is another figure, off by up to half on short jobs.
    Source: Rivendile/Muri, Zhao et al., SIGCOMM '22.
    """

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        return Job(
            job_id=whole(row, "job_id"),
            gpus=whole(row, "num_gpu"),
            submit_s=number(row, "submit_time") / 1000,
            duration_s=float(round(number(row, "iterations") * number(row, "iteration_time") / 1000)),
            model=row["model_name"],
        )
