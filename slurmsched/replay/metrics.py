"""What a replay is judged by."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slurmsched.model.columns import Floats, Int64s, frozen

if TYPE_CHECKING:
    from slurmsched.replay.embedded import EmbeddedCluster

SIZE_CLASSES = (("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), (">8", 9, None))  # GPUs: name, least, most


class History:
    """GPUs in use and jobs waiting over time: steps, each until the next."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._times_s, self._counts = array("d", [0.0]), array("q", [0, 0])

    def note(self, now_s: float, busy: int, waiting: int) -> None:
        """From now_s on busy GPUs are held and `waiting` jobs could start. Of one time the last note counts."""
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

    def steps(self) -> tuple[Floats, Int64s, Int64s]:
        """Times [s], GPUs held, jobs waiting. All (T,), times ascending."""
        counts = np.array(self._counts, np.int64).reshape(-1, 2)
        return np.array(self._times_s), counts[:, 0], counts[:, 1]


class Ran(NamedTuple):
    """Every run that ended, by itself or not, in order of the ends: whose, on how many GPUs, when [s]. All (R,)."""

    job_id: Int64s
    gpus: Int64s
    start_s: Floats
    end_s: Floats


class Runs:
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

    def of(self, job_id: Int64s, gpus: Int64s) -> Ran:
        """The runs of the jobs in these columns."""
        row = np.array(self._row, np.int64)
        return Ran(job_id[row], gpus[row], np.array(self._start_s, np.float64), np.array(self._end_s, np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What became of every job. All columns are (J,), in the trace's order; times in seconds.

    executed_s: run time over all runs. useful_s: the part of it that made lasting progress.
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

    @classmethod
    def of(cls, cluster: EmbeddedCluster) -> Outcomes:
        """The outcomes of a cluster whose jobs all ended."""
        job, trace = cluster.job, cluster.trace
        return cls(
            job_id=trace.job_id,
            gpus=trace.gpus,
            submit_s=trace.submit_s,
            first_start_s=frozen(job.first_start_s.copy(), np.float64),
            end_s=frozen(job.end_s.copy(), np.float64),
            executed_s=frozen(job.executed_s.copy(), np.float64),
            useful_s=frozen(job.executed_s - job.wasted_s, np.float64),
            preemptions=frozen(job.restarts.copy(), np.int64),
            cluster_gpus=int(cluster.capacity.sum()),
        )

    @classmethod
    def of_ended(cls, cluster: EmbeddedCluster) -> Outcomes:
        """Of the jobs that ended so far."""
        done = cls.of(cluster)
        kept = np.isfinite(done.end_s)
        names = [name for name in cls.__slots__ if name != "cluster_gpus"]
        return replace(done, **{name: getattr(done, name)[kept] for name in names})

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
        """Run time over all runs, costs and lost work included, over the recorded one; 1 for a job of 0 s. Of jobs
        that ended."""
        return np.divide(self.executed_s, self.useful_s, out=np.ones(len(self.job_id)), where=self.useful_s > 0)

    @property
    def makespan_s(self) -> float:
        """Last end - first submission."""
        return float(self.end_s.max() - self.submit_s.min()) if len(self.job_id) else 0.0

    @property
    def utilisation(self) -> float:
        """GPU-seconds of useful run over (GPUs * makespan): 0 to 1. Restarts and lost work are not useful."""
        offered = self.cluster_gpus * self.makespan_s
        return float((self.gpus * self.useful_s).sum() / offered) if offered else 0.0

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds of run that made no lasting progress: restarts, and work done again."""
        return float((self.gpus * (self.executed_s - self.useful_s)).sum())

    @property
    def digest(self) -> str:
        """Equal for byte-equal outcomes."""
        hasher = hashlib.blake2b(digest_size=8)
        for name in ("job_id", "gpus", "submit_s", "first_start_s", "end_s", "executed_s", "useful_s", "preemptions"):
            hasher.update(getattr(self, name).tobytes())
        return hasher.hexdigest()


def of_size(gpus: Int64s, least: int, most: int | None) -> Any:
    """Jobs of a size class. (J,) bool."""
    return (gpus >= least) & (gpus <= (most if most is not None else gpus.max(initial=0)))


def summary(outcomes: Outcomes) -> dict[str, Any]:
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
    return {name: _spread(values[of_size(gpus, least, most)], (95,)) for name, least, most in SIZE_CLASSES}


def _spread(values: Floats, percentiles: tuple[int, ...]) -> dict[str, float] | None:
    """Mean and percentiles, None without values."""
    if not len(values):
        return None
    at = np.percentile(values, percentiles, method="linear")
    return {"mean": float(values.mean())} | {f"p{p}": float(v) for p, v in zip(percentiles, at, strict=True)}
