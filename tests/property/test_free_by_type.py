"""Who leaves nodes of several GPU types for a job that asks for one of them, beside every set of jobs that could."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from slurmsched.config import PreemptionConfig, ScopeConfig
from slurmsched.model import Ranking
from slurmsched.planning.operations.preemption import begin_preemptions
from slurmsched.testing import snapshot

NOW_S = 100_000.0
HAS = ({"a": 4, "b": 4}, {"a": 2, "b": 6}, {"a": 8})
CPUS = 16


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], int, int]:
    """Running jobs of one type on one node each, with CPUs and the work that they lose; share and nodes of a job that
    asks for GPUs of type a."""
    free, cpus, jobs = [dict(has) for has in HAS], [CPUS] * len(HAS), list[dict[str, Any]]()
    for _ in range(draw(st.integers(1, 8))):
        node = draw(st.integers(0, len(HAS) - 1))
        name, gpus, wants = draw(st.sampled_from(sorted(HAS[node]))), draw(st.integers(1, 4)), draw(st.integers(1, 8))
        if free[node][name] >= gpus and cpus[node] >= wants:
            free[node][name] -= gpus
            cpus[node] -= wants
            jobs.append({"node": node, "type": name, "gpus": gpus, "cpus": wants, "cost_s": draw(st.integers(1, 20))})
    return jobs, draw(st.integers(1, 4)), draw(st.integers(1, 2))


def roomy(jobs: list[dict[str, Any]], left: tuple[int, ...], gpus: int) -> list[int]:
    """Nodes that have so many of type a and as many CPUs when these jobs have left."""
    stay = [job for at, job in enumerate(jobs) if at not in left]
    return [
        node for node, has in enumerate(HAS)
        if has["a"] - sum(job["gpus"] for job in stay if job["node"] == node and job["type"] == "a") >= gpus
        and CPUS - sum(job["cpus"] for job in stay if job["node"] == node) >= gpus
    ]  # fmt: skip


@given(case=cases())
def test_begin__by_type_beside_every_set_of_jobs(case: tuple[list[dict[str, Any]], int, int]) -> None:
    """Nobody leaves where the type is free; else those who lose least of all that make room."""
    running, gpus, nodes = case
    assume(running)
    ago = {"submit_s": NOW_S - 40_000, "start_s": NOW_S - 36_000, "run_s": 36_000.0, "executed_s": 36_000.0}
    jobs: list[dict[str, Any]] = [
        {"job_id": at + 1, "state": "RUNNING", "requeueable": True, "gpus": job["gpus"], "cpus": job["cpus"],
         "end_s": NOW_S + 50_000, "comment": f"slurmsched: preempt=yes ckpt=USR2@10 restart={job['cost_s']}s", **ago}
        for at, job in enumerate(running)
    ]  # fmt: skip
    all_ = gpus * nodes
    jobs.append({"job_id": 99, "gpus": all_, "cpus": all_, "nodes": nodes, "gpu_request": f"gpu:a:{all_}",
                 "submit_s": NOW_S - 600, "time_limit_s": 3_600.0, "user": "alice"})  # fmt: skip
    held = [{"job_id": at + 1, "node": f"n{job['node'] + 1}", "gpu_type": job["type"], "gpus": job["gpus"]}
            for at, job in enumerate(running)]  # fmt: skip
    fleet = [{"name": f"n{node + 1}", "gpus": sum(has.values()), "cpus": CPUS,
              "cpus_used": sum(job["cpus"] for job in running if job["node"] == node),
              "gpu_types": ",".join(f"gpu:{name}:{count}" for name, count in has.items())}
             for node, has in enumerate(HAS)]  # fmt: skip
    at = snapshot(jobs, fleet, now_s=NOW_S, allocations=held)
    order = np.roll(np.arange(len(jobs)), 1)
    found = begin_preemptions(
        at, Ranking(order), at.jobs.pending, PreemptionConfig(enabled=True), ScopeConfig(partitions=("*",))
    )
    sets = [left for size in range(len(running) + 1) for left in combinations(range(len(running)), size)]
    costs = [sum(running[one]["cost_s"] * running[one]["gpus"] for one in left)
             for left in sets if len(roomy(running, left, gpus)) >= nodes]  # fmt: skip
    best = min(costs, default=None)
    if not best:
        assert (found.operations, len(found.refused)) == ((), 0 if best == 0 else 1)
        return
    (operation,) = found.operations
    leave = tuple(victim.job_id - 1 for victim in operation.victims)
    assert len(roomy(running, leave, gpus)) >= nodes
    assert sum(running[one]["cost_s"] * running[one]["gpus"] for one in leave) == best
