"""Small clusters with a queue, and what slurmctld's passes and their twins make of them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from slurmsched.kernels.slurmctld_nodes import NodeOrder, NodeRequest, pick_nodes
from slurmsched.kernels.slurmctld_passes import (
    BackfillRules,
    ClosedTimes,
    PassNodes,
    PassPartitions,
    QueuedJobs,
    RunningJobs,
    any_fits,
    backfill_pass,
    main_pass,
)
from tests.reference import slurm_passes as naive

NOW = 100.0
LIMITS = ("a", "b")
Scene = dict[str, Any]


def scene_of(chance: Random, alike: bool = False) -> Scene:
    """A few nodes, running jobs on them, closed times, and a queue. alike: jobs ask for the same but for time."""
    width, kinds = chance.randint(1, 6), chance.randint(3, 4)

    def flag() -> bool:
        return bool(chance.randint(0, 1))

    def amounts(*most: int) -> list[int]:
        return [chance.randint(0, each) for each in most[:kinds]]

    def some_nodes() -> set[int]:
        return {n for n in range(width) if flag()} or {chance.randint(0, width - 1)}

    runs = [
        (
            chance.choice([90.0, 110.0, 130.0, 175.0, 400.0, 615.0, np.inf]),
            {n: amounts(4, 8, 9, 8) for n in sorted(some_nodes())},
        )
        for _ in range(chance.randint(0, 4))
    ]
    members, jobs = [some_nodes() for _ in range(2)], list[dict[str, Any]]()
    for _ in range(chance.randint(1, 7)):
        part, need, bound, array = chance.randint(0, 1), amounts(4, 5, 5, 5), flag(), chance.choice([0, 0, 7])
        limits = {name: 1.0 for name in LIMITS if flag() and flag()}
        jobs.append({
            "part": part, "nodes": chance.randint(1, 3), "need": need, "bound": bound, "array": array, "limits": limits,
            "last": [need[0] // 2, *need[1:]] if flag() else need,
            "pool": members[part] & some_nodes() if bound else members[part],
            "limit_s": chance.choice([20.0, 45.0, 60.0, 300.0, np.inf]),
            "counts": {name: 1.0 for name in LIMITS if flag()},
            "throttle": chance.choice(["", "a"]) if array and "a" in limits else "",
            "group": [chance.randint(0, 1), part, chance.randint(0, 3)],
            "reserves": chance.choice([True, True, False]),
            "least_loaded": chance.choice([False, False, True]),
            "job": chance.choice(sorted({each["job"] for each in jobs} | {len(jobs)})),
        })  # fmt: skip
    if alike:
        return _crowded(scene_of(chance), chance)
    return {
        "free": [amounts(4, 8, 9, 8) for _ in range(width)],
        "completing": some_nodes() if flag() else set(),
        "runs": runs,
        "blocks": [(begin, begin + 60.0, some_nodes()) for begin in (40.5, 80.0, 150.0) if flag()],
        "members": members,
        "jobs": jobs,
        "window_end": NOW + chance.choice([500.0, 510.0]),
        "room": {name: float(chance.randint(0, 3)) for name in LIMITS},
        "weight": [chance.randint(0, 1) for _ in range(width)],
    }


def _crowded(scene: Scene, chance: Random) -> Scene:
    """The scene with few free GPUs, more that runs, and a dozen jobs that ask for one of two things but for time. The
    lesser one may start at once, where the reservations of the others leave room."""
    width, kinds = len(scene["free"]), len(scene["free"][0])
    needs = [[gpus, *[1] * (kinds - 1)] for gpus in (chance.randint(2, 3), 1)]
    one = {"array": 0, "limits": {}, "counts": {}, "throttle": "", "group": [0, 0, 0], "bound": False}
    jobs = list[dict[str, Any]]()
    for k in range(12):
        job, need = scene["jobs"][0], needs[0 if k < 9 else 1]
        jobs.append(job | one | {
            "need": need, "last": need, "job": k, "reserves": chance.random() < 0.9,
            "limit_s": chance.choice([20.0, 60.0, 110.0, 120.0, 300.0, 600.0]),
        })  # fmt: skip
    return scene | {
        "free": [[chance.choice([0, 1, 1]), *[20] * (kinds - 1)] for _ in range(width)],
        "runs": [(float(chance.choice([90, 110, *range(130, 1_100, 10)])), {n: needs[0]})
                 for n in range(width) for _ in range(2)],
        "jobs": jobs,
        "window_end": NOW + chance.choice([500.0, 1_200.0]),
    }  # fmt: skip


def columns(scene: Scene) -> dict[str, Any]:
    """The scene as the kernels take it."""
    jobs, width = scene["jobs"], len(scene["free"])
    pools = sorted({tuple(sorted(job["pool"])) for job in jobs})

    def masks(sets: list[set[int]]) -> np.ndarray:
        return np.array([[n in chosen for n in range(width)] for chosen in sets], np.bool_).reshape(-1, width)

    return {
        "free": np.array(scene["free"], np.int64).T.copy(),
        "usable": masks([set(pool) for pool in pools]),
        "pool": np.array([pools.index(tuple(sorted(job["pool"]))) for job in jobs]),
        "members": masks(scene["members"]),
        "part": np.array([job["part"] for job in jobs]),
        "nodes": np.array([job["nodes"] for job in jobs]),
        "need": np.array([job["need"] for job in jobs]),
        "last": np.array([job["last"] for job in jobs]),
        "bound": np.array([job["bound"] for job in jobs]),
        "failed": np.zeros(len(scene["members"]), np.bool_),
        "limit_s": np.array([job["limit_s"] for job in jobs]),
        "array": np.array([job["array"] for job in jobs]),
        "limit": np.array([[_row(job, name, k) for k, name in enumerate(LIMITS)] for job in jobs]),
        "throttle": np.array([LIMITS.index(job["throttle"]) if job["throttle"] else -1 for job in jobs]),
        "group": np.array([job["group"] for job in jobs]),
        "reserves": np.array([job["reserves"] for job in jobs]),
        "least_loaded": np.array([job["least_loaded"] for job in jobs]),
        "job": np.array([job["job"] for job in jobs]),
        "amount": np.ones((len(jobs), len(LIMITS))),
        "room": np.array([scene["room"][name] for name in LIMITS]),
        "block": np.array([block[:2] for block in scene["blocks"]], np.float64).reshape(-1, 2),
        "completing": masks([scene["completing"]])[0],
        "blocked": masks([block[2] for block in scene["blocks"]]),
    }


def node_order(order: naive.Order) -> NodeOrder:
    """As the kernels take it."""
    return NodeOrder(order[0], np.array(order[1], np.int64))


def _of(kind: Any, columns: dict[str, Any]) -> Any:
    """The named tuple of these columns."""
    return kind(*(columns[name] for name in kind._fields))


def _row(job: dict[str, Any], name: str, row: int) -> int:
    """How LimitTable.of_job has it: the row, -2 - row where the job only counts, -1 where it does not."""
    return row if name in job["limits"] else -2 - row if name in job["counts"] else -1


def chosen(given: np.ndarray, jobs: int) -> list[dict[int, int]]:
    """Node -> kind for every job, as the naive twin gives them."""
    made: list[dict[int, int]] = [{} for _ in range(jobs)]
    for job, node, kind in given.tolist():
        made[job][node] = kind
    return made


def check_pick_nodes(scene: Scene, shortest: bool) -> None:
    """The same nodes, or none."""
    c, taken, order = columns(scene), np.zeros(len(scene["free"]), np.int64), (shortest, scene["weight"])
    for j, job in enumerate(scene["jobs"]):
        request = NodeRequest(job["nodes"], c["need"][j], c["last"][j], job["least_loaded"])
        fits = pick_nodes(c["free"], c["usable"][c["pool"][j]], request, node_order(order), taken)
        assert ({n: int(k) for n, k in enumerate(taken) if k} if fits else None) == naive.pick(
            scene["free"], job["pool"], job, order
        )


def check_main_pass(scene: Scene, depth: int, shortest: bool) -> None:
    """The same jobs start on the same nodes."""
    c, order = columns(scene), (shortest, scene["weight"])
    taken = main_pass(
        _of(PassNodes, c), np.ones(len(scene["free"]), np.bool_), _of(PassPartitions, c),
        ClosedTimes(c["block"], c["blocked"]), _of(QueuedJobs, c), c["room"], depth, NOW, node_order(order),
    )  # fmt: skip
    expected = naive.main_pass(
        scene["free"],
        scene["jobs"],
        scene["members"],
        scene["room"],
        depth,
        NOW,
        scene["blocks"],
        scene["completing"],
        order,
    )
    assert chosen(taken, len(scene["jobs"])) == expected


def check_backfill_pass(
    scene: Scene, step: float, most: int, most_of_array: int, most_records: int, most_tested: int,
    most_of_group: tuple[int, ...], shortest: bool, last_of_all: bool,
) -> None:  # fmt: skip
    """The same jobs start on the same nodes, also where a part of the queue settles it; none where none fits."""
    order = shortest, scene["weight"]
    c, runs = columns(scene), sorted(scene["runs"], key=lambda run: run[0])
    count = np.array([len(held) for _, held in runs], np.int64)
    node = np.array([n for _, held in runs for n in held], np.int64)
    held = np.array([share for _, held in runs for share in held.values()], np.int64).reshape(-1, len(scene["free"][0]))
    rules = BackfillRules(NOW, scene["window_end"], step, 0.0, most, most_of_array, most_records, most_tested,
                          np.array(most_of_group, np.int64), node_order(order), last_of_all)  # fmt: skip
    running = RunningJobs(np.array([end for end, _ in runs], np.float64), np.cumsum(count) - count, count, node, held)

    def made(walked: int) -> tuple[np.ndarray, bool]:
        now = {**c, "free": c["free"].copy()}
        return backfill_pass(rules, _of(PassNodes, now), running, ClosedTimes(c["block"], c["blocked"]),
                             _of(QueuedJobs, c), walked, c["room"].copy())  # fmt: skip

    taken, settled = made(len(scene["jobs"]))
    assert settled
    parts = [made(walked) for walked in range(len(scene["jobs"]))]
    assert all(part.tolist() == taken.tolist() for part, settled in parts if settled)
    fits = any_fits(_of(PassNodes, c), c["pool"], c["nodes"], c["last"])
    assert fits or not len(taken)
    twin = naive.Backfill(NOW, scene["window_end"], step, scene["free"], scene["runs"], scene["blocks"],
                          scene["completing"], order, last_of_all)  # fmt: skip
    assert chosen(taken, len(scene["jobs"])) == twin.starts(
        scene["jobs"], scene["room"], most, most_of_array, most_records, most_tested, most_of_group
    )
