"""Jobs as a report counts them: who waited how long, and held how many GPUs from when to when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.model.table import Table, column, text
from slurmsched.replay.trace_files import Recorded

NAN = float("nan")
_HOLDS = JobState.RUNNING | JobState.SUSPENDED


@dataclass(frozen=True, slots=True, eq=False)
class Lived(Table):
    """One row a GPU job that ran. All columns are (J,), times in Unix seconds.

    submit_s: first. start_s: of the first run, NaN where that is not on record. held_s: since when GPUs were held, as
    far as known. end_s: NaN while it runs. executed_s: over all runs so far.
    """

    job_id: Int64s = column(np.int64, 0)
    user: Labels = text()
    account: Labels = text()
    gpus: Int64s = column(np.int64, 1)
    submit_s: Floats = column(np.float64, NAN)
    start_s: Floats = column(np.float64, NAN)
    held_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)
    executed_s: Floats = column(np.float64, 0.0)

    @property
    def wait_s(self) -> Floats:
        """From the first submission to the first start; NaN where that is not on record."""
        return np.maximum(self.start_s - self.submit_s, 0.0)

    @property
    def ended(self) -> Bools:
        return ~np.isnan(self.end_s)

    def started_in(self, from_s: float, to_s: float) -> Bools:
        """Whether the first start is in the span."""
        return (self.start_s >= from_s) & (self.start_s < to_s)

    def gpu_s_in(self, from_s: float, to_s: float) -> Floats:
        """GPU time held within the span; a job counts from its first start to its end, pauses included."""
        end_s = np.where(self.ended, self.end_s, to_s)
        return self.gpus * np.maximum(np.minimum(end_s, to_s) - np.maximum(self.held_s, from_s), 0.0)


def lived(rows: Iterable[Mapping[str, Any]]) -> Lived:
    """A table of rows by column."""
    listed = list(rows)
    names = {name for row in listed for name in row}
    return Lived.build(len(listed), {name: [row[name] for row in listed] for name in names})


def of_history(recorded: Recorded) -> Lived:
    """Jobs that ended, by accounting. The runs of a requeued job are one, from its first start on."""
    trace = recorded.trace
    start_s, end_s = trace.start_s + recorded.origin_s, trace.start_s + trace.duration_s + recorded.origin_s
    return Lived.build(len(trace), {
        "job_id": trace.job_id, "user": trace.user, "account": trace.account, "gpus": trace.gpus,
        "submit_s": trace.submit_s + recorded.origin_s, "start_s": start_s, "held_s": start_s, "end_s": end_s,
        "executed_s": trace.duration_s,
    })  # fmt: skip


def of_snapshot(snapshot: Snapshot) -> Lived:
    """Jobs that hold GPUs now. The first start of a requeued one is not told."""
    jobs = snapshot.jobs
    here = jobs.take(np.flatnonzero(jobs.is_state(_HOLDS) & (jobs.gpus > 0) & ~np.isnan(jobs.start_s)))
    first_s = np.where(np.isnan(here.first_submit_s), here.submit_s, here.first_submit_s)
    return Lived.build(len(here), {
        "job_id": here.job_id, "user": here.user, "account": here.account, "gpus": here.gpus.astype(np.int64),
        "submit_s": first_s, "start_s": np.where(here.restarts == 0, here.start_s, np.nan), "held_s": here.start_s,
        "executed_s": here.run_s,
    })  # fmt: skip


def both(first: Lived, then: Lived) -> Lived:
    """The rows of both tables; a job id that the first has is left out of the second."""
    new = then.take(np.flatnonzero(~np.isin(then.job_id, first.job_id)))
    return Lived.build(len(first) + len(new), {
        name: np.concatenate([getattr(first, name), getattr(new, name)])
        if not isinstance(getattr(first, name), Labels) else [*getattr(first, name), *getattr(new, name)]
        for name in Lived.__slots__
    })  # fmt: skip
