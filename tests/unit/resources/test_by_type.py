"""GPUs by type: how many surely nobody holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.resources.by_type import FreeByType, only_type, surely_free
from slurmsched.resources.eligibility import Exclusion
from slurmsched.resources.free import free_for
from slurmsched.resources.job_request import request_of
from slurmsched.testing import snapshot

MIXED = {"name": "n1", "gpu_types": "gpu:a100:4,gpu:h100:4", "gpus": 8, "cpus": 64, "memory_mib": 512_000.0}


def site(node: dict[str, Any], held: list[dict[str, Any]] = [], **asks: Any) -> Snapshot:  # noqa: B006
    """One node, a job that runs there (2) and one that waits (1)."""
    jobs = [{"job_id": 1, "gpus": 1, **asks}, {"job_id": 2, "state": "RUNNING", "node_list": "n1"}]
    return snapshot(jobs, [MIXED | node], allocations=[{"job_id": 2, "node": "n1"} | row for row in held])


def free(at: Snapshot) -> dict[str, int]:
    return {name: int(surely_free(at, name)[0]) for name in ("a100", "h100")}


def test_only_type__is_that_of_all_whole_gpus():
    """None where some have another type, or none, and no type of MIG devices."""
    texts = ["gpu:a100:4", "gpu:a100:4,gpu:h100:4", "gpu:2,gpu:h100:4", "gpu:4", "gpu:1g.5gb:7", ""]
    assert [only_type(text) for text in texts] == ["a100", "", "", "", "", ""]


def test_surely_free__counts_what_jobs_hold_by_type():
    """A job that holds GPUs of one type takes none of another."""
    assert free(site({}, [{"gpu_type": "h100", "gpus": 3}])) == {"a100": 4, "h100": 1}


def test_surely_free__counts_what_slurm_shows_by_type():
    """Though no job is shown that holds it."""
    assert free(site({"gpus_used": 3, "types_used": "gpu:a100:3"})) == {"a100": 1, "h100": 4}


def test_surely_free__a_gpu_of_unknown_type_may_be_of_any():
    """One GPU is in use that no job shows: each type may have lost it."""
    assert free(site({"gpus_used": 2}, [{"gpu_type": "h100", "gpus": 1}])) == {"a100": 2, "h100": 1}


def test_surely_free__mig_devices_are_apart_from_whole_gpus():
    """Both are counted, neither in the sum of the other."""
    node = {"gpu_types": "gpu:1g.5gb:7,gpu:a100:4", "gpus": 4, "types_used": "gpu:1g.5gb:2"}
    at = site(node)
    assert (int(surely_free(at, "1g.5gb")[0]), int(surely_free(at, "a100")[0])) == (5, 4)


def test_free_for__of_two_types_each_must_be_free():
    """`gpu:a100:1,gpu:h100:1` finds no room where every GPU of one type is held."""
    at = site({}, [{"gpu_type": "h100", "gpus": 4}], gpus=2, gpu_request="gpu:a100:1,gpu:h100:1", gpus_by="node")
    assert Exclusion(free_for(at, request_of(at, 0)).exclusion[0]) is Exclusion.GPUS
    at = site({}, [{"gpu_type": "h100", "gpus": 3}], gpus=2, gpu_request="gpu:a100:1,gpu:h100:1", gpus_by="node")
    assert Exclusion(free_for(at, request_of(at, 0)).exclusion[0]) is Exclusion.NONE


def test_free_by_type__a_job_of_any_type_takes_from_each():
    """Nobody knows which type it gets, so each has that many fewer."""
    types = FreeByType.of(site({}))
    types.take(np.array([0]), np.array([3]), "")
    assert ({name: int(gpus[0]) for name, gpus in types.free.items()}, bool(types.known[0])) == (
        {"a100": 1, "h100": 1}, False)  # fmt: skip
