"""Best sets and rings of machines in wide use, against all sets and all rings."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from slurmsched.kernels.gpu_set_search import grown_set, ring_order, rings
from slurmsched.model.gpu_topology import GpuTopology, LinkKind
from slurmsched.resources import gpu_sets
from slurmsched.topology.gpu_links import machine, machines
from slurmsched.topology.topology_files import read_topology_text
from tests.reference import gpu_set_search as reference

SMALL = [one for one in machines().values() if one.gpus <= 8]
LARGE = machines()["dgx-2"]
SAMPLES = Path(__file__).parents[1] / "topology" / "samples"


def read_classes() -> list[GpuTopology]:
    """Every class of 2 to 8 GPUs that the sample files tell links of, those alike once."""
    readings = (read_topology_text(path.read_text(), name=path.stem) for path in sorted(SAMPLES.glob("0*")))
    classes = [one.topology for reading in readings for one in reading.classes]
    wired = [one for one in classes if one.known and 2 <= one.gpus <= 8]
    return list({gpu_sets._Source.of(one, "smallest"): one for one in wired}.values())


def keys(topology: GpuTopology, objective: str) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """Criteria and value of every set, by the twin."""
    weight, key, value = gpu_sets.link_weights(topology), {}, {}
    for mask in range(1 << topology.gpus):
        members = reference.bits(mask)
        smallest, total = reference.ring_value(weight, members, objective == "smallest")
        off = sum(not topology.on_fabric[g] for g in members) if len(members) > 1 else 0
        domains = len({int(topology.numa[g]) for g in members} - {-1})
        key[mask], value[mask] = (-off, smallest, total, -domains), total
    return key, value


@pytest.mark.parametrize("topology", SMALL, ids=lambda one: one.name)
@pytest.mark.parametrize("objective", gpu_sets.Objective.__args__)
def test_set_table__is_best_of_all_sets_and_rings(topology: GpuTopology, objective: gpu_sets.Objective) -> None:
    """Every free set and number of GPUs of every machine: the same set and worth as by trying all."""
    expected, worth = reference.best_sets(*keys(topology, objective), topology.gpus)
    table = gpu_sets.set_table(topology, objective)
    assert np.array_equal(expected, table.best)
    assert np.array_equal(worth, table.worth)


@pytest.mark.parametrize("topology", read_classes(), ids=lambda one: one.name)
def test_set_table__is_best_for_every_class_of_the_samples(topology: GpuTopology) -> None:
    """What real machines print: the table holds the sets that trying all sets and rings finds."""
    expected, worth = reference.best_sets(*keys(topology, "smallest"), topology.gpus)
    table = gpu_sets.set_table(topology)
    assert np.array_equal(expected, table.best)
    assert np.array_equal(worth, table.worth)


@pytest.mark.parametrize("topology", SMALL, ids=lambda one: one.name)
def test_ring__is_best_of_all_orders(topology: GpuTopology) -> None:
    """Smallest link, then sum, of every set's ring."""
    weight = gpu_sets.link_weights(topology)
    for mask in range(1, 1 << topology.gpus):
        members = reference.bits(mask)
        links = reference.ring_links(weight, gpu_sets.best_ring(topology, members)) if len(members) > 1 else [0]
        assert sorted(gpu_sets.best_ring(topology, members)) == list(members)
        assert reference.ring_value(weight, members) == (min(links), sum(links))


compiled = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="65,536 sets take minutes uncompiled")


@compiled
def test_set_table__of_sixteen_gpus() -> None:
    """All alike on the switch: what tells sets apart is the NUMA domains, so a quad of 0-7 is kept whole."""
    table, free = gpu_sets.set_table(LARGE), 0b1111_1110_0001_0001
    assert table.best.shape == (1 << 16, 17)
    assert table.best[free, 2] == 0b0001_0001
    for k in range(2, 8):
        got = reference.bits(int(table.best[free, k]))
        assert len({int(LARGE.numa[g]) for g in got}) == 1, k


