"""What it costs to choose GPUs: in a cluster of 10,000 nodes, and on one 8-GPU machine beside other matchers.

    python bench/placement.py [--nodes 10000] [--gangs 1000] [--candidates 100] [--plan-jobs 10000] [--rounds 5]

Prints Markdown tables of CPU time of this process (it has one thread). The cluster has nodes of 8 GPUs wired as DGX-1V
under three levels of switches (25 nodes a leaf, 10 leaves a spine, 4 spines a pod), half of its GPUs held. Gangs ask
for 1 to 512 GPUs. A cycle is one `place` call: the snapshot is made before; 0 gangs is what every cycle pays first.
Node lists are what the daemon does: it finds one for each of that many waiting jobs, beside Slurm's own pick there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from slurmsched import registry
from slurmsched.config import PlacementConfig, ScopeConfig
from slurmsched.config_file import parse_config
from slurmsched.kernels._jit import load
from slurmsched.kernels.gpu_share_fit import SharedNodes, ShareRequests, place_shares
from slurmsched.model import GpuSelection, JobGpuRequest, Labels, Ranking, Rights, SetNodeList, Snapshot, frozen
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.gpu_topology import Fabric, SiteTopology
from slurmsched.planning.node_lists.node_list_lever import node_lists
from slurmsched.planning.planner import Planner
from slurmsched.resources import gpu_sets
from slurmsched.sim.experiments.gpu_sharing import RULES
from slurmsched.testing import snapshot
from slurmsched.topology.gpu_links import machines
from slurmsched.topology.slurm_selection import SlurmNode

NOW_S, CORES = 1e6, 32  # cores of each of two sockets
SHAPES = {
    "2 GPUs": [(1, 2)],
    "4x8 GPUs": [(4, 8)],
    "eight sizes": [(1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (1, 3), (4, 4), (8, 8)],
}
SIZES, SHARES = (1, 2, 3, 4, 8, 16, 32, 64, 128, 512), (30, 15, 5, 15, 15, 8, 5, 4, 2, 1)
LEAF, SPINE, POD = 25, 10, 4  # nodes a leaf, leaves a spine, spines a pod
ON_ONE_MACHINE = ("linked", "mapa", "topology-aware", "cells", "ffdl", "sched2", "best-fit", "spread", "random")
OTHERS = (("MAPA 15e58ab", "180,000 to 270,000"), ("gpu-topo-aware 8125c28, 5 machines", "3,400 to 8,400"))


def fabric(nodes: int) -> tuple[Fabric, np.ndarray]:
    """Three levels of switches over that many nodes, and the leaf of each node."""
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
    """Half of the GPUs held by jobs of one node each; that many gangs wait."""
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


def with_candidates(nodes: int, shapes: Sequence[tuple[int, int]], seed: int = 1) -> Snapshot:
    """The same running jobs, as a cycle that places jobs reads them; and waiting jobs of that many nodes, GPUs each."""
    at, wishes, rows = cluster(nodes, 0, seed), [], list[dict[str, object]]()
    free = bit_counts(~at.nodes.gpu_mask_used[:, np.newaxis] & np.array([0x0F, 0xF0]))
    for job_id, (count, each) in enumerate(shapes, len(at.jobs) + 1):
        gpus, asks = count * each, f"gpu:{each}"
        rows.append({"job_id": job_id, "gpus": gpus, "nodes": count, "cpus": 4 * gpus, "gpu_request": asks,
                     "comment": "slurmsched: topo=nvlink", "submit_s": NOW_S - 600, "eligible_s": NOW_S - 600,
                     "memory_mib": gpus, "user": f"u{job_id % 7}", "time_limit_s": 3600 + job_id % 5})  # fmt: skip
        wishes.append(
            JobGpuRequest(job_id, NOW_S - 600, "gpus-per-node", each, count, 4 * each, asks=asks, nodes=count)
        )
    cores = tuple(map(tuple, (CORES - 8 * (4 - free)).tolist()))
    gpu_selection = GpuSelection((slurm_node(),), frozen(np.zeros(nodes), np.int64), cores, (26, 5), tuple(wishes))
    sizes = {"cpus": np.full(nodes, 2 * CORES), "memory_mib": np.full(nodes, 1e6)}
    jobs = at.jobs.followed_by(snapshot(rows, "1x8", now_s=NOW_S).jobs)
    return replace(at, now_s=NOW_S, jobs=jobs, nodes=at.nodes.with_columns(**sizes), gpu_selection=gpu_selection)


def slurm_node() -> SlurmNode:
    """A DGX-1V as slurmctld has it: its links, and the socket of each GPU."""
    lanes = machines()["dgx-1v"].lanes.astype(int).tolist()
    links = [[-1 if a == b else count for b, count in enumerate(row)] for a, row in enumerate(lanes)]
    near = [range(CORES) if gpu < 4 else range(CORES, 2 * CORES) for gpu in range(8)]
    return SlurmNode.build(near, links, sockets=2, cores_per_socket=CORES)


def least_s(work: Callable[[], object], rounds: int) -> float:
    """CPU time of the quickest of that many runs, after one that is not counted."""
    took = []
    for _ in range(rounds + 1):
        begun_s = time.process_time()
        work()
        took.append(time.process_time() - begun_s)
    return min(took[1:])


def order_of(given: Snapshot, waiting: int) -> Ranking:
    """Running jobs, then that many of the waiting ones; the others after them, as held."""
    return Ranking(np.arange(len(given.jobs))[: int((~given.jobs.pending).sum()) + waiting])


def in_cluster(nodes: int, gangs: int, rounds: int) -> None:
    given, placement = cluster(nodes, gangs), registry.make_plugin("placements", "linked", key="placement")
    counts = sorted({0, gangs // 10, gangs})
    took = {n: least_s(lambda n=n: placement.place(given, order_of(given, n)), rounds) for n in counts}
    served = len(placement.place(given, order_of(given, gangs)).rows) - int((~given.jobs.pending).sum())
    print(f"`linked`, {nodes} nodes, {8 * nodes} GPUs, three fabric levels; {served} of {gangs} gangs fit\n")
    print("| gangs decided in one cycle | CPU of the cycle | per decision |\n| --- | --- | --- |")
    for n in counts:
        each = f"{(took[n] - took[0]) / n * 1e6:,.0f} us" if n else "-"
        print(f"| {n} | {took[n] * 1e3:,.1f} ms | {each} |")


def few_cpus(nodes: int, rounds: int) -> None:
    """One `place` call of `synergy`, with as many waiting jobs as GPUs."""
    placement = registry.make_plugin("placements", "synergy", key="placement")
    hosts = [{"name": f"n{i}", "gpus": 8, "cpus": 64, "memory_mib": 500.0 * 1024} for i in range(nodes)]
    print(f"\n`synergy`, {nodes} nodes of 8 GPUs, {8 * nodes} jobs of one GPU\n")
    print("| jobs | placed | CPU of the cycle |\n| --- | --- | --- |")
    for name, asked in (("of three models", {}), ("that ask for 12 of 64 CPUs", {"cpus": 12, "memory_mib": 1024.0})):
        comments = [f"slurmsched: model={('alexnet', 'res18', 'gnmt')[i % 3]}" for i in range(8 * nodes)]
        given = snapshot([{"gpus": 1, "comment": comment, **asked} for comment in comments], hosts)
        order = Ranking(np.arange(len(given.jobs)))
        took_s = least_s(partial(placement.place, given, order), rounds)
        print(f"| {name} | {len(placement.place(given, order).rows)} | {took_s * 1e3:,.1f} ms |")


def time_node_lists(nodes: int, candidates: int, rounds: int) -> None:
    """What the node lists of a cycle cost, by the default placement."""
    print(f"\nNode lists of a cycle by `linked`: {nodes} nodes, {8 * nodes} GPUs, {candidates} jobs, Slurm 26.05\n")
    print("| each waiting job asks for | lists | CPU of them | over one `place` | per job |")
    print("| --- | --- | --- | --- | --- |")
    for name, shapes in SHAPES.items():
        at = with_candidates(nodes, [shapes[i % len(shapes)] for i in range(candidates)])
        found = lists_of(at)
        took_s, place_s = least_s(partial(lists_of, at), rounds), least_s(partial(place_first, at), rounds)
        each = f"{took_s / candidates * 1e6:,.0f} us"
        print(f"| {name} | {found} | {took_s * 1e3:,.1f} ms | {took_s / place_s:.1f} | {each} |")


def lists_of(at: Snapshot) -> int:
    """How many node lists a cycle finds. Nothing of what another cycle found out about this snapshot is used."""
    fresh, placement = replace(at), registry.make_plugin("placements", "linked", key="placement")
    limits = PlacementConfig(pin="hints", candidates=int(at.jobs.pending.sum()))
    ranking, scope = Ranking(np.arange(len(at.jobs))), ScopeConfig(partitions=("*",))
    found = node_lists(fresh, ranking, fresh.jobs.pending, placement, limits, scope, 10 * len(at.jobs))
    return sum(isinstance(action, SetNodeList) for action in found.actions)


def place_first(at: Snapshot) -> object:
    """One placement of the most urgent waiting job."""
    return registry.make_plugin("placements", "linked", key="placement").place(replace(at), order_of(at, 1))


def whole_plans(nodes: int, jobs: int, rounds: int) -> None:
    """What deciding and planning a cycle cost, by what is switched on."""
    shapes = SHAPES["eight sizes"]
    at = with_candidates(nodes, [shapes[i % len(shapes)] for i in range(jobs)])
    running = at.jobs.running
    at = replace(at, site=replace(at.site, rights=Rights.OPERATOR), jobs=at.jobs.with_columns(
        requeueable=running, run_s=np.where(running, 7_200.0, 0.0), executed_s=np.where(running, 7_200.0, 0.0),
        comment=Labels.of(["slurmsched: preempt=yes" if runs else text
                           for runs, text in zip(running.tolist(), at.jobs.comment, strict=True)])))  # fmt: skip
    print(f"\nDecide and plan: {jobs:,} pending jobs, {8 * nodes:,} GPUs, srsf, median of {rounds}\n")
    print("| switched on | actions | CPU |\n| --- | --- | --- |")
    lists, moves = {"placement": {"pin": "multi-gpu"}}, {"preemption": {"enabled": True}}
    for name, more in (("the order alone", {}), ("node lists", lists), ("node lists and preemption", lists | moves)):
        tree = {"scope": {"partitions": ["*"]}, "policy": {"name": "srsf"}, **more}
        planner = Planner.from_config(parse_config(tree))
        plan = planner.plan(replace(at))
        took = [least_s(lambda planner=planner: planner.plan(replace(at)), 1) for _ in range(rounds)]
        print(f"| {name} | {len(plan.actions)} | {statistics.median(took) * 1e3:,.1f} ms |")


def on_one_machine(rounds: int) -> None:
    chance = np.random.default_rng(2)
    table = gpu_sets.set_table(machines()["dgx-1v"])
    masks, sizes = chance.integers(1, 256, 1000).tolist(), chance.integers(1, 6, 1000).tolist()
    lookup_s = least_s(lambda: [table.best[mask, k] for mask, k in zip(masks, sizes, strict=True)], rounds) / 1000
    print("\nOne job of 2 to 5 GPUs on one DGX-1V with some GPUs held: a whole `place` call\n")
    print("| matcher | CPU us a decision |\n| --- | --- |")
    print(f"| look-up in the table of best sets, from Python | {lookup_s * 1e6:.2f} |")
    for name in ON_ONE_MACHINE:
        placement = registry.make_plugin("placements", name, key="placement")
        took = [_one(placement, gpus, held, rounds) for gpus in (2, 3, 4, 5) for held in (0b0, 0b1, 0b1001)]
        print(f"| {name} | {statistics.median(took) * 1e6:,.0f} |")
    for name, published in OTHERS:
        print(f"| {name}, its own program on 2 cores, another run | {published} |")


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


def parts(nodes: int, rounds: int) -> None:
    """What a request of a part of a GPU costs, one after another in one call, of 20 kinds that are all typical."""
    chance, kinds, count = np.random.default_rng(1), 20, 20_000
    gpus = chance.choice([1, 1, 1, 1, 2, 8], kinds)
    milli = np.where(gpus == 1, chance.choice([100, 250, 300, 500, 700, 1000], kinds), 1000)
    cpus, memory_mib, fits = chance.integers(1, 12, kinds) / 1.0, np.full(kinds, 100.0), np.ones((kinds, 1), np.bool_)
    asked = ShareRequests(gpus, milli, cpus, memory_mib, fits)
    wanted, draws = chance.integers(0, kinds, count), chance.random((count, 2))

    def place(rule: int) -> None:
        beside = (np.zeros(nodes, np.int64), np.zeros((nodes, 9), np.int64), np.array([96.0, 8000.0]))
        free = (np.full((nodes, 8), 1000), np.full(nodes, 8), np.full(nodes, 96.0), np.full(nodes, 1e6))
        place_shares(wanted, asked, SharedNodes(*free, *beside), asked, np.full(kinds, 1 / kinds), rule, draws)

    print(f"\nParts of GPUs, {nodes} nodes of 8 GPUs, {count} requests of {kinds} kinds in one call\n")
    print("| placement | CPU us a request |\n| --- | --- |")
    for name, rule in RULES.items():
        took_s = least_s(partial(place, rule), rounds)
        print(f"| {name} | {took_s / count * 1e6:.1f} |")


def build(rounds: int) -> None:
    """What a table costs once."""
    print("\n| table of best sets | entries | made | read again |\n| --- | --- | --- | --- |")
    for name in ("dgx-1v", "dgx-2"):
        source = gpu_sets._Source.of(machines()[name], "smallest")
        made_s = least_s(lambda source=source: gpu_sets._made_table(source), 1)
        read_s = least_s(lambda source=source: gpu_sets._table.__wrapped__(source), rounds)
        entries = gpu_sets._made_table(source).best.size
        print(f"| {name} | {entries:,} | {made_s * 1e3:,.0f} ms | {read_s * 1e3:.1f} ms |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=1_000)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--plan-nodes", type=int, default=500)
    parser.add_argument("--plan-jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    load()
    in_cluster(options.nodes, options.gangs, options.rounds)
    few_cpus(options.plan_nodes // 2, options.rounds)
    time_node_lists(options.nodes, options.candidates, options.rounds)
    whole_plans(options.plan_nodes, options.plan_jobs, options.rounds)
    on_one_machine(options.rounds)
    parts(options.nodes, options.rounds)
    build(options.rounds)


if __name__ == "__main__":
    main()
