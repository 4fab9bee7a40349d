"""What it costs to choose GPUs: in a cluster of 10,000 nodes, and on one 8-GPU machine beside other matchers.

    python bench/placement.py [--nodes 10000] [--gangs 1000] [--rounds 5]

Prints Markdown tables of CPU time of this process (it has one thread). The cluster has nodes of 8 GPUs wired as DGX-1V
under three levels of switches (25 nodes a leaf, 10 leaves a spine, 4 spines a pod), half of its GPUs held. Gangs ask
for 1 to 512 GPUs. A cycle is one `place` call: the snapshot is made before; 0 gangs is what every cycle pays first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from slurmsched import registry
from slurmsched.kernels._jit import load
from slurmsched.model import Labels, Ranking, Snapshot, frozen
from slurmsched.model.topology import Fabric, SiteTopology
from slurmsched.placements import gpu_sets
from slurmsched.testing import snapshot
from slurmsched.topology.machines import machines

SIZES, SHARES = (1, 2, 3, 4, 8, 16, 32, 64, 128, 512), (30, 15, 5, 15, 15, 8, 5, 4, 2, 1)
LEAF, SPINE, POD = 25, 10, 4  # nodes a leaf, leaves a spine, spines a pod
ON_ONE_MACHINE = ("linked", "mapa", "topology-aware", "cells", "ffdl", "sched2", "best-fit", "spread", "random")
OTHERS = (("MAPA 15e58ab", "180,000 to 270,000"), ("gpu-topo-aware 8125c28, 5 machines", "3,400 to 8,400"))


def fabric(nodes: int) -> tuple[Fabric, np.ndarray]:
    """Three levels of switches over so many nodes, and the leaf of each node."""
    leaves = -(-nodes // LEAF)
    spines = -(-leaves // SPINE)
    pods = -(-spines // POD)
    cells = (
        [f"leaf{i}" for i in range(leaves)] + [f"spine{i}" for i in range(spines)] + [f"pod{i}" for i in range(pods)]
    )
    parent = [leaves + i // SPINE for i in range(leaves)] + [leaves + spines + i // POD for i in range(spines)]
    level = [1] * leaves + [2] * spines + [3] * pods
    tree = Fabric("tree", Labels.of(sorted(cells)), frozen(level, np.int8), frozen(parent + [-1] * pods, np.int32))
    return tree, np.arange(nodes) // LEAF


def cluster(nodes: int, gangs: int, seed: int = 1) -> Snapshot:
    """Half of the GPUs held by jobs of one node each; so many gangs wait."""
    chance = np.random.default_rng(seed)
    rows, held, job_id = [], [], 0
    for n in range(nodes):
        taken = chance.permutation(8)[: int(chance.choice([0, 2, 4, 6, 8], p=[0.3, 0.1, 0.2, 0.1, 0.3]))].tolist()
        if taken:
            job_id += 1
            mask = sum(1 << g for g in taken)
            rows.append({"job_id": job_id, "gpus": len(taken), "state": "RUNNING"})
            held.append({"job_id": job_id, "node": f"n{n + 1:05}", "gpus": len(taken), "gpu_mask": mask})
    for gpus in chance.choice(SIZES, size=gangs, p=np.array(SHARES) / 100).tolist():
        job_id += 1
        rows.append({"job_id": job_id, "gpus": gpus, "nodes": -(-gpus // 8), "gpu_request": "gpu"})
    tree, leaf = fabric(nodes)
    wired = SiteTopology((machines()["dgx-1v"],), frozen(np.zeros(nodes), np.int64), tree, frozen(leaf, np.int64))
    kinds = [{"name": f"n{n + 1:05}", "gpus": 8, "gpu_types": "gpu:v100:8"} for n in range(nodes)]
    return snapshot(rows, kinds, allocations=held, topology=wired)


def least_s(work: Callable[[], object], rounds: int) -> float:
    """CPU time of the quickest of so many runs, after one that is not counted."""
    took = []
    for _ in range(rounds + 1):
        begun_s = time.process_time()
        work()
        took.append(time.process_time() - begun_s)
    return min(took[1:])


def order_of(given: Snapshot, waiting: int) -> Ranking:
    """Running jobs, then so many of the waiting ones; the others after them, as held."""
    return Ranking(np.arange(len(given.jobs))[: int((~given.jobs.pending).sum()) + waiting])


def in_cluster(nodes: int, gangs: int, rounds: int) -> None:
    given, placement = cluster(nodes, gangs), registry.make("placements", "linked", key="placement")
    counts = sorted({0, gangs // 10, gangs})
    took = {n: least_s(lambda n=n: placement.place(given, order_of(given, n)), rounds) for n in counts}
    served = len(placement.place(given, order_of(given, gangs)).rows) - int((~given.jobs.pending).sum())
    print(f"`linked`, {nodes} nodes, {8 * nodes} GPUs, three fabric levels; {served} of {gangs} gangs fit\n")
    print("| gangs decided in one cycle | CPU of the cycle | per decision |\n| --- | --- | --- |")
    for n in counts:
        each = f"{(took[n] - took[0]) / n * 1e6:,.0f} us" if n else "-"
        print(f"| {n} | {took[n] * 1e3:,.1f} ms | {each} |")


def on_one_machine(rounds: int) -> None:
    chance = np.random.default_rng(2)
    table = gpu_sets.set_table(machines()["dgx-1v"])
    masks, sizes = chance.integers(1, 256, 1000).tolist(), chance.integers(1, 6, 1000).tolist()
    lookup_s = least_s(lambda: [table.best[mask, k] for mask, k in zip(masks, sizes, strict=True)], rounds) / 1000
    print("\nOne job of 2 to 5 GPUs on one DGX-1V with some GPUs held: a whole `place` call\n")
    print("| matcher | CPU us a decision |\n| --- | --- |")
    print(f"| look-up in the table of best sets, from Python | {lookup_s * 1e6:.2f} |")
    for name in ON_ONE_MACHINE:
        placement = registry.make("placements", name, key="placement")
        took = [_one(placement, gpus, held, rounds) for gpus in (2, 3, 4, 5) for held in (0b0, 0b1, 0b1001)]
        print(f"| {name} | {statistics.median(took) * 1e6:,.0f} |")
    for name, published in OTHERS:
        print(f"| {name}, its own program on 2 cores | {published} |")


def _one(placement: object, gpus: int, mask: int, rounds: int) -> float:
    rows: list[dict[str, object]] = [{"job_id": 2, "gpus": gpus, "gpu_request": "gpu"}]
    held: Sequence[dict[str, object]] = ()
    if mask:
        rows.append({"job_id": 1, "gpus": mask.bit_count(), "state": "RUNNING"})
        held = [{"job_id": 1, "node": "n1", "gpus": mask.bit_count(), "gpu_mask": mask}]
    wired = SiteTopology((machines()["dgx-1v"],), frozen([0], np.int64))
    given = snapshot(rows, "1x8", allocations=held, topology=wired)
    ranking = Ranking(np.arange(len(rows)))
    return least_s(lambda: placement.place(given, ranking), 20 * rounds)  # type: ignore[attr-defined]


def build(rounds: int) -> None:
    """What a table costs once."""
    print("\n| table of best sets | entries | made | read again |\n| --- | --- | --- | --- |")
    for name in ("dgx-1v", "dgx-2"):
        source = gpu_sets._Source.of(machines()[name], "smallest")
        made_s = least_s(lambda source=source: gpu_sets._made(source), 1)
        read_s = least_s(lambda source=source: gpu_sets._table.__wrapped__(source), rounds)
        entries = gpu_sets._made(source).best.size
        print(f"| {name} | {entries:,} | {made_s * 1e3:,.0f} ms | {read_s * 1e3:.1f} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    load()
    in_cluster(options.nodes, options.gangs, options.rounds)
    on_one_machine(options.rounds)
    build(options.rounds)


if __name__ == "__main__":
    main()
