"""Readers of job lists for simulators: Tiresias, Chronus, Muri, ElasticFlow, Gavel, Shockwave, Pollux and Sia."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmsched.errors import InputError
from slurmsched.estimators.profiled_goodput import TrainingProfile, read_profile
from slurmsched.estimators.throughput_table import read_throughputs, throughput
from slurmsched.input_files import FileHead, InputFile, csv_records
from slurmsched.model.trace_rows import RowLoader, SkippedRow, TraceJob, parse_integer, parse_number

TIRESIAS_COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


@dataclass(frozen=True, slots=True)
class TiresiasTrace(RowLoader):
    """Seconds; run time is `duration`. Source: SymbioticLab/Tiresias, Gu et al., NSDI '19."""

    def sniff(self, head: FileHead) -> bool:
        return set(TIRESIAS_COLUMNS) <= head.columns() and not {"iteration_time", "expect_time_list"} & head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, TIRESIAS_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        gpus = parse_integer(row, "num_gpu")
        if gpus == 0:
            raise SkippedRow("without GPUs")
        return TraceJob(
            job_id=parse_integer(row, "job_id"),
            gpus=gpus,
            submit_s=parse_number(row, "submit_time"),
            duration_s=parse_number(row, "duration"),
            model=row["model_name"],
        )


@dataclass(frozen=True, slots=True)
class ChronusTrace(TiresiasTrace):
    """Tiresias's columns with users and, by job, when it should have ended: seconds from its submission.

    Of the times of a soft deadline, parted by "-", the first counts; a best-effort job has none.
    Source: S-Lab-System-Group/ChronusArtifact; Gao et al., SoCC '21.
    """

    def sniff(self, head: FileHead) -> bool:
        return {*TIRESIAS_COLUMNS, "expect_time_list", "best_effort"} <= head.columns()

    def job(self, row: dict[str, Any]) -> TraceJob:
        job = TiresiasTrace.job(self, row)
        best_effort = parse_integer(row, "best_effort")
        first = {"expect": row["expect_time_list"].partition("-")[0]}
        comment = "" if best_effort else deadline_hint(parse_number(first, "expect"))
        return job._replace(user=row.get("user") or "", comment=comment)


def deadline_hint(after_submit_s: float) -> str:
    """The comment of a job that must have ended so long after its submission. Raises ValueError."""
    if not after_submit_s > 0:
        raise ValueError(f"its deadline is {after_submit_s:g} s after its submission")
    return f"slurmsched: deadline=+{after_submit_s:.15g}s"


# Muri: Tiresias's columns in milliseconds, and more columns.

MURI_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")


@dataclass(frozen=True, slots=True)
class MuriTrace(RowLoader):
    """Milliseconds; run time is iterations times iteration_time, rounded to a second, as Muri runs them.

    Its `duration` column is another figure, off by up to half on short jobs.
    Source: Rivendile/Muri, Zhao et al., SIGCOMM '22.
    """

    def sniff(self, head: FileHead) -> bool:
        return set(MURI_COLUMNS) <= head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, MURI_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        return TraceJob(
            job_id=parse_integer(row, "job_id"),
            gpus=parse_integer(row, "num_gpu"),
            submit_s=parse_number(row, "submit_time") / 1000,
            duration_s=float(round(parse_number(row, "iterations") * parse_number(row, "iteration_time") / 1000)),
            model=row["model_name"],
        )


# ElasticFlow.

ELASTICFLOW_COLUMNS = ("job_id", "submission_time", "num_iteration", "model_name", "deadline", "num_gpu", "duration")


@dataclass(frozen=True, slots=True)
class ElasticFlowTrace(RowLoader):
    """Seconds; run time is `duration`; deadlines and batch sizes become hints. Ids are numbers in file order.

    Source: microsoft/elasticflow-traces; Gu et al., ASPLOS '23.
    """

    def sniff(self, head: FileHead) -> bool:
        return set(ELASTICFLOW_COLUMNS) <= head.columns()

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return csv_records(source, ELASTICFLOW_COLUMNS)

    def job(self, row: dict[str, Any]) -> TraceJob:
        submit_s = parse_number(row, "submission_time")
        comment = deadline_hint(parse_number(row, "deadline") - submit_s)
        if row.get("batch_size"):
            comment += f" batch={parse_integer(row, 'batch_size')}"
        return TraceJob(
            gpus=parse_integer(row, "num_gpu"),
            submit_s=submit_s,
            duration_s=parse_number(row, "duration"),
            model=row["model_name"],
            comment=comment,
        )


# Gavel and Shockwave.

# columns of a line -> places of total steps, GPUs and arrival; the older forms are in the repository's history
GAVEL_LAYOUTS = {4: (1, 3, 2), 6: (3, 5, 4), 7: (4, 6, 5), 9: (4, 5, 8), 10: (5, 6, 9)}
THROUGHPUT_FILES = ("simulation_throughputs.json", "simulation_throughputs.json.gz")


