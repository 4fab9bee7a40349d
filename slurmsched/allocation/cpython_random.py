"""Random numbers as the released simulators draw them, with Python's generator, and one number for each job."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Floats, Uint64s
from slurmsched.model.jobs import Jobs

SMALL_POPULATION = 21  # up to so many of which two are drawn, Python takes them out of a list


class CPythonRandom:
    """Draws like random.Random(seed), of which `count` words of 32 bits are used up. count: grows with every draw.

    seed: (seed,), or several numbers for lots of their own, each from 0 to 2^32 - 1.
    """

    def __init__(self, seed: tuple[int, ...], count: int = 0) -> None:
        self._words, self.count = np.random.RandomState(np.random.MT19937(0)), count  # no word of the system's chance
        self._words.seed(list(seed))
        self._words.randint(0, 1 << 32, size=count, dtype=np.uint32)

    def below(self, bound: int) -> int:
        """A whole number from 0 to below the bound, as random.randrange."""
        bits, found = bound.bit_length(), bound
        while found >= bound:
            found = int(self._words.randint(0, 1 << 32, dtype=np.uint32)) >> (32 - bits)
            self.count += 1
        return found

    def two(self, count: int) -> tuple[int, int]:
        """Places of two of so many, as random.sample of two."""
        first = self.below(count)
        if count <= SMALL_POPULATION:  # the last of the list takes the place of the first one drawn
            second = self.below(count - 1)
            return first, count - 1 if second == first else second
        second = self.below(count)
        while second == first:
            second = self.below(count)
        return first, second


def chance_of(jobs: Jobs, *seed: int) -> Floats:
    """A random number for each job, by seed and job id alone. (N,) in [0, 1).

    Source: the mixing function of SplitMix64 (Steele, Lea and Flood, OOPSLA '14), once for each number.
    """
    mixed = np.zeros(len(jobs), np.uint64)
    words = (*(np.full(len(jobs), each, np.int64) for each in seed), jobs.job_id.astype(np.int64))
    for word in words:
        mixed = _mixed(mixed ^ np.ascontiguousarray(word).view(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(word: Uint64s) -> Uint64s:
    """(N,) uint64, products modulo 2^64."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
