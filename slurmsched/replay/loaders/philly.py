"""Microsoft's Philly trace: the full job log, and the list that Pollux's authors made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.json_array import json_records
from slurmsched.replay.loaders.rows import Dropped, Job, RowLoader, number, wall_s, whole
from slurmsched.replay.loaders.source import Head, Source

STATES = {"Pass": "COMPLETED", "Killed": "CANCELLED", "Failed": "FAILED"}
CSV_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_NO_TIME = (None, "", "None")


@dataclass(frozen=True, slots=True)
class Philly(RowLoader):
    """cluster_job_log: a JSON array of jobs with their attempts.

    Run time is the sum of the attempts, GPUs those of the widest attempt, requeues the attempts after the first.
    Ids are places in the file. Source: msr-fiddle/philly-traces; Jeon et al., USENIX ATC '19.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        text = head.start.lstrip()[:1]
        return text == b"[" and b'"attempts"' in head.start and b'"submitted_time"' in head.start

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return json_records(source)

    def job(self, record: Any) -> Job:
        attempts = record["attempts"]
        if not attempts:
            raise Dropped("no attempt recorded: it never started")
        spans = [(a["start_time"], a["end_time"]) for a in attempts]
        if any(begin in _NO_TIME or end in _NO_TIME for begin, end in spans):
            raise Dropped("an attempt without start or end: it still ran, or the log has a gap")
        starts, ends = [wall_s(begin) for begin, _ in spans], [wall_s(end) for _, end in spans]
        duration_s = sum(ends) - sum(starts)
        gpus = max(sum(len(node["gpus"]) for node in a["detail"]) for a in attempts)
        if gpus == 0:
            raise Dropped("without GPUs")
        return Job(
            gpus=gpus,
            submit_s=wall_s(record["submitted_time"]),
            duration_s=duration_s,
            start_s=min(starts),
            requeues=len(attempts) - 1,
            user=str(record.get("user") or ""),
            account=str(record["vc"]),
            state=STATES.get(record["status"], ""),
        )


@dataclass(frozen=True, slots=True)
class PhillyList(RowLoader):
    """timestamp, duration, num_gpus, gpu_time, cluster: jobs with at least one finished attempt, without users.

    duration is the wall time from first start to last end. Ids are places in the file.
    Source: petuum/adaptdl, branch osdi21-artifact, simulator/traces/philly.csv; Qiao et al., OSDI '21.
    """

    calendar = True

    def sniff(self, head: Head) -> bool:
        return head.columns() == set(CSV_COLUMNS)

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return csv_records(source, CSV_COLUMNS)

    def job(self, row: dict[str, Any]) -> Job:
        return Job(
            gpus=whole(row, "num_gpus"),
            submit_s=wall_s(row["timestamp"]),
            duration_s=number(row, "duration"),
            account=row["cluster"],
        )
