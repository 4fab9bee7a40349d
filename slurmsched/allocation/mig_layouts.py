"""MIG: the profiles of a GPU, the smallest one that a job fits into, and layouts that offer a number of devices.

Source of profiles and placements: NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SLACK = 1e-9
# Of each row: compute slices, memory slices, and the memory slices that it may begin at.
_SEVENTHS = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)), (1, 2, (0, 2, 4, 6)), (2, 2, (0, 2, 4)), (3, 4, (0, 4)), (4, 4, (0,)), (7, 8, (0,)),
)  # fmt: skip
_QUARTERS = ((1, 1, (0, 1, 2, 3)), (2, 2, (0, 2)), (4, 4, (0,)))
# GB in the names of the profiles, by the memory of the GPU [GB].
_NAMED_GB = {
    24: (6, 12, 24), 40: (5, 10, 10, 20, 20, 40), 80: (10, 20, 20, 40, 40, 80), 94: (12, 24, 24, 47, 47, 94),
    96: (12, 24, 24, 48, 48, 96), 141: (18, 35, 35, 71, 71, 141), 180: (23, 45, 45, 90, 90, 180),
    186: (23, 47, 47, 93, 93, 186),
}  # fmt: skip
# What a GPU type of Slurm names, and its memory [GB]; the first that fits counts.
_MODELS = (
    (r"a30(?!\d)", 24), (r"a100.*80", 80), (r"a100", 40), (r"gh200|h20(?!\d)|h100.*96", 96), (r"h100.*(nvl|94)", 94),
    (r"h100", 80), (r"h200", 141), (r"gb200", 186), (r"b200", 180),
)  # fmt: skip
MEMORY_SIZES = tuple(_NAMED_GB)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One kind of MIG device.

    name: such as "2g.20gb".
    compute: compute slices. The whole GPU has 7, an A30 has 4.
    memory: memory slices. The whole GPU has 8, an A30 has 4.
    memory_gb: as in the name.
    starts: memory slices that it may begin at.
    """

    name: str
    compute: int
    memory: int
    memory_gb: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MigLayout:
    """GPUs that are cut alike. devices: of each profile, as many as there are profiles."""

    gpus: int
    devices: tuple[int, ...]


def mig_memory_gb(gpu_type: str) -> int:
    """Memory of a GPU by the name of its type [GB]; 0 if it has no MIG or is not known."""
    return next((size for words, size in _MODELS if re.search(words, gpu_type.lower())), 0)


@lru_cache(maxsize=16)
def mig_profiles(memory_gb: int) -> tuple[MigProfile, ...]:
    """The profiles of a GPU with this memory, smallest first. Raises KeyError for another number."""
    named = _NAMED_GB[memory_gb]
    rows = _QUARTERS if len(named) == len(_QUARTERS) else _SEVENTHS
    return tuple(
        MigProfile(f"{compute}g.{size}gb", compute, memory, size, starts)
        for (compute, memory, starts), size in zip(rows, named, strict=True)
    )


def smallest_profile(profiles: Sequence[MigProfile], part: float, memory_gb: float) -> int:
    """Place of the first profile with this part of the GPU's compute slices and this memory, -1 if none has both."""
    slices = profiles[-1].compute
    fits = (each.compute >= part * slices - SLACK and each.memory_gb >= memory_gb - SLACK for each in profiles)
    return next((place for place, is_enough in enumerate(fits) if is_enough), -1)


@lru_cache(maxsize=16)
def full_layouts(profiles: tuple[MigProfile, ...]) -> tuple[tuple[int, ...], ...]:
    """Every way to cut one GPU to which no device can be added: the number of devices of each profile."""
    last = profiles[-1].memory
    found = set[tuple[int, ...]]()

    def cut(start: int, devices: tuple[int, ...], taken: int) -> None:
        if start == last:
            if not any(_fits(each, at, taken, last) for each in profiles for at in each.starts):
                found.add(devices)
            return
        cut(start + 1, devices, taken)
        for place, each in enumerate(profiles):
            if start in each.starts and _fits(each, start, taken, last):
                more = (*devices[:place], devices[place] + 1, *devices[place + 1 :])
                cut(start + each.memory, more, taken | _slices(each, start))

    cut(0, (0,) * len(profiles), 0)
    return tuple(sorted(found))


def _slices(profile: MigProfile, start: int) -> int:
    return ((1 << profile.memory) - 1) << start


def _fits(profile: MigProfile, start: int, taken: int, last: int) -> bool:
    return start + profile.memory <= last and not taken & _slices(profile, start)


def mig_layouts(profiles: tuple[MigProfile, ...], wanted: Sequence[int]) -> list[MigLayout]:
    """Layouts that offer at least the wanted devices, on few GPUs.

    wanted: devices of each profile.
    Each GPU gets the layout with the most memory slices of wanted devices that are missing still. Of equal ones it gets
    the one with the largest devices beside them.
    """
    missing, made = list(wanted), list[MigLayout]()
    while any(missing):
        best = max(full_layouts(profiles), key=lambda each: (_served(profiles, each, missing), each[::-1]))
        turns = [rest // each for each, rest in zip(best, missing, strict=True) if each and rest >= each]
        partly = any(0 < rest < each for each, rest in zip(best, missing, strict=True))
        gpus = 1 if partly or not turns else min(turns)
        made.append(MigLayout(gpus, best))
        missing = [max(rest - gpus * each, 0) for each, rest in zip(best, missing, strict=True)]
    return made


def _served(profiles: Sequence[MigProfile], devices: Sequence[int], missing: Sequence[int]) -> int:
    """Memory slices of the devices that are missing."""
    counts = map(min, devices, missing)
    return sum(count * each.memory for count, each in zip(counts, profiles, strict=True))
