"""The kernels that pick GPUs as slurmctld does, on a fixed set of small nodes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from slurmsched.kernels import slurm_gpu_pick
from tests.reference import slurm_pick as reference

PICKS = ("pick_per_node", "pick_per_job", "pick_per_task", "pick_per_socket")


def states(seed: int, count: int) -> list[tuple[Any, ...]]:
    """Free GPUs of a node, their sockets and links, whether those are read, the job's cores, its GPUs, its bond."""
    chance, made = np.random.default_rng(seed), []
    for _ in range(count):
        gpus = int(chance.integers(2, 9))
        links = np.triu(chance.integers(0, 10, (gpus, gpus)), 1).astype(np.int32)
        links += links.T - np.eye(gpus, dtype=np.int32)
        socket = chance.integers(-1, 2, gpus).astype(np.int32)
        cores = np.array([(1, 0), (0, 1), (1, 1), (2, 6), (5, 3)][chance.integers(5)], np.int32)
        free, (linked, bound) = chance.random(gpus) < 0.6, (chance.random(2) < 0.5).tolist()
        made.append((free, socket, links, linked, cores, int(chance.integers(1, gpus + 1)), bound))
    return made


@pytest.mark.parametrize("name", [*PICKS, *(f"old_{name}" for name in PICKS)])
def test_pick__agrees_with_reference(name: str) -> None:
    """Every form of request, since 24.05 and before: the same GPUs."""
    for state in states(1, 200):
        assert getattr(slurm_gpu_pick, name)(*state).tolist() == getattr(reference, name)(*state), state


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("per_job", [False, True])
def test_picked__reads_gres_conf_in_its_order(per_job: bool, old: bool) -> None:
    """The mask of each state is what the pick gives on GPUs renamed to their indices."""
    pick = getattr(reference, ("old_" if old else "") + ("pick_per_job" if per_job else "pick_per_node"))
    for place, (free, socket, links, linked, cores, need, _) in enumerate(states(2, 40)):
        order = np.random.default_rng(place).permutation(free.size).astype(np.int32)
        got = pick(free[order], socket[order], links[np.ix_(order, order)], linked, cores, need, False)
        mask = sum(1 << int(gpu) for gpu, given in zip(order, got, strict=True) if given)
        held = np.array([(free << np.arange(free.size)).sum()], np.int64)
        each = np.array([need], np.int64), np.array([cores])
        made = slurm_gpu_pick.picked(held, *each, socket, links, linked, order, per_job, old, False)
        assert made.tolist() == [mask]


def test_share_of__is_in_floats_or_doubles() -> None:
    """The two ways differ for some counts of cores, by one GPU at most."""
    shares = {(c, n, t): [slurm_gpu_pick.share_of(c, n, t, double) for double in (False, True)]
              for t in range(1, 65) for c in range(1, t + 1) for n in (4, 8)}  # fmt: skip
    assert all(abs(single - double) <= 1 for single, double in shares.values())
    assert any(single != double for single, double in shares.values())


def test_most_good_seeds__tries_all_orders() -> None:
    """As many states as the best of all permutations meets."""
    chance = np.random.default_rng(3)
    for gpus in (1, 2, 3, 4, 4, 4):
        starts, good = chance.integers(0, 1 << gpus, (2, 6))
        met = [sum(good[t] >> next((g for g in order if starts[t] >> g & 1), 60) & 1 for t in range(6))
               for order in permutations(range(gpus))]  # fmt: skip
        assert slurm_gpu_pick.most_good_seeds(starts, good, gpus) == max(met)
