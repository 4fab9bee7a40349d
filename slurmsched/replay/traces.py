"""Traces: who came when, with how many GPUs, for how long."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Floats, Int64s, frozen

COLUMNS = ("job_id", "num_gpus", "submit_s", "duration_s")
SAMPLE = "philly_sample.csv.gz"
# Limits people type: minutes, half days, whole days.
COMMON_LIMITS_S = np.array(
    [60 * minutes for minutes in (15, 30, 60, 120, 240, 480, 720)] + [86_400 * days for days in (1, 2, 3, 5, 7, 14, 30)]
)
LONGEST_OVERESTIMATE = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One row a job, in ascending (submit, job id), whatever the order of the source. All columns are (J,).

    duration_s: run time alone on its GPUs. time_limit_s: what its user asked for.
    """

    job_id: Int64s
    gpus: Int64s
    submit_s: Floats
    duration_s: Floats
    time_limit_s: Floats

    @classmethod
    def of(
        cls, job_id: object, gpus: object, submit_s: object, duration_s: object, time_limit_s: object = None
    ) -> Trace:
        """The trace of these columns; time limits not given are the run times.

        Raises InputError for a job without GPUs, a negative time or an id used twice.
        """
        limit = duration_s if time_limit_s is None else time_limit_s
        columns = [frozen(job_id, np.int64), frozen(gpus, np.int64)]
        columns += [frozen(values, np.float64) for values in (submit_s, duration_s, limit)]
        order = np.lexsort((columns[0], columns[2]))
        trace = cls(*(frozen(column[order], column.dtype) for column in columns))
        trace._check()
        return trace

    def _check(self) -> None:
        wrong = (self.gpus < 1) | ~(self.submit_s >= 0) | ~(self.duration_s > 0) | ~(self.time_limit_s > 0)
        if wrong.any():
            raise InputError(f"job {self.job_id[wrong][0]}: needs num_gpus >= 1, submit_s >= 0 and duration_s > 0")
        ids, uses = np.unique(self.job_id, return_counts=True)
        if (uses > 1).any():
            raise InputError(f"job id {ids[uses > 1][0]} is used twice; give every job its own")

    def __len__(self) -> int:
        return len(self.job_id)

    def first(self, jobs: int) -> Trace:
        """The trace of the jobs submitted first."""
        return Trace(*(getattr(self, name)[:jobs] for name in self.__slots__))

    def with_user_limits(self, seed: int = 0) -> Trace:
        """Time limits as users set them: the run time times 1 to 4 (uniform), rounded up to a common limit.

        Traces without limits only; never below the run time. Each job's factor depends on seed and place alone.
        Ours: Philly records no limits; published logs of HPC sites show over-estimates of this size, heaped on
        round values (Tsafrir, Etsion and Feitelson, JSSPP 2005).
        """
        factor = np.random.default_rng(seed).uniform(1.0, LONGEST_OVERESTIMATE, len(self))
        wanted = self.duration_s * factor
        place = np.searchsorted(COMMON_LIMITS_S, wanted)
        common = COMMON_LIMITS_S[np.minimum(place, len(COMMON_LIMITS_S) - 1)]
        return Trace.of(self.job_id, self.gpus, self.submit_s, self.duration_s, np.maximum(common, self.duration_s))


def read_trace(path: Path | Traversable) -> Trace:
    """The trace of a CSV file (or its gzip) with columns job_id, num_gpus, submit_s, duration_s and, if any,
    time_limit_s. Raises InputError naming file and line."""
    source = str(path)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if source.endswith(".gz") else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read as a trace: {error}", source=source) from error
    rows = csv.DictReader(io.StringIO(text))
    missing = set(COLUMNS) - set(rows.fieldnames or ())
    if missing:
        found = f"has no column {', '.join(sorted(missing))}; a trace has {', '.join(COLUMNS)}"
        raise InputError(found, source=source, line=1)
    names = [*COLUMNS, *(["time_limit_s"] if "time_limit_s" in (rows.fieldnames or ()) else [])]
    columns: dict[str, list[float]] = {name: [] for name in names}
    for line, row in enumerate(rows, start=2):
        for name in names:
            try:
                columns[name].append(float(row[name]))
            except (TypeError, ValueError):
                raise InputError(f"{name} is {row[name]!r}, not a number", source=source, line=line) from None
    return Trace.of(*columns.values())


def sample_trace() -> Trace:
    """The trace shipped with slurmsched; its source and licence are in traces/README.md."""
    return read_trace(files("slurmsched.replay") / "traces" / SAMPLE).with_user_limits()
