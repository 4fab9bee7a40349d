"""Placements of parts of GPUs: by hand, against a reference, and the laws that hold for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.kernels.gpu_share_fit import SharedNodes, ShareRequests, place_shares
from slurmsched.model import Ranking, Snapshot
from slurmsched.placements.gpu_shares import FragmentationGradient
from slurmsched.testing import check_placement, snapshot
from tests.reference import gpu_shares as reference

NAMES = ("dot-product", "fgd", "gpu-clustering", "gpu-packing", "share-best-fit", "share-random")


def asks(job_id: int, milli: int, gpus: int = 1, **others: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "gpu_request": "gpu", "gpu_milli": milli, **others}


def site(
    *jobs: dict[str, Any], held: tuple[tuple[int, str, int, int], ...] = (), nodes: Any = "1x2", **others: Any
) -> Snapshot:
    """held: job id, node, mask and part of running jobs."""
    runs = [asks(job, milli, mask.bit_count(), state="RUNNING") for job, _, mask, milli in held]
    rows = [{"job_id": job, "node": node, "gpus": mask.bit_count(), "gpu_mask": mask} for job, node, mask, _ in held]
    return snapshot([*runs, *jobs], nodes, allocations=rows, **others)


def placed(name: str, at: Snapshot, **parameters: float) -> dict[int, tuple[str, int]]:
    """Node and mask of each waiting job that got some."""
    made = registry.make_plugin("placements", name, parameters, key="placement").place(
        at, Ranking(np.arange(len(at.jobs)))
    )
    pending = [(row, k) for row, k in zip(made.rows.tolist(), made.first.tolist(), strict=True) if at.jobs.pending[row]]
    return {int(at.jobs.job_id[row]): (at.nodes.name[made.node[k]], int(made.gpu_mask[k])) for row, k in pending}


@pytest.mark.parametrize("name", NAMES)
def test_placement__keeps_the_laws(name: str) -> None:
    """Whole GPUs as every placement."""
    check_placement(registry.make_plugin("placements", name, key="placement"))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"share-random"}))
def test_placement__fills_the_gpu_in_use(name: str) -> None:
    """GPU 1 has 0.7 free: a job of 0.7 goes there, the next gets the free GPU, and a third waits."""
    at = site(asks(10, 700), asks(11, 700), asks(12, 1000), held=((1, "n1", 2, 300),))
    assert placed(name, at) == {10: ("n1", 2), 11: ("n1", 1)}


def test_gpu_clustering__keeps_sizes_apart() -> None:
    """The job of 2 GPUs goes to the emptier node, where another of 2 runs; the part to the one with parts."""
    held = ((1, "n1", 0b11, 1000), (2, "n2", 0b1, 500), (3, "n2", 0b10, 900), (4, "n2", 0b100, 900))
    at = site(asks(10, 1000, 2), asks(11, 400), nodes="2x8", held=held)
    assert placed("gpu-clustering", at) == {10: ("n1", 0b1100), 11: ("n2", 0b1)}


@pytest.mark.parametrize("limit", ["cpus", "memory_mib"])
@pytest.mark.parametrize("name", NAMES)
def test_placement__heeds_what_other_nodes_do_not_count(name: str, limit: str) -> None:
    """The first node holds one of the jobs; the second does not count the limit, and has one GPU."""
    nodes = [{"name": "n1", "gpus": 4, limit: 8}, {"name": "n2", "gpus": 1, limit: 0}]
    found = placed(name, site(*(asks(job, 1000, **{limit: 8}) for job in range(4)), nodes=nodes))
    assert sorted(node for node, _ in found.values()) == ["n1", "n2"]


def test_fgd__looks_for_use_and_gpu_packing_for_gpus_in_use() -> None:
    """n2 has no CPUs left for the jobs of partition a, and n3 none of them may have: their GPUs are of no use to most.
    Those in use, and their neighbours, are of n1, of which Slurm counts no CPUs."""
    nodes = [{"name": "n1", "gpus": 2, "partitions": "a", "cpus": 0},
             {"name": "n2", "gpus": 2, "partitions": "a", "cpus": 8, "cpus_used": 8},
             {"name": "n3", "gpus": 2, "partitions": "b", "cpus": 64}]  # fmt: skip
    first = (asks(10, 500, partition="a"), asks(11, 1000, partition="a,b", cpus=8))
    most = (asks(job, 500 + 500 * (job % 2), partition="a", cpus=8) for job in range(20, 32))
    tables = [{"name": name, "nodes": 1} for name in ("a", "b")]
    at = site(*first, *most, held=((1, "n1", 1, 500),), nodes=nodes, partitions=tables)
    found = {name: [placed(name, at)[job] for job in (10, 11)] for name in ("fgd", "gpu-packing")}
    assert found == {"fgd": [("n2", 1), ("n3", 1)], "gpu-packing": [("n1", 1), ("n1", 2)]}


GANGS = [asks(job, 1000, 4, nodes=2, state="RUNNING") for job in range(30, 34)]
USERS = [asks(job, 1000, account=f"a{job % 10}") for job in range(20, 26)]


@pytest.mark.parametrize(
    "others", [[*GANGS, *USERS[:2]], [*USERS, *(asks(job, 300, account="a0") for job in range(40, 44))]]
)
def test_fgd__counts_kinds_by_what_one_node_has_to_give(others: list[dict[str, Any]]) -> None:
    """Neither gangs on several nodes nor the accounts of jobs hide that whole GPUs are asked for most."""
    allowed = {"name": "gpu", "nodes": 3, "node_list": "n1,n2,n3", "allow_accounts": "a0,a1,a2,a3,a4,a5"}
    at = site(asks(10, 700, account="a0"), *others, nodes="3x2", held=((1, "n1", 2, 300),), partitions=[allowed])
    assert placed("fgd", at, typical_pct=30)[10] == ("n1", 2)


def test_fgd__refuses_a_share_above_all() -> None:
    """typical_pct is a share of the requests."""
    with pytest.raises(ConfigError, match="at most 100"):
        FragmentationGradient(typical_pct=101)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_place_shares__agrees_with_reference(seed: int, rule: int) -> None:
    """Every choice, and what is free and fragments after each; no GPU is given beyond what it has."""
    chance = np.random.default_rng(seed)
    gpus = chance.integers(1, 5, 6)
    free, cpus = np.where(np.arange(4) < gpus[:, None], 1000, 0), chance.integers(4, 17, 6) / 1.0
    cpus[0] *= chance.integers(1, 9)  # more than the largest: not counted
    beside = (np.full(6, 9.0), chance.integers(0, 2, 6), np.zeros((6, 5), np.int64), np.array([16.0, 4000.0]))
    nodes = SharedNodes(free, gpus, cpus, *beside)
    asked = chance.integers(0, 3, 5)
    milli = np.where(asked == 1, chance.choice([300, 500, 700, 1000], 5), 1000)
    kinds = ShareRequests(asked, milli, chance.integers(0, 5, 5) / 1.0, chance.integers(0, 3, 5) / 1.0,
                          chance.random((5, 2)) < 0.8)  # fmt: skip
    weight, wanted, draws = np.full(5, 0.2), chance.integers(0, 5, 25), chance.random((25, 2))
    expected = reference.place_shares(wanted, kinds, nodes, weight, rule, draws)
    node, mask, free, fragments = place_shares(wanted, kinds, nodes, kinds, weight, rule, draws)
    assert [one[:3] for one in expected] == list(zip(node.tolist(), mask.tolist(), free.tolist(), strict=True))
    assert [one[3] for one in expected] == pytest.approx(fragments.tolist())
    assert nodes.free.min() >= 0
