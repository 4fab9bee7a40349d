"""A frame of a small site: two DGX-1V nodes, one of bridged pairs, jobs that run and wait, and a hostile name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurmsched.config_file import parse_config
from slurmsched.model import Operation, OperationStage, Purpose, Snapshot, Victim
from slurmsched.observe.web.frame import Frame
from slurmsched.planning.planner import Planner
from tests.unit.observe.survey.survey_site import node, site

NOW_S = 1_770_000_000.0
EVIL = "<script>alert(1)</script>\u202eevil"


def look(**settings: str) -> Snapshot:
    """Job 21 holds four linked GPUs of n1, 22 all CPUs and two GPUs of n2; n3 drains; 30 to 44 wait."""
    runs = {"state": "RUNNING", "start_s": NOW_S - 600, "submit_s": NOW_S - 900, "run_s": 600.0}
    waits = [{"job_id": job, "user": ("ann", "bob", EVIL)[job % 3], "account": "physics", "gpus": 1 + job % 8,
              "submit_s": NOW_S - 100 * job, "waiting_s": 100.0 * job, "reason": "Priority",
              "attained_gpu_s": 3_600.0 * (job % 4), "time_limit_s": 86_400.0, "name": f"train {EVIL}",
              "expected_start_s": NOW_S + 3_600 if job % 2 else float("nan"),
              "comment": "slurmsched: dur=2h"} for job in range(30, 45)]  # fmt: skip
    jobs = [
        {"job_id": 21, "user": "carol", "gpus": 4, "node_list": "n1", "cpus": 8, **runs},
        {"job_id": 22, "user": EVIL, "gpus": 2, "node_list": "n2", "cpus": 64, **runs}, *waits,
    ]  # fmt: skip
    nodes = [node("n1"), node("n2", cpus_used=64), node("n3", state="IDLE+DRAIN", reason="fan")]
    held = [{"job_id": 21, "node": "n1", "gpu_type": "v100", "gpus": 4, "gpu_mask": 0b1111},
            {"job_id": 22, "node": "n2", "gpu_type": "v100", "gpus": 2, "gpu_mask": 0b11}]  # fmt: skip
    made = site(nodes, jobs, settings=settings, allocations=held, now_s=NOW_S)
    operation = Operation(
        "30-1",
        Purpose.PREEMPT,
        30,
        NOW_S - 3_000,
        "ann",
        "n1",
        60.0,
        NOW_S,
        (Victim(21, 0.0, 0, 4),),
        stage=OperationStage.WARNED,
    )
    return replace(made, operations=(operation,))


def frame(snapshot: Snapshot | None = None, **more: Any) -> Frame:
    """The frame of a snapshot under least attained service."""
    shown = look() if snapshot is None else snapshot
    plan = Planner.from_config(
        parse_config({"scope": {"partitions": ["*"]}, "policy": {"name": "discretized-las"}})
    ).plan(shown)
    return Frame(shown, plan, "nice", "dry-run", "discretized-las", **more)
