"""How far whom a gang moves is from the fewest GPU seconds lost: on small clusters, beside every set of jobs.

    python -m bench.victims [--cases 1000] [--seed 0]

Prints a Markdown table. A case is six nodes of 8 GPUs, up to ten running jobs of one to `widest` nodes, as many GPUs on
each, that lose 1 to 20 hours of each of their GPUs, and a waiting gang of two to four nodes that is more urgent than
all. Only cases count in which somebody must leave.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from slurmsched.planning.operations.victims import PreemptableJobs, VictimSearch
from slurmsched.resources.allocated import AllocatedGpus
from slurmsched.resources.free import FreeResources, JobRequirements
from slurmsched.testing import snapshot

NODES, GPUS, JOBS = 6, 8, 10


def case(chance: np.random.Generator, widest: int) -> VictimSearch:
    """One at random, as the module tells."""
    free, held = np.full(NODES, GPUS), list[tuple[list[int], int]]()
    for _ in range(3 * JOBS):
        on = chance.choice(NODES, chance.integers(1, widest + 1), replace=False)
        gpus = int(chance.choice([1, 2, 4, 8]))
        if len(held) < JOBS and (free[on] >= gpus).all():
            free[on] -= gpus
            held.append((sorted(on.tolist()), gpus))
    jobs = [{"job_id": at, "state": "RUNNING", "gpus": gpus * len(on), "nodes": len(on)}
            for at, (on, gpus) in enumerate(held, start=1)]  # fmt: skip
    nodes, gpus = int(chance.integers(2, 5)), int(chance.choice([4, 8]))
    jobs.append({"job_id": 99, "gpus": nodes * gpus, "nodes": nodes})
    rows = [{"job_id": at, "node": f"n{node + 1}", "gpus": gpus}
            for at, (on, gpus) in enumerate(held, start=1) for node in on]  # fmt: skip
    at, row = snapshot(jobs, f"{NODES}x{GPUS}", allocations=rows), len(held)
    lost = np.array([3_600.0 * chance.integers(1, 21) * gpus * len(on) for on, gpus in held] + [0.0])
    place = (np.arange(row + 1) + 1) % (row + 1)
    return VictimSearch(
        at,
        row,
        JobRequirements.of(at, row),
        PreemptableJobs(np.arange(row + 1) < row, lost, place, AllocatedGpus.of(at)),
        FreeResources.of(at),
    )


def fewest(one: VictimSearch) -> float:
    """GPU seconds lost by the best of all sets of jobs; infinity if none makes room."""
    gives = one.running.allocated.table(np.arange(one.row), np.zeros(NODES, np.int64))
    best = np.inf
    for size in range(one.row + 1):
        for leave in map(list, combinations(range(one.row), size)):
            lost = float(one.running.lost_gpu_s[leave].sum())
            free = one.available.gpus + gives[leave].sum(axis=0)
            if lost < best and (free >= one.need.gpus).sum() >= one.need.nodes:
                best = lost
    return best


def ratios(cases: int, widest: int, seed: int) -> Iterator[float]:
    """GPU seconds lost over the fewest possible, case by case."""
    chance, found = np.random.default_rng(seed), 0
    while found < cases:
        one = case(chance, widest)
        best = fewest(one)
        if 0 < best < np.inf:
            chosen = one.cheapest(np.arange(NODES))
            assert chosen is not None, "a set of jobs makes room"
            found += 1
            yield float(one.running.lost_gpu_s[chosen[1]].sum()) / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| nodes of a running job | cases with the fewest | mean | 95th percentile | worst |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for widest in (1, 2, 4):
        all_ = np.array(list(ratios(args.cases, widest, args.seed)))
        exact, p95, worst = (all_ <= 1 + 1e-9).mean(), np.quantile(all_, 0.95), all_.max()
        print(f"| 1 to {widest} | {exact:.1%} | {all_.mean():.3f} | {p95:.2f} | {worst:.2f} |")


if __name__ == "__main__":
    main()