@compiled
def test_ring__goes_through_a_torus_of_sixteen_gpus_without_a_slow_link() -> None:
    """A 4x4 torus has a ring over neighbours only; the order found is one."""
    at = [(r, c) for r in range(4) for c in range(4)]
    pairs = [(a, b) for a, b in itertools.combinations(range(16), 2) if _neighbours(at[a], at[b])]
    torus = machine("torus", (0,) * 16, {2: pairs}, lane_gb_per_s=25)
    order = gpu_sets.best_ring(torus, tuple(range(16)))
    lanes = [int(torus.lanes[a, b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    assert list(range(16)) == sorted(order)
    assert lanes == [2] * 16


def _neighbours(a: tuple[int, int], b: tuple[int, int]) -> bool:
    steps = sorted(min((x - y) % 4, (y - x) % 4) for x, y in zip(a, b, strict=True))
    return steps == [0, 1]


@pytest.mark.parametrize("topology", SMALL, ids=lambda one: one.name)
def test_set_table__of_unknown_bandwidths_goes_by_kind_and_lanes(topology: GpuTopology) -> None:
    """Where only a matrix was read and no GPU type, the best pair is the same as with bandwidths; as it is where the
    PCIe links alone are known."""
    full, pcie = (1 << topology.gpus) - 1, np.where(topology.lanes > 0, 0.0, topology.bandwidth_gb_per_s * 4)
    told = gpu_sets.set_table(topology).best[full, 2]
    for speed in (np.zeros_like(pcie), pcie):
        bare = GpuTopology.build(
            "bare",
            topology.gpus,
            kind=topology.kind,
            lanes=topology.lanes,
            numa=topology.numa,
            bandwidth_gb_per_s=speed,
        )
        assert gpu_sets.set_table(bare).best[full, 2] == told


def test_set_table__leaves_gpus_off_the_fabric_to_jobs_of_one_gpu() -> None:
    """GPU 0 is off: a pair avoids it, a single job takes it, since what stays free is then worth most."""
    whole = machines()["dgx-a100"]
    lanes, kind, speed = whole.lanes.copy(), whole.kind.copy(), whole.bandwidth_gb_per_s.copy()
    lanes[0, :] = lanes[:, 0] = 0
    kind[0, 1:] = kind[1:, 0] = LinkKind.SYS
    speed[0, 1:] = speed[1:, 0] = 8.0
    fallen = GpuTopology.build(
        "fallen", 8, kind=kind, lanes=lanes, bandwidth_gb_per_s=speed, numa=whole.numa, on_fabric=np.arange(8) > 0
    )
    table = gpu_sets.set_table(fallen)
    assert table.best[255, 1] == 0b1
    assert not any(int(table.best[255, k]) & 1 for k in range(2, 8))


def test_set_table__is_kept_on_disk_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process reads what the first made; a folder that cannot be written costs only time."""
    monkeypatch.setattr(gpu_sets, "cache_folder", lambda: tmp_path / "sets")
    gpu_sets._table.cache_clear()
    made = gpu_sets.set_table(machines()["summit"])
    gpu_sets._table.cache_clear()
    read = gpu_sets.set_table(machines()["summit"])
    assert isinstance(read.best, np.memmap)
    assert np.array_equal(made.best, read.best)
    (tmp_path / "file").touch()
    monkeypatch.setattr(gpu_sets, "cache_folder", lambda: tmp_path / "file" / "sets")
    gpu_sets._table.cache_clear()
    assert np.array_equal(made.worth, gpu_sets.set_table(machines()["summit"]).worth)


def test_set_table__a_damaged_file_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file cut short is not believed."""
    monkeypatch.setattr(gpu_sets, "cache_folder", lambda: tmp_path)
    gpu_sets._table.cache_clear()
    made = gpu_sets.set_table(machines()["summit"])
    for path in tmp_path.glob("*.npy"):
        path.write_bytes(path.read_bytes()[:40])
    gpu_sets._table.cache_clear()
    assert np.array_equal(made.best, gpu_sets.set_table(machines()["summit"]).best)


def test_grown_set__finds_an_island_of_a_large_class() -> None:
    """Of 24 GPUs in islands of 6, six free ones of one island are taken, GPUs off the fabric last."""
    island = np.arange(24) // 6
    weight = np.where(island[:, None] == island, 100, 10) * (1 - np.eye(24, dtype=np.int64))
    on_fabric = np.ones(24, np.bool_)
    free = 0b111111_111110_111000_000111
    assert grown_set(weight, on_fabric, free, 6) == 0b111111 << 18
    on_fabric[20] = False
    assert grown_set(weight, on_fabric, free, 5) == 0b11111 << 13
    assert grown_set(weight, on_fabric, 0b11, 3) == 0


def test_rings__count_a_pair_twice_and_a_gpu_as_nothing() -> None:
    """A ring of two goes over its link and back."""
    weight = np.array([[0, 7], [7, 0]])
    smallest, total = rings(weight, np.array([7]))
    assert (smallest.tolist(), total.tolist()) == ([0, 0, 0, 7], [0, 0, 0, 14])
    assert ring_order(weight, np.array([7])).tolist() == [0, 1]


def test_ring_order__without_a_ring_above_any_floor_is_that_of_the_numbers() -> None:
    """No link is as heavy as the floor."""
    assert ring_order(np.ones((4, 4), np.int64), np.array([7])).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(6))
def test_ring_order__is_the_best_of_all_orders(seed: int) -> None:
    """Its smallest link and its sum are those of the best ring."""
    drawn = np.random.default_rng(seed).choice([0, 1, 5, 9], (5, 5))
    weight = np.triu(drawn, 1) + np.triu(drawn, 1).T
    order = tuple(ring_order(weight, gpu_sets.link_floors(weight)).tolist())
    links = reference.ring_links(weight, order)
    assert (min(links), sum(links)) == reference.ring_value(weight, tuple(range(5)))
