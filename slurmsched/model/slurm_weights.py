"""The weights of Slurm's priority, PriorityWeight* of slurm.conf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmsched.model.slurm_text import real_number

PREFIX, TRES = "PriorityWeight", "PriorityWeightTRES"
MOST_WEIGHT = 2**32  # no weight of Slurm reaches it


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of slurm.conf. share: of the sum of all, 0 to 1."""

    name: str
    points: float
    share: float

    def __str__(self) -> str:
        return f"{self.name}={self.points:g} ({self.share:.0%} of all weights)"


def slurm_weights(settings: Mapping[str, str]) -> tuple[Weight, ...]:
    """The weights above 0 of slurm.conf, the largest first. Those of PriorityWeightTRES count together."""
    points = {name: _points(text) for name, text in settings.items() if name.startswith(PREFIX) and name != TRES}
    parts = settings.get(TRES, "").split(",")
    points[TRES] = sum(_points(part.partition("=")[2]) for part in parts)
    whole = sum(points.values())
    made = (Weight(name, value, value / whole) for name, value in points.items() if value > 0)
    return tuple(sorted(made, key=lambda weight: (-weight.points, weight.name)))


def _points(text: str) -> float:
    value = real_number(text)
    return value if 0 < value < MOST_WEIGHT else 0.0
