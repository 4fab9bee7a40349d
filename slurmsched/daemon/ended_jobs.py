"""Ended jobs of the site, for plug-ins that learn: read from accounting a little at a time, and kept in a file."""

from __future__ import annotations

import math
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from slurmsched.config import Config
from slurmsched.config import PastConfig as Settings
from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.input_files import InputFile
from slurmsched.logs import get_logger
from slurmsched.model import Past, Snapshot
from slurmsched.model.columns import Floats, Int64s, Labels, Table, column, text_column
from slurmsched.model.durations import DAY_S
from slurmsched.model.hints import parse_hints
from slurmsched.model.jobs import NO_PAST
from slurmsched.model.slurm_text import time_s
from slurmsched.model.trace_rows import ColumnBuilder, SkippedRow
from slurmsched.paths import create, draft_of
from slurmsched.plain_text import pluralize
from slurmsched.slurm.accounting import DELIMITER, ended_runs
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.sacct_jobs import job_id_of, job_of, join_runs

FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Start", "End", "Suspended", "NNodes",
    "AllocTRES", "ReqTRES", "JobName", "SubmitLine", "Comment",
)  # fmt: skip
_VERSION = 1  # of the file's form


@dataclass(frozen=True, slots=True, eq=False)
class EndedRuns(Table):
    """One row for each ended run. Columns are those of a Trace, with times in Unix seconds; all are (R,)."""

    job_id: Int64s = column(np.int64, 0)
    gpus: Int64s = column(np.int64, 1)
    submit_s: Floats = column(np.float64, 0.0)
    start_s: Floats = column(np.float64, 0.0)
    end_s: Floats = column(np.float64, 0.0)
    duration_s: Floats = column(np.float64, 0.0)
    nodes: Int64s = column(np.int64, 0)
    cpus: Int64s = column(np.int64, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    user: Labels = text_column()
    account: Labels = text_column()
    partition: Labels = text_column()
    name: Labels = text_column()
    model: Labels = text_column()
    gpu_type: Labels = text_column()
    state: Labels = text_column()


NO_RUNS = EndedRuns.build(0, {})


@dataclass(frozen=True, slots=True, eq=False)
class KnownRuns:
    """All runs that ended within [since_s, until_s).

    span_s: longest span of one call.
    refused_s: when accounting last did not answer, else -inf."""

    since_s: float
    until_s: float
    span_s: float
    refused_s: float = -math.inf
    runs: EndedRuns = NO_RUNS

    def with_span(self, found: EndedRuns, start_s: float, end_s: float) -> KnownRuns:
        """With the runs that ended within an adjacent or overlapping span. They replace those known of that span."""
        known = self.runs.end_s
        outside = (known < start_s) | (known >= end_s)
        runs = self.runs.take(outside).followed_by(found)
        since_s, until_s = min(self.since_s, start_s), max(self.until_s, end_s)
        return replace(self, since_s=since_s, until_s=until_s, runs=runs, refused_s=-math.inf)

    def as_of(self, now_s: float) -> KnownRuns:
        """Without times after now_s, which occur if the clock was set back. They are read again."""
        if self.until_s <= now_s:
            return self
        return replace(self, since_s=min(self.since_s, now_s), until_s=now_s)

    def bounded(self, oldest_s: float, rows: int) -> KnownRuns:
        """With the last `rows` runs that ended at oldest_s or later; since_s changes accordingly."""
        made = replace(self, runs=self.runs.take(self.runs.end_s >= oldest_s))
        if len(made.runs) <= rows:
            return made
        last = made.runs.take(np.sort(np.argsort(made.runs.end_s, kind="stable")[-rows:]))
        return replace(made, runs=last, since_s=float(last.end_s.min()) + 1)


def read_ended_runs(rows: Sequence[str]) -> tuple[EndedRuns, int]:
    """The runs of GPU jobs in sacct's rows of FIELDS, and the number of unreadable rows."""
    builder, ends, unread = ColumnBuilder(), list[float](), 0
    for row in rows:
        values = row.split(DELIMITER)
        values_of = dict(zip(FIELDS, values, strict=False))
        try:
            if len(values) != len(FIELDS):
                raise ValueError(row)
            model = parse_hints(values_of["Comment"]).model or ""
            builder.add(job_of(values_of, job_id_of(values_of, {}))._replace(model=model))
            ends.append(time_s(values_of["End"]))
        except SkippedRow:
            pass
        except (ValueError, OverflowError, UnreadableError):
            unread += 1
    columns = builder.columns()
    wanted = {spec.name: columns[spec.name] for spec in fields(EndedRuns) if spec.name in columns}
    return EndedRuns.build(len(ends), wanted | {"end_s": ends}), unread


def past_of(runs: EndedRuns) -> Past:
    """The ended jobs of these runs; the runs of a requeued job are joined.

    Jobs that ran 0 s are left out, since they show nothing about run times.
    """
    columns: dict[str, Any] = {spec.name: getattr(runs, spec.name) for spec in fields(EndedRuns)}
    jobs = join_runs(columns | {"requeues": np.zeros(len(runs), np.int64)}, InputFile(Path("sacct")))
    made = {spec.name: jobs[spec.name] for spec in fields(Past) if spec.name in jobs}
    made["executed_s"], made["attained_gpu_s"] = jobs["duration_s"], jobs["duration_s"] * jobs["gpus"]
    past = Past.build(len(jobs["job_id"]), made | {"completed": jobs["state"].isin(("COMPLETED",))})
    order = np.lexsort((past.job_id, past.end_s))
    return past.take(order[past.executed_s[order] > 0])


def save_runs(path: Path, kept: KnownRuns) -> None:
    """Write it, completely or not at all. Raises OSError."""
    columns: dict[str, Any] = {"about": np.array([_VERSION, kept.since_s, kept.until_s, kept.span_s, kept.refused_s])}
    for spec in fields(EndedRuns):
        values = getattr(kept.runs, spec.name)
        if isinstance(values, Labels):
            columns[f"{spec.name}.names"] = np.frombuffer(orjson.dumps(values.names), np.uint8)
            values = values.codes
        columns[spec.name] = values
    draft = draft_of(path)
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        with create(draft, 0o640) as file:
            np.savez(file, **columns)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load_runs(path: Path) -> KnownRuns | None:
    """What save_runs wrote; None if there is no such file, or one of another form."""
    try:
        with np.load(path, allow_pickle=False) as file:
            version, since_s, until_s, span_s, refused_s = file["about"].tolist()
            columns = {spec.name: _column(file, spec.name) for spec in fields(EndedRuns)}
        runs = EndedRuns.build(len(columns["job_id"]), columns)
        return KnownRuns(since_s, until_s, span_s, refused_s, runs) if version == _VERSION else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _column(file: Any, name: str) -> Any:
    """A column of the file. Raises ValueError for codes without a name."""
    values = file[name]
    if f"{name}.names" not in file:
        return values
    names = tuple(orjson.loads(file[f"{name}.names"].tobytes()))
    if len(values) and not 0 <= values.min() <= values.max() < len(names):
        raise ValueError(f"{name} has codes without a name")
    return Labels(values, names)


# Ended jobs from accounting.

log = get_logger()

LATE_S = 3_600.0  # an end may reach slurmdbd this much later, so this span is read again
PAUSE_S = 600.0  # pause after accounting did not answer
LEAST_SPAN_S = 3_600.0


class EndedJobsReader:
    """Adds the jobs that ended to snapshots. They come from sacct, which only reads.

    Jobs that ended since the last call are read every settings.interval_s. Earlier days, the latest first, are read
    while a cycle has spent less than settings.per_cycle_s on it. After a call without an answer the span is halved.
    Without slurmdbd sacct is not called.

    file: where the runs are kept.
    keep: whether the file is written. Otherwise it is read only, and sacct is called only if it does not exist.
    """

    def __init__(
        self, commands: Commands, settings: Settings, file: Path, *, keep: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._commands, self._settings, self._file, self._keep = commands, settings, file, keep
        self._clock = clock
        self._kept: KnownRuns | None = None
        self._asks = True
        self._past = NO_PAST

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the ended jobs that are known so far."""
        now_s, warnings = float(math.floor(snapshot.now_s)), tuple[str, ...]()
        before = self._kept
        kept = (before or self._opened(now_s)).as_of(now_s)
        if self._asks and snapshot.site.accounts_in_slurmdbd:
            kept, warnings = self._read(kept, now_s)
        if before is None or kept.runs is not before.runs:
            self._past = past_of(kept.runs)
        self._kept = kept
        return replace(snapshot, past=self._past, warnings=(*snapshot.warnings, *warnings))

    @property
    def runs(self) -> EndedRuns:
        """The runs of the last snapshot."""
        return self._kept.runs if self._kept else NO_RUNS

    def _opened(self, now_s: float) -> KnownRuns:
        found = load_runs(self._file)
        self._asks = self._keep or found is None
        oldest_s = now_s - self._settings.days * DAY_S
        if found is None or not oldest_s <= found.until_s <= now_s + DAY_S:
            return KnownRuns(now_s, now_s, DAY_S)
        return found

    def _read(self, kept: KnownRuns, now_s: float) -> tuple[KnownRuns, tuple[str, ...]]:
        """With the spans that are due now, and warnings."""
        began_s, known, unread, warnings = self._clock(), kept, 0, list[str]()
        try:
            while (
                span := next_span(kept, self._settings, now_s)
            ) and self._clock() - began_s < self._settings.per_cycle_s:
                runs, lines = read_ended_runs(ended_runs(self._commands, FIELDS, *span))
                kept, unread = kept.with_span(runs, *span), unread + lines
                kept = replace(kept, span_s=min(2 * kept.span_s, DAY_S))
        except SlurmError as error:
            kept = replace(kept, refused_s=now_s, span_s=max(kept.span_s / 2, LEAST_SPAN_S))
            warnings.append(f"jobs that ended: {error}")
        if unread:
            warnings.append(f"jobs that ended: {pluralize(unread, 'row')} of sacct cannot be read")
        if kept is not known:
            kept = kept.bounded(now_s - self._settings.days * DAY_S, self._settings.rows)
            warnings += self._saved(kept)
            log.info("past.read", runs=len(kept.runs), since_s=kept.since_s, until_s=kept.until_s)
        return kept, tuple(warnings)

    def _saved(self, kept: KnownRuns) -> list[str]:
        try:
            if self._keep:
                save_runs(self._file, kept)
        except OSError as error:
            return [f"jobs that ended cannot be kept: {error}"]
        return []


def next_span(kept: KnownRuns, settings: Settings, now_s: float) -> tuple[float, float] | None:
    """The span to read next [Unix s, whole seconds]; None if nothing is due."""
    if 0 <= now_s - kept.refused_s < PAUSE_S:
        return None
    if now_s - kept.until_s >= settings.interval_s:
        return max(kept.until_s - LATE_S, kept.since_s), min(kept.until_s + kept.span_s, now_s)
    oldest_s = now_s - settings.days * DAY_S
    if kept.since_s > oldest_s and len(kept.runs) < settings.rows:
        return max(kept.since_s - kept.span_s, oldest_s), kept.since_s
    return None


def open_past(config: Config, *, keep: bool) -> EndedJobsReader:
    """The past of the configured Slurm, kept beside the journal."""
    file = config.ledger.journal.with_name("past.npz")
    return EndedJobsReader(open_commands(config.slurm), config.past, file, keep=keep)
