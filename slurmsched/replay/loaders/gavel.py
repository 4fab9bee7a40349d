"""Traces of Gavel and of Shockwave, which adds run times to Gavel's columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import read_throughputs, throughput
from slurmsched.replay.loaders.rows import Job, RowLoader
from slurmsched.replay.loaders.source import Head, Source

# columns of a line -> places of total steps, GPUs and arrival; the older forms are in the repository's history
LAYOUTS = {4: (1, 3, 2), 6: (3, 5, 4), 7: (4, 6, 5), 9: (4, 5, 8), 10: (5, 6, 9)}
TABLES = ("simulation_throughputs.json", "simulation_throughputs.json.gz")


@dataclass(frozen=True, slots=True)
class Gavel(RowLoader):
    """Tab-separated, no header: job type ... total steps, GPUs, weight, SLO, arrival; or one of the older forms, such
    as the seven columns of the Philly traces: job type, command, argument, data, steps, arrival, GPUs. Run time is
    steps / throughput alone.

    throughputs: the JSON table of steps per second, looked for beside the trace and in the folder above if not given.
    worker: whose throughputs to take, such as "v100". Source: stanford-futuredata/gavel; Narayanan et al., OSDI '20.
    """

    throughputs: str = ""
    worker: str = "v100"

    def sniff(self, head: Head) -> bool:
        return any(_is_gavels(line.split("\t")) for line in head.lines[:20])

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        table = _throughputs(self.throughputs, source.path, self.worker)
        for line, fields in _lines(source):
            yield line, (table, fields)

    def job(self, record: Any) -> Job:
        table, fields = record
        if len(fields) not in LAYOUTS:
            raise ValueError(f"has {len(fields)} tab-separated fields, not {', '.join(map(str, LAYOUTS))}")
        steps, gpus, arrival_s = (fields[place] for place in LAYOUTS[len(fields)])
        kind = fields[0]
        alone = throughput(table, kind, int(gpus))
        if not alone > 0:
            raise ValueError(f"no throughput of {kind!r} on {gpus} GPUs of this worker type")
        return Job(gpus=int(gpus), submit_s=float(arrival_s), duration_s=float(steps) / alone, model=kind)


@dataclass(frozen=True, slots=True)
class Shockwave(RowLoader):
    """Tab-separated, no header: Gavel's columns with the batch-size mode and the run time without adaptation.

    Source: uw-mad-dash/shockwave; Zheng et al., NSDI '23.
    """

    def sniff(self, head: Head) -> bool:
        return len(head.lines[0].split("\t")) == 12 and "batch size" in head.lines[0]

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        return _lines(source)

    def job(self, fields: list[str]) -> Job:
        if len(fields) != 12:
            raise ValueError(f"has {len(fields)} tab-separated fields, not 12")
        return Job(
            gpus=int(fields[6]), submit_s=float(fields[11]), duration_s=float(fields[10]), model=fields[0],
            name=fields[7],
        )  # fmt: skip


def _is_gavels(fields: list[str]) -> bool:
    """Whether a line has the columns of one of the forms; the shortest is told by its job type alone."""
    if len(fields) not in LAYOUTS or (len(fields) == 4 and "batch size" not in fields[0]):
        return False
    return all(re.fullmatch(r"\d+(?:\.\d+)?", fields[place], re.ASCII) for place in LAYOUTS[len(fields)])


def _lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    with source.text() as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield line, text.rstrip("\r\n").split("\t")


def _throughputs(given: str, trace: Path, worker: str) -> Mapping[str, Any]:
    """The table of one worker type (see throughput). Raises InputError."""
    beside = [folder / name for folder in (trace.parent, trace.parent.parent) for name in TABLES]
    path = Path(given) if given else next((each for each in beside if each.exists()), None)
    if path is None:
        needs = "counts steps, not seconds: give Gavel's table with --set throughputs=simulation_throughputs.json"
        raise InputError(needs, source=str(trace))
    table = read_throughputs(path)
    if worker not in table:
        known = ", ".join(sorted(table)) or "none"
        raise InputError(f"has no worker type {worker!r}; it has {known} (--set worker=...)", source=str(path))
    found: Mapping[str, Any] = table[worker]
    return found
