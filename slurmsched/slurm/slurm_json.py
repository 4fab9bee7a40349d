"""The output of Slurm's --json options and of slurmrestd (v0.0.37 to v0.0.45) as the same tables.

It is used for small queries only: a job costs fifty times as much as in text. Numbers are plain, null or {set,
infinite, number}. States are a word or a list. Unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from slurmsched.errors import InputError, UnreadableError
from slurmsched.model import Rights, Site, Snapshot
from slurmsched.model.columns import INF, NAN
from slurmsched.model.gres import Gres, RequestForms, count_gpus
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.slurm_text import LAST_TIME_S, MOST_COUNT, MOST_INT64, count_tasks
from slurmsched.model.states import HOLDS_NODES, job_state
from slurmsched.slurm.accounting import AccountedRun
from slurmsched.slurm.job_tables import (
    build_allocations,
    count_nodes,
    expand_hosts,
    finish_jobs,
    put_held,
    read_request,
    tres_memory_mib,
    with_held,
)
from slurmsched.slurm.scontrol_tables import build_nodes, readable_rows
from slurmsched.slurm.site import SdiagLoad
from slurmsched.slurm.squeue import MOST_JOB_ID

Body = Mapping[str, Any]


def json_number(value: Any, unset: float = NAN) -> float:
    """A number in any form; inf if infinite, `unset` if null or not set. Raises UnreadableError."""
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


def json_count(value: Any, unset: int = 0, low: int = 0, high: int = MOST_COUNT) -> int:
    """A whole number from low to high. Raises UnreadableError."""
    found = json_number(value, unset)
    if not low <= found <= high:
        raise UnreadableError("not a count", text=repr(value)[:100])
    return int(found)


def json_time(value: Any) -> float:
    """Unix seconds; NaN if 0 or not set. Raises UnreadableError."""
    seconds = json_number(value) or NAN
    if not (isnan(seconds) or 0 <= seconds < LAST_TIME_S):
        raise UnreadableError("not a time", text=repr(value)[:100])
    return seconds


def json_duration(value: Any, unset: float = NAN) -> float:
    """A duration or amount from 0 to infinity. Raises UnreadableError."""
    found = json_number(value, unset)
    if found < 0:
        raise UnreadableError("below 0", text=repr(value)[:100])
    return found


def json_text(body: Body, *keys: str) -> str:
    """The first non-empty text of these keys. Raises UnreadableError for a value that is no text."""
    for key in keys:
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            raise UnreadableError("not a text", text=f"{key}: {value!r}"[:100])
        if value:
            return value
    return ""


def json_names(value: Any) -> str:
    """A state or a list of names as comma-joined text. Raises UnreadableError."""
    listed = [] if value is None else [value] if isinstance(value, str) else list(value)
    if not all(isinstance(word, str) for word in listed):
        raise UnreadableError("not a list of names", text=repr(value)[:100])
    return ",".join(listed)


def slurm_version(body: Body) -> str:
    """Slurm's release; "" if the answer has none."""
    meta = body.get("meta", {})
    slurm = meta.get("Slurm") or meta.get("slurm") or {}
    return str(slurm.get("release", ""))


def _json_list(body: Body, key: str) -> Sequence[Body]:
    if not isinstance(body.get(key), list):
        raise UnreadableError(f"Slurm's JSON answer has no list {key!r}", text=", ".join(body))
    found: Sequence[Body] = body[key]
    return found


