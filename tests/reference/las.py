"""DiscretizedLas job by job in plain Python: rules as sentences, memory as a dict by job."""

from __future__ import annotations

import math
from typing import Any

from slurmsched.model import Snapshot
from slurmsched.policies.discretized_las import DiscretizedLas

Past = dict[tuple[int, float], dict[str, float]]  # (job id, arrival) -> what is remembered
NEW: dict[str, float] = {"forgiven_gpu_s": 0.0, "forgiven_s": 0.0}


def rank(policy: DiscretizedLas, given: Snapshot, past: Past) -> tuple[list[int], Past]:
    """Rows, most urgent first, and what is remembered."""
    jobs = [job_of(given, row) for row in range(len(given.jobs))]
    for job in jobs:
        settle(policy, job, past.get(job["key"]), given.now_s)
    waited_for = {job["queue"] for job in jobs if job["pending"] and not job["moved"]}
    for job in jobs:
        turn(job, waited_for, given.now_s)
    order = sorted(range(len(jobs)), key=lambda row: key_of(policy, jobs[row]))
    names = ("started_s", "queue", "since_s", "ran_here", "forgiven_gpu_s", "forgiven_s")
    kept = {
        jobs[row]["key"]: {name: float(jobs[row][name]) for name in names} | {"place": float(place)}
        for place, row in enumerate(order)
        if jobs[row]["started_s"] < math.inf and not jobs[row]["finished"]
    }
    return order, kept


def job_of(given: Snapshot, row: int) -> dict[str, Any]:
    jobs = given.jobs
    first_s = float(jobs.first_submit_s[row])
    arrived_s = float(jobs.submit_s[row]) if math.isnan(first_s) else first_s
    names = ("start_s", "executed_s", "attained_gpu_s", "waiting_s", "gpus")
    flags = {name: bool(getattr(jobs, name)[row]) for name in ("pending", "running", "finished")}
    return (
        {name: float(getattr(jobs, name)[row]) for name in names} | flags | {"key": (int(jobs.job_id[row]), arrived_s)}
    )


def settle(policy: DiscretizedLas, job: dict[str, Any], before: dict[str, float] | None, now_s: float) -> None:
    """Queue, service since the last promotion, arrival at the queue and first start of a job."""
    limits, had = policy.thresholds_gpu_s, before or NEW
    ran_s, attained = job["executed_s"] - had["forgiven_s"], job["attained_gpu_s"]
    low = any(attained - had["forgiven_gpu_s"] >= limit for limit in limits)
    job["promoted"] = job["pending"] and low and ran_s > 0 and job["waiting_s"] >= policy.promote_knob * ran_s
    job["forgiven_gpu_s"] = attained if job["promoted"] else had["forgiven_gpu_s"]
    job["forgiven_s"] = job["executed_s"] if job["promoted"] else had["forgiven_s"]
    service = max(attained - job["forgiven_gpu_s"], 0.0)
    job["queue"] = queue = sum(service >= limit for limit in limits)
    job["moved"] = job["promoted"] or queue != (before["queue"] if before else 0)
    job["since_s"] = before["since_s"] if before else job["key"][1]
    if job["moved"]:
        over_s = 0.0 if not queue else job["waiting_s"] + (service - limits[queue - 1]) / max(job["gpus"], 1)
        job["since_s"] = math.ceil(now_s - over_s - 1e-6) if queue else now_s
    seen_s = now_s if math.isnan(job["start_s"]) else job["start_s"]
    never = job["key"][1] if job["executed_s"] > 0 else math.inf
    job["started_s"] = before["started_s"] if before else (seen_s if job["running"] else never)
    job["place"] = before["place"] if before and not job["moved"] else math.inf
    job["ran_before"] = bool(before and before["ran_here"])


def turn(job: dict[str, Any], waited_for: set[int], now_s: float) -> None:
    """0 runs, 1 was preempted in this queue, 2 waits, 3 came since the last quantum behind those that wait."""
    arrived = job["moved"] and (job["queue"] in waited_for or job["since_s"] >= now_s)
    job["ran_here"] = not arrived and (job["running"] or job["moved"] or job["ran_before"])
    job["turn"] = 3 if arrived else 0 if job["running"] else 1 if job["ran_here"] else 2


def key_of(policy: DiscretizedLas, job: dict[str, Any]) -> tuple[float, ...]:
    inside: tuple[float, ...] = ()
    if policy.fifo_by == "start":
        inside = (job["started_s"],)
    elif policy.fifo_by == "arrival":
        inside = (job["turn"], job["place"] if job["turn"] < 2 else math.inf, job["since_s"])
    return (job["queue"], *inside, job["key"][1], job["key"][0])
