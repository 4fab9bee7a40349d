"""What Slurm does with reservations of ours that nobody is left to delete."""

from __future__ import annotations

import time

import pytest

from slurmsched.slurm.writer import FLAGS
from tests.live.lab import column, run, submit, until

pytestmark = pytest.mark.live

SOON = FLAGS.replace("PURGE_COMP=00:30:00", "PURGE_COMP=00:00:30")  # the same, but half a minute


def reserved(name: str, node: str, start: str) -> None:
    run("scontrol", "create", f"reservation={name}", f"nodes={node}", "users=alice", f"starttime={start}",
        "duration=60", f"flags={SOON}")  # fmt: skip


def left() -> set[str]:
    return {line.split()[0].partition("=")[2] for line in run("scontrol", "-o", "show", "reservation").out.splitlines()
            if line.startswith("ReservationName=slurmsched-")}  # fmt: skip


def test_purge__only_what_has_begun_and_no_job_names_goes(fresh):
    """One that a waiting job names, and one that is to come, stay: no job loses what is kept for it."""
    assert SOON != FLAGS
    blocks = submit("bob", 8, "-wn1")
    until(lambda: blocks in column("%A", "RUNNING"), "n1 is busy")
    for name, node, start in (("named", "n1", "now"), ("unnamed", "n2", "now"), ("to-come", "n3", "now+3600")):
        reserved(f"slurmsched-{name}", node, start)
    waits = submit("alice", 8, "--reservation=slurmsched-named")
    assert left() == {"slurmsched-named", "slurmsched-unnamed", "slurmsched-to-come"}
    until(lambda: "slurmsched-unnamed" not in left(), "Slurm deletes what nobody names")
    time.sleep(60)
    assert left() == {"slurmsched-named", "slurmsched-to-come"}
    assert waits in column("%A", "PENDING")
