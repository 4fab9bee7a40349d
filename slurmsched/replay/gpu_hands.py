"""Which jobs of a simulated cluster hold which GPUs, one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import Assignments
from slurmsched.model.columns import Bools, Int64s
from slurmsched.placements.gang_walk import lowest
from slurmsched.placements.gpu_stock import bit_counts


@dataclass(frozen=True, slots=True, eq=False)
class Hands:
    """One entry a job and node, ascending by both. All columns are (A,) int64.

    row: of the cast. node: its row. gpus: how many. mask: which ones, bit i for GPU index i.
    """

    row: Int64s
    node: Int64s
    gpus: Int64s
    mask: Int64s

    @classmethod
    def none(cls) -> Hands:
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    def take(self, kept: Bools) -> Hands:
        """The entries of a mask."""
        return Hands(self.row[kept], self.node[kept], self.gpus[kept], self.mask[kept])

    def used(self, nodes: int) -> Int64s:
        """GPUs held on each of so many nodes, as masks. (N,)."""
        found = np.zeros(nodes, np.int64)
        np.bitwise_or.at(found, self.node, self.mask)
        return found

    def totals(self) -> tuple[Int64s, Int64s]:
        """Rows that hold something, ascending, and the GPUs of each. (R,) each."""
        rows, first = np.unique(self.row, return_index=True)
        return rows, (np.add.reduceat(self.gpus, first) if len(rows) else np.zeros(0, np.int64))

    def joined(self, guests: Int64s, hosts: Int64s) -> Hands:
        """These entries, and the guests' on what their hosts hold. guests, hosts: (G,) rows, each guest once."""
        entry = [np.flatnonzero(self.row == host) for host in hosts.tolist()]
        row = np.repeat(guests, [len(each) for each in entry])
        every = np.concatenate([np.arange(len(self.row)), *entry])
        rows = np.concatenate([self.row, row])
        order = np.lexsort((self.node[every], rows))
        return Hands(rows[order], self.node[every][order], self.gpus[every][order], self.mask[every][order])

    def assignments(self, seen: Int64s) -> Assignments:
        """The same by rows of the snapshot whose jobs are these rows of the cast, ascending."""
        rows, first, count = np.unique(self.row, return_index=True, return_counts=True)
        places = np.searchsorted(seen, rows)
        return Assignments(places, first.astype(np.int64), count.astype(np.int64), self.node, self.gpus, self.mask)

    def moved(self, before: Hands) -> Int64s:
        """Rows, ascending, of entries that were not there before: new jobs and jobs with other GPUs."""
        had = before.masks_of(self)
        return np.unique(self.row[had != self.mask])

    def masks_of(self, others: Hands) -> Int64s:
        """What the job of each entry of the others holds here on its node, 0 = nothing. (B,)."""
        if not len(self.row):
            return np.zeros(len(others.row), np.int64)
        width = 1 + max(int(self.node.max()), int(others.node.max(initial=0)))
        mine, theirs = self.row * width + self.node, others.row * width + others.node
        at = np.minimum(np.searchsorted(mine, theirs), len(mine) - 1)
        return np.where(mine[at] == theirs, self.mask[at], 0)


def deal(target: Assignments, seen: Int64s, before: Hands, capacity: Int64s) -> Hands:
    """The entries of a target, each with its GPUs.

    Where a placement only counted, a job keeps what it had on that node, and a new one takes the lowest free indices,
    as a picker that knows no links does. Of two that shared what they had the first keeps it; a guest has the GPUs of
    its host. seen: rows of the cast that the target's rows mean. before: what those hold that go on. capacity: (N,)
    GPUs of each node.
    """
    if (guests := target.host >= 0).any():
        own = deal(_without_guests(target), seen, before, capacity)
        return own.joined(seen[target.rows[guests]], seen[target.host[guests]])
    row = np.repeat(seen[target.rows], target.count)
    order = np.argsort(row, kind="stable")  # the nodes of a job ascend already
    asked = target.gpu_mask[order] if len(target.gpu_mask) else np.zeros(len(row), np.int64)
    hands = Hands(row[order], target.node[order], target.gpus[order], asked)
    if asked.all():
        return hands
    had = before.masks_of(hands)
    same = np.array([mask.bit_count() for mask in had.tolist()], np.int64) == hands.gpus
    mask = np.where((asked == 0) & same, had, asked)
    if bit_counts(mask).sum() > bit_counts(replace(hands, mask=mask).used(len(capacity))).sum():  # some overlap
        mask = _once(mask, asked != 0, hands.node)
    return Hands(hands.row, hands.node, hands.gpus, _lowest(mask, hands, capacity))


def _once(mask: Int64s, fixed: Bools, node: Int64s) -> Int64s:
    """The masks without those, not fixed, of which a GPU is in one before them on that node or in a fixed one."""
    made, taken = mask.copy(), dict[int, int]()
    for k in np.argsort(~fixed, kind="stable").tolist():
        here = taken.get(int(node[k]), 0)
        if not fixed[k] and here & int(mask[k]):
            made[k] = 0
        taken[int(node[k])] = here | int(made[k])
    return made


def _without_guests(target: Assignments) -> Assignments:
    """The target without its guests, which are the last of it."""
    kept = int((target.host < 0).sum())
    last = int(target.count[:kept].sum())
    return Assignments(target.rows[:kept], target.first[:kept], target.count[:kept], target.node[:last],
                       target.gpus[:last], target.gpu_mask[:last])  # fmt: skip


def _lowest(mask: Int64s, hands: Hands, capacity: Int64s) -> Int64s:
    """The masks, with the lowest free GPUs of its node for each entry that has none."""
    free = ((np.int64(1) << capacity) - 1) & ~Hands(hands.row, hands.node, hands.gpus, mask).used(len(capacity))
    made = mask.copy()
    for k in np.flatnonzero(mask == 0).tolist():
        node = hands.node[k]
        made[k] = lowest(int(free[node]), int(hands.gpus[k]))
        free[node] &= ~made[k]
    return made
