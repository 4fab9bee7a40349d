"""What Slurm's --json options and slurmrestd answer, v0.0.37 to v0.0.45, as the same tables.

Used for small queries: a job costs fifty times what it costs as text. Numbers are plain, null or
{set, infinite, number}; states are a word or a list; unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import Gres, count_gpus
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.states import job_state
from slurmsched.slurm.job_table import (
    HOLDING,
    build_allocations,
    expand_hosts,
    finish_jobs,
    put_held,
    read_request,
    tres_memory_mib,
)
from slurmsched.slurm.node_text import build_nodes, build_partitions
from slurmsched.slurm.requests import Forms
from slurmsched.slurm.sacct import Run
from slurmsched.slurm.site import Load
from slurmsched.slurm.text import count_tasks

NAN, INF = float("nan"), float("inf")
Body = Mapping[str, Any]


def number(value: Any, unset: float = NAN) -> float:
    """A number in any form: infinite ones are inf, null and not set ones `unset`. Raises UnreadableError."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return INF
        return float(value["number"]) if value.get("set") else unset
    if value is None:
        return unset
    if isinstance(value, int | float):
        return float(value)
    raise UnreadableError("not a number", text=repr(value))


def words(value: Any) -> str:
    """A state or a list of names as comma-joined text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else ",".join(value)


def slurm_version(body: Body) -> str:
    """The release that answered, "" when the answer does not say."""
    meta = body.get("meta", {})
    slurm = meta.get("Slurm") or meta.get("slurm") or {}
    return str(slurm.get("release", ""))


def _list(body: Body, key: str) -> Sequence[Body]:
    if not isinstance(body.get(key), list):
        raise UnreadableError(f"Slurm's JSON answer has no list {key!r}", text=", ".join(body))
    found: Sequence[Body] = body[key]
    return found


def read_jobs(body: Body, now_s: float) -> tuple[Jobs, Allocations, tuple[str, ...]]:
    """Jobs, what they hold, and warnings, from `squeue --json` or slurmrestd's jobs.

    Raises UnreadableError when the answer is not one of jobs.
    """
    warnings: list[str] = []
    rows = _list(body, "jobs")
    made = [_job(job, now_s, warnings) for job in rows]
    columns: dict[str, Any] = {name: [row[name] for row in made] for name in made[0]} if made else {"job_id": []}
    if not made:
        return Jobs.build(0, {}), Allocations.build(0, {}), ()
    for name in ("gpus", "mig_devices", "shards"):
        columns[name] = np.array(columns[name], np.int64)
    holds = (np.array(columns["state"], np.int64) & int(HOLDING)) != 0
    details = {int(job["job_id"]): _details(job) for job, held in zip(rows, holds, strict=True) if held}
    put_held(columns, details, holds)
    return finish_jobs(columns, warnings), build_allocations(details, warnings), tuple(warnings)


def _details(job: Body) -> tuple[tuple[str, str], ...]:
    """gres_detail has one text a node, in the order of the node list."""
    texts = job.get("gres_detail") or []
    return tuple(zip(expand_hosts(job.get("nodes") or ""), texts, strict=False))


def _job(job: Body, now_s: float, warnings: list[str]) -> dict[str, Any]:
    bad: set[str] = set()
    request = read_request(_forms(job), bad)
    tasks = job.get("array_task_string") or ""
    row: dict[str, Any] = {
        "job_id": int(job["job_id"]), "array_job_id": int(number(job.get("array_job_id"), 0)),
        "array_tasks": count_tasks(tasks), "het_job_id": int(number(job.get("het_job_id"), 0)),
        "het_offset": int(number(job.get("het_job_offset"), 0)),
        "user": job.get("user_name") or "", "account": job.get("account") or "", "qos": job.get("qos") or "",
        "partition": job.get("partition") or "", "name": job.get("name") or "", "comment": job.get("comment") or "",
        "reason": _reason(job), "dependency": job.get("dependency") or "", "reservation": job.get("resv_name") or "",
        "node_list": job.get("nodes") or "", "features_asked": job.get("features") or "",
        "nodes_asked": words(job.get("required_nodes")), "nodes_excluded": words(job.get("excluded_nodes")),
        **_state(job, warnings),
        "time_limit_s": number(job.get("time_limit")) * 60, "nodes": int(number(job.get("node_count"), 1)),
        "cpus": int(number(job.get("cpus"), 0)),
        "memory_mib": tres_memory_mib(job.get("tres_alloc_str") or job.get("tres_req_str") or ""),
        "gpus": request.gpus, "mig_devices": request.mig_devices, "shards": request.shards, "gpu_request": request.text,
        "gpus_by": request.by,
        "nice": int(number(job.get("nice"), 0)), "priority": int(number(job.get("priority"), 0)), "pinned": bool(bad),
        "restarts": int(number(job.get("restart_cnt"), 0)), "requeueable": bool(job.get("requeue")),
        "batch": bool(job.get("batch_flag", True)), "cron": "CRON_JOB" in (job.get("flags") or ()),
    }  # fmt: skip
    warnings.extend(f"job {row['job_id']}: its request cannot be read, it is left alone: {text!r}" for text in bad)
    for name in ("submit", "eligible", "start", "end"):
        row[f"{name}_s"] = number(job.get(f"{name}_time")) or NAN
    row["run_s"] = _run_s(job, row["start_s"], row["end_s"], now_s)
    return row


def _forms(job: Body) -> Forms:
    return Forms(
        per_job=job.get("tres_per_job") or "",
        per_task=job.get("tres_per_task") or "",
        per_socket=job.get("tres_per_socket") or "",
        per_node=job.get("tres_per_node") or "",
        tres=job.get("tres_alloc_str") or job.get("tres_req_str") or "",
        nodes=int(number(job.get("node_count"), 1)),
        tasks=int(number(job.get("tasks"), 1)),
        sockets=int(number(job.get("sockets_per_node"), 1)),
    )


def _reason(job: Body) -> str:
    """What squeue prints: the description where there is one."""
    text = job.get("state_description") or job.get("state_reason") or ""
    return "" if text == "None" else text


def _state(job: Body, warnings: list[str]) -> dict[str, Any]:
    told = words(job["job_state"])
    try:
        return {"state": int(job_state(told)), "state_text": ""}
    except UnreadableError as error:
        warnings.append(f"job {job['job_id']} is left alone ({error})")
        return {"state": 0, "state_text": told}


def _run_s(job: Body, start_s: float, end_s: float, now_s: float) -> float:
    """Seconds executed, as squeue counts them: before the last suspension, and since."""
    before, suspended = number(job.get("pre_sus_time"), 0), number(job.get("suspend_time"), 0)
    state = words(job["job_state"])
    if "SUSPENDED" in state:
        return before
    until = now_s if "RUNNING" in state or not end_s > 0 else end_s
    begun = suspended if suspended else start_s
    return max(until - begun, 0.0) + (before if suspended else 0.0) if begun > 0 else 0.0


def read_nodes(body: Body) -> tuple[Nodes, tuple[str, ...]]:
    """Nodes and warnings, from `sinfo --json`, `scontrol --json show node` or slurmrestd's nodes."""
    warnings: list[str] = []
    return build_nodes((_node(node) for node in _list(body, "nodes")), warnings), tuple(warnings)


