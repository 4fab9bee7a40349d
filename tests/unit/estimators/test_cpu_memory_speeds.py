"""Speeds by CPUs and memory: the shipped table, and tables of a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.estimators.cpu_memory_speeds import SYNERGY, cpu_memory_profiles, profile_of


def test_profile__counts_the_lower_level() -> None:
    """AlexNet with 10 CPUs and 200 GiB runs as with 9 and 187.5; below 1 CPU as with 1."""
    profile = profile_of(SYNERGY, "alexnet (batch size 512)")
    assert profile is not None
    assert (profile.at(10, 200), profile.at(0.5, 62.5), profile.at(12, 125)) == (2.0, 0.3, 2.94)
    assert profile.best() == (12, 125)


def test_profiles__at_most_a_part_is_as_fast_as_the_part() -> None:
    """Whoever falls back to the smaller of its best and its part, in CPUs and in memory, loses nothing by that."""
    for profile in cpu_memory_profiles(SYNERGY).values():
        best = profile.best()
        for cpus, memory_gib in ((3, 62.5), (4, 62.5), (6, 125), (2, 250)):
            assert profile.at(min(best.cpus, cpus), min(best.memory_gib, memory_gib)) == profile.at(cpus, memory_gib)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,cpus,memory_gib\na,1,1\n", "needs the columns"),
        ("model,cpus,memory_gib,speed\na,1,1,1\na,2,2,1\n", "a has no speed at 1 CPUs and 2 GiB"),
        ("model,cpus,memory_gib,speed\na,1,1,0\n", "speed of a must be above 0"),
    ],
)
def test_profiles__a_table_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """The error says what is missing, and where."""
    path = tmp_path / "profiles.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said) as caught:
        cpu_memory_profiles(str(path))
    assert caught.value.source == str(path)
