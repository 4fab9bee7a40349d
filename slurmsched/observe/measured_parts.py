"""The part of a GPU that a waiting job needs, by what jobs like it used: for jobs that may share and name none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from slurmsched.allocation.mig_layouts import mig_memory_gb
from slurmsched.config import LeverConfig
from slurmsched.errors import InputError
from slurmsched.estimators.throughput_table import model_of_job
from slurmsched.model import Jobs
from slurmsched.model.columns import Labels
from slurmsched.model.gres import parse_gres
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.gpu_profiles import GpuProfile, ProfileKey, merged_profiles, read_profiles

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

    def _memory_gb(self, snapshot: Snapshot) -> float:
        """The least memory of a GPU with shards [GB]; 0 if that of one type is not known."""
        shared = snapshot.nodes.gpu_types.take(~snapshot.nodes.shards.isin([""]))
        types = {entry.type for text in shared.names for entry in parse_gres(text) if not entry.mig}
        return min((self._lever.gpu_memory_gb.get(name or "gpu") or mig_memory_gb(name) for name in types), default=0.0)


def profile_of_alike(profiles: Mapping[ProfileKey, GpuProfile], jobs: Jobs, row: int) -> GpuProfile:
    """What jobs of one GPU of this job's model and batch used alone; without the hint model, those of its user and
    name."""
    model, batch = model_of_job(jobs, row), parse_hints(jobs.comment[row]).batch or 0
    alike = (
        one for key, one in profiles.items() if (key.model, key.batch, key.gpus, key.beside) == (model, batch, 1, "")
    )
    return reduce(merged_profiles, alike, GpuProfile())
