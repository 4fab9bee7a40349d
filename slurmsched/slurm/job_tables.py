"""Tables of jobs and allocations: the rules that all readers share, and the columns of squeue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Bools, Floats, Int64s, Labels
from slurmsched.model.gres import (
    KINDS,
    MOST_DEVICES,
    MOST_INDEXED,
    NO_REQUEST,
    GpuRequest,
    Gres,
    RequestForms,
    device_shards,
    is_mig,
    parse_gres,
    read_request_forms,
    shared_part,
)
from slurmsched.model.hostlists import LARGEST_CLUSTER, expand_hostlist
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes
from slurmsched.model.slurm_text import (
    MOST_COUNT,
    count_tasks,
    memory_mib,
    parse_count,
    slurm_duration_s,
    text_or_empty,
    time_s,
    whole_number,
)
from slurmsched.model.states import HOLDS_NODES, JobState, state_of_word
from slurmsched.slurm.squeue import GroupedColumns, Priorities, SqueueRows, convert_each

NICE_LIMIT = 2_147_483_645  # slurm.h NICE_OFFSET - 3, the limit of Slurm's own tools
STARTED = ~int(JobState.PENDING | JobState.REVOKED)
_MEMORY = re.compile(r"(?:^|,)mem=([\d.]+[KMGTP]?)")
_TRES_NODES = re.compile(r"(?:^|,)node=(\d{1,9})(?:,|$)")

HeldParts = tuple[tuple[str, str], ...]  # (hostlist, gres text of each of these nodes)
HeldByJob = Mapping[int, HeldParts]
BEYOND_MASK = f"a mask has no GPU of index {MOST_INDEXED} or higher; all are counted without indices"
MOST_NAMED = 10  # jobs or nodes that a warning names


def finish_jobs(columns: Mapping[str, Any], warnings: list[str]) -> Jobs:
    """The table of jobs, each once, in ascending id.

    The start of a pending job is Slurm's estimate: it moves to `expected_start_s`. Its end becomes NaN. A nice outside
    Slurm's range is a misread unsigned number: it becomes 0, with fixed_priority: nothing is written to the job.
    """
    made = dict(columns)
    rows = len(made["job_id"])
    started = (np.asarray(made["state"], np.int64) & STARTED) != 0
    waits = (np.asarray(made["state"], np.int64) & int(JobState.PENDING)) != 0
    made["expected_start_s"] = np.where(waits, np.asarray(made["start_s"], np.float64), np.nan)
    for name in ("start_s", "end_s"):
        made[name] = np.where(started & ~waits, np.asarray(made[name], np.float64), np.nan)
    made["run_s"] = np.where(started & ~waits, np.nan_to_num(np.asarray(made["run_s"], np.float64)), 0.0)
    _refuse_nice(made, rows, warnings)
    job_id = np.asarray(made["job_id"], np.int64)
    order = np.unique(job_id, return_index=True)[1]
    if len(order) < rows:
        return Jobs.build(rows, made).take(order)
    if not bool((order == np.arange(rows)).all()):
        made = {name: _ordered(values, order) for name, values in made.items()}
    return Jobs.build(rows, made)


def _ordered(values: Any, order: Int64s) -> Any:
    if isinstance(values, Labels):
        return Labels(values.codes[order], values.names)
    return np.asarray(values)[order]


def _refuse_nice(made: dict[str, Any], rows: int, warnings: list[str]) -> None:
    nice = np.array(made["nice"], np.int64)
    wrong = np.abs(nice) > NICE_LIMIT
    if not wrong.any():
        return
    for row in np.flatnonzero(wrong):
        warnings.append(f"job {made['job_id'][row]}: nice {nice[row]} is outside Slurm's range; the job is not managed")
    fixed = made.get("fixed_priority")
    made["fixed_priority"] = (np.zeros(rows, np.bool_) if fixed is None else np.asarray(fixed, np.bool_)) | wrong
    made["nice"] = np.where(wrong, 0, nice)


def read_request(forms: RequestForms, bad: set[str]) -> GpuRequest:
    """The request. One that cannot be parsed counts as none, and its text is added to `bad`."""
    try:
        request = read_request_forms(forms)
    except UnreadableError as error:
        bad.add(error.text)
        return NO_REQUEST
    if max(request.gpus, request.mig_devices, request.shards) > MOST_COUNT:
        bad.update(text for text in forms.texts if text)
        return NO_REQUEST
    return request


def count_nodes(shown: int, tres: str, restarts: str) -> int:
    """Nodes that a job has or asks for. shown: NumNodes. tres: what it has, else asks for.

    After a requeue and a restart of slurmctld NumNodes stays that of the last run (seen on 26.05.5). If somebody then
    asks for another number, only the TRES tell it.
    """
    found = _TRES_NODES.search(tres) if restarts.strip("0") else None
    return int(found[1]) if found else shown


def tres_memory_mib(text: str) -> float:
    """Memory of a TRES text [MiB]; 0 if it names none."""
    match = _MEMORY.search(text)
    return memory_mib(match[1]) if match else 0.0


def priority_columns(job_id: Int64s, priorities: Priorities) -> dict[str, Any]:
    """site_factor, base_priority and fixed_priority of these jobs; 0, NaN and False where sprio lists none."""
    site, base, fixed = np.zeros(len(job_id), np.int64), np.full(len(job_id), np.nan), np.zeros(len(job_id), np.bool_)
    if len(priorities.job_id):
        at = np.minimum(np.searchsorted(priorities.job_id, job_id), len(priorities.job_id) - 1)
        known = priorities.job_id[at] == job_id
        site[known] = priorities.site[at[known]]
        base[known] = priorities.factors[at[known]]
        fixed[known] = priorities.fixed_priority[at[known]]
    return {"site_factor": site, "base_priority": base, "fixed_priority": fixed}


def build_allocations(details: HeldByJob, warnings: list[str]) -> Allocations:
    """One row for each job, node and GPU type: whole GPUs and MIG devices. The mask is 0 if only counts are known."""
    held: dict[tuple[int, str, str], tuple[int, int]] = {}
    for job_id, parts in details.items():
        try:
            for node, entry in _entries(parts):
                key = (job_id, node, entry.type)
                count, mask = held.get(key, (0, 0))
                held[key] = (count + entry.count, mask | entry.mask)
        except UnreadableError as error:
            warnings.append(f"job {job_id}: held GPUs cannot be read ({error})")
    keys = sorted(held)
    if beyond := sorted({key[0] for key in keys if held[key][1].bit_length() > MOST_INDEXED and not is_mig(key[2])}):
        warnings.append(f"{named_jobs(beyond)}: {BEYOND_MASK}")
    return Allocations.build(
        len(keys),
        {
            "job_id": [job_id for job_id, _, _ in keys],
            "node": [node for _, node, _ in keys],
            "gpu_type": [gpu_type for _, _, gpu_type in keys],
            "gpus": [held[key][0] for key in keys],
            "gpu_mask": [mask if (mask := held[key][1]).bit_length() <= MOST_INDEXED else 0 for key in keys],
        },
    )


def bounded(entries: Sequence[Gres]) -> Sequence[Gres]:
    """The entries of one node. Raises UnreadableError for more GPUs than a node can have."""
    for entry in entries:
        if entry.kind == "gpu" and entry.count > MOST_DEVICES:
            raise UnreadableError("not a number of GPUs", text=str(entry.count))
    return entries


def _entries(parts: Iterable[tuple[str, str]]) -> Iterable[tuple[str, Gres]]:
    for hosts, text in parts:
        entries = [entry for entry in bounded(parse_gres(text)) if entry.kind == "gpu" and entry.count]
        for node in expand_hosts(hosts) if entries else ():
            yield from ((node, entry) for entry in entries)


def with_held(nodes: Nodes, allocations: Allocations, *, exact: bool = True) -> Nodes:
    """The nodes, each with at least as many GPUs in use as jobs hold there. Slurm's two answers may differ.

    allocations: what each job holds on each node.
    exact: whether Slurm shows that for each node. If not, jobs on several nodes are left out, since only their sum is
        known.
    """
    at = nodes.name.rows()
    rows = allocations.node.map(lambda name: at.get(name, -1), np.int64)
    known = (rows >= 0) & ~allocations.gpu_type.map(is_mig, np.bool_)
    if not exact:
        job, parts = np.unique(allocations.job_id, return_inverse=True)
        known &= (np.bincount(parts, minlength=len(job)) == 1)[parts]
    counts = np.bincount(rows[known], allocations.gpus[known], len(nodes)).astype(np.int64)
    more = np.flatnonzero((counts > nodes.gpus_used) & ~nodes.gpus_unread).tolist()
    if not more:
        return nodes
    used, masks = nodes.gpus_used.copy(), nodes.gpu_mask_used.copy()
    used[more] = np.minimum(counts, nodes.gpus)[more]
    for row in more:
        masks[row] |= int(np.bitwise_or.reduce(allocations.gpu_mask[known & (rows == row)]))
    return nodes.with_columns(gpus_used=used, gpu_mask_used=masks)


def expand_hosts(text: str, most: int = LARGEST_CLUSTER) -> tuple[str, ...]:
    """Node names of a hostlist, in its order. Raises UnreadableError, also for more than `most` names."""
    try:
        return expand_hostlist(text, most)
    except ValueError as error:
        raise UnreadableError(str(error), text=text) from error


def named_jobs(jobs: Sequence[int]) -> str:
    """ "job 7" or "jobs 7, 8" for a warning; of many jobs the first ones."""
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(map(str, jobs[:MOST_NAMED]))}{more}"


def held_counts(details: HeldByJob, job_id: Int64s) -> dict[int, GpuRequest]:
    """What each of these jobs holds; jobs without details are left out."""
    found = {}
    for job in job_id.tolist():
        with suppress(UnreadableError):  # build_allocations warns of it
            entries = [entry for part in details.get(job, ()) for entry in _held_by_part(*part)]
            has = GpuRequest.of(entries)
            if entries and max(has.gpus, has.mig_devices, has.shards) <= MOST_COUNT:
                found[job] = has
    return found


def _held_by_part(hosts: str, text: str) -> list[Gres]:
    return list(bounded(parse_gres(text))) * len(expand_hosts(hosts))


def put_held(columns: dict[str, Any], details: HeldByJob, holds: Any) -> None:
    """Set the counts of running jobs to what they hold. Slurm may have given other types, or more than requested."""
    rows = np.flatnonzero(holds)
    ids = np.asarray(columns["job_id"], np.int64)
    held = held_counts(details, ids[rows])
    for row in rows:
        if (has := held.get(int(ids[row]))) is not None:
            columns["gpus"][row], columns["mig_devices"][row] = has.gpus, has.mig_devices
            columns["shards"][row] = has.shards
    put_shared_parts(columns, details, ids)


def put_shared_parts(columns: dict[str, Any], details: HeldByJob, job_id: Int64s) -> None:
    """Set where each job has its shards, as far as Slurm shows it."""
    gpu, milli = [""] * len(job_id), np.zeros(len(job_id), np.int32)
    for row in np.flatnonzero(np.asarray(columns["shards"]) > 0).tolist():
        parts = details.get(int(job_id[row]), ())
        with suppress(UnreadableError):
            if len(parts) == 1 and (part := shared_part(parts[0][0], parse_gres(parts[0][1]))):
                gpu[row], milli[row] = f"{part.node} {part.gpu}", part.milli
    columns["shared_gpu"], columns["shared_milli"] = Labels.of(gpu), milli


def with_shared_parts(jobs: Jobs, nodes: Nodes) -> Jobs:
    """The jobs; those with shards of which Slurm does not show the GPU have what their node shows.

    The part that they hold is known if all its GPUs have as many shards. The GPU is known if it is the only shared one.
    """
    rows = np.flatnonzero((jobs.shards > 0) & (jobs.shared_milli == 0) & jobs.is_state(HOLDS_NODES) & (jobs.nodes == 1))
    if not len(rows):
        return jobs
    shown = dict(zip(nodes.name, nodes.shards, strict=True))
    gpu, milli = list(jobs.shared_gpu), jobs.shared_milli.copy()
    for row in rows.tolist():
        devices = device_shards(shown.get(jobs.node_list[row], ""))
        sizes, busy = {size for _, size in devices}, [place for place, (used, _) in enumerate(devices) if used]
        if len(sizes) == 1 and (size := sizes.pop()) >= jobs.shards[row]:
            milli[row] = 1000 * int(jobs.shards[row]) // size
            gpu[row] = f"{jobs.node_list[row]} {busy[0]}" if len(busy) == 1 else ""
    return jobs.with_columns(shared_gpu=Labels.of(gpu), shared_milli=milli)


# squeue's columns under the names of the model.

_TEXTS = {"user": "UserName", "account": "Account", "partition": "Partition", "qos": "QOS", "reason": "Reason",
          "reservation": "Reservation"}  # fmt: skip
NODE_FIELDS = {"features_asked": "Feature", "nodes_asked": "ReqNodes", "nodes_excluded": "ExcNodes"}


def queue_columns(queue: SqueueRows, now_s: float, warnings: list[str]) -> dict[str, Any]:
    """The columns of model.Jobs that squeue shows. Times of pending jobs are still Slurm's estimates."""
    ids, kind, run, odd = queue.ids, queue.kind, queue.run, queue.odd.copy()
    columns: dict[str, Any] = {
        "job_id": ids["JobID"], "nice": ids["Nice"], "priority": ids["PriorityLong"],
        "submit_s": ids["SubmitTime"], "eligible_s": ids["EligibleTime"],
        "start_s": run.numbers("StartTime", time_s, np.float64, odd, np.nan),
        "end_s": run.numbers("EndTime", time_s, np.float64, odd, np.nan),
        "node_list": run.labels("NodeList", text_or_empty), "dependency": run.labels("Dependency", text_or_empty),
        "name": Labels.of(queue.name), "comment": _plain_texts(queue.comment),
        "time_limit_s": kind.numbers("TimeLimit", slurm_duration_s, np.float64, odd, np.nan),
        "nodes": kind.numbers("NumNodes", parse_count, np.int32, odd, 1),
        "cpus": kind.numbers("NumCPUs", parse_count, np.int32, odd),
        "memory_mib": kind.numbers("tres-alloc", tres_memory_mib, np.float64, odd),
        "restarts": kind.numbers("RestartCnt", parse_count, np.int32, odd),
        "requeueable": kind.numbers("Requeue", "1".__eq__, np.bool_),
        "batch": kind.numbers("BatchFlag", "0".__ne__, np.bool_),
    }  # fmt: skip
    columns |= {name: kind.labels(source, text_or_empty) for name, source in _TEXTS.items()}
    columns["run_s"] = _run_s(run, columns["start_s"], now_s, odd)
    columns |= request_columns(kind, warnings)
    columns |= _array_columns(queue, odd)
    columns |= state_columns(kind.labels("State"), columns["run_s"], warnings)
    pin_unreadable(columns, odd, warnings)
    return columns


