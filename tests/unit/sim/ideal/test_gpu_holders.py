"""Which jobs hold which GPUs."""

from __future__ import annotations

import numpy as np

from slurmsched.model import Assignments
from slurmsched.sim.ideal.physics_cluster import GpuHolders, assign_gpus

CAPACITY = np.array([4, 4])


def hands(*entries: tuple[int, int, int]) -> GpuHolders:
    """Entries of row, node and mask."""
    row, node, mask = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    return GpuHolders(row, node, np.array([each.bit_count() for each in mask.tolist()], np.int64), mask)


def target(*places: list[tuple[int, int]], masks: list[int] | None = None) -> Assignments:
    """Job i gets the (node, GPUs) of places[i]."""
    count = np.array([len(place) for place in places], np.int64)
    node, gpus = (np.array(column, np.int64) for column in zip(*(pair for p in places for pair in p), strict=True))
    mask = np.array(masks or [], np.int64)
    return Assignments(np.arange(len(places)), np.cumsum(count) - count, count, node, gpus, mask)


def dealt(asked: Assignments, seen: list[int], before: GpuHolders | None = None) -> list[tuple[int, ...]]:
    made = assign_gpus(asked, np.array(seen), before or GpuHolders.none(), CAPACITY)
    return list(zip(*(column.tolist() for column in (made.row, made.node, made.mask)), strict=True))


def test_deal__takes_the_placement_s_gpus() -> None:
    """Where it names them; entries come by row of the cast."""
    assert dealt(target([(0, 2)], [(0, 1), (1, 1)], masks=[0b1010, 0b100, 0b1]), [7, 5]) == [
        (5, 0, 0b100), (5, 1, 0b1), (7, 0, 0b1010),
    ]  # fmt: skip


def test_deal__keeps_what_was_held_and_gives_the_lowest_free() -> None:
    """A placement that counts: job 5 stays on GPU 1, the new job takes 0 and 2."""
    assert dealt(target([(0, 1)], [(0, 2)]), [5, 7], hands((5, 0, 0b10))) == [(5, 0, 0b10), (7, 0, 0b101)]


def test_deal__gives_anew_where_the_number_differs() -> None:
    """Two GPUs where it held one."""
    assert dealt(target([(0, 2), (1, 1)]), [5], hands((5, 0, 0b1000))) == [(5, 0, 0b11), (5, 1, 0b1)]


def test_moved__new_jobs_and_changed_ones() -> None:
    """Another GPU, another node; not who stays, nor who goes."""
    before = hands((1, 0, 0b1), (2, 0, 0b10), (3, 1, 0b1), (4, 1, 0b10))
    after = hands((1, 0, 0b1), (2, 0, 0b100), (3, 0, 0b10), (5, 1, 0b10))
    assert after.moved(before).tolist() == [2, 3, 5]


def test_hands__totals_and_used() -> None:
    """GPUs of each row, and of each node as masks."""
    held = hands((2, 0, 0b11), (2, 1, 0b1), (4, 1, 0b100))
    rows, gpus = held.totals()
    assert (rows.tolist(), gpus.tolist(), held.used(3).tolist()) == ([2, 4], [3, 1], [0b11, 0b101, 0])


def test_hands__of_nobody() -> None:
    """Nothing held anywhere."""
    none = GpuHolders.none()
    rows, gpus = none.totals()
    assert (len(rows), len(gpus), none.used(2).tolist(), none.moved(none).tolist()) == (0, 0, [0, 0], [])
