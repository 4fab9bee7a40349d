"""Stride scheduling in one go: the order in which tenants get their turns."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Floats, Int64s


def turns(tenant: Int64s, own_order: Int64s, passes: Floats, strides: Floats) -> Floats:
    """The pass at which each job's turn comes. (N,); jobs in ascending turn are what stride scheduling picks.

    The tenant with the least pass is picked, gets its next job, and its pass moves on by that job's stride.
    tenant: (N,) row of each job's tenant. own_order: (N,) rows of jobs, each tenant's jobs in the order it wants them.
    passes: (T,) at the start. strides: (N,) what a job's turn costs its tenant, at least 0.
    Source: Waldspurger and Weihl, MIT/LCS/TM-528, 1995.
    """
    by_tenant = own_order[np.argsort(tenant[own_order], kind="stable")]
    steps, owner = strides[by_tenant], tenant[by_tenant]
    before = np.cumsum(steps) - steps
    first = np.searchsorted(owner, owner, side="left") if len(owner) else owner
    found = np.empty(len(tenant))
    found[by_tenant] = passes[owner] + before - before[first]
    return found
