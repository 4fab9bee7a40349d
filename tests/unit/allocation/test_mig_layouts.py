"""MIG: profiles, the smallest device for a job, layouts of whole GPUs."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.allocation.mig_layouts import (
    MEMORY_SIZES,
    full_layouts,
    mig_layouts,
    mig_memory_gb,
    mig_profiles,
    smallest_profile,
)

WANTED = st.lists(st.integers(0, 6), min_size=6, max_size=6)


@pytest.mark.parametrize(
    ("gpu_type", "memory_gb"),
    [("a100", 40), ("nvidia_a100_80gb_pcie", 80), ("A30", 24), ("h100", 80), ("h100_nvl", 94), ("gh200", 96),
     ("h200", 141), ("nvidia_b200", 180), ("gb200", 186), ("v100", 0), ("a3000", 0), ("", 0)],
)  # fmt: skip
def test_memory__by_the_name_of_the_type(gpu_type: str, memory_gb: int) -> None:
    """0 of a GPU without MIG, or of one that is not known."""
    assert mig_memory_gb(gpu_type) == memory_gb


def test_profiles__are_those_of_the_guide() -> None:
    """Names and numbers of devices on one GPU, by NVIDIA's table for the A100 of 40 GB and the A30."""
    found = mig_profiles(40)
    assert [each.name for each in found] == ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    most = [max(layout[place] for layout in full_layouts(found)) for place in range(len(found))]
    assert most == [7, 4, 3, 2, 1, 1]
    assert [layout[::-1] for layout in full_layouts(mig_profiles(24))] == [(1, 0, 0), (0, 2, 0), (0, 1, 2), (0, 0, 4)]


@pytest.mark.parametrize("memory_gb", MEMORY_SIZES)
def test_full_layouts__exceed_no_slice(memory_gb: int) -> None:
    """Computing and memory; the larger profile has at least as much of both."""
    profiles = mig_profiles(memory_gb)
    for layout in full_layouts(profiles):
        for kind in ("compute", "memory"):
            used = sum(getattr(each, kind) * count for each, count in zip(profiles, layout, strict=True))
            assert 0 < used <= getattr(profiles[-1], kind)
    assert [each.memory_gb for each in profiles] == sorted(each.memory_gb for each in profiles)


@pytest.mark.parametrize(
    ("part", "memory_gb", "name"),
    [(0.1, 9, "1g.10gb"), (0.1, 11, "1g.20gb"), (0.2, 5, "2g.20gb"), (3 / 7, 5, "3g.40gb"), (0.5, 41, "7g.80gb"),
     (1.0, 80, "7g.80gb"), (0.1, 81, "")],
)  # fmt: skip
def test_smallest_profile__has_the_part_and_the_memory(part: float, memory_gb: float, name: str) -> None:
    """Of a GPU with 80 GB."""
    profiles = mig_profiles(80)
    place = smallest_profile(profiles, part, memory_gb)
    assert (profiles[place].name if place >= 0 else "") == name


@settings(max_examples=200)
@given(WANTED)
def test_layouts__offer_what_is_wanted(wanted: list[int]) -> None:
    """Each is one that the GPU can be cut into; no GPU without a wanted device; none below the bound."""
    profiles = mig_profiles(80)
    made = mig_layouts(profiles, wanted)
    for place in range(6):
        assert sum(each.gpus * each.devices[place] for each in made) >= wanted[place]
    assert {each.devices for each in made} <= set(full_layouts(profiles))
    slices = [(sum(getattr(each, kind) * count for each, count in zip(profiles, wanted, strict=True)),
               getattr(profiles[-1], kind)) for kind in ("compute", "memory")]  # fmt: skip
    least = max(-(-used // whole) for used, whole in slices)
    assert least <= sum(each.gpus for each in made) <= sum(wanted)


@cache
def fewest(wanted: tuple[int, ...]) -> int:
    """By trying all layouts."""
    if not any(wanted):
        return 0
    first = next(place for place, count in enumerate(wanted) if count)
    rests = {
        tuple(max(rest - each, 0) for rest, each in zip(wanted, layout, strict=True))
        for layout in full_layouts(mig_profiles(80)) if layout[first]
    }  # fmt: skip
    return 1 + min(map(fewest, rests))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_layouts__need_at_most_one_gpu_more_than_the_fewest(wanted: list[int]) -> None:
    """Against a search through all layouts, for small numbers."""
    found = sum(each.gpus for each in mig_layouts(mig_profiles(80), wanted))
    assert fewest(tuple(wanted)) <= found <= fewest(tuple(wanted)) + 1
