"""Speeds of training jobs on other numbers of GPUs, from profiles of their models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import EqualSpeeds
from slurmsched.estimators.training_profiles import GPUS_PER_NODE, packed_gpus, training_profiles
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.hints import parse_hints


@dataclass(frozen=True, slots=True)
class ProfiledGoodput:
    """Goodput of a job in its present epoch by its hints `model`, `batch` and `progress`, on the fewest nodes.

    profiles: a folder with one folder for each model, or "pollux": the six models of that paper on T4, shipped.
    adapt: a job takes the batch size with the most goodput; else it keeps its own.
    per_node: GPUs of each node.
    Raises ConfigError for a node without GPUs, InputError for profiles that cannot be read.
    Source: Qiao et al. (Pollux), OSDI '21, section 3.
    """

    profiles: str = "pollux"
    adapt: bool = False
    per_node: int = GPUS_PER_NODE

    def __post_init__(self) -> None:
        if not isinstance(self.per_node, int) or self.per_node < 1:
            raise ConfigError(f"must be a number of GPUs of at least 1, got {self.per_node!r}",
                              key="policy.speeds.per_node")  # fmt: skip
        training_profiles(self.profiles)

    def speeds(self, snapshot: Snapshot, types: Sequence[str]) -> Floats:
        """See protocols.SpeedEstimator: profiles are of one type. (N, T)."""
        return EqualSpeeds().speeds(snapshot, types)

    def curve(self, snapshot: Snapshot, row: int, gpus: Int64s) -> Floats | None:
        """See protocols.CurveEstimator: over the mean speed at the size and batch size that the job asks for. (K,)."""
        hints = parse_hints(snapshot.jobs.comment[row])
        known, asked = training_profiles(self.profiles), int(snapshot.jobs.gpus[row])
        if hints.model is None or hints.model not in known or not hints.batch or asked < 1:
            return None
        table, mean = _by_size(self.profiles, hints.model, hints.batch, asked, self.adapt, self.per_node,
                               known[hints.model].epoch(hints.progress or 0.0))  # fmt: skip
        return table[np.minimum(gpus, len(table) - 1)] / mean if mean > 0 else None


@dataclass(frozen=True, slots=True)
class AdaptedGoodput(ProfiledGoodput):
    """As ProfiledGoodput, each job at the batch size with the most goodput, which follows its gradient noise."""

    adapt: bool = True


MOST_GPUS = 64  # of one job; profiles have no more


@lru_cache(maxsize=65_536)
def _by_size(
    profiles: str, model: str, batch: int, asked: int, adapt: bool, per_node: int, epoch: int
) -> tuple[Floats, float]:
    """Goodput of the epoch by number of GPUs from 0 on, and the mean goodput as asked for. (G + 1,)."""
    profile = training_profiles(profiles)[model]
    by_size = [
        profile.rates(packed_gpus(gpus, per_node), 0 if adapt else batch)[epoch] for gpus in range(1, MOST_GPUS + 1)
    ]
    rates = profile.rates(packed_gpus(asked, per_node), batch)
    mean = 1.0 / float((np.diff(profile.epoch_ends, prepend=0.0) / rates).sum()) if rates.all() else 0.0
    return np.array([0.0, *by_size]), mean
