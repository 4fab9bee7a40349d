"""Spare GPUs of a slot, one size at a time to whom they cost least GPU time: ElasticFlow's elastic allocation."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.policies.timetable import Sizes


@dataclass(slots=True)
class Share:
    """What one job has. row: of the jobs table. left_s: run time to come at the size it asks for. gpus: it has now."""

    row: int
    sizes: Sizes
    left_s: float
    gpus: int

    @property
    def index(self) -> int:
        """Place of its size among its sizes, -1 for none."""
        return int(np.searchsorted(self.sizes.gpus, self.gpus, side="right")) - 1

    def saved(self) -> float:
        """GPU seconds that its next size saves by each GPU more, negative as a rule; -infinity if it has none."""
        at = self.index
        if at + 1 >= len(self.sizes.gpus) or not math.isfinite(self.left_s):
            return -math.inf
        (few, many), (slow, fast) = self.sizes.gpus[at : at + 2], self.sizes.speed[at : at + 2]
        return float(self.left_s * (few / slow - many / fast) / (many - few))


def spread(shares: Sequence[Share], spare: int) -> list[Share]:
    """The shares that change: who has nothing starts with its least size, in the order given; then sizes grow, each
    time that of the job whose next one saves most GPU time by GPU."""
    changed: dict[int, Share] = {}
    for share in shares:
        need = int(share.sizes.gpus[0])
        if share.gpus == 0 and need <= spare:
            share.gpus, spare = need, spare - need
            changed[share.row] = share
    queue = [(-share.saved(), place) for place, share in enumerate(shares) if share.gpus]
    heapq.heapify(queue)
    while queue and spare > 0:
        cost, place = heapq.heappop(queue)
        share = shares[place]
        if math.isinf(cost) or (more := int(share.sizes.gpus[share.index + 1]) - share.gpus) > spare:
            continue
        share.gpus, spare = share.gpus + more, spare - more
        changed[share.row] = share
        heapq.heappush(queue, (-share.saved(), place))
    return list(changed.values())
