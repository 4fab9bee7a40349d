"""Checks of policy parameters. Each returns nothing or raises ConfigError naming `policy.PARAMETER`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from slurmsched.errors import ConfigError

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


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """value: one of choices."""
    if value not in choices:
        raise ConfigError(f"must be one of {', '.join(map(str, choices))}, got {value!r}", key=f"policy.{name}")


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
            raise ConfigError(f"tells {key!r} more than once", key=f"policy.{name}")
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
