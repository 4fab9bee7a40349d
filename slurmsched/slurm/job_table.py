"""From what a reader heard to the tables of jobs and allocations: the rules all readers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Int64s, Labels
from slurmsched.model.gres import MOST_DEVICES, MOST_INDEXED, Gres, is_mig, parse_gres
from slurmsched.model.hostlist import LARGEST_CLUSTER, expand
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes
from slurmsched.model.states import JobState
from slurmsched.slurm.queue_text import Priorities
from slurmsched.slurm.requests import NO_REQUEST, Forms, GpuRequest, asked
from slurmsched.slurm.text import MOST_COUNT, memory_mib

NICE_LIMIT = 2_147_483_645  # slurm.h NICE_OFFSET - 3: what Slurm's own tools take
HOLDING = JobState.RUNNING | JobState.SUSPENDED
STARTED = ~int(JobState.PENDING | JobState.REVOKED)
_MEMORY = re.compile(r"(?:^|,)mem=([\d.]+[KMGTP]?)")

Parts = tuple[tuple[str, str], ...]  # (hostlist, gres text of each of these nodes)
Details = Mapping[int, Parts]
BEYOND = f"GPUs of index {MOST_INDEXED} or higher cannot be told apart; all are counted without indices"
MOST_NAMED = 10  # jobs or nodes that a warning names one by one


def finish_jobs(columns: Mapping[str, Any], warnings: list[str]) -> Jobs:
    """The table of jobs, ascending id, each once.

    A pending job's start and end are Slurm's estimates and become NaN. A nice outside Slurm's range is an
    unsigned number read wrong: it becomes 0 and the job `pinned`, so that nothing is written to it.
    """
    made = dict(columns)
    rows = len(made["job_id"])
    started = (np.asarray(made["state"], np.int64) & STARTED) != 0
    waits = (np.asarray(made["state"], np.int64) & int(JobState.PENDING)) != 0
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
        warnings.append(f"job {made['job_id'][row]}: nice {nice[row]} is outside Slurm's range; the job is left alone")
    pinned = made.get("pinned")
    made["pinned"] = (np.zeros(rows, np.bool_) if pinned is None else np.asarray(pinned, np.bool_)) | wrong
    made["nice"] = np.where(wrong, 0, nice)


def read_request(forms: Forms, bad: set[str]) -> GpuRequest:
    """The request; one that cannot be read counts as none and its text is put into `bad`."""
    try:
        request = asked(forms)
    except UnreadableError as error:
        bad.add(error.text)
        return NO_REQUEST
    if max(request.gpus, request.mig_devices, request.shards) > MOST_COUNT:
        bad.update(text for text in forms.texts if text)
        return NO_REQUEST
    return request


def tres_memory_mib(text: str) -> float:
    """Memory of a TRES text [MiB]; 0 when it names none."""
    match = _MEMORY.search(text)
    return memory_mib(match[1]) if match else 0.0


def priority_columns(job_id: Int64s, priorities: Priorities) -> dict[str, Any]:
    """site_factor, base_priority and pinned of these jobs. Jobs sprio does not list: 0, NaN and False."""
    site, base, pinned = np.zeros(len(job_id), np.int64), np.full(len(job_id), np.nan), np.zeros(len(job_id), np.bool_)
    if len(priorities.job_id):
        at = np.minimum(np.searchsorted(priorities.job_id, job_id), len(priorities.job_id) - 1)
        known = priorities.job_id[at] == job_id
        site[known] = priorities.site[at[known]]
        base[known] = priorities.factors[at[known]]
        pinned[known] = priorities.pinned[at[known]]
    return {"site_factor": site, "base_priority": base, "pinned": pinned}


def build_allocations(details: Details, warnings: list[str]) -> Allocations:
    """One row a job, node and GPU type. Whole GPUs and MIG devices; the mask is 0 where Slurm shows counts only."""
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
        warnings.append(f"{named_jobs(beyond)}: {BEYOND}")
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
    """The entries of one node, if no count of GPUs is one that no node has. Raises UnreadableError."""
    for entry in entries:
        if entry.kind == "gpu" and entry.count > MOST_DEVICES:
            raise UnreadableError("not a number of GPUs", text=str(entry.count))
    return entries


def _entries(parts: Iterable[tuple[str, str]]) -> Iterable[tuple[str, Gres]]:
    for hosts, text in parts:
        entries = [entry for entry in bounded(parse_gres(text)) if entry.kind == "gpu" and entry.count]
        for node in expand_hosts(hosts) if entries else ():
            yield from ((node, entry) for entry in entries)


def with_held(nodes: Nodes, held: Allocations, *, exact: bool = True) -> Nodes:
    """The nodes, with no fewer GPUs in use on any than jobs hold there: what Slurm says of the two may differ.

    held: what each job holds on each node. exact: Slurm tells it by node; otherwise jobs on several nodes are left out,
    of which it is only known what they hold on all of them.
    """
    at = {name: row for row, name in enumerate(nodes.name)}
    rows = held.node.map(lambda name: at.get(name, -1), np.int64)
    known = (rows >= 0) & ~held.gpu_type.map(is_mig, np.bool_)
    if not exact:
        job, parts = np.unique(held.job_id, return_inverse=True)
        known &= (np.bincount(parts, minlength=len(job)) == 1)[parts]
    counts = np.bincount(rows[known], held.gpus[known], len(nodes)).astype(np.int64)
    more = np.flatnonzero((counts > nodes.gpus_used) & ~nodes.gpus_unread).tolist()
    if not more:
        return nodes
    used, masks = nodes.gpus_used.copy(), nodes.gpu_mask_used.copy()
    used[more] = np.minimum(counts, nodes.gpus)[more]
    for row in more:
        masks[row] |= int(np.bitwise_or.reduce(held.gpu_mask[known & (rows == row)]))
    return nodes.with_columns(gpus_used=used, gpu_mask_used=masks)


def expand_hosts(text: str, most: int = LARGEST_CLUSTER) -> tuple[str, ...]:
    """Node names of a hostlist, in its order; they may be `most` at most. Raises UnreadableError."""
    try:
        return expand(text, most)
    except ValueError as error:
        raise UnreadableError(str(error), text=text) from error


def named_jobs(jobs: Sequence[int]) -> str:
    """ "job 7", "jobs 7, 8" for a warning; of many the first ones."""
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(map(str, jobs[:MOST_NAMED]))}{more}"


def held_counts(details: Details, job_id: Int64s) -> dict[int, GpuRequest]:
    """What each of these jobs holds, by detail; jobs without any are left out."""
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


def put_held(columns: dict[str, Any], details: Details, holds: Any) -> None:
    """Counts of running jobs from what they hold: Slurm may have given other types or more than was asked."""
    rows = np.flatnonzero(holds)
    ids = np.asarray(columns["job_id"], np.int64)
    held = held_counts(details, ids[rows])
    for row in rows:
        if (has := held.get(int(ids[row]))) is not None:
            columns["gpus"][row], columns["mig_devices"][row] = has.gpus, has.mig_devices
            columns["shards"][row] = has.shards
