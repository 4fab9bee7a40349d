"""What an open act needs next, from what Slurm shows: safe to repeat, and with a way back from everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slurmsched.config import Acts as Limits
from slurmsched.model.acts import Act, Purpose, Stage, Victim
from slurmsched.model.hostlist import same_hosts
from slurmsched.model.plan import Delay, Join, Move, Requeue, Reserve, Signal, Step, Unreserve
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.act_facts import Facts, job_row
from slurmsched.planning.limited import limited
from slurmsched.planning.taking import unable

PUT_OFF_S = 600.0  # so long a victim is told that it may start again; one that Slurm does not let is left then
SKEW_S = 30.0  # by so much slurmctld's clock may be behind ours, or ahead; it takes a start up to 60 s ago (26.05.5)


@dataclass(frozen=True, slots=True)
class Advance:
    """act: as it is from now on. steps: to send for that, in this order. wake_s: when to look again [Unix s]."""

    act: Act
    steps: tuple[Step, ...] = ()
    wake_s: float = inf


def advance(act: Act, snapshot: Snapshot, limits: Limits) -> Advance:
    """The next steps of an open act; none if it only has to wait.

    They follow from the act and the snapshot alone: asked again after a crash, the answer is the same.
    """
    facts = Facts(act := _counted(act, snapshot), snapshot)
    if act.ending:
        return _ended(facts, act)
    if facts.runs:
        return _ended(facts, _at(act, Stage.CLEANING, snapshot.now_s))
    if reason := _given_up(facts, limits):
        return _ended(facts, _at(replace(act, note=reason), Stage.REVERSING, snapshot.now_s))
    return _forward(facts, limits)


def taken_back(act: Act, snapshot: Snapshot) -> Advance:
    """The steps that end an open act whatever its stage, as `undo` does: its job waits or runs without it."""
    ended = _at(replace(act, note=act.note or "taken back by undo"), Stage.REVERSING, snapshot.now_s)
    return _ended(Facts(ended, snapshot), ended)


def _given_up(facts: Facts, limits: Limits) -> str:
    """Why an act on its way is taken back; "" if it goes on."""
    act, now_s = facts.act, facts.snapshot.now_s
    if facts.beneficiary < 0 or facts.snapshot.jobs.finished[facts.beneficiary]:
        return "its job left the queue"
    if not facts.waits:
        return "its job is held"
    job = facts.snapshot.jobs.take(np.array([facts.beneficiary]))
    if act.opens_s <= now_s and limited(job)[0]:
        return f"its job waits for something else than GPUs ({job.reason[0]})"
    if act.stage == Stage.WARNED and not act.sure:
        return "slurmsched was cut off while it asked for checkpoints, so that nobody knows who has heard it"
    stands = facts.reserved and (facts.named >= 0 or act.stage == Stage.PROMISED)
    if act.stage != Stage.BEGUN and act.sure and not stands:
        return "its reservation was taken away by somebody else"
    if facts.left and facts.closed and not facts.graced:
        return f"node {facts.closed} takes no new job, so that nobody would gain"
    if facts.on_record and (why := unable(act, facts.snapshot)):
        return why
    if facts.late_s > limits.start_timeout_s:
        return f"nobody went on with it for {facts.late_s:.0f} s: what its victims have saved is as old"
    ready_s = max(act.stage_s, act.promised_s)
    if act.stage == Stage.REQUEUED and now_s - ready_s > limits.start_timeout_s:
        return f"its job did not start within {limits.start_timeout_s:g} s"
    return ""


def _forward(facts: Facts, limits: Limits) -> Advance:
    """Towards the start of the job: nodes, name, signals, requeues; then it is Slurm's turn."""
    act, now_s = facts.act, facts.snapshot.now_s
    steps: list[Step] = list(_nodes(facts, limits))
    if act.opens_s > now_s:
        if facts.named >= 0 and facts.to_come:  # the clock was set back since it joined
            steps.append(Join(act.job_id, act.submit_s, "its nodes are kept from later on", act.id))
        return Advance(replace(_at(act, Stage.PROMISED, now_s), sure=True), tuple(steps), act.opens_s)
    if act.stage == Stage.BEGUN and facts.grace_s > 0:
        act = _at(act, Stage.WARNED, now_s)
        steps += [_signal(act, victim) for victim in facts.left if victim.signal]
    elif not facts.graced:
        act = _at(act, Stage.REQUEUED, now_s)
        steps += [_requeue(act, victim) for victim in facts.left]
    wake_s = act.stage_s + facts.grace_s if act.stage == Stage.WARNED else now_s + limits.look_s
    return Advance(replace(act, sure=True), tuple(steps), wake_s)


