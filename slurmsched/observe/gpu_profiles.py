"""Profiles of what runs: use, memory and throughput by model, batch size, number and type of GPUs, as they were seen.

A model is what the hint `model` says. Jobs without it are grouped by user and name, as "ann:train". The profiles are a
CSV file, which `speeds = { name = "throughputs", table = FILE }` reads: it has the columns of that table, and more.
Two jobs on one GPU have rows of their own: each with its throughput beside the other.
Each user has separate rows, and the table has the median over users, so one user cannot set the figures of a model.
"""

from __future__ import annotations

import csv
import math
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from slurmsched.allocation.mig_layouts import mig_memory_gb
from slurmsched.config import LeverConfig
from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import BESIDE, COLUMNS, USER, kind_of_job, model_of_job
from slurmsched.model import Jobs
from slurmsched.model.columns import Labels
from slurmsched.model.gpu_use import GpuJob
from slurmsched.model.gres import SHARING, parse_gres, sharing_kind
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.node_gpus import jobs_beside
from slurmsched.slurm.gpu_accounting import running_gpu_jobs, shared_gpu_jobs

MORE = (USER, BESIDE, "samples_per_s", "use", "peak_use", "memory_mib", "speed_s", "use_s", "jobs", "last_s")
MOST_ROWS, MOST_OF_USER = 5_000, 500  # in all and of one user; of more, the ones seen last stay
LEAST_SPEED, MOST_SPEED = 1e-6, 1e9  # samples per second; a report outside this range is ignored
LONGEST_S = 600.0  # longest time between two cycles that is counted: nothing was measured in between
SAVE_S = 300.0


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What is alike.

    batch: 0 = not told.
    gpu_type: "" = not known.
    user: whose jobs.
    beside: kind of the other job on the same GPU, "" = no other job is there.
    """

    model: str
    batch: int
    gpus: int
    gpu_type: str
    user: str = ""
    beside: str = ""


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """Sums over the time that was looked at.

    samples: trained in speed_s.
    used_s: of use_s, that in which the GPUs computed.
    peak_use: the highest share of the time in one measurement, NaN unknown.
    memory_mib: the most on one GPU, NaN unknown.
    jobs: that were seen.
    last_s: when [Unix s].
    """

    samples: float = 0.0
    speed_s: float = 0.0
    used_s: float = 0.0
    use_s: float = 0.0
    peak_use: float = math.nan
    memory_mib: float = math.nan
    jobs: int = 0
    last_s: float = 0.0

    @property
    def samples_per_s(self) -> float:
        """Mean throughput, NaN if no job reported it."""
        return self.samples / self.speed_s if self.speed_s else math.nan

    @property
    def use(self) -> float:
        """Mean share of the time in which the GPUs computed, NaN where it was not measured."""
        return self.used_s / self.use_s if self.use_s else math.nan


def profile_key(snapshot: Snapshot, row: int, job: GpuJob) -> ProfileKey:
    """The group of a running job."""
    batch, beside = parse_hints(snapshot.jobs.comment[row]).batch or 0, jobs_beside(snapshot, row)
    other = kind_of_job(snapshot.jobs, beside[0]) if beside else ""
    model = model_of_job(snapshot.jobs, row)
    return ProfileKey(model, batch, job.gpus, job.gpu_type.replace(",", "+"), job.user, other)


def with_seen(
    profiles: Mapping[ProfileKey, GpuProfile], snapshot: Snapshot, past_s: float, known: Mapping[int, ProfileKey]
) -> tuple[dict[ProfileKey, GpuProfile], dict[int, ProfileKey]]:
    """The profiles with what runs now, taken to be so for the last past_s seconds; and the group of each running job.

    known: the groups at the last look. A job that tells nothing and is not measured makes no profile. Of too many
    profiles (MOST_ROWS, MOST_OF_USER) those seen last stay.
    """
    made, groups = dict(profiles), dict[int, ProfileKey]()
    shared = [job for job in shared_gpu_jobs(snapshot) if _comparable(snapshot, snapshot.jobs.row_of(job.job_id))]
    for job in [*running_gpu_jobs(snapshot), *shared]:
        row = snapshot.jobs.row_of(job.job_id)
        speed, use = _told_speed(snapshot.jobs.comment[row]), _finite(float(snapshot.jobs.gpu_use[row]))
        if not speed and math.isnan(use):
            continue
        key = groups[job.job_id] = profile_key(snapshot, row, job)
        before, same_s = made.get(key, GpuProfile()), past_s if known.get(job.job_id) == key else 0.0
        made[key] = replace(
            before, samples=before.samples + speed * same_s,
            speed_s=before.speed_s + (same_s if speed else 0.0),
            used_s=before.used_s + (0.0 if math.isnan(use) else use * same_s),
            use_s=before.use_s + (0.0 if math.isnan(use) else same_s), peak_use=_larger(before.peak_use, use),
            memory_mib=_larger(before.memory_mib, _finite(float(snapshot.jobs.gpu_memory_mib[row]))),
            jobs=before.jobs + (known.get(job.job_id) != key), last_s=snapshot.now_s,
        )  # fmt: skip
    return _bounded(made), groups


def _comparable(snapshot: Snapshot, row: int) -> bool:
    """Whether a job with a part of a GPU has one job beside it, or none and still the whole GPU: MPS limits it also
    while it is alone."""
    beside = len(jobs_beside(snapshot, row))
    return beside == 1 or (beside == 0 and sharing_kind(snapshot.jobs.gpu_request[row]) == SHARING[0])


def _told_speed(comment: str) -> float:
    """Samples per second that a job reports, 0 if it reports none in the range."""
    speed = parse_hints(comment).throughput or 0.0
    return speed if LEAST_SPEED <= speed <= MOST_SPEED else 0.0


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _bounded(profiles: dict[ProfileKey, GpuProfile]) -> dict[ProfileKey, GpuProfile]:
    """The profiles seen last, at most MOST_OF_USER of one user and MOST_ROWS in all, in the order given."""
    if len(profiles) <= MOST_OF_USER:
        return profiles
    of_user, stay = Counter[str](), set[ProfileKey]()
    for key in sorted(profiles, key=lambda key: -profiles[key].last_s):
        of_user[key.user] += 1
        if of_user[key.user] <= MOST_OF_USER and len(stay) < MOST_ROWS:
            stay.add(key)
    return profiles if len(stay) == len(profiles) else {key: one for key, one in profiles.items() if key in stay}


def _larger(one: float, other: float) -> float:
    return other if math.isnan(one) else one if math.isnan(other) else max(one, other)


class ProfileStore:
    """Keeps the profiles of a file up to date, cycle by cycle. Raises InputError for a file that cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path, self._groups = path, dict[int, ProfileKey]()
        self._profiles = read_profiles(path)
        self._seen_s = self._saved_s = math.nan

    def add(self, snapshot: Snapshot) -> None:
        """Count what runs now, and write the file now and then. Raises InputError where it cannot be written."""
        now_s = snapshot.now_s
        past_s = 0.0 if math.isnan(self._seen_s) else min(max(now_s - self._seen_s, 0.0), LONGEST_S)
        self._profiles, self._groups = with_seen(self._profiles, snapshot, past_s, self._groups)
        self._seen_s = now_s
        if not now_s - self._saved_s < SAVE_S:
            self._saved_s = now_s
            write_profiles(self._path, self._profiles)


