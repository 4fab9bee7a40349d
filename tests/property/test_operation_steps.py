"""An operation under every kind of trouble: it ends, and nothing of it is left in Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.config import OperationsConfig
from slurmsched.model import Operation, OperationStage, Purpose, Reservations, Snapshot, Step, Victim
from slurmsched.planning.operations.operation_steps import advance
from slurmsched.testing import snapshot

LIMITS = OperationsConfig()
KILL_WAIT_S, BEGIN_S = 30.0, 121.0
PENDING, RUNNING, LEAVING, GONE = "PENDING", "RUNNING", "PENDING,COMPLETING", "COMPLETED"


@dataclass
class World:
    """Slurm as far as an operation sees it. 1 waits, the victims run; what happens to whom is the test's choice."""

    operation: Operation
    now_s: float = 1_000.0
    state: dict[int, str] = field(default_factory=dict)
    restarts: dict[int, int] = field(default_factory=dict)
    remaining_s: dict[int, float] = field(default_factory=dict)
    begin_s: dict[int, float] = field(default_factory=dict)
    name: str = ""
    reserved: bool = False
    span_s: tuple[float, float] = (0.0, 0.0)
    held: bool = False
    drained: bool = False
    later: bool = False  # its user has put the beneficiary off
    other: bool = False  # another job of its user names the reservation
    stuck: bool = False  # Slurm takes no begin time of a victim
    looks: bool = True
    signals: dict[int, int] = field(default_factory=dict)
    requeues: dict[int, int] = field(default_factory=dict)

    def seen(self) -> Snapshot:
        rows = [
            {
                "job_id": job, "state": state, "restarts": self.restarts.get(job, 0),
                "reservation": self.name if job == 1 else "", "priority": 0 if job == 1 and self.held else 1,
                "reason": self.reason(job), "eligible_s": self.begin_s.get(job, 0.0), "time_limit_s": 3_600.0,
            }
            for job, state in self.state.items() if state
        ]  # fmt: skip
        if self.other:
            rows.append({"job_id": 99, "state": RUNNING, "reservation": self.operation.reservation})
        if self.later and rows:
            rows[0] |= {"eligible_s": self.now_s + 9_999.0} if rows[0]["job_id"] == 1 else {}
        span = {"start_s": [self.span_s[0]], "end_s": [self.span_s[1]], "to_come": [self.span_s[0] > self.now_s]}
        one = {"name": [self.operation.reservation], "node_list": ["n1"], **span} if self.reserved else {}
        node = {"name": "n1", "gpus": 8, "state": "MIXED+DRAIN" if self.drained else "MIXED"}
        return snapshot(rows, [node], now_s=self.now_s, operations=(self.operation,),
                        reservations=Reservations.build(int(self.reserved), one))  # fmt: skip

    def reason(self, job: int) -> str:
        """Slurm has one only when a scheduling pass has looked at the job."""
        later = "BeginTime" if self.begin_s.get(job, 0.0) > self.now_s else "Resources"
        return later if self.looks else "None"

    def send(self, step: Step) -> bool:
        """Whether Slurm takes it."""
        job, kind = step.job_id, step.kind
        if kind == "reserve":
            self.reserved, self.span_s = True, (step.start_s, step.end_s)
        elif kind == "move":
            begun = self.span_s[0] <= self.now_s
            if begun and step.nodes:
                return False
            self.span_s = (self.span_s[0] if begun else step.start_s, step.end_s)
        elif kind == "unreserve":
            if self.name or self.other:
                return False
            self.reserved = False
        elif kind == "join" and job == 99:
            self.other = False
        elif kind == "join":
            if not self.state[job] or (step.name and not self.reserved):
                return False
            assert not step.name or self.span_s[0] <= self.now_s, "it would wait for that alone"
            self.name = step.name
        elif kind == "signal":
            self.signals[job] = self.signals.get(job, 0) + 1
        elif kind == "requeue":
            if self.state[job] != RUNNING:
                return False
            self.requeues[job] = self.requeues.get(job, 0) + 1
            self.restarts[job] = self.restarts.get(job, 0) + 1
            self.state[job], self.remaining_s[job] = LEAVING, self.now_s + KILL_WAIT_S
        elif kind == "delay":
            if self.stuck:
                return False
            self.begin_s[job] = step.start_s
        return True

    def passes(self, seconds: float) -> None:
        """Time goes by: nodes come free, the beneficiary starts on them."""
        self.now_s += seconds
        for job, remaining_s in list(self.remaining_s.items()):
            if self.state[job] == LEAVING and remaining_s <= self.now_s:
                self.state[job], self.begin_s[job] = PENDING, remaining_s + BEGIN_S
        busy = any(self.state[victim.job_id] in (RUNNING, LEAVING) for victim in self.operation.victims)
        open_ = (
            self.reserved and self.span_s[0] <= self.now_s if self.name else self.operation.purpose == Purpose.PREEMPT
        )
        if self.state[1] == PENDING and not busy and not self.held and open_ and not self.drained and not self.later:
            self.state[1] = RUNNING


