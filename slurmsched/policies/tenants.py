"""What each tenant received and deserved over time: a book that a policy keeps in its carry.

A tenant is a Slurm account. What flows at one look is taken to flow until the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats, Int64s
from slurmsched.placements.candidates import eligible
from slurmsched.resources.held import holding

KEY = "tenants"  # in a carry


@dataclass(frozen=True, slots=True, eq=False)
class Tenants:
    """One row a tenant, in ascending name. tenant: (N,) int64 row of each job's tenant. All else is (T,) float64.

    shares: part of the cluster that is each one's, 1 in all. demand_gpus: GPUs that its jobs hold or could start on
    now. held_gpus: GPUs that its jobs hold. received_gpu_s, deserved_gpu_s: since the book was begun, where a tenant
    deserves what it demands up to its share of the GPUs. Source: Ye et al. (Astraea), TPDS 2021, for what
    is deserved.
    """

    names: tuple[str, ...]
    tenant: Int64s
    shares: Floats
    demand_gpus: Floats
    held_gpus: Floats
    received_gpu_s: Floats
    deserved_gpu_s: Floats
    gpus: float
    now_s: float

    @property
    def deserved_gpus(self) -> Floats:
        """GPUs that each deserves now. (T,)."""
        return np.minimum(self.demand_gpus, self.shares * self.gpus)

    @property
    def carry(self) -> dict[str, Any]:
        """The book, for `tenants` to take back from the carry at the next look."""
        columns = (self.received_gpu_s, self.deserved_gpu_s, self.held_gpus, self.deserved_gpus)
        rows = np.column_stack(columns).tolist()
        return {KEY: {"at_s": self.now_s, "rows": dict(zip(self.names, rows, strict=True))}}


def tenants(snapshot: Snapshot) -> Tenants:
    """The book of every tenant that has jobs now or had any before, up to now_s."""
    jobs, book = snapshot.jobs, _book(snapshot.carry)
    names = tuple(sorted({*jobs.account.names, *book["rows"]}))
    place = {name: row for row, name in enumerate(names)}
    tenant = np.array([place[name] for name in jobs.account.names], np.int64)[jobs.account.codes]
    holds = holding(jobs)
    held = np.bincount(tenant[holds], jobs.gpus[holds], len(names)).astype(np.float64)
    waits = eligible(snapshot)
    demand: Floats = held + np.bincount(tenant[waits], (jobs.gpus * jobs.array_tasks)[waits], len(names))
    shares = np.array([snapshot.shares.get(name, 1.0) for name in names], np.float64)
    kept = np.array([book["rows"].get(name, (0.0, 0.0, 0.0, 0.0)) for name in names]).reshape(len(names), 4)
    passed_s = max(snapshot.now_s - book["at_s"], 0.0)
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    return Tenants(
        names, tenant, shares / (shares.sum() or 1.0), demand, held, kept[:, 0] + kept[:, 2] * passed_s,
        kept[:, 1] + kept[:, 3] * passed_s, gpus, snapshot.now_s,
    )  # fmt: skip


def _book(carry: Mapping[str, Any]) -> dict[str, Any]:
    """The book in a carry; an empty one if there is none, or another policy left it."""
    found = carry.get(KEY)
    if not isinstance(found, Mapping) or not isinstance(found.get("rows"), Mapping):
        return {"at_s": float("inf"), "rows": {}}
    return {"at_s": float(found["at_s"]), "rows": dict(found["rows"])}
