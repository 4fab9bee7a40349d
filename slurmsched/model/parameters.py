"""Ranges and checks of parameters of plug-ins. A range is part of the type: `round_s: Period = 360.0`.

`check_ranges` refuses other values when the plug-in is made, and `slurmsched policy show` prints the ranges. The bounds
are ours: far from useful values, and near enough that sums and products stay finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from slurmsched.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a parameter may have.

    least, most: the bounds, both allowed.
    whole: of whole numbers only.
    endless: infinity is allowed besides, for what is never to come.
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
SlotCount = Annotated[int, Range(1, 1_000, whole=True)]  # slots or rounds of a plan
Seconds = Annotated[float, Range(0.0, 1e9)]
Period = Annotated[float, Range(1e-3, 1e9)]  # seconds that something is divided by
GpuSeconds = Annotated[float, Range(0.0, 1e12)]
Part = Annotated[float, Range(0.0, 1.0)]
Weight = Annotated[float, Range(0.0, 1e6)]
SecondsOrNever = Annotated[float, Range(1e-3, 1e9, endless=True)]  # seconds; inf: never
Multiple = Annotated[float, Range(1e-6, 1e6, endless=True)]  # times; inf: never


def check_ranges(plugin: Any, key: str = "policy") -> None:
    """Raises ConfigError naming KEY.PARAMETER for a parameter that is out of its range. plugin: a dataclass."""
    kind: Any = type(plugin)
    for name, allowed in parameter_ranges(kind).items():
        value = getattr(plugin, name)
        if value not in allowed:
            number = "a whole number" if allowed.whole else "a number"
            raise ConfigError(f"must be {number} from {allowed}, got {value!r}", key=f"{key}.{name}")


@cache
def parameter_ranges(kind: Any) -> Mapping[str, Range]:
    """The ranges that a class tells of its fields, by name."""
    hints = get_type_hints(kind, include_extras=True)
    ranges = {name: [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Range)]
            for name, hint in hints.items()}  # fmt: skip
    return {name: found[0] for name, found in ranges.items() if found}


# Checks of policy parameters.

MOST = 1e12  # of what is only compared


def _number(value: Any) -> bool:
    """Whether it is a number that a float can hold, or infinity."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def check_ascending(name: str, values: Any) -> None:
    """values: numbers above zero and up to 1e12, each above the one before; may be empty."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ConfigError(f"must be a list of numbers, got {values!r}", key=f"policy.{name}")
    if not all(_number(value) and 0 < value <= MOST for value in values):
        raise ConfigError(f"must be numbers above 0 and up to {MOST:g}, got {list(values)}", key=f"policy.{name}")
    if list(values) != sorted(set(values)):
        raise ConfigError(f"must ascend strictly, got {list(values)}", key=f"policy.{name}")


def check_choice(name: str, value: Any, choices: Sequence[Any], of: str = "policy") -> None:
    """value: one of choices. of: what has the parameter."""
    if value not in choices:
        raise ConfigError(f"must be one of {', '.join(map(str, choices))}, got {value!r}", key=f"{of}.{name}")


def check_words(name: str, value: Any, of: str = "policy") -> None:
    """value: a tuple of words that are not empty. of: what has the parameter."""
    if not isinstance(value, tuple) or not all(isinstance(word, str) and word for word in value):
        raise ConfigError(f'must be a list of words, ["ncf"], got {value!r}', key=f"{of}.{name}")


def named_numbers(name: str, texts: Any, form: str, kinds: Sequence[str] = ()) -> dict[str, float]:
    """Numbers from 1e-6 to 1e6 by name, of texts NAME=NUMBER, each name once, "" being one: GPUs without a type.

    form: how they read, for the error. kinds: where given, a name is KIND:NAME, with one of these kinds.
    """
    found = dict[str, float]()
    check_words(name, texts)
    for text in texts:
        key, _, number = text.rpartition("=")
        kind, _, rest = key.partition(":")
        if key in found:
            raise ConfigError(f"names {key!r} twice; keep one", key=f"policy.{name}")
        try:
            found[key] = float(number)
        except ValueError:
            found[key] = 0.0
        if "=" not in text or not 1e-6 <= found[key] <= 1e6 or (kinds and (kind not in kinds or not rest)):
            of_kind = f", KIND one of {', '.join(kinds)}" if kinds else ""
            raise ConfigError(
                f"must be {form} with a number from 1e-6 to 1e6{of_kind}, got {text!r}", key=f"policy.{name}"
            )
    return found
