"""The schedule of a replay: waits, completion times and use of the GPUs."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from slurmsched.model.columns import Floats, Int64s

SIZE_CLASSES = (("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), (">8", 9, None))  # GPUs: name, least, most


class UsageHistory:
    """GPUs in use and jobs waiting over time: steps, each until the next.

    per_gpu: what `busy` counts for a whole GPU, 1000 where jobs hold thousandths. units: that of all GPUs.
    """

    def __init__(self, gpus: int, per_gpu: int = 1) -> None:
        self.gpus, self._per_gpu, self.units = gpus, per_gpu, gpus * per_gpu
        self._times_s, self._counts = array("d", [0.0]), array("q", [0, 0])

    def note(self, now_s: float, busy: int, waiting: int) -> None:
        """From now_s on `busy` units are held and `waiting` jobs could start. Of one time the last note counts."""
        if self._times_s[-1] != now_s:
            self._times_s.append(now_s)
            self._counts.extend((busy, waiting))
        else:
            self._counts[-2], self._counts[-1] = busy, waiting

    def extend(self, times_s: Floats, counts: Int64s) -> None:
        """As a note at each of these times, which ascend strictly. times_s: (T,). counts: (T, 2) busy, waiting."""
        if len(times_s) and self._times_s[-1] == times_s[0]:
            del self._times_s[-1], self._counts[-2:]
        self._times_s.frombytes(times_s.tobytes())
        self._counts.frombytes(counts.astype(np.int64).tobytes())

    def steps(self) -> tuple[Floats, Floats | Int64s, Int64s]:
        """Times [s], GPUs held, jobs waiting. All (T,), times ascending. Parts of GPUs are fractions."""
        counts = np.array(self._counts, np.int64).reshape(-1, 2)
        busy = counts[:, 0] if self._per_gpu == 1 else counts[:, 0] / self._per_gpu
        return np.array(self._times_s), busy, counts[:, 1]

    def use_between(self, from_s: float, until_s: float) -> float:
        """Share of the GPUs that are held in a span of time, on average: 0 to 1."""
        times_s, busy, _ = self.steps()
        inside_s = np.clip(np.append(times_s, max(until_s, times_s[-1])), from_s, until_s)
        offered = self.gpus * (until_s - from_s)
        return float((np.diff(inside_s) * busy).sum() / offered) if offered > 0 else 0.0


class JobRuns(NamedTuple):
    """Every run that ended, by itself or not, in order of the ends: whose, on how many GPUs, when [s]. All (R,)."""

    job_id: Int64s
    gpus: Int64s
    start_s: Floats
    end_s: Floats


class RunLog:
    """The runs that ended so far, 24 bytes each."""

    def __init__(self) -> None:
        self._row, self._start_s, self._end_s = array("q"), array("d"), array("d")

    def note(self, row: int, start_s: float, end_s: float) -> None:
        """The job of this row ran from start_s to end_s."""
        self._row.append(row)
        self._start_s.append(start_s)
        self._end_s.append(end_s)

    def extend(self, row: Int64s, start_s: Floats, end_s: Floats) -> None:
        """These runs, (R,) each, in order of their ends."""
        for kept, more in ((self._row, row), (self._start_s, start_s), (self._end_s, end_s)):
            kept.frombytes(more.tobytes())

    def of(self, job_id: Int64s, gpus: Int64s) -> JobRuns:
        """The runs of the jobs in these columns."""
        row = np.array(self._row, np.int64)
        return JobRuns(job_id[row], gpus[row], np.array(self._start_s, np.float64), np.array(self._end_s, np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class JobOutcomes:
    """What became of every job. All columns are (J,), in the trace's order; times in seconds.

    executed_s: run time over all runs.
    useful_s: the part of it that made lasting progress.
    gpu_share: part of each of its GPUs that a job holds, None = all of it.
    """

    job_id: Int64s
    gpus: Int64s
    submit_s: Floats
    first_start_s: Floats
    end_s: Floats
    executed_s: Floats
    useful_s: Floats
    preemptions: Int64s
    cluster_gpus: int
    gpu_share: Floats | None = None

    def of_jobs(self, job_id: Int64s) -> JobOutcomes:
        """Of these jobs only."""
        chosen = np.isin(self.job_id, job_id)
        if chosen.all():
            return self
        columns = {name: getattr(self, name) for name in self.__slots__ if name != "cluster_gpus"}
        return replace(self, **{name: column[chosen] for name, column in columns.items() if column is not None})

    @property
    def held_gpus(self) -> Floats | Int64s:
        """GPUs that each job holds, parts of them as fractions. (J,)."""
        return self.gpus if self.gpu_share is None else self.gpus * self.gpu_share

    @property
    def jct_s(self) -> Floats:
        """Job completion time: end - first submission, queueing included."""
        return self.end_s - self.submit_s

    @property
    def delay_s(self) -> Floats:
        """Queueing delay: the part of the JCT without GPUs at work, over all waits; a requeue's delays count."""
        return self.jct_s - self.executed_s

    @property
    def slowdown(self) -> Floats:
        """Run time over all runs, costs and lost work included, over the recorded one; 1 for a job of 0 s. Of jobs that
        ended."""
        return np.divide(self.executed_s, self.useful_s, out=np.ones(len(self.job_id)), where=self.useful_s > 0)

    @property
    def makespan_s(self) -> float:
        """Last end - first submission."""
        return float(self.end_s.max() - self.submit_s.min()) if len(self.job_id) else 0.0

    @property
    def utilisation(self) -> float:
        """GPU-seconds of useful run over (GPUs * makespan): 0 to 1. Restarts and lost work are not useful."""
        offered = self.cluster_gpus * self.makespan_s
        return float((self.held_gpus * self.useful_s).sum() / offered) if offered else 0.0

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds of run that made no lasting progress: restarts, and work done again."""
        return float((self.held_gpus * (self.executed_s - self.useful_s)).sum())

    @property
    def digest(self) -> str:
        """Equal for byte-equal outcomes."""
        hasher = hashlib.blake2b(digest_size=8)
        for name in ("job_id", "gpus", "submit_s", "first_start_s", "end_s", "executed_s", "useful_s", "preemptions"):
            hasher.update(getattr(self, name).tobytes())
        return hasher.hexdigest()


def in_size_class(gpus: Int64s, least: int, most: int | None) -> Any:
    """Jobs of a size class. (J,) bool."""
    return (gpus >= least) & (gpus <= (most if most is not None else gpus.max(initial=0)))


def outcome_summary(outcomes: JobOutcomes) -> dict[str, Any]:
    """The figures of the table, ready for JSON: times in seconds, percentiles interpolated linearly.

    A size class without jobs is None.
    """
    jct, delay = outcomes.jct_s, outcomes.delay_s
    return {
        "jobs": len(jct),
        "jct_s": _spread(jct, (50, 95, 99)),
        "queueing_delay_s": _spread(delay, (95,)),
        "queueing_delay_by_gpus_s": by_size(delay, outcomes.gpus),
        "makespan_s": outcomes.makespan_s,
        "preemptions": int(outcomes.preemptions.sum()),
        "gpu_utilisation": outcomes.utilisation,
        "digest": outcomes.digest,
    }


def by_size(values: Floats, gpus: Int64s) -> dict[str, dict[str, float] | None]:
    """Mean and p95 of each size class, None of one without jobs."""
    return {name: _spread(values[in_size_class(gpus, least, most)], (95,)) for name, least, most in SIZE_CLASSES}


def _spread(values: Floats, percentiles: tuple[int, ...]) -> dict[str, float] | None:
    """Mean and percentiles, None without values."""
    if not len(values):
        return None
    at = np.percentile(values, percentiles, method="linear")
    return {"mean": float(values.mean())} | {f"p{p}": float(v) for p, v in zip(percentiles, at, strict=True)}
