"""What all physics have: the costs of a change, and jobs that do not care where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Labels, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.placements.gang_walk import sensitive_to_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCosts:
    """restart_cost_s, resize_cost_s, colocates: see protocols; the cluster checks the costs with its other times."""

    shared: ClassVar[bool] = False
    colocates: ClassVar[bool] = False

    restart_cost_s: float = 0.0
    resize_cost_s: float = 0.0


def models_named(models: Labels, words: Sequence[str]) -> Bools:
    """Whether the model of each job has one of these words in its name, in letters of any case. (N,) bool."""
    wanted = [word.lower() for word in words]
    return models.map(lambda model: any(word in model.lower() for word in wanted), np.bool_)


def topology_sensitive(snapshot: Snapshot, rows: Int64s, insensitive: Sequence[str]) -> Bools:
    """Whether each job of these rows is slowed by far GPUs: not with `topo=any`, nor a model named so. (R,) bool."""
    easy = models_named(snapshot.jobs.name, insensitive)
    return np.array([not easy[row] and sensitive_to_topology(snapshot, row) for row in rows.tolist()], np.bool_)


def check_speed(name: str, value: float) -> None:
    """Raises ConfigError unless it is a share of the recorded speed."""
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"must be above 0 and at most 1, got {value!r}", key=f"physics.{name}")


# Recorded run times.


@dataclass(frozen=True, slots=True)
class RecordedSpeed(ChangeCosts):
    """Wherever a job is and whoever is beside it, it runs at its recorded speed."""

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        return np.ones(len(held.rows))