def read_jobs(body: Body, now_s: float) -> tuple[Jobs, Allocations, tuple[str, ...]]:
    """Jobs, what they hold, and warnings, from `squeue --json` or slurmrestd's jobs.

    Raises UnreadableError if the answer has no jobs.
    """
    warnings: list[str] = []
    rows = _json_list(body, "jobs")
    made = list(
        readable_rows(rows, lambda job: _job(job, now_s, warnings) | {"details": _details(job)}, "a job", warnings)
    )
    if not made and rows:
        raise UnreadableError(f"no job of Slurm's JSON answer can be read: {warnings[-1]}", text=str(rows[0])[:100])
    if not made:
        return Jobs.build(0, {}), Allocations.build(0, {}), tuple(warnings)
    columns: dict[str, Any] = {name: [row[name] for row in made] for name in made[0]}
    texts = columns.pop("details")
    for name in ("gpus", "mig_devices", "shards"):
        columns[name] = np.array(columns[name], np.int64)
    holds = (np.array(columns["state"], np.int64) & int(HOLDS_NODES)) != 0
    details = {job: parts for job, parts, held in zip(columns["job_id"], texts, holds, strict=True) if held}
    put_held(columns, details, holds)
    return finish_jobs(columns, warnings), build_allocations(details, warnings), tuple(warnings)


def _details(job: Body) -> tuple[tuple[str, str], ...]:
    """gres_detail has one text a node, in the order of the node list."""
    texts = json_names(job.get("gres_detail")) and list(job["gres_detail"])
    return tuple(zip(expand_hosts(json_text(job, "nodes")), texts, strict=False))


# Over 30 lines: one line for each column of the row.
def _job(job: Body, now_s: float, warnings: list[str]) -> dict[str, Any]:
    bad: set[str] = set()
    request = read_request(_forms(job), bad)
    tasks = json_text(job, "array_task_string")
    row: dict[str, Any] = {
        "job_id": json_count(job["job_id"], -1, 1, MOST_JOB_ID),
        "array_job_id": json_count(job.get("array_job_id"), 0),
        "array_tasks": count_tasks(tasks),
        "het_job_id": json_count(job.get("het_job_id"), 0),
        "het_offset": json_count(job.get("het_job_offset"), 0),
        "user": json_text(job, "user_name"),
        "account": json_text(job, "account"),
        "qos": json_text(job, "qos"),
        "partition": json_text(job, "partition"),
        "name": json_text(job, "name"),
        "comment": json_text(job, "comment"),
        "reason": _reason(job),
        "dependency": json_text(job, "dependency"),
        "reservation": json_text(job, "resv_name"),
        "node_list": json_text(job, "nodes"),
        "features_asked": json_text(job, "features"),
        "nodes_asked": json_names(job.get("required_nodes")),
        "nodes_excluded": json_names(job.get("excluded_nodes")),
        **_state(job, warnings),
        "time_limit_s": json_duration(job.get("time_limit")) * 60,
        "nodes": _nodes(job),
        "tasks": json_count(job.get("tasks"), 0),
        "cpus": json_count(job.get("cpus"), 0),
        "memory_mib": tres_memory_mib(json_text(job, "tres_alloc_str", "tres_req_str")),
        "gpus": request.gpus,
        "mig_devices": request.mig_devices,
        "shards": request.shards,
        "gpu_request": request.text,
        "gpus_by": request.by,
        "nice": json_count(job.get("nice"), 0, -MOST_INT64, MOST_INT64),
        "priority": json_count(job.get("priority"), 0, 0, 2**32 - 1),
        "fixed_priority": bool(bad),
        "restarts": json_count(job.get("restart_cnt"), 0),
        "requeueable": bool(job.get("requeue")),
        "batch": bool(job.get("batch_flag", True)),
        "cron": "CRON_JOB" in (job.get("flags") or ()),
    }
    warnings.extend(f"job {row['job_id']}: its request cannot be read, it is left alone: {text!r}" for text in bad)
    for name in ("submit", "eligible", "start", "end"):
        row[f"{name}_s"] = json_time(job.get(f"{name}_time"))
    row["run_s"] = _run_s(job, row["start_s"], row["end_s"], now_s)
    return row


def _forms(job: Body) -> RequestForms:
    return RequestForms(
        per_job=json_text(job, "tres_per_job"),
        per_task=json_text(job, "tres_per_task"),
        per_socket=json_text(job, "tres_per_socket"),
        per_node=json_text(job, "tres_per_node"),
        tres=json_text(job, "tres_alloc_str", "tres_req_str"),
        nodes=_nodes(job),
        tasks=json_count(job.get("tasks"), 1),
        sockets=json_count(job.get("sockets_per_node"), 1),
    )