def pin_unreadable(columns: dict[str, Any], odd: Bools, warnings: list[str]) -> None:
    """Set `fixed_priority` for these rows, so that nothing is written to the jobs; a warning names them."""
    if odd.any():
        jobs = sorted(np.asarray(columns["job_id"])[odd].tolist())
        warnings.append(f"{named_jobs(jobs)}: squeue shows an unreadable number or time; not managed")
        columns["fixed_priority"] = columns["fixed_priority"] | odd


def _plain_texts(texts: Sequence[str]) -> Labels:
    known = {text: text_or_empty(text) for text in set(texts)}
    return Labels.of([known[text] for text in texts])


def _run_s(run: GroupedColumns, start_s: Floats, now_s: float, odd: Bools) -> Floats:
    """Run time [s]. squeue prints INVALID after a year; then the time since the start counts."""
    used = run.numbers("TimeUsed", slurm_duration_s, np.float64, odd, np.nan)
    return np.where(np.isfinite(used), used, np.nan_to_num(np.maximum(now_s - start_s, 0.0)))


def state_columns(words: Labels, run_s: Floats, warnings: list[str]) -> dict[str, Any]:
    """State flags, and the word of an unknown state. A job in an unknown state has no flag and is not managed."""
    table, unknown = np.zeros((2, len(words.names)), np.int64), [""] * len(words.names)
    for i, word in enumerate(words.names):
        try:
            table[:, i] = state_of_word(word, ran=False), state_of_word(word, ran=True)
        except UnreadableError as error:
            warnings.append(f"jobs in state {word} are not managed ({error})")
            unknown[i] = word
    text = Labels.of([unknown[code] for code in words.codes]) if any(unknown) else Labels.constant("", len(words))
    return {"state": table[(run_s > 0).astype(np.intp), words.codes], "state_text": text}


