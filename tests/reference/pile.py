"""Plain twins of kernels/free_gpus.py, and of the kernels in kernels/ranking_walks.py that only count GPUs."""

from __future__ import annotations

import numpy as np


def fill_pile(order, gpus, capacity):
    served = []
    for row in order:
        if 0 < gpus[row] <= capacity - sum(gpus[done] for done in served):
            served.append(row)
    return served


def backfill_pile(gpus, ahead_s, running, capacity):
    """Try each waiting gang at now; keep it if all before it still start no later than without it."""
    served = set(range(running))
    head = next((i for i in range(running, len(gpus)) if gpus[: i + 1].sum() > capacity), None)
    if head is None or gpus[:head].sum() >= capacity:
        return [i for i in range(len(gpus) if head is None else head) if i in served or gpus[i] > 0]
    served |= {i for i in range(running, head) if gpus[i] > 0}
    promised = earliest(head, served, gpus, ahead_s, capacity)
    for i in range(head + 1, len(gpus)):
        fits = 0 < gpus[i] <= capacity - sum(gpus[j] for j in served)
        if fits and earliest(head, served | {i}, gpus, ahead_s, capacity) <= promised:
            served.add(i)
    return sorted(served)


def earliest(head, served, gpus, ahead_s, capacity):
    """When `head` can start if the served ones run as long as they may."""
    times = sorted({ahead_s[i] for i in served if np.isfinite(ahead_s[i])})
    fits = (t for t in times if gpus[head] <= capacity - sum(gpus[i] for i in served if ahead_s[i] > t))
    return next(fits, np.inf)


def standing_of(state, priority, eligible_s, now_s, pending, holding, completing):
    holds = (state & holding != 0) & (state & completing == 0)
    may = (state & pending != 0) & (state & completing == 0) & (priority != 0) & ~(eligible_s > now_s)
    return np.where(holds, 2, np.where(may, 1, 0))


def wanted_of(job_id, standing, asked, holder, gpus):
    held = [sum(gpus[holder == job]) for job in job_id]
    return [(0, ask, holds)[stands] for stands, ask, holds in zip(standing, asked, held, strict=True)]


def givable(closed, capacity, used, node, gpus):
    visible = [sum(gpus[node == n]) for n in range(len(capacity))]
    return [v if c else total - max(u - v, 0) for c, total, u, v in zip(closed, capacity, used, visible, strict=True)]