def _nodes(job: Body) -> int:
    tres = json_text(job, "tres_alloc_str", "tres_req_str")
    return count_nodes(json_count(job.get("node_count"), 1), tres, str(json_count(job.get("restart_cnt"), 0)))


def _reason(job: Body) -> str:
    """What squeue prints: the description where there is one."""
    text = json_text(job, "state_description", "state_reason")
    return "" if text == "None" else text


def _state(job: Body, warnings: list[str]) -> dict[str, Any]:
    flags = json_names(job["job_state"])
    try:
        return {"state": int(job_state(flags)), "state_text": ""}
    except UnreadableError as error:
        warnings.append(f"job {job['job_id']} is left alone ({error})")
        return {"state": 0, "state_text": flags}


def _run_s(job: Body, start_s: float, end_s: float, now_s: float) -> float:
    """Seconds executed, as squeue counts them: before the last suspension, and since."""
    before, suspended = (json_count(job.get(key), 0, 0, int(LAST_TIME_S)) for key in ("pre_sus_time", "suspend_time"))
    state = json_names(job["job_state"])
    if "SUSPENDED" in state:
        return before
    until = now_s if "RUNNING" in state or not end_s > 0 else end_s
    begun = suspended if suspended else start_s
    return max(until - begun, 0.0) + (before if suspended else 0.0) if begun > 0 else 0.0


def read_nodes(body: Body) -> tuple[Nodes, tuple[str, ...]]:
    """Nodes and warnings, from `sinfo --json`, `scontrol --json show node` or slurmrestd's nodes."""
    warnings: list[str] = []
    rows = readable_rows(_json_list(body, "nodes"), _node, "a node", warnings)
    return build_nodes(rows, warnings), tuple(warnings)


_NEXT_STATE = ("next_state_after_reboot", "next_state_after_reboot_flags")


def _node(node: Body) -> dict[str, Any]:
    flags = [json_names(node.get("state")), json_names(node.get("state_flags"))]
    cpus, threads = json_count(node.get("cpus"), 0), max(json_count(node.get("threads"), 1), 1)
    spare = json_count(node.get("specialized_cores"), 0) * threads
    return {
        "name": _name(node),
        "partitions": json_names(node.get("partitions")),
        "state": "+".join(flag for flag in flags if flag),
        "next_state": ",".join(json_names(node.get(key)) for key in _NEXT_STATE),
        "gres": json_text(node, "gres"),
        "used": json_text(node, "gres_used"),
        "tres": json_text(node, "tres"),
        "tres_used": json_text(node, "tres_used"),
        "cpus": json_count(node.get("effective_cpus"), 0) or max(cpus - spare, 0),
        "cpus_used": json_count(node.get("alloc_cpus"), 0),
        "cpus_per_gpu_kept": json_count(node.get("res_cores_per_gpu"), 0) * threads,
        "memory_mib": max(
            float(
                json_count(node.get("real_memory"), 0, 0, MOST_INT64)
                - json_count(node.get("specialized_memory"), 0, 0, MOST_INT64)
            ),
            0.0,
        ),
        "memory_used_mib": float(json_count(node.get("alloc_memory"), 0, 0, MOST_INT64)),
        "features": json_names(node.get("active_features")),
        "reason": json_text(node, "reason"),
    }


def _name(row: Body) -> str:
    if not (name := json_text(row, "name")):
        raise UnreadableError("it has no name", text=repr(row)[:100])
    return name


def read_load(body: Body) -> SdiagLoad:
    """The load of slurmctld, from `sdiag --json` or slurmrestd's diag. Raises UnreadableError."""
    found = body.get("statistics")
    if not isinstance(found, Mapping) or "server_thread_count" not in found:
        raise UnreadableError("not an answer of sdiag", text=", ".join(body))
    names = ("server_thread_count", "dbd_agent_queue_size", "agent_queue_size")
    return SdiagLoad(*(json_count(found.get(name), 0) for name in names))


