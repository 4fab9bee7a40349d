"""Reservations of ours that nobody has on record: taken back, and no one else's."""

from __future__ import annotations

from slurmsched.config import Config, OperationsConfig
from slurmsched.config_file import parse_config
from slurmsched.model import Operation, OperationStage, Purpose, Reservations
from slurmsched.planning.operations.operation_steps import advance
from slurmsched.planning.operations.preemption import operation_id
from slurmsched.slurm.scontrol_tables import end_orphans, foreign_names
from slurmsched.slurm.site import installation_tag
from slurmsched.testing import snapshot

OURS, OTHER = "0a1b2c", "ffffff"
NAMES = ["maint", "slurmsched-7-1", "slurmsched-0a1b2c-7-1", "slurmsched-0a1b2c-8-1", "slurmsched-ffffff-7-1",
         "slurmsched-test", "slurmsched-x-1", "slurmsched-0a1b2c-7-1-1"]  # fmt: skip


def reserved(*names: str) -> Reservations:
    return Reservations.build(len(names), {"name": names, "node_list": ["n1"] * len(names)})


def test_orphans__only_names_of_our_form_that_no_operation_has() -> None:
    """A prefix alone is not ours, nor is what another slurmsched made; an open operation keeps its reservation."""
    known = Operation("0a1b2c-8-1", Purpose.PREEMPT, 8, 100.0, "bob", "n1", 600.0, 1_000.0)
    found = end_orphans(snapshot([{"job_id": 7}]).jobs, reserved(*NAMES), [known], OURS)
    assert [(operation.id, operation.job_id, operation.stage) for operation in found] == [
        ("0a1b2c-7-1", 7, OperationStage.REVERSING)
    ]
    assert foreign_names(reserved(*NAMES), [known], OURS) == ["slurmsched-7-1", "slurmsched-ffffff-7-1"]


def test_orphans__end_as_an_operation_does() -> None:
    """The name goes off the job first, then the reservation; of a job that is gone the reservation alone."""
    seen = snapshot([{"job_id": 7, "reservation": NAMES[2]}], reservations=reserved(NAMES[2]))
    (operation,) = end_orphans(seen.jobs, seen.reservations, [], OURS)
    assert [step.kind for step in advance(operation, seen, OperationsConfig()).steps] == ["join", "unreserve"]
    empty = snapshot([], reservations=reserved(NAMES[2]))
    (operation,) = end_orphans(empty.jobs, empty.reservations, [], OURS)
    assert [step.kind for step in advance(operation, empty, OperationsConfig()).steps] == ["unreserve"]


def configured(**sections: dict[str, object]) -> Config:
    return parse_config(sections)


def test_tag__is_that_of_the_record_of_operations() -> None:
    """Another journal is another slurmsched; hosts that share a database are one, whatever password and journal."""
    one, again = (
        configured(ledger={"journal": "/a/j.jsonl"}),
        configured(ledger={"journal": "/a/j.jsonl", "keep_days": 3}),
    )
    assert (
        installation_tag(one)
        == installation_tag(again)
        != installation_tag(configured(ledger={"journal": "/b/j.jsonl"}))
    )
    ledgers = [{"url": f"mysql://u:{name}@db/s", "journal": f"/{name}"} for name in ("a", "b")]
    pair = [configured(leader={"enabled": True, "name": ledger["journal"]}, ledger=ledger) for ledger in ledgers]
    assert installation_tag(pair[0]) == installation_tag(pair[1]) != installation_tag(one)


def test_operation_id__bears_the_tag_of_the_snapshot() -> None:
    """Two slurmsched that promise one job nodes in one second do not share a reservation."""
    ids = [operation_id(snapshot([], now_s=5.0, tag=tag), 7) for tag in ("", OURS, OTHER)]
    assert ids == ["7-5", "0a1b2c-7-5", "ffffff-7-5"]
