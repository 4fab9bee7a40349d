"""Job lists of the Tiresias simulator, and of Chronus, which adds deadlines to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import Dropped, Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


@dataclass(frozen=True, slots=True)
class Tiresias(RowLoader):
    """Seconds; run time is `duration`. Source: SymbioticLab/Tiresias, Gu et al., NSDI '19."""

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns() and not {"iteration_time", "expect_time_list"} & head.columns()

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        gpus = whole(row, "num_gpu")
        if gpus == 0:
            raise Dropped("without GPUs")
        return Job(
            job_id=whole(row, "job_id"),
            gpus=gpus,
            submit_s=number(row, "submit_time"),
            duration_s=number(row, "duration"),
            model=row["model_name"],
        )


@dataclass(frozen=True, slots=True)
class Chronus(Tiresias):
    """Tiresias's columns with users and, by job, when it should have ended: seconds from its submission.

    Of the times of a soft deadline, parted by "-", the first counts; a best-effort job has none.
    Source: S-Lab-System-Group/ChronusArtifact; Gao et al., SoCC '21.
    """

    def sniff(self, head: Head) -> bool:
        return {*COLUMNS, "expect_time_list", "best_effort"} <= head.columns()

    def job(self, row: dict[str, Any]) -> Job:
        job = Tiresias.job(self, row)
        best_effort = whole(row, "best_effort")
        first = {"expect": row["expect_time_list"].partition("-")[0]}
        comment = "" if best_effort else deadline_hint(number(first, "expect"))
        return job._replace(user=row.get("user") or "", comment=comment)


def deadline_hint(after_submit_s: float) -> str:
    """The comment of a job that must have ended so long after its submission. Raises ValueError."""
    if not after_submit_s > 0:
        raise ValueError(f"its deadline is {after_submit_s:g} s after its submission")
    return f"slurmsched: deadline=+{after_submit_s:.15g}s"
