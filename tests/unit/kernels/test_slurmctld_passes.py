"""slurmctld's passes on a fixed set of small clusters, and what a try of backfill takes to be gone."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import numpy as np
import pytest

from slurmsched.kernels.backfill_slots import Runs, ready_nodes
from slurmsched.kernels.slurmctld_nodes import NodeOrder, NodeRequest
from slurmsched.kernels.slurmctld_passes import BackfillRules, future_start, runs_until_fit
from slurmsched.model.columns import Int64s
from tests.unit.kernels.pass_cases import check_backfill_pass, check_main_pass, check_pick_nodes, scene_of

ALIKE_SCENES = 100


def start_of(on: Int64s, *, nodes: int, gpus: int, from_s: float, last_of_all: bool = False) -> tuple[float, list[int]]:
    """When a job of one node could start, and where, if jobs of as many GPUs end at 60 and 70 on the nodes `on`."""
    free, mask, chosen = np.zeros((3, nodes), np.int64), np.ones(nodes, np.bool_), np.zeros(nodes, np.int64)
    need = np.array([gpus, 0, 0])
    runs = Runs(np.array([60.0, 70.0]), np.arange(2), np.arange(2), np.ones(2, np.int64), on, np.tile(need, (2, 1)))
    ready, by_ready = np.empty((1, nodes), np.int64), np.empty((1, nodes), np.int64)
    able = np.array([ready_nodes(free, need, runs, 2, ready[0], by_ready[0])])
    order = NodeOrder(False, np.zeros(nodes, np.int64))
    rules = BackfillRules(0.0, np.inf, 0.0, 0.0, 9, 9, 9, 9, np.zeros(3, np.int64), order, last_of_all)
    to_go = runs_until_fit(ready, by_ready, able, mask, 1, 0, 0)
    request = NodeRequest(1, need, need, False)
    start = future_start(rules, free, runs, 2, to_go, ready[0], ready[0], mask, request, chosen, from_s, np.inf)
    return start, chosen.tolist()


@pytest.mark.parametrize(("from_s", "start"), [(59.0, 70.0), (60.0, 60.0), (61.0, 61.0)])
def test_future_start__what_ends_by_the_time_of_the_try_is_gone_at_once(from_s: float, start: float) -> None:
    """Jobs of 4 GPUs end at 60 and at 70, within one window; who needs 4 has them at 60 if the try is of then."""
    found, _ = start_of(np.array([0, 0]), nodes=1, gpus=4, from_s=from_s)
    assert found == start


@pytest.mark.parametrize(("last_of_all", "start"), [(False, 60.0), (True, 70.0)])
def test_future_start__is_the_end_of_the_last_job_on_the_nodes_it_gets(last_of_all: bool, start: float) -> None:
    """Jobs end at 60 on the first node and at 70 on the second, within one window; who needs one of the two is given
    the first, since 26.05 at 60, before that when both are gone."""
    found, chosen = start_of(np.array([0, 1]), nodes=2, gpus=8, from_s=0.0, last_of_all=last_of_all)
    assert (found, chosen) == (start, [1, 0])


def test_passes__agree_with_reference_on_fixed_scenes() -> None:
    """A main pass and a backfill pass start the same jobs on the same nodes, and one job gets the same nodes.

    The last two reach what none before does: a pass that ends after its last try, and a try on enough nodes that takes
    too long, with another one after it.
    """
    for seed in (*range(301), 356, 1_959):
        chance = Random(seed)
        scene, shortest, last_of_all = scene_of(chance), chance.random() < 0.5, chance.random() < 0.5
        check_pick_nodes(deepcopy(scene), shortest)
        check_main_pass(deepcopy(scene), chance.randint(0, 5), shortest)
        most, most_of_array, most_records, most_tested = (chance.randint(1, at_most) for at_most in (7, 3, 3, 7))
        most_of_group = tuple(chance.randint(0, 3) for _ in range(3))
        check_backfill_pass(
            scene, chance.choice([0.0, 60.0]), most, most_of_array, most_records, most_tested, most_of_group, shortest,
            last_of_all,
        )  # fmt: skip


def test_backfill_pass__jobs_alike_agree_with_reference_on_fixed_scenes() -> None:
    """A job that is not tried before one like it could start gets what it gets where it is tried from now on.

    The last three reach what none before does: a start that moves others, and jobs that get no reservation.
    """
    for seed in (*range(ALIKE_SCENES), 1_497, 2_742, 5_372):
        chance = Random(seed)
        scene, step, most_tested = scene_of(chance, alike=True), chance.choice([0.0, 60.0]), chance.randint(3, 12)
        check_backfill_pass(scene, step, 7, 3, 30, most_tested, (0, 0, 0), False, chance.random() < 0.5)


@pytest.mark.parametrize(("pool", "runs", "block", "window_end"), [
    ({0, 1}, (90.0, {1: [4, 0, 0]}), (40.5, 100.5, {0}), 600.0),  # the guess is 101, when the first node is open again
    ({1}, (615.0, {1: [4, 0, 0]}), (500.0, 700.0, {1}), 610.0),  # the guess is after the window, on a closed node
])  # fmt: skip
def test_backfill_pass__a_guess_that_is_too_late_is_no_reservation(
    pool: set[int], runs: tuple[float, dict[int, list[int]]], block: tuple[float, float, set[int]], window_end: float
) -> None:
    """A job that could start only when another one has ended is tried again later, or not at all."""
    job = {
        "part": 0, "nodes": 1, "need": [4, 0, 0], "last": [4, 0, 0], "bound": False, "array": 0, "limits": {},
        "pool": pool, "limit_s": 60.0, "counts": {}, "throttle": "", "group": [0, 0, 0], "reserves": True,
        "least_loaded": False, "job": 0,
    }  # fmt: skip
    scene = {
        "free": [[4, 8, 9], [0, 8, 9], [4, 8, 9]], "completing": set(), "runs": [runs], "blocks": [block],
        "members": [{0, 1, 2}], "jobs": [job, job | {"pool": {2}, "job": 1}], "window_end": window_end,
        "room": {"a": 1.0, "b": 1.0}, "weight": [0, 0, 0],
    }  # fmt: skip
    check_backfill_pass(scene, 60.0, 7, 3, 9, 7, (0, 0, 0), False, False)
