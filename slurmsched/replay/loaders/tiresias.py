"""Job lists of the Tiresias simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


@dataclass(frozen=True, slots=True)
class Tiresias(RowLoader):
    """Seconds; run time is `duration`. Source: SymbioticLab/Tiresias, Gu et al., NSDI '19."""

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns() and "iteration_time" not in head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        return Job(
            job_id=whole(row, "job_id"),
            gpus=whole(row, "num_gpu"),
            submit_s=number(row, "submit_time"),
            duration_s=number(row, "duration"),
            model=row["model_name"],
        )