def cycle(world: World, operation: Operation, cut: int | None) -> Operation:
    """One cycle; cut: the process dies before this step was sent, after the operation was put on record."""
    step = advance(operation, world.seen(), LIMITS)
    for at, each in enumerate(step.steps):
        if at == cut:
            return replace(step.operation, sure=False)
        if not world.send(each) and step.operation.stage not in (OperationStage.CLEANING, OperationStage.REVERSING):
            return replace(step.operation, stage=OperationStage.REVERSING, note="refused")
    return step.operation


def begun(grace_s: float, victims: int) -> tuple[World, Operation]:
    signal = "USR2" if grace_s else ""
    chosen = tuple(Victim(job, 0.0, 0, 8, signal, grace_s) for job in range(2, 2 + victims))
    operation = Operation("1-7", Purpose.PREEMPT, 1, 0.0, "alice", "n1", 3_600.0, 1_000.0, chosen)
    return World(operation, state={1: PENDING, **{victim.job_id: RUNNING for victim in chosen}}), operation


EVENTS = st.sampled_from(["nothing", "nothing", "victim ends", "cancelled", "held", "reservation deleted", "drained",
                          "put off", "another job comes", "stuck"])  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(
    grace_s=st.sampled_from([0.0, 120.0]),
    victims=st.integers(1, 3),
    happens=st.lists(st.tuples(EVENTS, st.integers(0, 6), st.sampled_from([1.0, 20.0, 130.0])), max_size=8),
)
def test_operation__ends_clean_whatever_happens(grace_s, victims, happens):
    """No reservation, no name is left; no run is requeued twice or signalled twice, none without its grace, and nobody
    leaves a node that takes no job, or leaves for a job that could not start."""
    world, operation = begun(grace_s, victims)
    warned_s: dict[int, float] = {}
    for event, cut, seconds in [*happens, *[("nothing", 99, 60.0)] * 30]:
        if operation.stage == OperationStage.CLOSED:
            break
        if event == "victim ends" and world.state[2] == RUNNING:
            world.state[2] = GONE
        elif event == "cancelled":
            world.state[1], world.name = "", ""
        elif event == "held":
            world.held = world.state[1] == PENDING
        elif event == "reservation deleted":
            world.reserved, world.name = False, ""
        elif event == "drained":
            world.drained = not world.drained
        elif event == "put off":
            world.later = not world.later
        elif event == "another job comes":
            world.other = world.reserved
        elif event == "stuck":
            world.stuck = True
        before = dict(world.requeues)
        operation = cycle(world, operation, cut)
        for job in world.signals:
            warned_s.setdefault(job, world.now_s)
        told = [job for job, count in world.requeues.items() if count > before.get(job, 0)]
        assert not (told and (world.drained or world.later))
        assert all(job in warned_s and world.now_s - warned_s[job] >= grace_s for job in told if grace_s)
        world.passes(seconds)
    assert operation.stage == OperationStage.CLOSED
    assert (world.reserved, world.name) == (False, "")
    assert max([0, *world.requeues.values(), *world.signals.values()]) <= 1


