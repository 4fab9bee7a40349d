"""What Slurm's --json options and slurmrestd answer, v0.0.37 to v0.0.45, as the same tables.

Used for small queries: a job costs fifty times what it costs as text. Numbers are plain, null or
{set, infinite, number}; states are a word or a list; unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
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
from slurmsched.slurm.node_text import build_nodes, build_partitions, readable
from slurmsched.slurm.queue_text import MOST_JOB_ID
from slurmsched.slurm.requests import Forms
from slurmsched.slurm.sacct import Run
from slurmsched.slurm.site import Load
from slurmsched.slurm.text import LAST_S, MOST, MOST_COUNT, count_tasks

NAN, INF = float("nan"), float("inf")
Body = Mapping[str, Any]


def number(value: Any, unset: float = NAN) -> float:
    """A number in any form: infinite ones are inf, null and not set ones `unset`. Raises UnreadableError."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return INF
        if not value.get("set"):
            return unset
        value = value.get("number", value)
    if value is None:
        return unset
    if isinstance(value, int | float) and abs(value) < 1e300:
        return float(value)
    raise UnreadableError("not a number", text=repr(value))


def count(value: Any, unset: int = 0, low: int = 0, high: int = MOST_COUNT) -> int:
    """A whole number from low to high. Raises UnreadableError."""
    found = number(value, unset)
    if not low <= found <= high:
        raise UnreadableError("not a count", text=repr(value)[:100])
    return int(found)


def moment(value: Any) -> float:
    """Unix seconds; NaN for 0 and where it is not set. Raises UnreadableError."""
    seconds = number(value) or NAN
    if not (isnan(seconds) or 0 <= seconds < LAST_S):
        raise UnreadableError("not a time", text=repr(value)[:100])
    return seconds


def span(value: Any, unset: float = NAN) -> float:
    """A duration or amount, 0 or more, endless ones too. Raises UnreadableError."""
    found = number(value, unset)
    if found < 0:
        raise UnreadableError("below 0", text=repr(value)[:100])
    return found


def said(body: Body, *keys: str) -> str:
    """The first text of these keys that is not empty. Raises UnreadableError for what is no text."""
    for key in keys:
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            raise UnreadableError("not a text", text=f"{key}: {value!r}"[:100])
        if value:
            return value
    return ""


def words(value: Any) -> str:
    """A state or a list of names as comma-joined text. Raises UnreadableError."""
    listed = [] if value is None else [value] if isinstance(value, str) else list(value)
    if not all(isinstance(word, str) for word in listed):
        raise UnreadableError("not a list of names", text=repr(value)[:100])
    return ",".join(listed)


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
    made = list(readable(rows, lambda job: _job(job, now_s, warnings) | {"details": _details(job)}, "a job", warnings))
    if not made and rows:
        raise UnreadableError(f"no job of Slurm's JSON answer can be read: {warnings[-1]}", text=str(rows[0])[:100])
    if not made:
        return Jobs.build(0, {}), Allocations.build(0, {}), tuple(warnings)
    columns: dict[str, Any] = {name: [row[name] for row in made] for name in made[0]}
    texts = columns.pop("details")
    for name in ("gpus", "mig_devices", "shards"):
        columns[name] = np.array(columns[name], np.int64)
    holds = (np.array(columns["state"], np.int64) & int(HOLDING)) != 0
    details = {job: parts for job, parts, held in zip(columns["job_id"], texts, holds, strict=True) if held}
    put_held(columns, details, holds)
    return finish_jobs(columns, warnings), build_allocations(details, warnings), tuple(warnings)


def _details(job: Body) -> tuple[tuple[str, str], ...]:
    """gres_detail has one text a node, in the order of the node list."""
    texts = words(job.get("gres_detail")) and list(job["gres_detail"])
    return tuple(zip(expand_hosts(said(job, "nodes")), texts, strict=False))