def request_columns(kind: GroupedColumns, warnings: list[str]) -> dict[str, Any]:
    """Requests: GPUs, features, nodes and their number; and `tres`, the GPUs, shards and MPS of tres-alloc ("" = none).

    A job whose request cannot be parsed gets fixed_priority, with a warning.
    """
    bad: set[str] = set()
    names = ("tres-per-job", "tres-per-task", "tres-per-socket", "tres-per-node", "tres-alloc")
    shown, _ = convert_each(kind.columns["NumNodes"], parse_count, np.int32, 1)
    tres = kind.rows("tres-alloc", "RestartCnt")
    nodes = [str(count_nodes(count, *row)) for count, row in zip(shown.tolist(), tres, strict=True)]
    sizes = kind.rows("NumTasks", "Sockets")
    rows = [(*texts, count, *size) for texts, count, size in zip(kind.rows(*names), nodes, sizes, strict=True)]
    found = {row: _request(row, bad) for row in set(rows)}
    requests = [found[row] for row in rows]
    warnings.extend(f"cannot read a request, its jobs are not managed: {text!r}" for text in sorted(bad))
    unread = np.array([any(text in bad for text in row[:5]) for row in rows], np.bool_)
    return {
        "nodes": kind.expand([_count(row[5]) for row in rows], np.int32),
        "tasks": kind.expand([_count(row[6]) for row in rows], np.int32),
        "gpus": kind.expand([request.gpus for request in requests], np.int32),
        "mig_devices": kind.expand([request.mig_devices for request in requests], np.int32),
        "shards": kind.expand([request.shards for request in requests], np.int32),
        "gpu_request": kind.expand_labels([request.text for request in requests]),
        "gpus_by": kind.expand_labels([request.by for request in requests]),
        **{name: kind.labels(source, text_or_empty) for name, source in NODE_FIELDS.items()},
        "fixed_priority": unread[kind.codes],
        "tres": kind.labels("tres-alloc", _gpus_only),
    }


