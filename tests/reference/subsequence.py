"""Naive twin of nice_spacing.longest_non_increasing."""

from __future__ import annotations

import numpy as np


def longest_non_increasing(values, allowed):
    """Length of a longest non-increasing subsequence of the allowed values, in n squared."""
    best = np.zeros(len(values), int)
    for i in range(len(values)):
        if allowed[i]:
            best[i] = 1 + max((best[j] for j in range(i) if allowed[j] and values[j] >= values[i]), default=0)
    return int(best.max(initial=0))
