"""Who takes GPUs that come back before the next plan: the queue that a plan left (see Plan.queue)."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from slurmsched.model.columns import Int64s

_NEVER = np.iinfo(np.int64).max


class Queue(Protocol):
    """Waiting rows of the cast in the order of a plan."""

    def append(self, row: int, gpus: int) -> None:
        """A job came; it goes behind all others."""
        ...

    def next(self, free: int) -> int:
        """The row whose turn it is with so many GPUs free, taken out of the queue; NOBODY or ASK if there is none."""
        ...

    def yields(self, free: int, gpus: int) -> bool:
        """Whether nobody here has a use for the GPUs that are free, so that jobs that came may hold so many of them."""
        ...


NOBODY, ASK = -1, -2  # nobody can start; somebody may, but only a plan can tell


class InTurn:
    """One after the other; the first that does not fit holds back the rest."""

    def __init__(self, rows: Int64s, gpus: Int64s) -> None:
        self._left = deque(zip(rows.tolist(), gpus.tolist(), strict=True))

    def append(self, row: int, gpus: int) -> None:
        self._left.append((row, gpus))

    def next(self, free: int) -> int:
        """As Queue."""
        return self._left.popleft()[0] if self._left and self._left[0][1] <= free else NOBODY

    def yields(self, free: int, gpus: int) -> bool:
        """Never: who comes goes behind."""
        return False


class Whoever:
    """The first whose need is met, if it needs all that it asks for. needs: (Q,) as Plan.queue_needs.

    One that starts stands behind those before it in the queue: they could take its GPUs, so that less must be free.
    """

    def __init__(self, rows: Int64s, gpus: Int64s, needs: Int64s) -> None:
        self._rows, self._gpus, self._needs, self._least = rows, gpus, needs.copy(), int(needs.min())

    def append(self, row: int, gpus: int) -> None:
        """Nothing: whose turn it would be among those here only a plan can tell."""

    def next(self, free: int) -> int:
        """As Queue; ASK if the first whose need is met goes before one that holds GPUs."""
        if free < self._least:
            return NOBODY
        place = int((self._needs <= free).argmax())
        gpus = self._gpus[place]
        if self._needs[place] < gpus:
            return ASK
        self._needs[:place] -= gpus
        self._needs[place] = _NEVER
        self._least = int(self._needs.min())
        return int(self._rows[place])

    def yields(self, free: int, gpus: int) -> bool:
        """As Queue. Those that came may stand behind anybody here, so that less must be free for each."""
        if self._least <= free:
            return False
        self._needs -= gpus
        self._least -= gpus
        return True


def queue_of(rows: Int64s, gpus: Int64s, needs: Int64s) -> Queue:
    """The queue that a plan left. rows: (Q,) of the cast, in order. gpus: (Q,) asked for. needs: (Q,), or none."""
    return Whoever(rows, gpus, needs) if len(needs) else InTurn(rows, gpus)
