"""What all physics have: the costs of a change, and jobs that do not care where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Labels, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.sensitivity import sensitive


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """restart_cost_s, resize_cost_s, colocates: see protocols; the cluster checks the costs with its other times."""

    shared: ClassVar[bool] = False
    colocates: ClassVar[bool] = False

    restart_cost_s: float = 0.0
    resize_cost_s: float = 0.0


def named(models: Labels, words: Sequence[str]) -> Bools:
    """Whether the model of each job has one of these words in its name, in letters of any case. (N,) bool."""
    wanted = [word.lower() for word in words]
    return models.map(lambda model: any(word in model.lower() for word in wanted), np.bool_)


def caring(snapshot: Snapshot, rows: Int64s, insensitive: Sequence[str]) -> Bools:
    """Whether each job of these rows is slowed by far GPUs: not with `topo=any`, nor a model named so. (R,) bool."""
    easy = named(snapshot.jobs.name, insensitive)
    return np.array([not easy[row] and sensitive(snapshot, row) for row in rows.tolist()], np.bool_)


def check_speed(name: str, value: float) -> None:
    """Raises ConfigError unless it is a share of the recorded speed."""
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"must be above 0 and at most 1, got {value!r}", key=f"physics.{name}")
