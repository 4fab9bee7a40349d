"""Running jobs that do not use their GPUs, and how they change the place of their users' waiting jobs.

No job loses a GPU by this. The AdminComment of an idle job may say so (admin_comments). The waiting jobs of its user
may go behind those of others. Source: slurmsched.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.config import IdleGpusConfig
from slurmsched.model import Jobs, Ranking, Snapshot
from slurmsched.model.columns import Bools

NO_IDLE = IdleGpusConfig()


def idle_jobs(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs whose GPUs compute less than idle.below_pct of the time, as measured. (N,) bool."""
    return _judged(jobs, idle) & (jobs.gpu_use < idle.below_pct / 100)  # NaN: not measured


def some_idle(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs with some idle GPUs, however much they use the others. (N,) bool."""
    return _judged(jobs, idle) & (jobs.idle_gpus > 0)


def _judged(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs that have run long enough and that no exception of the site excludes. (N,) bool."""
    judged = jobs.running & (jobs.gpus > 0) & (jobs.run_s >= idle.after_s)
    judged &= jobs.batch | idle.interactive
    spared = {"user": idle.except_users, "account": idle.except_accounts, "partition": idle.except_partitions,
              "qos": idle.except_qos}  # fmt: skip
    for column, names in spared.items():
        judged &= ~getattr(jobs, column).isin(names) if names else True
    return judged


def idle_users_last(ranking: Ranking, snapshot: Snapshot, managed: Bools, idle: IdleGpusConfig) -> Ranking:
    """The ranking with the managed waiting jobs of users who have an idle job behind all others. managed: (N,) bool."""
    if not idle.last:
        return ranking
    jobs = snapshot.jobs
    users = {jobs.user[row] for row in np.flatnonzero(idle_jobs(jobs, idle)).tolist()}
    behind = managed & jobs.pending & jobs.user.isin(sorted(users))
    if not behind.any():
        return ranking
    last = behind[ranking.order]
    order = np.concatenate([ranking.order[~last], ranking.order[last]])
    return replace(ranking, order=order, why={"idle_gpus": behind, **ranking.why})