def _node(node: Body) -> dict[str, Any]:
    flags = [words(node.get("state")), words(node.get("state_flags"))]
    cpus, threads = int(number(node.get("cpus"), 0)), max(int(number(node.get("threads"), 1)), 1)
    spare = int(number(node.get("specialized_cores"), 0)) * threads
    return {
        "name": node["name"],
        "partitions": words(node.get("partitions")),
        "state": "+".join(flag for flag in flags if flag),
        "gres": node.get("gres") or "",
        "used": node.get("gres_used") or "",
        "tres": node.get("tres") or "",
        "tres_used": node.get("tres_used") or "",
        "cpus": int(number(node.get("effective_cpus"), 0)) or max(cpus - spare, 0),
        "cpus_used": int(number(node.get("alloc_cpus"), 0)),
        "memory_mib": max(number(node.get("real_memory"), 0) - number(node.get("specialized_memory"), 0), 0.0),
        "memory_used_mib": number(node.get("alloc_memory"), 0),
        "features": words(node.get("active_features")),
        "reason": node.get("reason") or "",
    }


def read_partitions(body: Body) -> Partitions:
    """Partitions, from slurmrestd or `scontrol --json show partition` (23.02 and later)."""
    return build_partitions(_partition(each) for each in _list(body, "partitions"))


