"""Plans of an ideal cluster: who should hold which GPUs, and what may happen before the next plan."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from slurmsched.model import Assignments, Plan
from slurmsched.model.columns import Int64s, frozen


class NodeFinder(Protocol):
    """The nodes of one job by what is free alone, as a plan would have them."""

    def find(self, gpus: int, nodes: int, free: Int64s) -> tuple[Int64s, Int64s] | None:
        """Rows of its nodes, ascending, and GPUs on each; None if it finds no room. gpus, nodes: what it asks for.

        free: (N,) GPUs of each node.
        """
        ...


_NEVER = np.iinfo(np.int64).max
_NO_INTS = frozen([], np.int64)
NOBODY, ASK = -1, -2  # nobody can start; somebody may, but only a plan can tell


@dataclass(frozen=True, slots=True, eq=False)
class Validity:
    """What can happen without making a plan wrong, so that no cycle is needed. By default nothing can.

    free_gpus: GPUs may come free while fewer than this are free.
    arrivals: a job that comes and asks for fewer GPUs than free_gpus needs a cycle.
    preempts: each job that comes needs a cycle, because it may preempt.
    all_run: no job waits. Jobs that come start while there is room.
    keeps_gpu_s: jobs that come start if nobody else has a use for the GPUs, and keep them until they attained this
        service [GPU s]. None: each needs a cycle.
    queue: rows of waiting jobs that start in this order when GPUs come free; jobs that come go behind. None: each start
        needs a cycle.
    needs: (Q,) GPUs that must be free before each of the queue starts: what it asks for, less what jobs behind it hold.
        A job whose need is less than it asks for needs a cycle. Empty: each waits for all jobs before it.
    node_needs: (N,) GPUs that must come free on a node before a waiting job may find room there, where running jobs
        stay on their nodes. Fewer need no cycle. None: not known.
    finder: finds the nodes of a job that comes while no other waits or has a use for the GPUs that are free. None: such
        a job needs a cycle.
    """

    free_gpus: int = 0
    arrivals: bool = True
    preempts: bool = False
    all_run: bool = False
    keeps_gpu_s: float | None = None
    queue: Int64s | None = None
    needs: Int64s = field(default_factory=lambda: _NO_INTS)
    node_needs: Int64s | None = None
    finder: NodeFinder | None = None


UNTIL_ANY_EVENT = Validity()


@dataclass(frozen=True, slots=True, eq=False)
class IdealPlan(Plan):
    """A plan for a cluster that enacts it. target: who should hold GPUs now, and where."""

    target: Assignments | None = None
    validity: Validity = UNTIL_ANY_EVENT


class StandingQueue(Protocol):
    """Waiting rows of JobArrays in the order of a plan."""

    def append(self, row: int, gpus: int) -> None:
        """A job came; it goes behind all others."""
        ...

    def next(self, free: int) -> int:
        """The row whose turn it is with that many GPUs free, taken out of the queue; NOBODY or ASK if there is none."""
        ...

    def yields(self, free: int, gpus: int) -> bool:
        """Whether nobody here has a use for the GPUs that are free, so that jobs that came may hold so many of them."""
        ...


class InTurn:
    """One after the other; the first that does not fit holds back the rest."""

    def __init__(self, rows: Int64s, gpus: Int64s) -> None:
        self._waiting = deque(zip(rows.tolist(), gpus.tolist(), strict=True))

    def append(self, row: int, gpus: int) -> None:
        self._waiting.append((row, gpus))

    def next(self, free: int) -> int:
        """As StandingQueue."""
        return self._waiting.popleft()[0] if self._waiting and self._waiting[0][1] <= free else NOBODY

    def yields(self, free: int, gpus: int) -> bool:
        """Never: who comes goes behind."""
        return False


class AnyJob:
    """The first whose need is met, if it needs all that it asks for.

    One that starts stands behind those before it in the queue: they could take its GPUs, so that less must be free.
    """

    def __init__(self, validity: Validity, seen: Int64s, gpus: Int64s) -> None:
        self._plan, self._least, self._let_in = (validity, seen, gpus), validity.free_gpus, 0
        self._tables: tuple[Int64s, Int64s, Int64s] | None = None  # rows, GPUs, needs; most plans never look at them

    def append(self, row: int, gpus: int) -> None:
        """Nothing: whose turn it would be among those here only a plan can tell."""

    def next(self, free: int) -> int:
        """As StandingQueue; ASK if the first whose need is met goes before one that holds GPUs."""
        if free < self._least:
            return NOBODY
        rows, asked, needs = self._tables = self._tables or self._made()
        place = int((needs <= free + self._let_in).argmax())
        gpus = asked[place]
        if needs[place] - self._let_in < gpus:
            return ASK
        needs[:place] -= gpus
        needs[place] = _NEVER
        self._least = int(needs.min()) - self._let_in
        return int(rows[place])

    def yields(self, free: int, gpus: int) -> bool:
        """As StandingQueue. Those that came may stand behind anybody here, so that less must be free for each."""
        if self._least <= free:
            return False
        self._let_in += gpus
        self._least -= gpus
        return True

    def _made(self) -> tuple[Int64s, Int64s, Int64s]:
        validity, seen, gpus = self._plan
        rows = seen[validity.queue]
        return rows, gpus[rows], validity.needs.copy()


def queue_left(validity: Validity, seen: Int64s, gpus: Int64s) -> StandingQueue | None:
    """The queue that a plan leaves, None if it leaves none. seen: (N,) rows of the cluster that the plan's rows are.

    gpus: (J,) GPUs of each row of the cluster.
    """
    if validity.queue is None:
        return None
    if len(validity.needs):
        return AnyJob(validity, seen, gpus)
    rows = seen[validity.queue]
    return InTurn(rows, gpus[rows])
