"""Synergy: CPUs and memory by profile, beside GPUs, and the cluster that counts with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.placements.synergy import ALLOCATIONS, Synergy
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.physics.cpu_memory_speed import CpuMemorySpeed
from slurmsched.testing import check_physics, check_placement, snapshot

NODE = {"name": "n1", "gpus": 4, "cpus": 16, "memory_mib": 400 * 1024.0}


def asks(job_id: int, model: str, hints: str = "", **others: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": 1, "comment": f"slurmsched: model={model} {hints}", **others}


def placed(placement: Synergy, at: Snapshot) -> dict[int, tuple[float, float]]:
    """CPUs and memory [GiB] of each job that is placed."""
    made: Assignments = placement.place(at, Ranking(np.arange(len(at.jobs))))
    pairs = zip(made.cpus.tolist(), (made.memory_mib / 1024).tolist(), strict=True)
    return dict(zip(at.jobs.job_id[made.rows].tolist(), pairs, strict=True))


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("running", ["fixed", "retuned"])
def test_synergy__keeps_the_laws(allocation: str, running: str) -> None:
    """Those of every placement. With running="moved" jobs move, as in the paper."""
    check_placement(Synergy(allocation=allocation, running=running))


def test_synergy__worked_example() -> None:
    """A node of 4 GPUs, 16 CPUs and 400 GiB. AlexNet is fastest with 12 CPUs and 125 GiB, GNMT needs 1 CPU, ResNet-50
    4 CPUs. Tuned, GNMT finds none left: AlexNet falls back to its part, 4 CPUs and 100 GiB. Greedily GNMT
    waits. In proportion all have 4 CPUs and 100 GiB."""
    at = snapshot([asks(1, "alexnet"), asks(2, "gnmt"), asks(3, "res50")], [NODE])
    two = snapshot([asks(1, "alexnet"), asks(2, "gnmt")], [NODE])
    assert placed(Synergy(), two) == {1: (12, 125), 2: (1, pytest.approx(20.83, abs=0.01))}
    tuned = placed(Synergy(), at)
    assert {job: cpus for job, (cpus, _) in tuned.items()} == {1: 4, 2: 1, 3: 4}
    assert tuned[1] == (4, 100)
    assert sorted(placed(Synergy(allocation="greedy"), at)) == [1, 3]
    assert placed(Synergy(allocation="proportional"), at) == dict.fromkeys((1, 2, 3), (4, 100))


def test_synergy__heeds_what_users_allow() -> None:
    """A job that asks for 8 CPUs and 64 GiB has them, and with min_cpus or max_cpus and min_mem what is best in these
    bounds. A model without a profile has its part."""
    cpus: dict[str, Any] = {"cpus": 8, "memory_mib": 64 * 1024.0}
    wide = [asks(1, "alexnet", "max_cpus=10", **cpus), asks(2, "gnmt", "min_cpus=2 min_mem=32", **cpus)]
    assert placed(Synergy(), snapshot(wide, [NODE])) == {1: (10, 64), 2: (2, 32)}
    own = [asks(1, "alexnet", **cpus), asks(2, "gnmt", **cpus)]
    assert placed(Synergy(), snapshot(own, [NODE])) == {1: (8, 64), 2: (8, 64)}
    assert placed(Synergy(), snapshot([asks(1, "unknown")], [NODE])) == {1: (4, 100)}


def test_synergy__running_jobs() -> None:
    """A running job with 12 of 16 CPUs keeps them if fixed, so that one of 8 CPUs waits; retuned it has its part."""
    runs = asks(1, "alexnet", state="RUNNING", cpus=12, memory_mib=1024.0)
    held = [{"job_id": 1, "node": "n1", "gpus": 1, "gpu_mask": 1}]
    node = {**NODE, "cpus_used": 12, "memory_used_mib": 1024.0}
    at = snapshot([runs, asks(2, "res50", cpus=8)], [node], allocations=held)
    assert sorted(placed(Synergy(), at)) == [1]
    assert {job: cpus for job, (cpus, _) in placed(Synergy(running="retuned"), at).items()} == {1: 4, 2: 8}


def placed_on(at: Snapshot) -> dict[int, list[tuple[int, int]]]:
    """Nodes and GPUs there of each job that is placed."""
    made = Synergy().place(at, Ranking(np.arange(len(at.jobs))))
    pairs = list(zip(made.node.tolist(), made.gpus.tolist(), strict=True))
    ends = (made.first + made.count).tolist()
    return {int(at.jobs.job_id[row]): pairs[first:end]
            for row, first, end in zip(made.rows.tolist(), made.first.tolist(), ends, strict=True)}  # fmt: skip


def test_synergy__a_gang_has_the_nodes_that_it_asks_for() -> None:
    """Two GPUs on two nodes are one on each, and 8 on two nodes of 8 are four on each. A gang that CPUs do not let
    on one of the nodes waits, or makes a job there fall back to its part."""
    nodes = [{**NODE, "name": name} for name in ("n1", "n2")]
    two = asks(1, "gnmt", nodes=2)
    assert placed_on(snapshot([{**two, "gpus": 2}], nodes)) == {1: [(0, 1), (1, 1)]}
    large = [{**node, "gpus": 8} for node in nodes]
    assert placed_on(snapshot([{**two, "gpus": 8}], large)) == {1: [(0, 4), (1, 4)]}
    runs = asks(2, "alexnet", state="RUNNING", cpus=15, memory_mib=1024.0)
    held = [{"job_id": 2, "node": "n2", "gpus": 1, "gpu_mask": 1}]
    full = [nodes[0], {**nodes[1], "cpus_used": 15, "memory_used_mib": 1024.0}]
    assert sorted(placed_on(snapshot([{**two, "gpus": 2}, runs], full, allocations=held))) == [2]
    beside = [asks(1, "alexnet"), asks(2, "alexnet"), {**asks(3, "gnmt", nodes=2), "gpus": 2, "cpus": 12}]
    assert len(placed_on(snapshot(beside, nodes))) == 3


def test_synergy__nothing_is_given_up_in_vain() -> None:
    """Job 2 asks for memory that the node would not have if job 1 fell back: job 1 keeps its 12 CPUs."""
    at = snapshot([asks(1, "alexnet"), asks(2, "gnmt", cpus=5, memory_mib=390 * 1024.0)], [NODE])
    assert placed(Synergy(), at) == {1: (12, 125)}


def test_synergy__a_job_above_its_part_passes_nobody() -> None:
    """Job 2 asks for 14 of 16 CPUs for one of four GPUs. Behind job 1 it waits, before it it starts."""
    large = {"cpus": 14, "memory_mib": 1024.0}
    assert sorted(placed(Synergy(), snapshot([asks(1, "alexnet"), asks(2, "gnmt", **large)], [NODE]))) == [1]
    assert sorted(placed(Synergy(), snapshot([asks(1, "gnmt", **large), asks(2, "alexnet")], [NODE]))) == [1]


def replayed(*models: str, placement: str, durations: tuple[int, ...] = ()) -> list[float]:
    """JCT [s] of jobs of one GPU that come at once and take 1,000 s on their part of a node."""
    jobs = len(models)
    trace = Trace.of(np.arange(jobs) + 1, [1] * jobs, [0.0] * jobs, durations or [1_000.0] * jobs, model=list(models))
    request = ReplayRequest(cluster="1x4", policy="fifo", backfill="skip", placement=placement, physics="cpu-memory")
    ends, _ = ReplaySession(trace, request).run().cluster.endings()
    return [round(end) for end in ends.tolist()]


def test_cluster__speed_follows_cpus_and_memory() -> None:
    """4 GPUs with 12 CPUs and 250 GiB. A job of ResNet-18 has 9 CPUs beside two of GNMT, 2.4 times the speed of 3.
    Where the placement does not choose CPUs all run as recorded."""
    assert replayed("res18", "gnmt", "gnmt", placement="synergy") == [417, 1_000, 1_000]
    assert replayed("res18", "gnmt", "gnmt", placement="synergy:allocation=proportional") == [1_000] * 3
    assert replayed("res18", "gnmt", "gnmt", placement="consolidated") == [1_000] * 3


def test_cluster__running_jobs_are_tuned_again() -> None:
    """Two jobs of ResNet-18 and one of GNMT find 12 CPUs: 9, 1, and 2 that are less than a part, so that both have
    3. The longer one has 9 once the other has ended, if running jobs are tuned."""
    models, durations = ("res18", "res18", "gnmt"), (500, 1_000, 2_000)
    fixed = replayed(*models, placement="synergy", durations=durations)
    again = replayed(*models, placement="synergy:running=retuned", durations=durations)
    assert (fixed, again) == ([500, 1_000, 2_000], [500, 708, 2_000])


def test_physics__keeps_the_laws() -> None:
    """Those of every physics. A number that is none is refused by its name."""
    check_physics(CpuMemorySpeed())
    with pytest.raises(ConfigError) as caught:
        CpuMemorySpeed(cpus_per_gpu=0)
    assert caught.value.key == "physics.cpus_per_gpu"


def test_synergy__refuses_words_that_are_none() -> None:
    """The error names the parameter of the placement."""
    with pytest.raises(ConfigError, match="tune, greedy, proportional") as caught:
        Synergy(allocation="best")
    assert caught.value.key == "placement.allocation"
