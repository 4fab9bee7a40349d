"""A record made quickly is the record that dataclasses would make."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from slurmsched.model.quick import quickly


@quickly
@dataclass(frozen=True, slots=True)
class Record:
    first: int
    second: float = 2.0
    third: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", int(self.first))


def test_quickly__keeps_parameters_defaults_and_post_init() -> None:
    """By place and by name; a default that is made is made anew each time; __post_init__ runs."""
    made, other = Record("7"), Record(first=1, third=[3], second=5.0)  # type: ignore[arg-type]
    assert (made, other) == (Record(7, 2.0, []), Record(1, 5.0, [3]))
    assert made.third is not Record(1).third


def test_quickly__stays_frozen_and_strict() -> None:
    """No field can be set later, none can be left out, none be made up."""
    with pytest.raises(FrozenInstanceError):
        Record(1).first = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="first"):
        Record()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="fourth"):
        Record(1, fourth=2)  # type: ignore[call-arg]
