"""The numbers that a parameter may have, told in its type: `round_s: Period = 360.0`.

`check_ranges` refuses any other when the plug-in is made, and `slurmsched policy show` prints them. The bounds are
ours: far from what anybody would set, and near enough that sums and products of them stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from slurmsched.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Range:
    """least, most: the bounds, both allowed. whole: of whole numbers only. endless: infinity is allowed besides, for
    what is never to come.
    """

    least: float
    most: float
    whole: bool = False
    endless: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int if self.whole else int | float) or isinstance(value, bool):
            return False
        return self.least <= value <= self.most or (self.endless and value == math.inf)

    def __str__(self) -> str:
        least, most = (f"{bound:,}" if self.whole else f"{bound:g}" for bound in (self.least, self.most))
        return f"{least} to {most}{', or inf' if self.endless else ''}"


Count = Annotated[int, Range(1, 1_000_000, whole=True)]
Slots = Annotated[int, Range(1, 1_000, whole=True)]  # slots or rounds of a plan
Seconds = Annotated[float, Range(0.0, 1e9)]
Period = Annotated[float, Range(1e-3, 1e9)]  # seconds that something is divided by
GpuSeconds = Annotated[float, Range(0.0, 1e12)]
Part = Annotated[float, Range(0.0, 1.0)]
Weight = Annotated[float, Range(0.0, 1e6)]
Patience = Annotated[float, Range(1e-3, 1e9, endless=True)]  # seconds; inf: never
Knob = Annotated[float, Range(1e-6, 1e6, endless=True)]  # times; inf: never


def check_ranges(plugin: Any, key: str = "policy") -> None:
    """Raises ConfigError naming KEY.PARAMETER for a parameter that is out of its range. plugin: a dataclass."""
    kind: Any = type(plugin)
    for name, allowed in ranges(kind).items():
        value = getattr(plugin, name)
        if value not in allowed:
            number = "a whole number" if allowed.whole else "a number"
            raise ConfigError(f"must be {number} from {allowed}, got {value!r}", key=f"{key}.{name}")


@cache
def ranges(kind: Any) -> Mapping[str, Range]:
    """The ranges that a class tells of its fields, by name."""
    hints = get_type_hints(kind, include_extras=True)
    told = {name: [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Range)]
            for name, hint in hints.items()}  # fmt: skip
    return {name: found[0] for name, found in told.items() if found}
