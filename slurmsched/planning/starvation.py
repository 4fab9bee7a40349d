"""The hard age cap: who has waited too long goes first, whatever the policy says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats


def aged_first(ranking: Ranking, snapshot: Snapshot, managed: Bools, age_cap_s: float) -> Ranking:
    """The ranking with the managed jobs that waited longer than the cap before all others, the longest first.

    managed: (N,) bool. age_cap_s: 0 = no cap. Jobs of other partitions keep their order: they are spaced apart.
    """
    if not age_cap_s:
        return ranking
    over = managed & (able_s(snapshot) > age_cap_s)
    if not over.any():
        return ranking
    jobs, rows = snapshot.jobs, np.flatnonzero(over)
    first = rows[np.lexsort((jobs.job_id[rows], jobs.submit_s[rows], -able_s(snapshot)[rows]))]
    order = np.concatenate([first, ranking.order[~over[ranking.order]]])
    return replace(ranking, order=order, why={**ranking.why, "over_age_cap": over})


def able_s(snapshot: Snapshot) -> Floats:
    """How long each pending job has waited since it last ran and while it could have started [s]; 0 for others. (N,).

    Time in which a dependency or a begin time held it back is no starvation.
    """
    jobs = snapshot.jobs
    since_eligible_s = np.nan_to_num(snapshot.now_s - jobs.eligible_s, nan=np.inf)
    waited: Floats = np.maximum(np.fmin(jobs.waiting_s, since_eligible_s), 0.0)
    return np.where(jobs.pending, waited, 0.0)