@given(grace_s=st.sampled_from([0.0, 120.0]), victims=st.integers(1, 3), looks=st.booleans())
def test_operation__undisturbed_gives_the_job_its_nodes(grace_s, victims, looks):
    """Each victim is signalled once if it asked for that, requeued once, and may start again at once afterwards, also
    where Slurm has no time to say why a job waits."""
    world, operation = begun(grace_s, victims)
    world.looks = looks
    while operation.stage != OperationStage.CLOSED and world.now_s < 3_000:
        operation = cycle(world, operation, None)
        world.passes(20.0)
    assert (world.state[1], operation.stage, operation.note) == (RUNNING, OperationStage.CLOSED, "")
    assert set(world.requeues.values()) == {1}
    assert set(world.signals.values()) == ({1} if grace_s else set())
    assert max(world.begin_s.values()) <= world.now_s


@pytest.mark.parametrize(("cycles", "away_s"), [(0, 900.0), (1, 900.0), (1, 40_000.0)])
def test_operation__nobody_loses_what_it_did_while_slurmsched_was_away(cycles, away_s):
    """Stopped for long after the signal, or before: the victims have worked on since, so they keep their GPUs."""
    world, operation = begun(120.0, 2)
    for _ in range(cycles):
        operation = cycle(world, operation, None)
    world.now_s += away_s
    while operation.stage != OperationStage.CLOSED:
        operation = cycle(world, operation, None)
        world.passes(20.0)
    assert (world.requeues, world.reserved, world.name) == ({}, False, "")
    assert operation.note.startswith("no step for ")


@pytest.mark.parametrize("away_s", [0.0, 130.0, 700.0])
def test_operation__goes_on_after_a_short_absence(away_s):
    """As long as a job may take to start (operations.start_timeout_s)."""
    world, operation = begun(120.0, 2)
    operation = cycle(world, operation, None)
    world.now_s += away_s
    while operation.stage != OperationStage.CLOSED:
        operation = cycle(world, operation, None)
        world.passes(20.0)
    assert (set(world.requeues.values()), operation.note) == ({1}, "")


PROMISE_EVENTS = st.sampled_from(["nothing", "nothing", "earlier", "cancelled", "held", "reservation deleted"])


@settings(deadline=None, max_examples=200)
@given(happens=st.lists(st.tuples(PROMISE_EVENTS, st.integers(0, 3), st.sampled_from([1.0, 40.0, 300.0])), max_size=8))
def test_promise__ends_clean_whatever_happens(happens):
    """The gang joins only when the reservation has begun; what has begun is not moved; nothing is left."""
    operation = Operation(
        "1-7", Purpose.RESERVE, 1, 0.0, "alice", "n1", 3_600.0, 1_000.0, promised_s=1_530.0, opens_s=1_500.0
    )
    world = World(operation, state={1: PENDING})
    for event, cut, seconds in [*happens, *[("nothing", 99, 60.0)] * 40]:
        if operation.stage == OperationStage.CLOSED:
            break
        if event == "earlier" and world.now_s < operation.opens_s:
            operation = replace(operation, opens_s=world.now_s + 20, promised_s=world.now_s + 50)
        elif event == "cancelled":
            world.state[1], world.name = "", ""
        elif event == "held":
            world.held = world.state[1] == PENDING
        elif event == "reservation deleted":
            world.reserved, world.name = False, ""
        operation = cycle(world, operation, cut)
        world.passes(seconds)
    assert operation.stage == OperationStage.CLOSED
    assert (world.reserved, world.name) == (False, "")


@given(behind_s=st.floats(0.0, 86_400.0))
def test_operation__a_reservation_that_has_begun_is_not_moved_whatever_our_clock_says(behind_s):
    """slurmsched's clock alone is behind: by it the reservation is to begin later, by Slurm it has begun, and Slurm
    would refuse the move, which would end the operation."""
    world, operation = begun(120.0, 1)
    operation = cycle(world, operation, None)
    seen = replace(world.seen(), now_s=world.now_s - behind_s)
    assert [step.kind for step in advance(operation, seen, LIMITS).steps if step.kind == "move"] == []