def _job(job: Body, now_s: float, warnings: list[str]) -> dict[str, Any]:
    bad: set[str] = set()
    request = read_request(_forms(job), bad)
    tasks = said(job, "array_task_string")
    row: dict[str, Any] = {
        "job_id": count(job["job_id"], -1, 1, MOST_JOB_ID), "array_job_id": count(job.get("array_job_id"), 0),
        "array_tasks": count_tasks(tasks), "het_job_id": count(job.get("het_job_id"), 0),
        "het_offset": count(job.get("het_job_offset"), 0),
        "user": said(job, "user_name"), "account": said(job, "account"), "qos": said(job, "qos"),
        "partition": said(job, "partition"), "name": said(job, "name"), "comment": said(job, "comment"),
        "reason": _reason(job), "dependency": said(job, "dependency"), "reservation": said(job, "resv_name"),
        "node_list": said(job, "nodes"), "features_asked": said(job, "features"),
        "nodes_asked": words(job.get("required_nodes")), "nodes_excluded": words(job.get("excluded_nodes")),
        **_state(job, warnings),
        "time_limit_s": span(job.get("time_limit")) * 60, "nodes": count(job.get("node_count"), 1),
        "cpus": count(job.get("cpus"), 0),
        "memory_mib": tres_memory_mib(said(job, "tres_alloc_str", "tres_req_str")),
        "gpus": request.gpus, "mig_devices": request.mig_devices, "shards": request.shards, "gpu_request": request.text,
        "gpus_by": request.by,
        "nice": count(job.get("nice"), 0, -MOST, MOST), "priority": count(job.get("priority"), 0, 0, 2**32 - 1),
        "pinned": bool(bad),
        "restarts": count(job.get("restart_cnt"), 0), "requeueable": bool(job.get("requeue")),
        "batch": bool(job.get("batch_flag", True)), "cron": "CRON_JOB" in (job.get("flags") or ()),
    }  # fmt: skip
    warnings.extend(f"job {row['job_id']}: its request cannot be read, it is left alone: {text!r}" for text in bad)
    for name in ("submit", "eligible", "start", "end"):
        row[f"{name}_s"] = moment(job.get(f"{name}_time"))
    row["run_s"] = _run_s(job, row["start_s"], row["end_s"], now_s)
    return row


def _forms(job: Body) -> Forms:
    return Forms(
        per_job=said(job, "tres_per_job"),
        per_task=said(job, "tres_per_task"),
        per_socket=said(job, "tres_per_socket"),
        per_node=said(job, "tres_per_node"),
        tres=said(job, "tres_alloc_str", "tres_req_str"),
        nodes=count(job.get("node_count"), 1),
        tasks=count(job.get("tasks"), 1),
        sockets=count(job.get("sockets_per_node"), 1),
    )


def _reason(job: Body) -> str:
    """What squeue prints: the description where there is one."""
    text = said(job, "state_description", "state_reason")
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
    before, suspended = (count(job.get(key), 0, 0, int(LAST_S)) for key in ("pre_sus_time", "suspend_time"))
    state = words(job["job_state"])
    if "SUSPENDED" in state:
        return before
    until = now_s if "RUNNING" in state or not end_s > 0 else end_s
    begun = suspended if suspended else start_s
    return max(until - begun, 0.0) + (before if suspended else 0.0) if begun > 0 else 0.0


def read_nodes(body: Body) -> tuple[Nodes, tuple[str, ...]]:
    """Nodes and warnings, from `sinfo --json`, `scontrol --json show node` or slurmrestd's nodes."""
    warnings: list[str] = []
    rows = readable(_list(body, "nodes"), _node, "a node", warnings)
    return build_nodes(rows, warnings), tuple(warnings)


def _node(node: Body) -> dict[str, Any]:
    flags = [words(node.get("state")), words(node.get("state_flags"))]
    cpus, threads = count(node.get("cpus"), 0), max(count(node.get("threads"), 1), 1)
    spare = count(node.get("specialized_cores"), 0) * threads
    return {
        "name": _name(node),
        "partitions": words(node.get("partitions")),
        "state": "+".join(flag for flag in flags if flag),
        "gres": said(node, "gres"),
        "used": said(node, "gres_used"),
        "tres": said(node, "tres"),
        "tres_used": said(node, "tres_used"),
        "cpus": count(node.get("effective_cpus"), 0) or max(cpus - spare, 0),
        "cpus_used": count(node.get("alloc_cpus"), 0),
        "memory_mib": max(
            float(count(node.get("real_memory"), 0, 0, MOST) - count(node.get("specialized_memory"), 0, 0, MOST)), 0.0
        ),
        "memory_used_mib": float(count(node.get("alloc_memory"), 0, 0, MOST)),
        "features": words(node.get("active_features")),
        "reason": said(node, "reason"),
    }


def _name(row: Body) -> str:
    if not (name := said(row, "name")):
        raise UnreadableError("it has no name", text=repr(row)[:100])
    return name


def read_partitions(body: Body) -> tuple[Partitions, tuple[str, ...]]:
    """Partitions and warnings, from slurmrestd or `scontrol --json show partition` (23.02 and later)."""
    warnings: list[str] = []
    made = build_partitions(readable(_list(body, "partitions"), _partition, "a partition", warnings))
    return made, tuple(warnings)