def _gpus_only(tres: str) -> str:
    return ",".join(part for part in tres.split(",") if part.startswith(tuple(f"gres/{kind}" for kind in KINDS)))


def _request(row: tuple[str, ...], bad: set[str]) -> GpuRequest:
    per_job, per_task, per_socket, per_node, tres, nodes, tasks, sockets = row
    return read_request(
        RequestForms(per_job, per_task, per_socket, per_node, tres, _count(nodes), _count(tasks), _count(sockets)), bad
    )


def _count(text: str) -> int:
    return whole_number(text, 1, MOST_COUNT)


def _array_columns(queue: SqueueRows, odd: Bools) -> dict[str, Any]:
    """array_job_id, array_tasks, het_job_id, het_offset from "8_3", "8_[4-7%2]" and "11+1"."""
    rows = len(queue)
    array, tasks, het, offset = (np.zeros(rows, np.int64) for _ in range(4))
    tasks += 1
    plain = all(map(str.isdecimal, queue.array_id))
    for row in () if plain else [row for row, text in enumerate(queue.array_id) if not text.isdecimal()]:
        text = queue.array_id[row]
        leader, plus, component = text.partition("+")
        try:
            if plus:
                het[row], offset[row] = parse_count(leader), parse_count(component)
            else:
                job, _, task = text.partition("_")
                array[row], tasks[row] = parse_count(job), count_tasks(task.strip("[]"))
        except UnreadableError:
            array[row], het[row], odd[row] = 0, 0, True
    return {"array_job_id": array, "array_tasks": tasks, "het_job_id": het, "het_offset": offset}
