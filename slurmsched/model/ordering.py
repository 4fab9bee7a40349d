"""The common part of every order of jobs: ordered keys, then submission, then job id; and one random number a job."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.columns import Floats, Int64s, Uint64s
from slurmsched.model.jobs import Jobs


def arrival_s(jobs: Jobs) -> Floats:
    """First submission of each job [Unix s]: a requeue does not move it as it moves Slurm's. (N,)."""
    first_s = jobs.first_submit_s
    if first_s is jobs.submit_s:  # no requeue has moved any
        return first_s
    unknown = np.isnan(first_s)
    return np.where(unknown, jobs.submit_s, first_s) if unknown.any() else first_s


def ordered(jobs: Jobs, *keys: NDArray[Any]) -> Int64s:
    """Rows by the first key, ties by the next one, in the end by submission and job id.

    keys: (N,) each, least goes first, NaN goes last. (N,) int64.
    """
    arrived_s = arrival_s(jobs)
    if _ascending(arrived_s) and _ascending(jobs.job_id):  # rows are in that order already, and sorting is stable
        return np.lexsort(keys[::-1]) if keys else np.arange(len(jobs))
    return np.lexsort((jobs.job_id, arrived_s, *reversed(keys)))


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def chance_of(jobs: Jobs, *seed: int) -> Floats:
    """A random number for each job, by seed and job id alone. (N,) in [0, 1).

    Source: the mixing function of SplitMix64 (Steele, Lea and Flood, OOPSLA '14), once for each number.
    """
    mixed = np.zeros(len(jobs), np.uint64)
    words = (*(np.full(len(jobs), each, np.int64) for each in seed), jobs.job_id.astype(np.int64))
    for word in words:
        mixed = _mix(mixed ^ np.ascontiguousarray(word).view(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(word: Uint64s) -> Uint64s:
    """(N,) uint64, products modulo 2^64."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
