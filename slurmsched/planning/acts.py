"""What an open act needs next, from what Slurm shows: safe to repeat, and with a way back from everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from slurmsched.config import Acts as Limits
from slurmsched.model.acts import Act, Purpose, Stage, Victim
from slurmsched.model.hostlist import expand
from slurmsched.model.plan import Delay, Join, Move, Requeue, Reserve, Signal, Step, Unreserve
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState
from slurmsched.planning.limited import is_limit

_RUNS = int(JobState.RUNNING | JobState.SUSPENDED)
_ENDING = (Stage.CLEANING, Stage.REVERSING)
_SET_BACK_S = 600.0  # a reservation made for now that begins so much later: the clock was set back; munge bears 300 s


@dataclass(frozen=True, slots=True)
class Advance:
    """act: as it is from now on. steps: to send for that, in this order. wake_s: when to look again [Unix s]."""

    act: Act
    steps: tuple[Step, ...] = ()
    wake_s: float = inf


@dataclass(frozen=True)
class Facts:
    """What a snapshot shows of an act. Nothing here remembers what was sent."""

    act: Act
    snapshot: Snapshot

    @cached_property
    def beneficiary(self) -> int:
        """Row of the job it is for, -1 when that is gone: left the queue, or was requeued itself."""
        return _row(self.snapshot, self.act.job_id, self.act.submit_s)

    @cached_property
    def runs(self) -> bool:
        return self.beneficiary >= 0 and bool(self.snapshot.jobs.state[self.beneficiary] & _RUNS)

    @cached_property
    def waits(self) -> bool:
        """It is pending, and neither user nor admin holds it."""
        jobs, row = self.snapshot.jobs, self.beneficiary
        return row >= 0 and bool(jobs.pending[row]) and not bool(jobs.held[row])

    @cached_property
    def named(self) -> int:
        """Row of the job under the beneficiary's id, whatever run of it, that names the reservation; -1: none does.

        One that is over does not count: it keeps the reservation from nothing, and takes no update any more.
        """
        row, jobs = _row(self.snapshot, self.act.job_id), self.snapshot.jobs
        named = row >= 0 and not jobs.finished[row] and jobs.reservation[row] == self.act.reservation
        return row if named else -1

    @cached_property
    def kept(self) -> int:
        """Row of its reservation, -1: there is none."""
        rows = np.flatnonzero(self.snapshot.reservations.name.isin((self.act.reservation,)))
        return int(rows[0]) if len(rows) else -1

    @property
    def reserved(self) -> bool:
        return self.kept >= 0

    @property
    def left_behind(self) -> bool:
        """Whether its reservation, made for then, begins much later by now: the clocks were set back since. Where ours
        alone was, Slurm says that it has begun."""
        start_s = self.snapshot.reservations.start_s
        return self.to_come and bool(start_s[self.kept] > self.snapshot.now_s + _SET_BACK_S)

    @property
    def to_come(self) -> bool:
        """Whether Slurm says that its reservation has not begun."""
        return self.reserved and bool(self.snapshot.reservations.to_come[self.kept])

    @property
    def idle_gpus(self) -> int:
        """GPUs that are free on the nodes of its reservation, while its job does not run there."""
        if not self.reserved or self.runs:
            return 0
        nodes = self.snapshot.nodes
        here = nodes.name.isin(expand(self.act.nodes)) & ~nodes.down
        return int(np.maximum(nodes.gpus - nodes.gpus_used, 0)[here].sum())

    @cached_property
    def closed(self) -> str:
        """The first of its nodes that takes no new job now, "": all do."""
        nodes = self.snapshot.nodes
        found = np.flatnonzero(nodes.name.isin(expand(self.act.nodes)) & nodes.closed)
        return nodes.name[int(found[0])] if len(found) else ""

    @property
    def graced(self) -> bool:
        """Whether somebody still has time to save itself."""
        return self.act.stage == Stage.WARNED and self.snapshot.now_s - self.act.stage_s < self.grace_s

    @property
    def grace_s(self) -> float:
        """The longest time that one of those who have not left wants to save itself [s]."""
        return max((victim.grace_s for victim in self.left if victim.signal), default=0.0)

    @cached_property
    def left(self) -> tuple[Victim, ...]:
        """Victims whose chosen run still has its GPUs and has not been told to go."""
        return tuple(victim for victim in self.act.victims if self._goes_on(victim))

    @cached_property
    def put_off(self) -> tuple[Victim, ...]:
        """Victims that wait for nothing but the time Slurm lets pass after a requeue.

        Slurm gives the reason with its next scheduling pass only; until then there is none, and the time alone tells.
        """
        return tuple(victim for victim in self.act.victims if self._waits_for_begin(victim))

    def _goes_on(self, victim: Victim) -> bool:
        jobs, row = self.snapshot.jobs, _row(self.snapshot, victim.job_id, victim.submit_s)
        return row >= 0 and bool(jobs.state[row] & _RUNS) and int(jobs.restarts[row]) == victim.restarts

    def _waits_for_begin(self, victim: Victim) -> bool:
        jobs, row = self.snapshot.jobs, _row(self.snapshot, victim.job_id)
        if row < 0 or not jobs.pending[row] or int(jobs.restarts[row]) != victim.restarts + 1:
            return False
        early = jobs.reason[row] in ("", "None") and jobs.eligible_s[row] > self.snapshot.now_s
        return bool(early or jobs.reason[row] == "BeginTime")


def advance(act: Act, snapshot: Snapshot, limits: Limits) -> Advance:
    """The next steps of an open act; none if it only has to wait.

    They follow from the act and the snapshot alone: asked again after a crash, the answer is the same.
    """
    facts = Facts(act := _counted(act, snapshot), snapshot)
    if act.stage in _ENDING:
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
    reason = facts.snapshot.jobs.reason[facts.beneficiary]
    if act.opens_s <= now_s and is_limit(reason):
        return f"its job waits for a limit, not for GPUs ({reason})"
    if act.stage == Stage.WARNED and not act.sure:
        return "slurmsched was cut off while it asked for checkpoints, so that nobody knows who has heard it"
    stands = facts.reserved and (facts.named >= 0 or act.stage == Stage.PROMISED)
    if act.stage != Stage.BEGUN and act.sure and not stands:
        return "its reservation was taken away by somebody else"
    if facts.left and facts.closed and not facts.graced:
        return f"node {facts.closed} takes no new job, so that nobody would gain"
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
    start_s = max(act.opens_s, now_s)
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
    elif abs(kept.start_s[row] - start_s) >= 1 or set(expand(kept.node_list[row])) != set(expand(act.nodes)):
        yield Move(*key, "its nodes come free at another time", act.id, act.reservation, act.nodes, start_s, end_s)


def _ended(facts: Facts, act: Act) -> Advance:
    """Names off first, since a named reservation cannot be deleted and its end would kill the job."""
    now_s, jobs = facts.snapshot.now_s, facts.snapshot.jobs
    why = act.note or "its job runs"
    steps: list[Step] = []
    if facts.named >= 0:
        steps.append(Join(act.job_id, float(jobs.submit_s[facts.named]), why, act.id))
    if facts.reserved:
        steps.append(Unreserve(act.job_id, act.submit_s, why, act.id, act.reservation))
    for victim in facts.put_off:
        submit_s = float(jobs.submit_s[_row(facts.snapshot, victim.job_id)])
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


def _row(snapshot: Snapshot, job_id: int, submit_s: float | None = None) -> int:
    """Row of a job, -1 if there is none, or none of this submission."""
    ids = snapshot.jobs.job_id
    row = int(np.searchsorted(ids, job_id))
    if row == len(ids) or ids[row] != job_id:
        return -1
    same = submit_s is None or abs(float(snapshot.jobs.submit_s[row]) - submit_s) < 1
    return row if same else -1
