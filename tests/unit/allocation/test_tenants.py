from __future__ import annotations

from dataclasses import replace

from slurmsched.allocation.tenants import tenants
from slurmsched.testing import snapshot

JOBS = (
    {"account": "a", "state": "RUNNING", "gpus": 6},
    {"account": "b", "state": "RUNNING", "gpus": 2},
    {"account": "b", "gpus": 8},
)
HELD = ({"job_id": 1, "node": "n1", "gpus": 6}, {"job_id": 2, "node": "n1", "gpus": 2})


def test_tenants__demand_and_shares() -> None:
    """Demand is what jobs hold or could start on; shares sum to 1, an account that Slurm does not name has 1 part."""
    book = tenants(snapshot(JOBS, "1x8", allocations=HELD, shares={"b": 3.0}))
    assert book.names == ("a", "b")
    assert book.demand_gpus.tolist() == [6.0, 10.0]
    assert book.shares.tolist() == [0.25, 0.75]
    assert book.deserved_gpus.tolist() == [2.0, 6.0]


def test_tenants__books_what_flows_between_two_looks() -> None:
    """After 10 s, a received 60 GPU s though it deserved 40, b the rest; a tenant that left is remembered."""
    first = snapshot(JOBS, "1x8", allocations=HELD)
    carry = tenants(first).carry
    later = replace(snapshot(JOBS[1:], "1x8", now_s=10.0), carry=carry)
    book = tenants(later)
    assert book.names == ("a", "b")
    assert book.received_gpu_s.tolist() == [60.0, 20.0]
    assert book.deserved_gpu_s.tolist() == [40.0, 40.0]


def test_tenants__a_carry_of_another_policy_begins_anew() -> None:
    """What is no book counts as none."""
    book = tenants(replace(snapshot(JOBS, "1x8"), carry={"tenants": ["x"]}))
    assert book.received_gpu_s.tolist() == [0.0, 0.0]
