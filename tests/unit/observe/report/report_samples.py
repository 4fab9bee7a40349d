"""Material of ten days on a cluster of 128 GPUs, half of them before slurmsched wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.db.ledger_queries import CycleSums, OperationFacts, PlacementFacts
from slurmsched.model.snapshot import Site
from slurmsched.observe.report.report_input import ReportInput, reported_jobs
from slurmsched.testing import snapshot

DAY_S = 86_400.0
SINCE_S = 1_770_000_000.0
USERS = {"ann": "physics", "bob": "physics", "<b>eve</b>": "biology"}


def material(**changed: Any) -> ReportInput:
    """Waits are 4 h before and 1 h with it; seeded, so that it is always the same."""
    chance, rows = np.random.default_rng(7), []
    for job in range(1, 301):
        submit_s = SINCE_S + chance.uniform(0, 9.5 * DAY_S)
        wait_s = (4 if submit_s < SINCE_S + 5 * DAY_S else 1) * 3_600.0 * chance.exponential()
        run_s, user = 3_600.0 * chance.exponential(4.0) + 60, list(USERS)[job % 3]
        rows.append({
            "job_id": job, "user": user, "account": USERS[user], "gpus": int(2 ** chance.integers(0, 5)),
            "submit_s": submit_s, "start_s": submit_s + wait_s, "held_s": submit_s + wait_s,
            "end_s": submit_s + wait_s + run_s if job < 290 else np.nan, "executed_s": run_s,
        })  # fmt: skip
    given = {
        "source": "sacct", "snapshot": now(), "switched_s": SINCE_S + 5 * DAY_S, "operations": OPERATIONS,
        "placements": PLACED,
        "cycles": CycleSums(cycles=9), "policy": "discretized-las",
    }  # fmt: skip
    return ReportInput(SINCE_S, SINCE_S + 10 * DAY_S, reported_jobs(rows), **(given | changed))  # type: ignore[arg-type]


def now() -> Any:
    """16 nodes of 8; n2's CPUs are taken by a job with two of its GPUs."""
    job = {"job_id": 900, "user": "<i>mallory", "state": "RUNNING", "gpus": 2, "cpus": 64, "node_list": "n2",
           "memory_mib": 2_048.0}  # fmt: skip
    late = {"job_id": 901, "user": "ann", "gpus": 16, "first_submit_s": SINCE_S + 8 * DAY_S}
    nodes = [{"name": f"n{i}", "gpus": 8, "gpu_types": "gpu:a100:8", "cpus": 64, "cpus_used": 64 * (i == 2)}
             for i in range(1, 17)]  # fmt: skip
    held = [{"job_id": 900, "node": "n2", "gpu_type": "a100", "gpus": 2, "gpu_mask": 3}]
    return snapshot([job, late], nodes, now_s=SINCE_S + 10 * DAY_S, allocations=held, site=Site(cluster="lab"))


def _operation(operation: str, purpose: str, lost_h: float, idle_h: float, *, dry_run: bool = False) -> OperationFacts:
    job_id, begun_s = int(operation.partition("-")[0]), SINCE_S + DAY_S
    return OperationFacts(
        id=1, seen_s=begun_s + 60, operation=operation, purpose=purpose, job_id=job_id, first_submit_s=SINCE_S,
        user="ann", gpus=8, nodes="n1", stage="closed", note="", victims=1, lost_gpu_s=3_600 * lost_h,
        idle_gpu_s=3_600 * idle_h, dry_run=dry_run, begun_s=begun_s,
    )  # fmt: skip


OPERATIONS = (
    _operation("7-1", "preempt", 2.5, 0.5),
    _operation("9-1", "reserve", 0, 3),
    _operation("8-1", "preempt", 7, 0, dry_run=True),
)
PLACED = tuple(
    PlacementFacts(
        id=job, job_id=job, first_submit_s=SINCE_S, start_s=SINCE_S + job, nodes=f"n{job % 4 + 1}",
        gpus=2 + 2 * (job % 3), got_gb_per_s=50.0, best_gb_per_s=100.0, ratio=1.0 if job % 4 else 0.5,
        pinned=job % 2 == 0, note="" if job % 4 else "n1 had 4 linked",
    )
    for job in range(1, 21)
)  # fmt: skip
