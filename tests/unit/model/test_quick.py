"""A record made quickly is the record that dataclasses would make."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from slurmsched.model.quick import dataclass, quickly


@quickly
@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    first: int
    second: float = 2.0
    third: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", int(self.first))


@dataclass(frozen=True, slots=True)
class Ours:
    """A base, with a method."""

    first: int
    second: float = 2.0
    third: list[int] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", int(self.first))

    def doubled(self) -> int:
        return 2 * self.first


@dataclass(frozen=True, slots=True)
class Child(Ours):
    """More fields after those of its base."""

    fourth: str = "x"


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """Equal to itself only."""

    first: int = 0


@dataclass(frozen=True, slots=True)
class Empty:
    """Without fields."""


@dataclass(frozen=True, slots=True)
class Single:
    """Of one field, and compared by rules of its own."""

    first: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Single) and abs(self.first) == abs(other.first)

    def __hash__(self) -> int:
        return abs(self.first)


BOTH = pytest.mark.parametrize("kind", [Record, Ours])


@BOTH
def test_init__keeps_parameters_defaults_and_post_init(kind) -> None:
    """By place and by name; a default that is made is made anew each time; __post_init__ runs."""
    made, other = kind("7"), kind(first=1, third=[3], second=5.0)
    assert (made, other) == (kind(7, 2.0, []), kind(1, 5.0, [3]))
    assert made.third is not kind(1).third


@BOTH
def test_init__stays_frozen_and_strict(kind) -> None:
    """No field can be set or deleted later, none can be left out, none be made up."""
    with pytest.raises(FrozenInstanceError, match="first"):
        kind(1).first = 2
    with pytest.raises(FrozenInstanceError, match="first"):
        del kind(1).first
    with pytest.raises(TypeError, match="first"):
        kind()
    with pytest.raises(TypeError, match="fourth"):
        kind(1, fourth=2)


def test_ours__is_compared_hashed_and_shown_as_the_library_does() -> None:
    """By class and by the fields that count; one that cannot be hashed makes the record so."""
    assert Ours(1, third=[1]) == Ours(1, third=[2])
    assert (Ours(1) == Ours(2), Ours(1) == Child(1), Ours(1) == (1, 2.0)) == (False, False, False)
    assert hash(Ours(1, third=[1])) == hash(Ours(1)) != hash(Ours(2))
    assert (repr(Child(1, fourth="y")), repr(Empty())) == ("Child(first=1, second=2.0, fourth='y')", "Empty()")
    assert {Ours(1): "a"}[Ours(1)] == "a"
    assert (Alone() == Alone(), Empty() == Empty()) == (False, True)
    assert (Single(-1) == Single(1), {Single(-1): 2}[Single(1)]) == (True, 2)
    assert Child(1, math.nan) == Child(1, math.nan)  # the same object
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours(1, second=[1]))  # type: ignore[arg-type]


def test_ours__serves_the_tools_of_the_library() -> None:
    """fields, replace, asdict, match, copies and pickles; no __dict__."""
    made = Child(1, 3.0, [4], "y")
    assert [spec.name for spec in fields(made)] == ["first", "second", "third", "fourth"]
    assert (replace(made, first=2).doubled(), asdict(made)["third"]) == (4, [4])
    assert Child.__match_args__ == ("first", "second", "third", "fourth")
    assert (pickle.loads(pickle.dumps(made)), copy.deepcopy(made).third) == (made, [4])
    assert not hasattr(made, "__dict__")


def test_ours__of_another_kind_is_the_librarys() -> None:
    """What is not both frozen and with slots, or asks for more, is left to the library."""

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        first: int

    @dataclass(slots=True)
    class Open:
        first: int

    changed = Open(1)
    changed.first = 2
    assert sorted([Ordered(2), Ordered(1)]) == [Ordered(1), Ordered(2)]
    assert changed == Open(2)
