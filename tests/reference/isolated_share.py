"""Naive twin of kernels/isolated_share.py: jobs as lists, all of them looked at whenever anything happens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def ends_alone(submit_s: Sequence[float], gpus: Sequence[int], duration_s: Sequence[float], share: float) -> np.ndarray:
    """When each job of a tenant ends on its own share, earlier ones first."""
    left = {j: float(count * run_s) for j, (count, run_s) in enumerate(zip(gpus, duration_s, strict=True))}
    ends, now_s = np.zeros(len(left)), 0.0
    while left:
        rate, rest = {}, share
        for j in sorted(left):
            if submit_s[j] <= now_s:
                rate[j] = min(gpus[j], rest)
                rest -= rate[j]
        arrivals = [submit_s[j] for j in left if submit_s[j] > now_s]
        until_s = [now_s + left[j] / held for j, held in rate.items() if held > 1e-9]
        next_s = min(arrivals + until_s)
        for j, held in rate.items():
            left[j] -= held * (next_s - now_s)
        for j in [j for j, held in rate.items() if held > 1e-9 and left[j] <= 1e-6]:
            ends[j] = next_s
            del left[j]
        now_s = next_s
    return ends
