"""Job lists of ElasticFlow: Microsoft's traces of 2021 with models, iterations and deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.replay.loaders.tiresias import deadline_hint

COLUMNS = ("job_id", "submission_time", "num_iteration", "model_name", "deadline", "num_gpu", "duration")


@dataclass(frozen=True, slots=True)
class ElasticFlow(RowLoader):
    """Seconds; run time is `duration`; deadlines and batch sizes become hints. Ids are numbers in file order.

    Source: microsoft/elasticflow-traces; Gu et al., ASPLOS '23.
    """

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        submit_s = number(row, "submission_time")
        comment = deadline_hint(number(row, "deadline") - submit_s)
        if row.get("batch_size"):
            comment += f" batch={whole(row, 'batch_size')}"
        return Job(
            gpus=whole(row, "num_gpu"),
            submit_s=submit_s,
            duration_s=number(row, "duration"),
            model=row["model_name"],
            comment=comment,
        )
