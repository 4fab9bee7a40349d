"""A site with a queue, for pictures of the pages: twelve nodes of eight GPUs, forty jobs that run, sixty that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.config_file import parse_config
from slurmsched.model import Operation, OperationStage, Purpose, Site, SiteTopology, Victim, frozen
from slurmsched.observe.web.frame import Frame
from slurmsched.planning.planner import Planner
from slurmsched.testing.builders import snapshot
from slurmsched.topology.gpu_links import machines

USERS = (("ann", "physics"), ("bob", "physics"), ("carol", "biology"), ("dave", "vision"), ("erin", "vision"),
         ("fay", "robotics"))  # fmt: skip
NAMES = ("train-llm", "finetune", "eval", "protein-fold", "segment", "sweep-7", "notebook")
GPUS_OF_NODE, NODES = 8, 12
NOW_S = 1_770_022_000.0


def picture_frame(now_s: float = NOW_S) -> Frame:
    """What the pages show of it at this time. The same for the same time."""
    chance = np.random.default_rng(int(now_s) // 600)
    jobs, held, used = _running(chance, now_s)
    jobs += [_waiting(chance, job, now_s) for job in range(5200, 5200 + _queue_length(now_s))]
    nodes = [_node(number, held=bool(used.get(f"gpu{number}", 0))) for number in range(1, NODES + 1)]
    wired = SiteTopology((machines()["dgx-1v"],), frozen([0] * NODES, np.int64))
    made = snapshot(jobs, nodes, topology=wired, allocations=held, now_s=now_s, site=Site("alpha", "26.05.5"),
                    partitions=[{"name": "gpu", "default": True, "max_time_s": 172_800.0}])  # fmt: skip
    taken = Operation("5203-1", Purpose.PREEMPT, 5203, now_s - 40, "erin", "gpu[2,10]", 60.0, now_s,
                      (Victim(5102, 0.0, 0, 4),), stage=OperationStage.WARNED)  # fmt: skip
    shown = replace(made, operations=(taken,))
    tree = parse_config({"scope": {"partitions": ["*"]}, "policy": {"name": "discretized-las"}})
    return Frame(shown, Planner.from_config(tree).plan(shown), "nice", "dry-run", "discretized-las")


def _running(
    chance: np.random.Generator, now_s: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """Jobs on nodes, the GPUs they hold there, and the mask of each node."""
    jobs, held, used = [], [], dict[str, int]()
    for job in range(5100, 5140):
        gpus, node = int(chance.choice((1, 2, 4, 8))), f"gpu{chance.integers(1, NODES)}"
        free = [index for index in range(GPUS_OF_NODE) if not used.get(node, 0) >> index & 1]
        if len(free) < gpus:
            continue
        mask = sum(1 << index for index in free[:gpus])
        used[node] = used.get(node, 0) | mask
        limit_s = float(chance.choice((43_200, 86_400, 172_800)))
        run_s = float(chance.integers(600, int(limit_s)))
        user, account = USERS[job % len(USERS)]
        jobs.append({
            "job_id": job, "user": user, "account": account, "name": NAMES[job % len(NAMES)], "gpus": gpus,
            "state": "RUNNING", "node_list": node, "run_s": run_s, "start_s": now_s - run_s, "cpus": 8 * gpus,
            "submit_s": now_s - run_s - 3_000, "time_limit_s": limit_s, "end_s": now_s - run_s + limit_s,
            "attained_gpu_s": run_s * gpus,
        })  # fmt: skip
        held.append({"job_id": job, "node": node, "gpu_type": "v100", "gpus": gpus, "gpu_mask": mask})
    return jobs, held, used


def _waiting(chance: np.random.Generator, job: int, now_s: float) -> dict[str, Any]:
    user, account = USERS[int(chance.integers(len(USERS)))]
    waits_s, expected_s = float(chance.integers(30, 90_000)), float(chance.integers(600, 60_000))
    gpus, limit_s = int(chance.choice((1, 1, 2, 4, 8, 16))), float(chance.choice((3_600, 43_200, 86_400)))
    return {
        "job_id": job, "user": user, "account": account, "name": NAMES[job % len(NAMES)], "gpus": gpus,
        "nodes": max(gpus // GPUS_OF_NODE, 1), "submit_s": now_s - waits_s, "waiting_s": waits_s,
        "time_limit_s": limit_s, "reason": str(chance.choice(("Priority", "Resources", "QOSMaxGRESPerUser"))),
        "expected_start_s": now_s + expected_s if job % 3 else float("nan"), "priority": 1_000,
        "attained_gpu_s": float(chance.choice((0.0, 0.0, 5_400.0, 40_000.0))),
    }  # fmt: skip


def _queue_length(now_s: float) -> int:
    """Longest in the morning, when people come to work."""
    return round(40 + 25 * np.sin((now_s - NOW_S) / 86_400 * 2 * np.pi + 1.0))


def _node(number: int, *, held: bool) -> dict[str, Any]:
    drained, full = number == NODES, number == 4
    return {
        "name": f"gpu{number}", "gpus": GPUS_OF_NODE, "gpu_types": "gpu:v100:8", "cpus": 128,
        "cpus_used": 128 if full else 0, "memory_mib": 1_000_000.0, "reason": "fan" if drained else "",
        "state": "IDLE+DRAIN" if drained else "MIXED" if held else "IDLE",
    }  # fmt: skip
