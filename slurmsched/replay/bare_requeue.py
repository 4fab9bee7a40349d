"""Preemption by requeue alone, for replays: nobody is asked, nothing is reserved. What a live Slurm gets is another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import Plan, Ranking, Requeue, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.hints import parse_hints
from slurmsched.planning import managed
from slurmsched.planning.planner import Planner
from slurmsched.protocols import Placement
from slurmsched.resources.held import Held, holding


@dataclass(frozen=True, slots=True)
class BareRequeue:
    """A planner that also requeues running jobs for more urgent ones, as simulators of papers let a policy preempt.

    Every job may lose its GPUs, at no other cost than Slurm's delays and its restart, and nothing keeps its nodes for
    the job that they are meant for but the order of the queue. That shows what a policy could gain where all jobs can
    be moved. The daemon never works like this: it asks for a hint, sends signals, reserves (planning.taking).

    planner: orders the waiting jobs. placement: says who would hold which GPUs. least_run_s: a job runs at least this
    long before it is requeued [s], so that a requeue, which costs Slurm's kill wait and a restart, is worth it.
    """

    planner: Planner
    placement: Placement
    least_run_s: float = 300.0

    def plan(self, snapshot: Snapshot) -> Plan:
        """The planner's plan, and the requeues behind it: the freed GPUs go to whom they are meant for."""
        plan = self.planner.plan(snapshot)
        assert plan.ranking is not None
        movable = plan.managed | (snapshot.jobs.running & managed.scoped(snapshot.jobs, self.planner.scope))
        return replace(plan, actions=(*plan.actions, *self.requeues(snapshot, plan.ranking, movable)))

    def requeues(self, snapshot: Snapshot, ranking: Ranking, movable: Bools) -> tuple[Requeue, ...]:
        """One Requeue for each running job whose GPUs a more urgent eligible job gets, least urgent first.

        movable: (N,) bool, jobs that slurmsched may take part in ordering (pending) or requeue (running) at all.
        Jobs that may not be requeued keep their GPUs, whatever their rank. A job is never requeued for nothing:
        the gang that displaces it fits whole.
        """
        jobs = snapshot.jobs
        reclaimable = self.reclaimable(snapshot) & movable
        order = _firm_first(ranking.order, holding(jobs) & ~reclaimable, movable & (jobs.pending | reclaimable))
        assigned = self.placement.place(snapshot, Ranking(order))
        if not jobs.pending[assigned.rows].any():
            return ()
        served = np.zeros(len(jobs), np.bool_)
        served[assigned.rows] = True
        victims = [row for row in order[::-1].tolist() if reclaimable[row] and not served[row]]
        places = {row: place for place, row in enumerate(order.tolist())}
        return tuple(
            Requeue(
                int(jobs.job_id[row]),
                float(jobs.submit_s[row]),
                f"more urgent jobs get its GPUs; rank {places[row] + 1}",
            )
            for row in victims
        )

    def reclaimable(self, snapshot: Snapshot) -> Bools:
        """Running jobs that had their least run and that neither Slurm nor `preempt=no` keeps. (N,) bool.

        Of a job whose GPUs Slurm does not place nobody can tell what a requeue would free: it stays.
        """
        jobs, placed = snapshot.jobs, Held.of(snapshot).count > 0
        plain = jobs.batch & jobs.requeueable & ~jobs.cron & (jobs.het_job_id == 0)
        plain &= jobs.comment.map(lambda comment: parse_hints(comment).preempt is not False, np.bool_)
        return jobs.running & holding(jobs) & plain & placed & (jobs.gpus > 0) & (jobs.run_s >= self.least_run_s)


def _firm_first(order: Int64s, firm: Bools, ranked: Bools) -> Int64s:
    """Rows that keep their GPUs, then the ranked ones in their order."""
    return np.concatenate([order[firm[order]], order[ranked[order]]])
