"""Cells: a job of a tenant within its share is never kept waiting, whatever runs beside it; gangs lie near."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from slurmsched.model import Labels, Ranking, frozen
from slurmsched.model.gpu_topology import Fabric, GpuTopology, LinkKind, SiteTopology
from slurmsched.placements.cells import CellPlacement
from slurmsched.testing import snapshot

LEVELS = {"node": 4, "socket": 2}  # GPUs of a cell
RUNS, STEPS = 1_000, 4


def two_sockets() -> GpuTopology:
    """Four GPUs, two on each socket."""
    half = np.arange(4) // 2
    kind = np.where(half[:, None] == half, LinkKind.PHB, LinkKind.SYS).astype(np.int8)
    np.fill_diagonal(kind, 0)
    return GpuTopology.build("m", 4, kind=kind, numa=half)


MACHINE = two_sockets()


class Churn:
    """A cluster of a few nodes on which jobs of tenants and of guests come and go. A tenant's job is a whole cell."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes = int(self.draw.integers(2, 4))
        self.shares = self._shares()
        self.placement = CellPlacement(self.shares)
        self.topology = SiteTopology((MACHINE,), frozen([0] * self.nodes, np.int64))
        self.running: dict[int, tuple[str, int, list[tuple[int, int]]]] = {}  # account, GPUs, node and mask
        self.count = 0

    def _shares(self) -> dict[str, dict[str, int]]:
        """Shares that fill the cluster, or less: some nodes whole, of others their sockets."""
        found: dict[str, dict[str, int]] = {}
        for _at in range(self.nodes):
            whole = self.draw.random() < 0.5
            for _ in range(1 if whole else 2):
                account = f"t{self.draw.integers(0, 3)}" if self.draw.random() < 0.9 else ""
                level = "node" if whole else "socket"
                if account:
                    found.setdefault(account, {}).setdefault(level, 0)
                    found[account][level] += 1
        return found

    def step(self) -> bool:
        """Some jobs end, some come; whether every tenant's job is placed."""
        for job in [job for job in self.running if self.draw.random() < 0.4]:
            del self.running[job]
        coming = [("guest", int(self.draw.integers(1, 3))) for _ in range(self.draw.integers(1, 2 * self.nodes))]
        coming += list(self._within_share())
        rows, held, wanted = [], [], set()
        for job, (account, gpus, places) in self.running.items():
            rows.append({"job_id": job, "gpus": gpus, "state": "RUNNING", "account": account, "gpu_request": "gpu"})
            held += [
                {"job_id": job, "node": f"n{n + 1}", "gpus": mask.bit_count(), "gpu_mask": mask} for n, mask in places
            ]
        for account, gpus in coming:
            self.count += 1
            rows.append({"job_id": self.count, "gpus": gpus, "gpu_request": "gpu", "account": account})
            wanted |= {self.count} if account != "guest" else set()
        given = snapshot(rows, f"{self.nodes}x4", allocations=held, topology=self.topology)
        made = self.placement.place(given, Ranking(self.draw.permutation(len(rows))))
        ids = given.jobs.job_id[made.rows].tolist()
        got = {job: [(int(made.node[k]), int(made.gpu_mask[k])) for k in range(a, a + n)]
               for job, a, n in zip(ids, made.first.tolist(), made.count.tolist(), strict=True)}  # fmt: skip
        of = {row["job_id"]: row for row in rows}
        kept = {job for job, (account, _, _) in self.running.items() if account != "guest"}
        self.running = {job: (of[job]["account"], of[job]["gpus"], places) for job, places in sorted(got.items())}
        return wanted | kept <= set(got)

    def _within_share(self) -> Iterator[tuple[str, int]]:
        """Jobs of whole cells of which the tenant has some that no job of its is in."""
        for account, share in self.shares.items():
            for level, cells in share.items():
                used = sum(1 for of, gpus, _ in self.running.values() if of == account and gpus == LEVELS[level])
                for _ in range(cells - used):
                    if self.draw.random() < 0.5:
                        yield account, LEVELS[level]


def test_cells__the_guarantee_holds_under_any_churn() -> None:
    """HiveD, OSDI '20, section 3: a tenant gets the cells of its share as in a cluster of its own."""
    breaches = []
    for seed in range(RUNS):
        churn = Churn(seed)
        breaches += [seed] * (not all(churn.step() for _ in range(STEPS)))
    assert breaches == []


def leaves_site(draw: np.random.Generator) -> tuple[SiteTopology, list[int], list[int]]:
    """Five to nine nodes on some leaves under one or two spines; the leaf of each node, the spine of each leaf."""
    nodes, leaves, spines = (int(draw.integers(*span)) for span in ((5, 10), (3, 5), (1, 3)))
    leaf, spine = draw.integers(0, leaves, nodes).tolist(), draw.integers(0, spines, leaves).tolist()
    level, parent = [2] * spines + [1] * leaves, [-1] * spines + spine
    names = Labels.of([f"c{i}" for i in range(spines + leaves)])
    fabric = Fabric("tree", names, frozen(level, np.int8), frozen(parent, np.int32))
    cell = frozen([spines + one for one in leaf], np.int64)
    return SiteTopology((MACHINE,), frozen([0] * nodes, np.int64), fabric, cell), leaf, spine


@pytest.mark.parametrize("shares", [{}, {"x": {"node": 9}}])
def test_cells__a_gang_lies_on_the_fewest_leaves(shares) -> None:
    """Of all sets of nodes that hold it: the lowest level, and on that the fewest leaves; by trying all."""
    placement, found, expected = CellPlacement(shares), [], []
    for seed in range(300):
        draw = np.random.default_rng(seed)
        topology, leaf, spine = leaves_site(draw)
        used = draw.choice(5, len(leaf), p=[0.4, 0.1, 0.2, 0.1, 0.2]).tolist()
        count, gpus = int(draw.integers(2, 5)), int(draw.integers(5, 13))
        rows = [{"job_id": 99, "gpus": gpus, "nodes": count, "gpu_request": "gpu", "account": "x"}]
        held = []
        for at, some in enumerate(used):
            rows += [{"job_id": at + 1, "gpus": some, "state": "RUNNING", "account": "guest"}] * (some > 0)
            held += [{"job_id": at + 1, "node": f"n{at + 1}", "gpus": some, "gpu_mask": (1 << some) - 1}] * (some > 0)
        given = snapshot(rows, f"{len(leaf)}x4", allocations=held, topology=topology)
        last = int(np.flatnonzero(given.jobs.job_id == 99)[0])
        made = placement.place(given, Ranking(np.append(np.delete(np.arange(len(rows)), last), last)))
        if last not in made.rows or len(made.rows) < len(rows):
            continue  # it waits, or a guest made way for it
        k = int(np.flatnonzero(made.rows == last)[0])
        entries = slice(int(made.first[k]), int(made.first[k] + made.count[k]))
        takes = sorted(made.gpus[entries].tolist())

        def spread(nodes: tuple[int, ...], leaf=leaf, spine=spine) -> tuple[int, int]:
            on = {leaf[n] for n in nodes}
            return 1 if len(on) == 1 else 2 if len({spine[one] for one in on}) == 1 else 3, len(on)

        room = [4 - some for some in used]
        fits = [nodes for nodes in combinations(range(len(leaf)), len(takes))
                if all(map(int.__ge__, sorted(room[n] for n in nodes), takes))]  # fmt: skip
        found.append(spread(tuple(made.node[entries].tolist())))
        expected.append(min(map(spread, fits)))
    assert found == expected
    assert len(found) > 100
