"""When each job would have ended with its fair share of the cluster, averaged over how that share changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import arrival_s
from slurmsched.policies.regimes import Rest

KEY = "fair"  # in a carry
MOMENTUM = 0.9  # weight of the mean over time against the latest value, as released
_COLUMNS = ("sum", "since_s", "last_s", "at_s")


@dataclass(frozen=True, slots=True, eq=False)
class FairEnds:
    """fair_s: (N,) [Unix s]. carry: to take back at the next look."""

    fair_s: Floats
    carry: Mapping[str, Any]


def fair_ends(snapshot: Snapshot, active: Bools, left: Rest) -> FairEnds:
    """The fair end of each job: its submission, and its run time over its share of the GPUs then.

    The share is that of one job among those active, at most one GPU; it is told anew when jobs come or end. The mean
    over the time for which each value stood counts 9 parts of 10, the latest value the rest.
    Source: Zheng et al. (Shockwave), NSDI '23, as in its released code.
    """
    jobs, now_s = snapshot.jobs, snapshot.now_s
    kept: Any = snapshot.carry.get(KEY)
    kept = kept if isinstance(kept, Mapping) and "jobs" in kept else {"jobs": None, "columns": {}}
    known = recall(jobs, kept["columns"], _COLUMNS)
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.closed].sum())
    share = min(1.0, gpus / max(int(active.sum()), 1)) if gpus else 1.0
    here = sorted(jobs.job_id[active].tolist())
    value_s = (left.made_s + left.left_s) / share
    new = np.isnan(known["at_s"])
    latest_s = value_s if kept["jobs"] != here else np.where(new, value_s, known["last_s"])
    stood_s = np.where(new, 0.0, now_s - known["at_s"])
    total = np.where(new, 0.0, known["sum"] + stood_s * known["last_s"])
    since_s = np.where(new, 0.0, known["since_s"] + stood_s)
    mean_s = np.divide(total, since_s, out=latest_s.copy(), where=since_s > 0)
    columns = dict(zip(_COLUMNS, (total, since_s, latest_s, np.full(len(jobs), now_s)), strict=True))
    carry = {KEY: {"jobs": here, "columns": dict(remembered(jobs, columns))}}
    return FairEnds(arrival_s(jobs) + MOMENTUM * mean_s + (1 - MOMENTUM) * latest_s, carry)
