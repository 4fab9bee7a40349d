"""The plain CSV form, ours: one line a job, seconds, run time alone on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import NAN, Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "num_gpus", "submit_s", "duration_s")
DELIMITERS = ",;\t"
TEXTS = ("user", "account", "partition", "qos", "name", "model", "gpu_type", "state", "comment")


@dataclass(frozen=True, slots=True)
class Plain(RowLoader):
    """job_id, num_gpus, submit_s, duration_s, and any other column of the common form by its name."""

    def sniff(self, head: Head) -> bool:
        return bool(_delimiter(head))

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS, _delimiter(source.head) or ",")

    def job(self, row: dict[str, Any]) -> Job:
        return Job(
            job_id=whole(row, "job_id"),
            gpus=whole(row, "num_gpus"),
            submit_s=number(row, "submit_s"),
            duration_s=number(row, "duration_s"),
            time_limit_s=_maybe(row, "time_limit_s", NAN),
            start_s=_maybe(row, "start_s", NAN),
            gpu_share=_maybe(row, "gpu_share", 1.0),
            requeues=int(_maybe(row, "requeues", 0)),
            nodes=int(_maybe(row, "nodes", 0)),
            cpus=int(_maybe(row, "cpus", 0)),
            memory_mib=_maybe(row, "memory_mib", 0.0),
            **{name: row[name] for name in TEXTS if row.get(name)},
        )


def _delimiter(head: Head) -> str:
    """What parts the columns, "" if the file is none of this kind: a comma, or as spreadsheets write."""
    return next((mark for mark in DELIMITERS if {"job_id", "num_gpus"} <= head.columns(mark)), "")


def _maybe(row: dict[str, Any], name: str, otherwise: float) -> float:
    return number(row, name) if row.get(name) else otherwise