@dataclass(frozen=True, slots=True)
class GavelTrace(RowLoader):
    """Tab-separated, no header: job type ... total steps, GPUs, weight, SLO, arrival; or one of the older forms, such
    as the seven columns of the Philly traces: job type, command, argument, data, steps, arrival, GPUs. Run time is
    steps / throughput alone.

    throughputs: the JSON table of steps per second, looked for beside the trace and in the folder above if not given.
    worker: whose throughputs to take, such as "v100". Source: stanford-futuredata/gavel; Narayanan et al., OSDI '20.
    """

    throughputs: str = ""
    worker: str = "v100"

    def sniff(self, head: FileHead) -> bool:
        return any(_is_gavels(line.split("\t")) for line in head.lines[:20])

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        table = _throughputs_beside(self.throughputs, source.path, self.worker)
        for line, fields in _gavel_lines(source):
            yield line, (table, fields)

    def job(self, record: Any) -> TraceJob:
        table, fields = record
        if len(fields) not in GAVEL_LAYOUTS:
            raise ValueError(f"has {len(fields)} tab-separated fields, not {', '.join(map(str, GAVEL_LAYOUTS))}")
        steps, gpus, arrival_s = (fields[place] for place in GAVEL_LAYOUTS[len(fields)])
        kind = fields[0]
        alone = throughput(table, kind, int(gpus))
        if not alone > 0:
            raise ValueError(f"no throughput of {kind!r} on {gpus} GPUs of this worker type")
        return TraceJob(gpus=int(gpus), submit_s=float(arrival_s), duration_s=float(steps) / alone, model=kind)


@dataclass(frozen=True, slots=True)
class ShockwaveTrace(RowLoader):
    """Tab-separated, no header: Gavel's columns with the batch-size mode and the run time without adaptation.

    Source: uw-mad-dash/shockwave; Zheng et al., NSDI '23.
    """

    def sniff(self, head: FileHead) -> bool:
        return len(head.lines[0].split("\t")) == 12 and "batch size" in head.lines[0]

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        return _gavel_lines(source)

    def job(self, fields: list[str]) -> TraceJob:
        if len(fields) != 12:
            raise ValueError(f"has {len(fields)} tab-separated fields, not 12")
        return TraceJob(
            gpus=int(fields[6]), submit_s=float(fields[11]), duration_s=float(fields[10]), model=fields[0],
            name=fields[7],
        )  # fmt: skip


def _is_gavels(fields: list[str]) -> bool:
    """Whether a line has the columns of one of the forms; only the job type identifies the shortest."""
    if len(fields) not in GAVEL_LAYOUTS or (len(fields) == 4 and "batch size" not in fields[0]):
        return False
    return all(re.fullmatch(r"\d+(?:\.\d+)?", fields[place], re.ASCII) for place in GAVEL_LAYOUTS[len(fields)])


def _gavel_lines(source: InputFile) -> Iterator[tuple[int, list[str]]]:
    with source.text() as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield line, text.rstrip("\r\n").split("\t")


def _throughputs_beside(given: str, trace: Path, worker: str) -> Mapping[str, Any]:
    """The table of one worker type (see throughput). Raises InputError."""
    beside = [folder / name for folder in (trace.parent, trace.parent.parent) for name in THROUGHPUT_FILES]
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


# Pollux and Sia.

POLLUX_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
# Columns of a list that has the run time of each job.
FIXED_COLUMNS = (
    "name",
    "submit_s",
    "application",
    "num_gpus",
    "batch_size",
    "isolated_duration_s",
)


@dataclass(frozen=True, slots=True)
class PolluxTrace(RowLoader):
    """name, time, application, num_replicas, batch_size: run time alone at the GPUs and batch size asked for.

    profiles: folder with one folder an application (placements.csv, scalability.csv, validation-B.csv), looked for
    beside the workload and in the folder above if not given. Nodes are filled with 4 GPUs each, without start delay.
    A list with isolated_duration_s (and submit_s, num_gpus for time, num_replicas) tells the run times itself.
    Source: petuum/adaptdl, branch osdi21-artifact; Qiao et al., OSDI '21, section 5; Sia's (SOSP '23) are alike.
    """

    profiles: str = ""

    def sniff(self, head: FileHead) -> bool:
        return set(POLLUX_COLUMNS) <= head.columns() or _is_fixed(head)

    def records(self, source: InputFile) -> Iterator[tuple[int, Any]]:
        if _is_fixed(source.head):
            yield from ((line, (None, row)) for line, row in csv_records(source, FIXED_COLUMNS))
            return
        folder, known = _profile_folder(self.profiles, source.path), dict[str, TrainingProfile]()
        for line, row in csv_records(source, POLLUX_COLUMNS):
            application = row["application"] or ""
            if application not in known:
                known[application] = read_profile(folder / application)
            yield line, (known[application], row)

    def job(self, record: Any) -> TraceJob:
        profile, row = record
        if profile is None:
            return TraceJob(
                gpus=parse_integer(row, "num_gpus"),
                submit_s=parse_number(row, "submit_s"),
                duration_s=parse_number(row, "isolated_duration_s"),
                model=row["application"] or "",
                name=row["name"] or "",
            )
        gpus, batch = parse_integer(row, "num_replicas"), parse_integer(row, "batch_size")
        if gpus < 1 or batch < 1:
            raise ValueError(f"cannot run on {gpus} GPUs with a batch of {batch}")
        return TraceJob(
            gpus=gpus,
            submit_s=parse_number(row, "time"),
            duration_s=profile.run_time_s(gpus, batch),
            model=row["application"],
            name=row["name"],
        )


def _is_fixed(head: FileHead) -> bool:
    return set(FIXED_COLUMNS) <= head.columns()


def _profile_folder(given: str, workload: Path) -> Path:
    candidates = [Path(given)] if given else [up / "profiles" for up in (workload.parent, workload.parent.parent)]
    for folder in candidates:
        if folder.is_dir():
            return folder
    needs = "names models, not run times: give the folder of their profiles with --set profiles=FOLDER"
    raise InputError(needs, source=str(workload))
