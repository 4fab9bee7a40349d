"""The Standard Workload Format of the Parallel Workloads Archive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slurmsched.errors import ConfigError
from slurmsched.replay.loaders.rows import NAN, Dropped, Job, RowLoader
from slurmsched.replay.loaders.source import Head, Source

FIELDS = 18
CANCELLED = 5
STATES = {0: "FAILED", 1: "COMPLETED", CANCELLED: "CANCELLED"}
_START = re.compile(r";\s*UnixStartTime:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Swf(RowLoader):
    """18 numbers a line, -1 where unknown; lines with ";" are comments.

    processors_per_gpu: SWF counts processors; so many are taken for one GPU, rounded up.
    Partial records (status 2 to 4) are left out: their summary line holds the job. A job of 0 s counts as started
    where its wait and its processors are told and it was not cancelled.
    Source: Chapin et al., JSSPP 1999; the archive's page "The Standard Workload Format", version 2.2.
    """

    processors_per_gpu: int = 1

    def __post_init__(self) -> None:
        if self.processors_per_gpu < 1:
            raise ConfigError("must be at least 1", key="trace.processors_per_gpu")

    def sniff(self, head: Head) -> bool:
        rows = [line.split() for line in head.lines[:500] if line.strip() and not line.startswith(";")]
        return bool(rows) and len(rows[0]) == FIELDS and all(_is_number(text) for text in rows[0])

    def records(self, source: Source) -> Iterator[tuple[int, list[str]]]:
        with source.text() as file:
            for line, text in enumerate(file, 1):
                if start := _START.match(text):
                    source.origin_s = float(start[1])
                elif text.strip() and not text.startswith(";"):
                    yield line, text.split()

    def job(self, fields: list[str]) -> Job:
        if len(fields) != FIELDS:
            raise ValueError(f"has {len(fields)} fields, not {FIELDS}")
        value = [float(text) for text in fields]
        processors = value[4] if value[4] > 0 else value[7]
        if value[10] in (2, 3, 4):
            raise Dropped("part of a job that has its own line")
        at_once = value[3] == 0 and value[2] >= 0 and value[4] > 0 and value[10] != CANCELLED
        if processors <= 0 or not (value[3] > 0 or at_once):
            raise Dropped("never started")
        return Job(
            job_id=int(value[0]),
            gpus=-int(-processors // self.processors_per_gpu),
            submit_s=value[1],
            duration_s=value[3],
            start_s=value[1] + value[2] if value[2] >= 0 else NAN,
            time_limit_s=value[8] if value[8] > 0 else NAN,
            user=_label("user", value[11]),
            account=_label("group", value[12]),
            name=_label("app", value[13]),
            state=STATES.get(int(value[10]), ""),
        )


def _label(kind: str, value: float) -> str:
    return f"{kind}{value:.0f}" if value >= 0 else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
