"""Other numbers of GPUs: how fast a job is on more or fewer than it asks for, and at its best batch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.allocation.elastic import amdahl
from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.profiled_goodput import TrainingProfile, training_profiles
from slurmsched.estimators.throughput_table import model_and_batch
from slurmsched.model import Assignments, Labels, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.parameters import Part, check_ranges
from slurmsched.sim.physics.change_costs import ChangeCosts


def held_gpus(held: Assignments) -> Int64s:
    """GPUs of each job of held.rows. (R,)."""
    return np.array([held.gpus[first : first + count].sum() for first, count in
                     zip(held.first.tolist(), held.count.tolist(), strict=True)], np.int64)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AmdahlSpeed(ChangeCosts):
    """Speed by the number of GPUs, wherever they are: 1 / (serial + (1 - serial) / GPUs), over that at the size asked
    for.

    serial: share of a job's work that more GPUs do not speed up.
    Raises ConfigError for a share out of range. Source: Amdahl's law; the default is that of `elasticflow`.
    """

    scales: ClassVar[bool] = True

    serial: Part = 0.02

    def __post_init__(self) -> None:
        check_ranges(self)

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        has, asked = held_gpus(held), snapshot.jobs.gpus[held.rows].astype(np.int64)
        return np.where(has == asked, 1.0, amdahl(has, self.serial) / amdahl(asked, self.serial))


# Profiles of training.


@dataclass(frozen=True, slots=True)
class TrainingSpeed(ChangeCosts):
    """Goodput: throughput by placement and batch size, times the statistical efficiency of the batch in that epoch.

    A job's model is that of the profile, with its batch size: "cifar10 (batch size 512)". Its recorded run time counts
    as that alone at the size and batch size that it asks for, packed on the fewest nodes.
    profiles: a folder with one folder for each model, or "pollux", which is shipped.
    adapt: jobs take the batch size with the most goodput whenever they get other GPUs or begin an epoch. Otherwise they
        keep the one that they ask for.
    interference: share of its speed that a job on several nodes loses while another such job is on one of them.
    tells_loss: jobs tell the loss of their epochs, by the hint `loss`.
    Raises ConfigError for a share out of range, InputError for profiles that cannot be read, and for a job without one.
    Source: Qiao et al. (Pollux), OSDI '21, sections 3 and 5.3, and its released simulator.
    """

    scales: ClassVar[bool] = True

    profiles: str = "pollux"
    adapt: bool = False
    interference: float = 0.0
    tells_loss: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.interference, int | float) or not 0 <= self.interference < 1:
            raise ConfigError(f"must be at least 0 and below 1, got {self.interference!r}", key="physics.interference")
        training_profiles(self.profiles)

    @property
    def shared(self) -> bool:  # type: ignore[override]  # by the parameter
        """Whether jobs slow each other."""
        return self.interference > 0

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics; in the first epoch."""
        return self.pace(snapshot, held, np.zeros(len(held.rows)))[0]

    def losses(self, models: Labels, done: Floats) -> Floats:
        """See protocols.LossPhysics."""
        known = training_profiles(self.profiles)
        names = [model_and_batch(model)[0] for model in models]
        steps = [known[name].loss_steps(share) if name in known else (np.nan,) * 3
                 for name, share in zip(names, done.tolist(), strict=True)]  # fmt: skip
        return np.array(steps).reshape(-1, 3)

    def pace(self, snapshot: Snapshot, held: Assignments, done: Floats) -> tuple[Floats, Floats]:
        """See protocols.ProgressPhysics."""
        known = training_profiles(self.profiles)
        slowed = _beside_each_other(held) if self.interference else np.zeros(len(held.rows), np.bool_)
        speed, until = np.empty(len(held.rows)), np.empty(len(held.rows))
        for k, (row, first, count) in enumerate(zip(held.rows.tolist(), held.first.tolist(), held.count.tolist(),
                                                    strict=True)):  # fmt: skip
            profile, batch = _profile_of(known, snapshot, row)
            epoch = profile.epoch(float(done[k]))
            placement = tuple(held.gpus[first : first + count].tolist())
            rate = profile.rates(placement, 0 if self.adapt else batch)[epoch]
            speed[k] = rate * profile.run_time_s(int(snapshot.jobs.gpus[row]), batch)
            until[k] = profile.epoch_ends[epoch] if epoch + 1 < len(profile.epoch_ends) else np.inf
        return speed * np.where(slowed, 1.0 - self.interference, 1.0), until


def _profile_of(known: Mapping[str, TrainingProfile], snapshot: Snapshot, row: int) -> tuple[TrainingProfile, int]:
    """Profile and batch size of a job. Raises InputError for a model without a profile."""
    model, batch = model_and_batch(snapshot.jobs.name[row])
    if model not in known:
        job, names = snapshot.jobs.job_id[row], ", ".join(sorted(known))
        raise InputError(f"job {job}: model {model!r} has no profile; there are {names}")
    if not batch:
        raise InputError(f"job {snapshot.jobs.job_id[row]}: its model {model!r} has no batch size; "
                         f'name it "{model} (batch size N)"')  # fmt: skip
    return known[model], batch


def _beside_each_other(held: Assignments) -> Bools:
    """Whether a job is on several nodes, on one of which another such job is too. (R,)."""
    several = np.repeat(held.count > 1, held.count)
    row = np.repeat(np.arange(len(held.rows)), held.count)
    ends = np.cumsum(held.count)
    entries = np.arange(len(row)) - np.repeat(ends - held.count, held.count) + np.repeat(held.first, held.count)
    node = held.node[entries]
    jobs = np.bincount(node[several], minlength=int(node.max(initial=0)) + 1)
    return np.bincount(row[several & (jobs[node] > 1)], minlength=len(held.rows)) > 0
