"""The wall clock is set back by hours while an operation is open, in any state of it: it ends as if nothing had
been."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slurmsched.db.boot_clock import BootClock
from slurmsched.db.operation_log import OperationLog
from slurmsched.model import Operation, OperationStage, Purpose, Step, Victim
from slurmsched.planning.operations.operation_steps import advance
from tests.property.test_operation_steps import GONE, LIMITS, PENDING, RUNNING, World

CYCLE_S = 20.0
GRACE_S = 120.0
NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)  # each example writes a file many times


class Machine:
    """The world of one operation, its record on disk, and the two clocks of the machine."""

    def __init__(self, folder: Path, purpose: Purpose, victims: int) -> None:
        self.up_s, self.boot, self.folder = 5_000.0, "first", folder
        chosen = tuple(Victim(job, 0.0, 0, 8, "USR2", GRACE_S) for job in range(2, 2 + victims))
        later = {"promised_s": 100_090.0, "opens_s": 100_060.0} if purpose == Purpose.RESERVE else {}
        operation = Operation("1-7", purpose, 1, 0.0, "alice", "n1", 3_600.0, 100_000.0, chosen, **later)
        jobs = {1: PENDING, **{victim.job_id: RUNNING for victim in chosen}}
        self.world = World(operation, now_s=100_000.0, state=jobs)
        self.told: list[tuple[str, int, float]] = []  # step, job, uptime
        self.log().sent([operation])

    def log(self) -> OperationLog:
        """The record as a process reads it that has just begun."""
        clock = BootClock(lambda: self.world.now_s, lambda: self.up_s, lambda: self.boot)
        return OperationLog(self.folder / "journal.jsonl", clock)

    def operation(self) -> Operation | None:
        return next(iter(self.log().open()), None)

    def cycle(self) -> None:
        """Read, decide, on record, send, settle."""
        log, operation = self.log(), self.operation()
        assert operation is not None
        made = advance(operation, self.world.seen(), LIMITS)
        log.begin([made.operation])
        taken = [self.sent(step) for step in made.steps]
        ending = made.operation.stage in (OperationStage.CLEANING, OperationStage.REVERSING)
        log.sent(
            [
                made.operation
                if all(taken) or ending
                else replace(made.operation, stage=OperationStage.REVERSING, note="refused")
            ]
        )

    def sent(self, step: Step) -> bool:
        self.told.append((step.kind, step.job_id, self.up_s))
        return self.world.send(step)

    def passes(self, seconds: float) -> None:
        self.up_s += seconds
        self.world.passes(seconds)

    def set_back(self, seconds: float) -> None:
        """The wall clock alone. What Slurm kills ends by a clock that goes on; begin times are of the wall clock."""
        self.world.now_s -= seconds
        self.world.remaining_s = {job: remaining_s - seconds for job, remaining_s in self.world.remaining_s.items()}


@settings(deadline=None, max_examples=40, phases=NO_SHRINK)
@given(hours=st.integers(1, 24), at=st.integers(0, 9), victims=st.integers(1, 2), restarted=st.booleans())
def test_preemption__the_clock_set_back_by_hours(hours: int, at: int, victims: int, restarted: bool) -> None:
    """Each victim is asked once, has its whole grace and no hour more, and is moved once; the urgent job runs, nothing
    is left, and nobody waits for a time of before. restarted: the machine was started anew meanwhile, so that nothing
    tells by how much the clock was set."""
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync"):
        machine = Machine(Path(folder), Purpose.PREEMPT, victims)
        for number in range(60):
            if machine.operation() is None:
                break
            if number == at:
                machine.set_back(hours * 3_600.0)
                machine.boot = "second" if restarted else "first"
            machine.cycle()
            machine.passes(CYCLE_S)
        world, (over,) = machine.world, machine.log().known()
        assert (over.stage, over.note, world.state[1]) == (OperationStage.CLOSED, "", RUNNING)
        assert (world.reserved, world.name) == (False, "")
        for job in range(2, 2 + victims):
            (asked_s,), (moved_s,) = ([up for what, of, up in machine.told if (what, of) == (kind, job)]
                                      for kind in ("signal", "requeue"))  # fmt: skip
            assert GRACE_S <= moved_s - asked_s <= 2 * GRACE_S + CYCLE_S
            assert world.begin_s[job] <= world.now_s


@settings(deadline=None, max_examples=12, phases=NO_SHRINK)
@given(hours=st.sampled_from([1, 5, 24]), at=st.integers(0, 6), ends=st.booleans())
def test_promise__the_clock_set_back_by_hours(hours: int, at: int, ends: bool) -> None:
    """The gang is not left bound to a reservation of later on: it runs, or it waits free of it and can start elsewhere;
    once that time has come, or the gang has ended, nothing is left."""
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync"):
        machine = Machine(Path(folder), Purpose.RESERVE, 0)
        for number in range(16):
            machine.world.drained = number <= at  # nobody starts there yet
            if number == at:
                machine.set_back(hours * 3_600.0)
            if machine.operation() is not None:
                machine.cycle()
                world = machine.world
                begun = world.span_s[0] <= world.now_s
                assert not world.name or begun
            machine.passes(CYCLE_S)
        machine.world.state[1] = GONE if ends else machine.world.state[1]
        for _ in range(1 if ends else hours + 2):
            machine.passes(3_600.0)
            for _ in range(3):
                if machine.operation() is not None:
                    machine.cycle()
        assert (machine.operation(), machine.world.reserved, machine.world.name) == (None, False, "")
