"""Fewest writes: the kept set is proven largest against brute force, and the order always comes out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.kernels.nice_spacing import keep_with_margin, longest_non_increasing
from slurmsched.planning.priorities.priority_values import spaced
from tests.reference import room as room_reference
from tests.reference import subsequence as reference

FLOOR, CEILING = 5, 20


@st.composite
def queues(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 8))
    height = draw(st.lists(st.integers(1, CEILING + 3), min_size=n, max_size=n))
    tie = draw(st.permutations(range(n)))
    return np.array(height, np.int64), np.array(tie, np.int64)


def starts_in_order(height: np.ndarray, tie: np.ndarray) -> bool:
    """Whether Slurm would take the rows in just this order."""
    return list(np.lexsort((tie, -height))) == list(range(len(height)))


def can_keep(keep: tuple[int, ...], height: np.ndarray, tie: np.ndarray) -> bool:
    """Whether integers within the bounds exist for all others (tightest choice, from the top down)."""
    made = height.copy()
    for i in range(len(height)):
        highest = CEILING if i == 0 else int(made[i - 1]) - (tie[i] < tie[i - 1])
        if i in keep:
            if height[i] > highest or height[i] > CEILING:
                return False
        elif highest < FLOOR:
            return False
        else:
            made[i] = highest
    return True


@given(queues())
@settings(deadline=None, max_examples=400)
def test_spaced__keeps_as_many_as_brute_force(queue):
    """No larger set of jobs could have kept its value."""
    height, tie = queue
    _, kept = spaced(height, tie, gap=3, margin=0, floor=FLOOR, ceiling=CEILING, start=FLOOR)
    n = len(height)
    best = max(k for k in range(n + 1) for keep in combinations(range(n), k) if can_keep(keep, height, tie))
    assert int(kept.sum()) == best


@given(queues(), st.integers(1, 6), st.integers(1, CEILING))
@settings(deadline=None, max_examples=400)
def test_spaced__slurm_takes_the_jobs_in_the_wanted_order(queue, gap, start):
    """After the writes, priority order (ties by Slurm's rule) is the wanted order; kept values are untouched."""
    height, tie = queue
    made, kept = spaced(height, tie, gap=gap, margin=0, floor=FLOOR, ceiling=CEILING, start=start)
    assert starts_in_order(made, tie)
    assert list(made[kept]) == list(height[kept])
    assert all(FLOOR <= value <= CEILING for value in made[~kept])


@given(queues(), st.integers(1, 6))
@settings(deadline=None)
def test_spaced__a_second_time_writes_nothing(queue, gap):
    """The heights it gives are kept whole by the next cycle."""
    height, tie = queue
    made, _ = spaced(height, tie, gap=gap, margin=0, floor=FLOOR, ceiling=CEILING, start=FLOOR)
    again, kept = spaced(made, tie, gap=gap, margin=0, floor=FLOOR, ceiling=CEILING, start=FLOOR)
    assert kept.all() and list(again) == list(made)


@given(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), max_size=40))
@settings(deadline=None)
def test_longest_non_increasing__agrees_with_reference(rows):
    """A subsequence, non-increasing, of allowed rows only, and as long as the naive search finds."""
    values = np.array([v for v, _ in rows], np.int64)
    allowed = np.array([a for _, a in rows], np.bool_)
    member = longest_non_increasing(values, allowed)
    taken = values[member]
    assert not member[~allowed].any() and (np.diff(taken) <= 0).all()
    assert int(member.sum()) == reference.longest_non_increasing(values, allowed)


@given(queues(), st.integers(1, 4))
@settings(deadline=None, max_examples=400)
def test_spaced__written_jobs_keep_the_margin_to_everybody_where_there_is_room(queue, margin):
    """Drifting factors do not undo at once what was written: the wanted order, each written job apart by the margin."""
    height, tie = queue
    high = 5 + (len(height) + 2) * margin * 2
    made, kept = spaced(height, tie, gap=2 * margin, margin=margin, floor=5, ceiling=high, start=5)
    assert starts_in_order(made, tie)
    assert list(made[kept]) == list(height[kept])
    apart = made[:-1] - made[1:]
    touched = ~kept[:-1] | ~kept[1:]
    assert (apart[touched] >= margin).all()


@given(queues(), st.integers(1, 4))
@settings(deadline=None)
def test_with_room__agrees_with_reference(queue, margin):
    """Kernel and naive twin drop the same neighbours."""
    height, tie = queue
    height = -np.sort(-height)
    kept = tie % 2 == 0
    expected = room_reference.with_room(height, kept, margin, FLOOR, CEILING)
    assert list(keep_with_margin(height, kept, margin, FLOOR, CEILING)) == expected
