"""Reservations of ours that nobody has on record: taken back, and no one else's."""

from __future__ import annotations

from slurmsched.config import Acts
from slurmsched.model import Act, Purpose, Reservations, Stage
from slurmsched.planning.acts import advance
from slurmsched.slurm.orphans import orphans
from slurmsched.testing import snapshot

NAMES = ["maint", "slurmsched-7-1", "slurmsched-8-1", "slurmsched-test", "slurmsched-x-1"]


def reserved(*names: str) -> Reservations:
    return Reservations.build(len(names), {"name": names, "node_list": ["n1"] * len(names)})


def test_orphans__only_names_of_our_form_that_no_act_has() -> None:
    """A prefix alone is not ours; an open act keeps its reservation."""
    known = Act("8-1", Purpose.PREEMPT, 8, 100.0, "bob", "n1", 600.0, 1_000.0)
    found = orphans(snapshot([{"job_id": 7}]).jobs, reserved(*NAMES), [known])
    assert [(act.id, act.job_id, act.stage) for act in found] == [("7-1", 7, Stage.REVERSING)]


def test_orphans__end_as_an_act_does() -> None:
    """The name goes off the job first, then the reservation; of a job that is gone the reservation alone."""
    seen = snapshot([{"job_id": 7, "reservation": "slurmsched-7-1"}], reservations=reserved("slurmsched-7-1"))
    (act,) = orphans(seen.jobs, seen.reservations, [])
    assert [step.kind for step in advance(act, seen, Acts()).steps] == ["join", "unreserve"]
    empty = snapshot([], reservations=reserved("slurmsched-7-1"))
    (act,) = orphans(empty.jobs, empty.reservations, [])
    assert [step.kind for step in advance(act, empty, Acts()).steps] == ["unreserve"]