def read_runs(body: Body) -> tuple[list[AccountedRun], tuple[str, ...]]:
    """Runs by job and submit time, and warnings, from `sacct --json` or slurmrestd's slurmdb jobs."""
    warnings: list[str] = []
    rows = readable_rows(_json_list(body, "jobs"), lambda job: {"run": _run(job)}, "a run", warnings)
    runs: list[AccountedRun] = []
    for run in sorted(
        (row["run"] for row in rows), key=lambda run: (run.job_id, run.submit_s if run.submit_s > 0 else 0.0)
    ):
        again = bool(runs) and runs[-1].job_id == run.job_id
        runs.append(replace(run, restart=runs[-1].restart + 1 if again else 0))
    return runs, tuple(warnings)


def _run(job: Body) -> AccountedRun:
    at = job["time"]
    return AccountedRun(
        job_id=json_count(job["job_id"], -1, 1, MOST_JOB_ID),
        submit_s=json_time(at["submission"]),
        start_s=json_time(at["start"]),
        end_s=json_time(at["end"]),
        suspended_s=float(json_count(at["suspended"], 0, 0, int(LAST_TIME_S))),
        gpus=count_gpus(_tres(job.get("tres", {}).get("allocated") or ())),
        state=json_names(job["state"]["current"]),
        restart=0,
    )


def _tres(rows: Iterable[Body]) -> list[Gres]:
    """A TRES list's gres entries; of typed and untyped GPUs the typed ones, so that each counts once."""
    found = [_entry(row) for row in rows if row.get("type") == "gres"]
    typed = {entry.kind for entry in found if entry.type}
    return [entry for entry in found if entry.type or entry.kind not in typed]


def _entry(row: Body) -> Gres:
    kind, _, gpu_type = json_text(row, "name").partition(":")
    return Gres(kind, gpu_type, json_count(row.get("count"), 0))


# A snapshot from JSON files of Slurm.

T = TypeVar("T")
DUMP_WARNING = "read from a file, which has no rights, no site factors and no parts of priorities"


def read_dump(jobs: Path, nodes: Path | None = None) -> Snapshot:
    """The cluster in the output of `squeue --json` and `scontrol show node --json` (before 23.02: `sinfo --json`).

    The clock is the time in that output, or else the time of the file. Raises InputError for a file that cannot be read
    or is of another kind.
    """
    body = _body(jobs)
    told_s = _read(jobs, lambda: json_number(body.get("last_update"), 0.0))
    now_s = told_s if told_s > 0 else jobs.stat().st_mtime
    queue, held, warnings = _read(jobs, lambda: read_jobs(body, now_s))
    fleet = Nodes.build(0, {})
    more: tuple[str, ...] = ()
    if nodes is not None:
        listed = _body(nodes)
        fleet, more = _read(nodes, lambda: read_nodes(listed))
        fleet = with_held(fleet, held)
    site = _read(jobs, lambda: Site(cluster=_cluster(body), version=slurm_version(body), rights=Rights.OPERATOR))
    return Snapshot(now_s, queue, fleet, Partitions.build(0, {}), held, site, warnings=(DUMP_WARNING, *warnings, *more))


def _body(path: Path) -> Mapping[str, Any]:
    try:
        body = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}", source=str(path), line=error.lineno) from error
    if not isinstance(body, dict):
        raise InputError("is JSON, but no answer of Slurm, which is an object", source=str(path))
    return body


def _read(path: Path, reader: Callable[[], T]) -> T:
    """What the reader makes of the file; whatever it trips over is the file's fault."""
    try:
        return reader()
    except UnreadableError as error:
        raise InputError(str(error), source=str(path)) from error
    except KeyError as error:
        message = f"is another of Slurm's answers than was asked for: no {error}"
        raise InputError(message, source=str(path)) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"does not have the form of Slurm's answers: {error}", source=str(path)) from error


def _cluster(body: Mapping[str, Any]) -> str:
    meta = body.get("meta", {})
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    rows = [row for row in body.get("jobs") or () if isinstance(row, dict)] or [{}]
    return str(slurm.get("cluster") or rows[0].get("cluster") or "")
