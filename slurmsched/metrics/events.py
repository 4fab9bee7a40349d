"""What happened in one cycle, added to the tally."""

from __future__ import annotations

import numpy as np

from slurmsched.metrics.catalog import kind_of_end
from slurmsched.metrics.gauges import size_of
from slurmsched.metrics.tally import Tally
from slurmsched.model.acts import Act, Stage
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.plan import Outcome, Plan, Receipt, Requeue
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.planning.send_rules import CHANGED


def count_cycle(tally: Tally, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
    """Writes, early ends, acts and placements of a cycle."""
    for outcome in receipt.outcomes:
        tally.add("writes_total", outcome.action.kind, _became(outcome))
    if receipt.stopped:
        tally.add("early_ends_total", kind_of_end(receipt.exit_code, receipt.stopped))
    for each in snapshot.placed:
        tally.observe("placement_quality_ratio", each.ratio)
        tally.add("missed_placements_total", by=float(each.missed))
    if not receipt.dry_run:
        _count_acts(tally, snapshot, plan, receipt)


def count_starts(tally: Tally, snapshot: Snapshot, new: Bools) -> None:
    """Waits of the jobs that started for the first time. new: (N,) bool, those not counted before."""
    jobs = snapshot.jobs
    for row in np.flatnonzero(new).tolist():
        wait_s = float(jobs.start_s[row] - jobs.first_submit_s[row])
        tally.observe("first_wait_seconds", max(wait_s, 0.0), size_of(int(jobs.gpus[row])))


def in_first_run(snapshot: Snapshot) -> Bools:
    """GPU jobs that run for the first time, or have; one cancelled in the queue has not. (N,) bool."""
    jobs = snapshot.jobs
    ran = jobs.is_state(JobState.RUNNING | JobState.SUSPENDED) | (jobs.run_s > 0) | jobs.is_state(JobState.COMPLETED)
    return (
        ran & ~jobs.pending & (jobs.restarts == 0) & (jobs.gpus > 0) & np.isfinite(jobs.start_s + jobs.first_submit_s)
    )


def since(snapshot: Snapshot, before: Int64s | None, then_s: float) -> Bools:
    """Jobs in their first run that the last look had not. before: ids in their first run at the last look of this
    process, None if this is the first one; then whoever started after then_s counts, NaN = nobody. (N,) bool."""
    here, jobs = in_first_run(snapshot), snapshot.jobs
    return here & (jobs.start_s > then_s if before is None else ~np.isin(jobs.job_id, before))


def _became(outcome: Outcome) -> str:
    changed = outcome.status == "refused" and outcome.message.startswith(CHANGED)
    return "changed" if changed else outcome.status


def _count_acts(tally: Tally, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
    before = {act.id: act for act in snapshot.acts}
    gone = {one.action.job_id for one in receipt.written if isinstance(one.action, Requeue)}
    for act in plan.acts:
        old = before.get(act.id)
        tally.add("acts_begun_total", str(act.purpose), by=float(old is None))
        tally.add("acts_given_up_total", str(act.purpose), by=float(_given_up(old, act)))
        idle_gpu_s = act.idle_gpu_s - (old.idle_gpu_s if old else 0.0)
        tally.add("idle_gpu_seconds_total", str(act.purpose), by=idle_gpu_s)
        tally.add("lost_gpu_seconds_total", by=sum(one.lost_gpu_s for one in act.victims if one.job_id in gone))


def _given_up(old: Act | None, act: Act) -> bool:
    return act.stage == Stage.REVERSING and (old is None or old.stage != Stage.REVERSING)