def _partition(each: Body) -> dict[str, Any]:
    nodes, maximum = each.get("nodes", {}), each.get("maximums", {}).get("time")
    most, told = each.get("maximums", {}), each.get("partition", {})
    flags, shares = words(each.get("flags")).split(","), told.get("oversubscribe", "NO")
    accounts, qos = each.get("accounts", {}), each.get("qos", {})
    exclusive = told.get("exclusive", "NO").lower()
    return {
        "name": each["name"],
        "state": words(told.get("state")) or "UP",
        "min_nodes": int(number(each.get("minimums", {}).get("nodes"), 0)),
        "max_nodes": number(most.get("nodes"), INF) or INF,
        "max_cpus_per_node": number(most.get("cpus_per_node"), INF) or INF,
        "max_cpus_per_socket": number(most.get("cpus_per_socket"), INF) or INF,
        "max_memory_mib": number(most.get("partition_memory_per_node"), INF) or INF,
        "max_memory_per_cpu_mib": number(most.get("partition_memory_per_cpu"), INF) or INF,
        "over_subscribe": "NO" if shares == "EXCLUSIVE" else shares,
        "exclusive": exclusive if exclusive != "no" else "node" if shares == "EXCLUSIVE" else "",
        "allow_accounts": accounts.get("allowed", ""),
        "deny_accounts": accounts.get("deny", ""),
        "allow_groups": each.get("groups", {}).get("allowed", ""),
        "allow_qos": qos.get("allowed", ""),
        "deny_qos": qos.get("deny", ""),
        "alloc_nodes": nodes.get("allowed_allocation", ""),
        "root_only": "ROOT_ONLY" in flags,
        "needs_reservation": "REQ_RESV" in flags,
        "default": "DEFAULT" in words(each.get("flags")),
        "max_time_s": number(maximum, INF) * 60,
        "default_time_s": number(each.get("defaults", {}).get("time")) * 60,
        "priority_tier": int(number(each.get("priority", {}).get("tier"), 1)),
        "node_list": nodes.get("configured", ""),
        "nodes": int(number(nodes.get("total"), 0)),
        "topology": each.get("topology") or "",
    }


def read_load(body: Body) -> Load:
    """The load of slurmctld, from `sdiag --json` or slurmrestd's diag. Raises UnreadableError."""
    found = body.get("statistics")
    if not isinstance(found, Mapping) or "server_thread_count" not in found:
        raise UnreadableError("not an answer of sdiag", text=", ".join(body))
    names = ("server_thread_count", "dbd_agent_queue_size", "agent_queue_size")
    return Load(*(int(number(found.get(name), 0)) for name in names))


def count_reservations(body: Body) -> int:
    """Reservations, from slurmrestd or `scontrol --json show reservation`."""
    return len(_list(body, "reservations"))


def read_runs(body: Body) -> list[Run]:
    """Runs, from `sacct --json` or slurmrestd's slurmdb jobs, by job and submit time."""
    jobs = sorted(_list(body, "jobs"), key=lambda job: (job["job_id"], number(job["time"]["submission"])))
    runs: list[Run] = []
    for job in jobs:
        again = bool(runs) and runs[-1].job_id == int(job["job_id"])
        runs.append(_run(job, runs[-1].restart + 1 if again else 0))
    return runs


def _run(job: Body, restart: int) -> Run:
    at = job["time"]
    return Run(
        job_id=int(job["job_id"]),
        submit_s=number(at["submission"]) or NAN,
        start_s=number(at["start"]) or NAN,
        end_s=number(at["end"]) or NAN,
        suspended_s=number(at["suspended"], 0),
        gpus=count_gpus(_tres(job.get("tres", {}).get("allocated") or ())),
        state=words(job["state"]["current"]),
        restart=restart,
    )


def _tres(rows: Iterable[Body]) -> list[Gres]:
    """A TRES list's gres entries; of typed and untyped GPUs the typed ones, so that each counts once."""
    found = [_entry(row) for row in rows if row.get("type") == "gres"]
    typed = {entry.kind for entry in found if entry.type}
    return [entry for entry in found if entry.type or entry.kind not in typed]


def _entry(row: Body) -> Gres:
    kind, _, gpu_type = (row.get("name") or "").partition(":")
    return Gres(kind, gpu_type, int(number(row.get("count"), 0)))