def write_profiles(path: Path, profiles: Mapping[ProfileKey, GpuProfile]) -> None:
    """Put the file in place whole, the rows seen last first. Rows without any time are left out. Raises InputError."""
    rows = [(key, one) for key, one in _bounded(dict(profiles)).items() if one.speed_s or one.use_s]
    rows.sort(key=lambda row: -row[1].last_s)
    try:
        handle, made = tempfile.mkstemp(prefix=".profiles-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            os.fchmod(handle, 0o644)
            out = csv.DictWriter(file, (*COLUMNS, *MORE))
            out.writeheader()
            out.writerows(_row(key, one) for key, one in rows)
        os.replace(made, path)  # noqa: PTH105 - made is a text
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from error


def _row(key: ProfileKey, one: GpuProfile) -> dict[str, Any]:
    """steps_per_s: of the batch, samples per second without one. What is not known is empty."""
    speed = one.samples_per_s
    return {
        "model": key.model, "batch": key.batch or "", "gpus": key.gpus, "gpu_type": key.gpu_type, USER: key.user,
        "steps_per_s": "" if math.isnan(speed) else f"{speed / max(key.batch, 1):.6g}",
        "samples_per_s": "" if math.isnan(speed) else f"{speed:.6g}",
        "use": "" if math.isnan(one.use) else f"{one.use:.4f}", BESIDE: key.beside,
        "peak_use": "" if math.isnan(one.peak_use) else f"{one.peak_use:.4f}",
        "memory_mib": "" if math.isnan(one.memory_mib) else f"{one.memory_mib:.0f}", "speed_s": f"{one.speed_s:.0f}",
        "use_s": f"{one.use_s:.0f}", "jobs": one.jobs, "last_s": f"{one.last_s:.0f}",
    }  # fmt: skip


def read_profiles(path: Path) -> dict[ProfileKey, GpuProfile]:
    """The profiles of a file, none while there is no file; rows with numbers that are not finite are left out.

    Raises InputError.
    """
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return dict(_profiles(csv.DictReader(file)))
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot be read as profiles: {error}", source=str(path)) from error


def _profiles(rows: csv.DictReader[str]) -> Iterator[tuple[ProfileKey, GpuProfile]]:
    for row in rows:
        speed_s, use_s = float(row["speed_s"]), float(row["use_s"])
        samples, use = float(row["samples_per_s"] or 0.0), float(row["use"] or 0.0)
        memory_mib, last_s = _finite(float(row["memory_mib"] or "nan")), float(row["last_s"])
        peak_use = _finite(float(row.get("peak_use") or "nan"))
        beside = row.get(BESIDE) or ""
        key = ProfileKey(row["model"], int(row["batch"] or 0), int(row["gpus"]), row["gpu_type"], row[USER], beside)
        if math.isfinite(samples * speed_s + use * use_s + last_s) and samples <= MOST_SPEED:
            yield (
                key,
                GpuProfile(
                    samples * speed_s, speed_s, use * use_s, use_s, peak_use, memory_mib, int(row["jobs"]), last_s
                ),
            )


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One model, batch, type and number of GPUs, over all users. None: not known.

    beside: the other job on the same GPU, "" = none.
    samples_per_s: throughput, the median over users, of two the lower, since any user may report any value.
    use, hours, jobs: those of all users.
    """

    model: str
    batch: int | None
    gpus: int
    gpu_type: str
    beside: str
    samples_per_s: float | None
    use: float | None
    memory_mib: float | None
    hours: float
    jobs: int


def profile_rows(profiles: Mapping[ProfileKey, GpuProfile]) -> list[ProfileRow]:
    """One row by model, batch, type, GPUs and other job, in this order."""
    kinds: dict[tuple[str, int, str, int, str], list[GpuProfile]] = {}
    for key, one in profiles.items():
        kinds.setdefault((key.model, key.batch, key.gpu_type, key.gpus, key.beside), []).append(one)
    return [_profile_row(*kind, kinds[kind]) for kind in sorted(kinds)]


def _profile_row(
    model: str, batch: int, gpu_type: str, gpus: int, beside: str, of_users: Sequence[GpuProfile]
) -> ProfileRow:
    speeds = [one.samples_per_s for one in of_users if math.isfinite(one.samples_per_s)]
    merged = reduce(merged_profiles, of_users)
    return ProfileRow(
        model, batch or None, gpus, gpu_type, beside, median_low(speeds) if speeds else None,
        _finite_or_none(merged.use), _finite_or_none(merged.memory_mib), max(merged.speed_s, merged.use_s) / 3600,
        merged.jobs,
    )  # fmt: skip


def merged_profiles(one: GpuProfile, other: GpuProfile) -> GpuProfile:
    """The sums and peaks of both."""
    return GpuProfile(
        one.samples + other.samples, one.speed_s + other.speed_s, one.used_s + other.used_s, one.use_s + other.use_s,
        _larger(one.peak_use, other.peak_use),
        _larger(one.memory_mib, other.memory_mib), one.jobs + other.jobs, max(one.last_s, other.last_s),
    )  # fmt: skip


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


# The part of a GPU that a waiting job needs, by what jobs like it used: for jobs that may share and name none.


MIB_PER_GB = 1024.0


class MeasuredParts:
    """Adds measured parts to the jobs of snapshots. The file of profiles is read again when it has changed.

    lever: its share_margin, share_measured_s and gpu_memory_gb count.
    """

    def __init__(self, path: Path, lever: LeverConfig) -> None:
        self._path, self._lever = path, lever
        self._profiles: Mapping[ProfileKey, GpuProfile] = {}
        self._read_ns = -1

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with measured_part and measured_part_why; with a warning where the file cannot be read."""
        jobs = snapshot.jobs
        unsized = np.isnan(hint_column(jobs, "gpu_part"))
        rows = np.flatnonzero(jobs.pending & (hint_column(jobs, "share") == 1) & unsized).tolist()
        if not rows:
            return snapshot
        try:
            self._look()
        except InputError as error:
            return replace(snapshot, warnings=(*snapshot.warnings, f"no measured parts of GPUs: {error}"))
        part, why = np.full(len(jobs), np.nan), [""] * len(jobs)
        for row in rows:
            part[row], why[row] = self._part(snapshot, row)
        return replace(snapshot, jobs=jobs.with_columns(measured_part=part, measured_part_why=Labels.of(why)))

    def _look(self) -> None:
        changed_ns = self._path.stat().st_mtime_ns if self._path.exists() else 0
        if changed_ns != self._read_ns:
            self._profiles, self._read_ns = read_profiles(self._path), changed_ns

    def _part(self, snapshot: Snapshot, row: int) -> tuple[float, str]:
        """The part that this job needs, and how that is known; NaN, and why it is not."""
        seen, least_s = profile_of_alike(self._profiles, snapshot.jobs, row), self._lever.share_measured_s
        if seen.use_s < least_s or math.isnan(seen.peak_use):
            return math.nan, f"jobs like it were measured for {seen.use_s / 3600:.1f} of {least_s / 3600:.1f} h"
        if not self._trusted(snapshot.jobs, row):
            return math.nan, f"only one other user's jobs like it were measured for {least_s / 3600:.1f} h"
        if math.isnan(seen.memory_mib):
            return math.nan, "the GPU memory of jobs like it was not measured"
        if not (size_gb := self._memory_gb(snapshot)):
            return math.nan, "the memory of its GPUs is not known; see lever.gpu_memory_gb"
        memory_gb = seen.memory_mib / MIB_PER_GB
        part = max((1 + self._lever.share_margin) * max(seen.use, memory_gb / size_gb), seen.peak_use)
        said = f"computes {seen.use:.0%} of the time and at most {seen.peak_use:.0%}, {memory_gb:.1f} of {size_gb:g} GB"
        if part >= 1:
            return math.nan, f"as measured it needs a whole GPU: {said}"
        return part, f"{said}, in {seen.use_s / 3600:.1f} h"

    def _trusted(self, jobs: Jobs, row: int) -> bool:
        """Whether jobs like it of its own user, or of two others, were measured for long enough: no user alone sets the
        part of another one's jobs."""
        used_s: dict[str, float] = defaultdict(float)
        for key, one in alike_profiles(self._profiles, jobs, row):
            used_s[key.user] += one.use_s
        users = {user for user, time_s in used_s.items() if time_s >= self._lever.share_measured_s}
        return jobs.user[row] in users or len(users) > 1

    def _memory_gb(self, snapshot: Snapshot) -> float:
        """The least memory of a GPU with shards [GB]; 0 if that of one type is not known."""
        shared = snapshot.nodes.gpu_types.take(~snapshot.nodes.shards.isin([""]))
        types = {entry.type for text in shared.names for entry in parse_gres(text) if not entry.mig}
        return min((self._lever.gpu_memory_gb.get(name or "gpu") or mig_memory_gb(name) for name in types), default=0.0)


def profile_of_alike(profiles: Mapping[ProfileKey, GpuProfile], jobs: Jobs, row: int) -> GpuProfile:
    """What jobs of one GPU of this job's model and batch used alone; without the hint model, those of its user and
    name."""
    return reduce(merged_profiles, (one for _, one in alike_profiles(profiles, jobs, row)), GpuProfile())


def alike_profiles(
    profiles: Mapping[ProfileKey, GpuProfile], jobs: Jobs, row: int
) -> Iterator[tuple[ProfileKey, GpuProfile]]:
    """The profiles of profile_of_alike, one for each user and GPU type."""
    model, batch = model_of_job(jobs, row), parse_hints(jobs.comment[row]).batch or 0
    for key, one in profiles.items():
        if (key.model, key.batch, key.gpus, key.beside) == (model, batch, 1, ""):
            yield key, one
