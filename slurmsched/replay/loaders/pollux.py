"""Workloads of Pollux and Sia: jobs are models with a batch size; run times come from measured profiles."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Floats
from slurmsched.replay.loaders.csv_rows import csv_records
from slurmsched.replay.loaders.rows import Job, RowLoader, number, whole
from slurmsched.replay.loaders.source import Head, Source

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
FIXED = ("name", "submit_s", "application", "num_gpus", "batch_size", "isolated_duration_s")  # with the run time told
GPUS_PER_NODE = 4  # of the cluster the profiles were taken on
LOCAL_BATCH_CAP = {"yolov3": 8}  # the authors' own cap, below what was profiled


@dataclass(frozen=True, slots=True)
class Pollux(RowLoader):
    """name, time, application, num_replicas, batch_size: run time alone at the GPUs and batch size asked for.

    profiles: folder with one folder an application (placements.csv, scalability.csv, validation-B.csv), looked for
    beside the workload and in the folder above if not given. Nodes are filled with 4 GPUs each, without start delay.
    A list with isolated_duration_s (and submit_s, num_gpus for time, num_replicas) tells the run times itself.
    Source: petuum/adaptdl, branch osdi21-artifact; Qiao et al., OSDI '21, section 5; Sia's (SOSP '23) are alike.
    """

    profiles: str = ""

    def sniff(self, head: Head) -> bool:
        return set(COLUMNS) <= head.columns() or _is_fixed(head)

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        if _is_fixed(source.head):
            yield from ((line, (None, row)) for line, row in csv_records(source, FIXED))
            return
        folder, known = _folder(self.profiles, source.path), dict[str, Profile]()
        for line, row in csv_records(source, COLUMNS):
            application = row["application"] or ""
            if application not in known:
                known[application] = Profile(folder / application)
            yield line, (known[application], row)

    def job(self, record: Any) -> Job:
        profile, row = record
        if profile is None:
            return Job(
                gpus=whole(row, "num_gpus"),
                submit_s=number(row, "submit_s"),
                duration_s=number(row, "isolated_duration_s"),
                model=row["application"] or "",
                name=row["name"] or "",
            )
        gpus, batch = whole(row, "num_replicas"), whole(row, "batch_size")
        if gpus < 1 or batch < 1:
            raise ValueError(f"cannot run on {gpus} GPUs with a batch of {batch}")
        return Job(
            gpus=gpus,
            submit_s=number(row, "time"),
            duration_s=profile.run_time_s(gpus, batch),
            model=row["application"],
            name=row["name"],
        )


def _is_fixed(head: Head) -> bool:
    return set(FIXED) <= head.columns()


@dataclass(frozen=True)
class Profile:
    """What was measured of one application."""

    folder: Path

    @cached_property
    def steps(self) -> dict[tuple[str, int, int], Floats]:
        """(placement, "" of the scaling runs; nodes; GPUs) -> rows of local batch, step time [s], sync time [s]."""
        found: dict[tuple[str, int, int], list[list[float]]] = {}
        for row in _rows(self.folder / "placements.csv"):
            placement = row["placement"]
            key = (placement, len(placement), sum(map(int, placement)))
            found.setdefault(key, []).append(_step(row))
        for row in _rows(self.folder / "scalability.csv"):
            found.setdefault(("", int(row["num_nodes"]), int(row["num_replicas"])), []).append(_step(row))
        return {key: np.array(sorted(rows)) for key, rows in found.items()}

    @cached_property
    def validations(self) -> dict[int, Floats]:
        """Batch size -> rows, one an epoch, of progress, squared gradient norm, gradient variance."""
        found = {}
        for path in self.folder.glob("validation-*.csv"):
            names = ("progress", "grad_sqr", "grad_var")
            rows = [[float(row[name]) for name in names] for row in _rows(path)]
            found[int(path.stem.partition("-")[2])] = np.array(rows)
        epochs = min((len(rows) for rows in found.values()), default=0)
        if not epochs:
            raise InputError("has no validation-B.csv", source=str(self.folder))
        return {batch: found[batch][:epochs] for batch in sorted(found)}

    def run_time_s(self, gpus: int, batch: int) -> float:
        """Seconds alone to the last epoch: progress over goodput, each epoch in whole seconds as the authors count.

        Goodput is the gain of the batch over the smallest profiled one, over the time of a step with its gradient
        accumulation. Raises ValueError for a batch or a number of GPUs that was not profiled.
        """
        local, accumulated = self._split(gpus, batch)
        step_s, sync_s = self._step_s(gpus, local)
        squared, variance = self._gradients(gpus * local * (accumulated + 1))
        scale = gpus * local * (accumulated + 1) / min(self.validations)
        gain = (variance + squared) / (variance / scale + squared)
        progress = np.min([rows[:, 0] for rows in self.validations.values()], axis=0)
        seconds = np.diff(progress, prepend=0.0) / gain * (step_s + accumulated * (step_s - sync_s))
        return float(np.round(seconds).sum())

    def _split(self, gpus: int, batch: int) -> tuple[int, int]:
        """Batch of one GPU in one pass, and passes whose gradients are accumulated before the last."""
        cap = LOCAL_BATCH_CAP.get(self.folder.name, max(rows[-1, 0] for key, rows in self.steps.items() if key[0]))
        each = math.ceil(batch / gpus)
        accumulated = math.ceil(each / cap) - 1
        if gpus == 1 and batch > min(self.validations):
            accumulated = max(1, accumulated)
        local = math.ceil(each / (accumulated + 1))
        return min(local, max(self.validations) // (gpus * (accumulated + 1))), accumulated

    def _step_s(self, gpus: int, local: int) -> tuple[float, float]:
        full, rest = divmod(gpus, GPUS_PER_NODE)
        placement = (str(rest) if rest else "") + str(GPUS_PER_NODE) * full
        rows = self.steps.get((placement, len(placement), gpus))
        rows = self.steps.get(("", len(placement), gpus)) if rows is None else rows
        if rows is None or not rows[0, 0] <= local <= rows[-1, 0]:
            raise ValueError(f"{self.folder.name} was not profiled on {gpus} GPUs with a local batch of {local}")
        return float(np.interp(local, rows[:, 0], rows[:, 1])), float(np.interp(local, rows[:, 0], rows[:, 2]))

    def _gradients(self, batch: int) -> tuple[Floats, Floats]:
        """Squared norm and variance by epoch, interpolated between profiled batch sizes. Both (epochs,)."""
        below = [size for size in self.validations if size <= batch]
        above = [size for size in self.validations if size >= batch]
        if not below or not above:
            raise ValueError(f"{self.folder.name} was not profiled with a batch of {batch}")
        part = (batch - below[-1]) / max(above[0] - below[-1], 1)
        rows = (1 - part) * self.validations[below[-1]] + part * self.validations[above[0]]
        return rows[:, 1], rows[:, 2]


def _folder(given: str, workload: Path) -> Path:
    candidates = [Path(given)] if given else [up / "profiles" for up in (workload.parent, workload.parent.parent)]
    for folder in candidates:
        if folder.is_dir():
            return folder
    needs = "names models, not run times: give the folder of their profiles with --set profiles=FOLDER"
    raise InputError(needs, source=str(workload))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error


def _step(row: dict[str, Any]) -> list[float]:
    return [float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])]
