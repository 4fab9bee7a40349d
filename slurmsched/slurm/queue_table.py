"""squeue's columns under the names of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Floats, Labels
from slurmsched.slurm.columns import Grouped
from slurmsched.slurm.job_table import named_jobs, read_request, tres_memory_mib
from slurmsched.slurm.queue_text import Queue
from slurmsched.slurm.requests import Forms, GpuRequest
from slurmsched.slurm.states import state_of_word
from slurmsched.slurm.text import MOST_COUNT, count_of, count_tasks, duration_s, plain, time_s, whole

_TEXTS = {"user": "UserName", "account": "Account", "partition": "Partition", "qos": "QOS", "reason": "Reason",
          "reservation": "Reservation"}  # fmt: skip
BOUNDS = {"features_asked": "Feature", "nodes_asked": "ReqNodes", "nodes_excluded": "ExcNodes"}


def queue_columns(queue: Queue, now_s: float, warnings: list[str]) -> dict[str, Any]:
    """Columns of model.Jobs by name, those squeue tells. Times of pending jobs are still Slurm's estimates."""
    ids, kind, run, odd = queue.ids, queue.kind, queue.run, queue.odd.copy()
    columns: dict[str, Any] = {
        "job_id": ids["JobID"], "nice": ids["Nice"], "priority": ids["PriorityLong"],
        "submit_s": ids["SubmitTime"], "eligible_s": ids["EligibleTime"],
        "start_s": run.numbers("StartTime", time_s, np.float64, odd, np.nan),
        "end_s": run.numbers("EndTime", time_s, np.float64, odd, np.nan),
        "node_list": run.labels("NodeList", plain), "dependency": run.labels("Dependency", plain),
        "name": Labels.of(queue.name), "comment": _plain_texts(queue.comment),
        "time_limit_s": kind.numbers("TimeLimit", duration_s, np.float64, odd, np.nan),
        "nodes": kind.numbers("NumNodes", count_of, np.int32, odd, 1),
        "cpus": kind.numbers("NumCPUs", count_of, np.int32, odd),
        "memory_mib": kind.numbers("tres-alloc", tres_memory_mib, np.float64, odd),
        "restarts": kind.numbers("RestartCnt", count_of, np.int32, odd),
        "requeueable": kind.numbers("Requeue", "1".__eq__, np.bool_),
        "batch": kind.numbers("BatchFlag", "0".__ne__, np.bool_),
    }  # fmt: skip
    columns |= {name: kind.labels(source, plain) for name, source in _TEXTS.items()}
    columns["run_s"] = _run_s(run, columns["start_s"], now_s, odd)
    columns |= request_columns(kind, warnings)
    columns |= _array_columns(queue, odd)
    columns |= state_columns(kind.labels("State"), columns["run_s"], warnings)
    leave_alone(columns, odd, warnings)
    return columns


def leave_alone(columns: dict[str, Any], odd: Bools, warnings: list[str]) -> None:
    """Pin the jobs of these rows, with a warning that names them."""
    if odd.any():
        jobs = sorted(np.asarray(columns["job_id"])[odd].tolist())
        warnings.append(f"{named_jobs(jobs)}: squeue shows a number or time that is none; left alone")
        columns["pinned"] = columns["pinned"] | odd


def _plain_texts(texts: list[str]) -> Labels:
    known = {text: plain(text) for text in set(texts)}
    return Labels.of([known[text] for text in texts])


def _run_s(run: Grouped, start_s: Floats, now_s: float, odd: Bools) -> Floats:
    """Seconds executed. squeue says INVALID beyond a year; then all since the start counts."""
    used = run.numbers("TimeUsed", duration_s, np.float64, odd, np.nan)
    return np.where(np.isfinite(used), used, np.nan_to_num(np.maximum(now_s - start_s, 0.0)))


def state_columns(words: Labels, run_s: Floats, warnings: list[str]) -> dict[str, Any]:
    """Flags, and the word of a state that is not known: it leaves the job without any flag, so that nothing manages
    it."""
    table, unknown = np.zeros((2, len(words.names)), np.int64), [""] * len(words.names)
    for i, word in enumerate(words.names):
        try:
            table[:, i] = state_of_word(word, ran=False), state_of_word(word, ran=True)
        except UnreadableError as error:
            warnings.append(f"jobs in state {word} are left alone ({error})")
            unknown[i] = word
    text = Labels.of([unknown[code] for code in words.codes]) if any(unknown) else Labels.constant("", len(words))
    return {"state": table[(run_s > 0).astype(np.intp), words.codes], "state_text": text}


def request_columns(kind: Grouped, warnings: list[str]) -> dict[str, Any]:
    """What jobs ask for: GPUs, and the nodes they are bound to.

    A job whose request cannot be read is pinned, with a warning.

    tres: what it holds or asks as TRES text, "" where that names no GPUs (it may not be read).
    """
    bad: set[str] = set()
    names = ("tres-per-job", "tres-per-task", "tres-per-socket", "tres-per-node", "tres-alloc")
    sizes = ("NumNodes", "NumTasks", "Sockets")
    rows = list(kind.rows(*names, *sizes))
    found = {row: _request(row, bad) for row in set(rows)}
    requests = [found[row] for row in rows]
    warnings.extend(f"a request cannot be read, its jobs are left alone: {text!r}" for text in sorted(bad))
    unread = np.array([any(text in bad for text in row[:5]) for row in rows], np.bool_)
    return {
        "gpus": kind.expand([request.gpus for request in requests], np.int32),
        "mig_devices": kind.expand([request.mig_devices for request in requests], np.int32),
        "shards": kind.expand([request.shards for request in requests], np.int32),
        "gpu_request": kind.expand_labels([request.text for request in requests]),
        "gpus_by": kind.expand_labels([request.by for request in requests]),
        **{name: kind.labels(source, plain) for name, source in BOUNDS.items()},
        "pinned": unread[kind.codes],
        "tres": kind.labels("tres-alloc", _gpus_only),
    }


def _gpus_only(tres: str) -> str:
    return ",".join(part for part in tres.split(",") if part.startswith(("gres/gpu", "gres/shard")))


def _request(row: tuple[str, ...], bad: set[str]) -> GpuRequest:
    per_job, per_task, per_socket, per_node, tres, nodes, tasks, sockets = row
    return read_request(
        Forms(per_job, per_task, per_socket, per_node, tres, _count(nodes), _count(tasks), _count(sockets)), bad
    )


def _count(text: str) -> int:
    return whole(text, 1, MOST_COUNT)


def _array_columns(queue: Queue, odd: Bools) -> dict[str, Any]:
    """array_job_id, array_tasks, het_job_id, het_offset from "8_3", "8_[4-7%2]" and "11+1"."""
    rows = len(queue)
    array, tasks, het, offset = (np.zeros(rows, np.int64) for _ in range(4))
    tasks += 1
    for row in [row for row, text in enumerate(queue.array_id) if not text.isdecimal()]:
        text = queue.array_id[row]
        leader, plus, component = text.partition("+")
        try:
            if plus:
                het[row], offset[row] = count_of(leader), count_of(component)
            else:
                job, _, task = text.partition("_")
                array[row], tasks[row] = count_of(job), count_tasks(task.strip("[]"))
        except UnreadableError:
            array[row], het[row], odd[row] = 0, 0, True
    return {"array_job_id": array, "array_tasks": tasks, "het_job_id": het, "het_offset": offset}