def _nodes(facts: Facts, limits: Limits) -> Iterator[Step]:
    """A reservation as the act wants it, and the name of it for the job once it has begun: a job that names one waits
    for nothing else."""
    act, now_s = facts.act, facts.snapshot.now_s
    key = (act.job_id, act.submit_s)
    start_s = now_s - SKEW_S if facts.left_behind else max(act.opens_s, now_s)
    end_s = max(act.promised_s, now_s) + act.time_limit_s + limits.slack_s
    if not facts.reserved:
        whole = bool(facts.snapshot.jobs.exclusive[facts.beneficiary])
        why = f"nodes for job {act.job_id}"
        yield Reserve(*key, why, act.id, act.reservation, act.nodes, act.user, start_s, end_s, whole)
    elif act.purpose == Purpose.PROMISE or facts.left_behind:
        yield from _moved(facts, start_s, end_s)
    if facts.named < 0 and start_s <= now_s:
        yield Join(*key, "it gets nodes of its own", act.id, act.reservation)


def _moved(facts: Facts, start_s: float, end_s: float) -> Iterator[Step]:
    """The change that a reservation needs to be as the act wants it. Slurm moves only the end of one that has begun."""
    act, kept = facts.act, facts.snapshot.reservations
    key, row = (act.job_id, act.submit_s), facts.kept
    if kept.start_s[row] <= facts.snapshot.now_s:
        if kept.end_s[row] < act.promised_s + act.time_limit_s:
            yield Move(*key, "its nodes come free later", act.id, act.reservation, end_s=end_s)
    elif facts.left_behind:
        if kept.start_s[row] - start_s >= 1:
            yield Move(
                *key, "it has not begun: a clock was set back", act.id, act.reservation, act.nodes, start_s, end_s
            )
    elif abs(kept.start_s[row] - start_s) >= 1 or not same_hosts(kept.node_list[row], act.nodes):
        yield Move(*key, "its nodes come free at another time", act.id, act.reservation, act.nodes, start_s, end_s)


def _ended(facts: Facts, act: Act) -> Advance:
    """Names off first, since a named reservation cannot be deleted and its end would kill the job."""
    now_s, jobs = facts.snapshot.now_s, facts.snapshot.jobs
    why = act.note or "its job runs"
    steps: list[Step] = []
    for row in facts.naming:
        steps.append(Join(int(jobs.job_id[row]), float(jobs.submit_s[row]), why, act.id))
    if facts.reserved:
        steps.append(Unreserve(act.job_id, act.submit_s, why, act.id, act.reservation))
    for victim in facts.put_off if now_s - act.stage_s < PUT_OFF_S else ():
        submit_s = float(jobs.submit_s[job_row(facts.snapshot, victim.job_id)])
        steps.append(Delay(victim.job_id, submit_s, "the nodes are given, it may start elsewhere", act.id, now_s))
    if not steps:
        return Advance(_at(act, Stage.CLOSED, now_s))
    return Advance(act, tuple(steps), now_s)


def _counted(act: Act, snapshot: Snapshot) -> Act:
    """The act with what was idle on its nodes since it was last seen: as many GPUs as now, all that time."""
    since_s = max(snapshot.now_s - max(act.seen_s, act.begun_s), 0.0)
    idle_gpu_s = act.idle_gpu_s + Facts(act, snapshot).idle_gpus * since_s
    return replace(act, idle_gpu_s=idle_gpu_s, seen_s=snapshot.now_s)


def _signal(act: Act, victim: Victim) -> Signal:
    why = f"job {act.job_id} gets its GPUs in {victim.grace_s:g} s"
    return Signal(victim.job_id, victim.submit_s, why, act.id, victim.signal, victim.restarts)


def _requeue(act: Act, victim: Victim) -> Requeue:
    why = f"job {act.job_id} gets its GPUs; it {victim.loses}"
    return Requeue(victim.job_id, victim.submit_s, why, act.id, victim.restarts)


def _at(act: Act, stage: Stage, now_s: float) -> Act:
    return act if act.stage == stage else replace(act, stage=stage, stage_s=now_s)