def _partition(each: Body) -> dict[str, Any]:
    nodes, maximum = each.get("nodes", {}), each.get("maximums", {}).get("time")
    most, told = each.get("maximums", {}), each.get("partition", {})
    flags, shares = words(each.get("flags")).split(","), said(told, "oversubscribe") or "NO"
    accounts, qos = each.get("accounts", {}), each.get("qos", {})
    exclusive = (said(told, "exclusive") or "NO").lower()
    return {
        "name": _name(each),
        "state": words(told.get("state")) or "UP",
        "min_nodes": count(each.get("minimums", {}).get("nodes"), 0),
        "max_nodes": span(most.get("nodes"), INF) or INF,
        "max_cpus_per_node": span(most.get("cpus_per_node"), INF) or INF,
        "max_cpus_per_socket": span(most.get("cpus_per_socket"), INF) or INF,
        "max_memory_mib": span(most.get("partition_memory_per_node"), INF) or INF,
        "max_memory_per_cpu_mib": span(most.get("partition_memory_per_cpu"), INF) or INF,
        "over_subscribe": "NO" if shares == "EXCLUSIVE" else shares,
        "exclusive": exclusive if exclusive != "no" else "node" if shares == "EXCLUSIVE" else "",
        "allow_accounts": said(accounts, "allowed"),
        "deny_accounts": said(accounts, "deny"),
        "allow_groups": said(each.get("groups", {}), "allowed"),
        "allow_qos": said(qos, "allowed"),
        "deny_qos": said(qos, "deny"),
        "alloc_nodes": said(nodes, "allowed_allocation"),
        "root_only": "ROOT_ONLY" in flags,
        "needs_reservation": "REQ_RESV" in flags,
        "default": "DEFAULT" in words(each.get("flags")),
        "max_time_s": span(maximum, INF) * 60,
        "default_time_s": span(each.get("defaults", {}).get("time")) * 60,
        "priority_tier": count(each.get("priority", {}).get("tier"), 1),
        "node_list": said(nodes, "configured"),
        "nodes": count(nodes.get("total"), 0),
        "topology": said(each, "topology"),
    }


def read_load(body: Body) -> Load:
    """The load of slurmctld, from `sdiag --json` or slurmrestd's diag. Raises UnreadableError."""
    found = body.get("statistics")
    if not isinstance(found, Mapping) or "server_thread_count" not in found:
        raise UnreadableError("not an answer of sdiag", text=", ".join(body))
    names = ("server_thread_count", "dbd_agent_queue_size", "agent_queue_size")
    return Load(*(count(found.get(name), 0) for name in names))


def count_reservations(body: Body) -> int:
    """Reservations, from slurmrestd or `scontrol --json show reservation`."""
    return len(_list(body, "reservations"))


def read_runs(body: Body) -> tuple[list[Run], tuple[str, ...]]:
    """Runs by job and submit time, and warnings, from `sacct --json` or slurmrestd's slurmdb jobs."""
    warnings: list[str] = []
    rows = readable(_list(body, "jobs"), lambda job: {"run": _run(job)}, "a run", warnings)
    runs: list[Run] = []
    for run in sorted(
        (row["run"] for row in rows), key=lambda run: (run.job_id, run.submit_s if run.submit_s > 0 else 0.0)
    ):
        again = bool(runs) and runs[-1].job_id == run.job_id
        runs.append(replace(run, restart=runs[-1].restart + 1 if again else 0))
    return runs, tuple(warnings)


def _run(job: Body) -> Run:
    at = job["time"]
    return Run(
        job_id=count(job["job_id"], -1, 1, MOST_JOB_ID),
        submit_s=moment(at["submission"]),
        start_s=moment(at["start"]),
        end_s=moment(at["end"]),
        suspended_s=float(count(at["suspended"], 0, 0, int(LAST_S))),
        gpus=count_gpus(_tres(job.get("tres", {}).get("allocated") or ())),
        state=words(job["state"]["current"]),
        restart=0,
    )


def _tres(rows: Iterable[Body]) -> list[Gres]:
    """A TRES list's gres entries; of typed and untyped GPUs the typed ones, so that each counts once."""
    found = [_entry(row) for row in rows if row.get("type") == "gres"]
    typed = {entry.kind for entry in found if entry.type}
    return [entry for entry in found if entry.type or entry.kind not in typed]


def _entry(row: Body) -> Gres:
    kind, _, gpu_type = said(row, "name").partition(":")
    return Gres(kind, gpu_type, count(row.get("count"), 0))
