"""The model of Slurm's choice of GPUs against a real Slurm: what is predicted is what `scontrol show job -d` tells.

LAB_PICKS: requests for each set of nodes, instead of the few that a common run has time for.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import numpy as np
import pytest

from slurmsched.topology.slurm_selection import (
    UNKNOWN_SELECTION,
    SlurmVersion,
    read_version,
    select_gpus,
    select_near_cores,
)
from tests.live.gpu_nodes import BRIDGES, MACHINES, MESH, Gpus, Holding, end, install, requests, rows
from tests.live.lab import run

pytestmark = pytest.mark.live
PICKS = int(os.environ.get("LAB_PICKS", "280"))
DRAW = random.Random(7)
ODD = {
    "reversed": Gpus((1, 1, 1, 1, 0, 0, 0, 0), MESH),
    "any socket": Gpus((-1,) * 8, MESH),
    "interleaved": Gpus((0, 1, 0, 1, 1, 0, 1, 0), BRIDGES),
    "random": Gpus((0, 0, 0, 1, 1, -1, 1, -1),
                   rows({(a, b): DRAW.randrange(9) for a in range(8) for b in range(a + 1, 8)})),
}  # fmt: skip


def slurm_version() -> SlurmVersion:
    return read_version(run("sinfo", "--version").out)


def churn(machines: dict[str, Gpus], picks: int, seed: int) -> list[str]:
    """Random requests on nodes whose GPUs are held at random; the picks that were not as predicted."""
    draw, version, wrong, seen = random.Random(seed), slurm_version(), [], Counter[str]()
    nodes = [(Holding(f"n{i + 1}"), name, gpus.node) for i, (name, gpus) in enumerate(machines.items())]
    asked = requests()
    while seen.total() < picks:
        for holding, name, node in nodes:
            free, cores = holding.free, holding.free_cores
            request = draw.choice([one for one in asked if one.gpus <= free.bit_count()] or asked)
            expected = select_gpus(node, request, free, cores, version)
            if expected in (0, UNKNOWN_SELECTION):
                continue
            job = holding.ask(request)
            seen[name] += 1
            given, near = (holding.gpus[job], holding.cores_of(job)) if job else (0, [])
            by_cores = select_near_cores(node, request, free, np.array(near, np.int32), version) if job else 0
            if (expected, by_cores) != (given, given):
                wrong.append(f"{name}: {request}, free {free:#x}, cores {cores}: expected {expected:#x}, "
                             f"by its cores {near} {by_cores:#x}, given {given:#x}")  # fmt: skip
        held = [job for holding, *_ in nodes for job in holding.gpus]
        end([holding for holding, *_ in nodes], [job for job in held if draw.random() < 0.6])
    assert min(seen.values()) * 10 > picks, f"some node had hardly a request: {seen}"
    return wrong


@pytest.mark.parametrize("machines", [MACHINES, ODD], ids=["machines", "odd"])
def test_pick__is_what_slurm_gives(fresh, machines):
    """Whatever the request, the node and the GPUs that are free: the indices Slurm gives are those predicted."""
    install({f"n{i + 1}": gpus for i, gpus in enumerate(machines.values())})
    wrong = churn(machines, PICKS, seed=1)
    assert not wrong, "\n".join(wrong)
