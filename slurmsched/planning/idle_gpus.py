"""Running jobs that do not use their GPUs, and how they change the place of their users' waiting jobs.

The AdminComment of an idle job may say so (admin_comments). The waiting jobs of its user may go behind those of others.
The idle job itself may go behind all, and preemption may then take its GPUs (idle.requeue). Source: slurmsched.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.config import IdleGpusConfig
from slurmsched.model import Jobs, Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hints import parse_hints

NO_IDLE = IdleGpusConfig()


def idle_jobs(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs whose GPUs compute less than idle.below_pct of the time, as measured. (N,) bool."""
    return _judged_jobs(jobs, idle) & (jobs.gpu_use < idle.below_pct / 100)  # NaN: not measured


def some_idle(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs with some idle GPUs, however much they use the others. (N,) bool."""
    return _judged_jobs(jobs, idle) & (jobs.idle_gpus > 0)


def _judged_jobs(jobs: Jobs, idle: IdleGpusConfig) -> Bools:
    """Running jobs that have run long enough and that no exception of the site excludes. (N,) bool."""
    judged = jobs.running & (jobs.gpus > 0) & (jobs.run_s >= idle.after_s)
    judged &= jobs.batch | idle.interactive
    spared = {"user": idle.except_users, "account": idle.except_accounts, "partition": idle.except_partitions,
              "qos": idle.except_qos}  # fmt: skip
    for column, names in spared.items():
        judged &= ~getattr(jobs, column).isin(names) if names else True
    return judged


def idle_users_last(ranking: Ranking, snapshot: Snapshot, managed: Bools, idle: IdleGpusConfig) -> Ranking:
    """The ranking with jobs of users who have an idle job at its end. managed: (N,) bool.

    - First come all other jobs.
    - Then come the managed waiting jobs of these users (idle.last).
    - Then come the idle jobs themselves (idle.requeue), so that preemption takes their GPUs first. These are only batch
      jobs that asked for a signal before they are stopped.
    """
    jobs, none = snapshot.jobs, np.zeros(len(snapshot.jobs), np.bool_)
    if not (idle.last or idle.requeue):
        return ranking
    judged = idle_jobs(jobs, idle)
    users = {jobs.user[row] for row in np.flatnonzero(judged).tolist()}
    behind = managed & jobs.pending & jobs.user.isin(sorted(users)) if idle.last else none
    asks = jobs.comment.map(lambda comment: parse_hints(comment).ckpt is not None, np.bool_)
    leaves = judged & jobs.batch & asks if idle.requeue else none
    if not (behind | leaves).any():
        return ranking
    level = np.where(leaves, 2, behind.astype(np.int64))[ranking.order]
    order = ranking.order[np.argsort(level, kind="stable")]
    return replace(ranking, order=order, why={"idle_gpus": behind | leaves, **ranking.why})
