"""Random numbers as the released simulators draw them, with the generator of Python."""

from __future__ import annotations

import numpy as np

SMALL_POPULATION = 21  # up to that many of which two are drawn, Python takes them out of a list


class CPythonRandom:
    """Draws like random.Random(seed), of which `count` words of 32 bits are used up.

    count: grows with every draw.
    seed: (seed,), or several numbers for independent streams, each from 0 to 2^32 - 1.
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
        """Places of two of that many, as random.sample of two."""
        first = self.below(count)
        if count <= SMALL_POPULATION:  # the last of the list takes the place of the first one drawn
            second = self.below(count - 1)
            return first, count - 1 if second == first else second
        second = self.below(count)
        while second == first:
            second = self.below(count)
        return first, second
