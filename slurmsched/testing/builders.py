"""Small snapshots in a line: rows as dicts, with sensible defaults for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np

from slurmsched.model import Allocations, Jobs, Labels, Nodes, Partitions, Snapshot, frozen, job_state, node_state
from slurmsched.model.columns import Floats, Table
from slurmsched.model.gres import is_mig
from slurmsched.model.hints import parse_hints

T = TypeVar("T", bound=Table)
Row = Mapping[str, Any]
PARTITION = "gpu"


def jobs(rows: Sequence[Row] = ()) -> Jobs:
    """Jobs from dicts of columns, in ascending job id whatever the order given.

    Not given: job_id counts from 1, submit_s is 0, gpus 1, priority 1 (0 is held), the partition "gpu", first_submit_s
    as submit_s, attained_gpu_s as executed_s times GPUs. state may be a word of Slurm's: "PD".
    Raises ValueError for an unknown column.
    """
    made = [_job(row, number) for number, row in enumerate(rows, start=1)]
    return _table(Jobs, sorted(made, key=lambda row: row["job_id"]))


def fleet(size: str = "4x8", *, gpu_type: str = "a100", partition: str = PARTITION) -> Nodes:
    """Idle nodes: "20x8" is 20 nodes of 8 GPUs, n01 to n20. Raises ValueError for another form."""
    match = re.fullmatch(r"(\d+)x(\d+)", size)
    if not match:
        raise ValueError(f"fleet is written NODESxGPUS, for example 4x8, not {size!r}")
    count, gpus = map(int, match.groups())
    row = {"gpus": gpus, "gpu_types": f"gpu:{gpu_type}:{gpus}" if gpus else "", "cpus": 64, "memory_mib": 512_000.0}
    width = len(str(count))
    return _table(Nodes, [row | {"name": f"n{i:0{width}}", "partitions": partition} for i in range(1, count + 1)])


def snapshot(
    jobs: Sequence[Row] | Jobs = (),
    nodes: Sequence[Row] | Nodes | str = "4x8",
    *,
    now_s: float = 0.0,
    allocations: Sequence[Row] = (),
    partitions: Sequence[Row] | None = None,
    history_gpu_s: Sequence[float] | Floats = (),
    **others: Any,
) -> Snapshot:
    """A snapshot of these jobs and nodes. jobs: as `jobs` takes them. nodes: dicts, or a fleet like "4x8".

    allocations: dicts of columns; the GPUs in them count as used on their nodes. partitions: one named "gpu" with all
    nodes if not given. history_gpu_s is sorted. others: further fields of Snapshot.
    """
    held = _table(Allocations, sorted(allocations, key=_place))
    submitted = _jobs(jobs)
    machines = _used(_nodes(nodes), held, submitted)
    default = [{"name": PARTITION, "default": True, "nodes": len(machines), "node_list": ",".join(machines.name)}]
    return Snapshot(
        now_s=now_s,
        jobs=submitted,
        nodes=machines,
        partitions=_table(Partitions, sorted(default if partitions is None else partitions, key=_name)),
        allocations=held,
        history_gpu_s=frozen(np.sort(np.asarray(history_gpu_s, np.float64)), np.float64),
        **others,
    )


def mixed_snapshot(count: int, seed: int = 0) -> Snapshot:
    """A busy cluster of `count` jobs of every kind, with many ties; the same seed gives the same one."""
    chance = np.random.default_rng(seed)
    states = ("PENDING", "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "PENDING,COMPLETING")
    comments = ("", "", "slurmsched: dur=2h", "slurmsched: dur=30m preempt=yes", "not for us")

    def row(job_id: int) -> dict[str, Any]:
        state, submit_s = states[chance.integers(len(states))], 600.0 * chance.integers(count // 2 + 1)
        executed_s = 0.0 if state == "PENDING" and chance.random() < 0.5 else 900.0 * chance.integers(1, 12)
        return {
            "job_id": job_id, "state": state, "submit_s": submit_s, "executed_s": executed_s,
            "gpus": 2 ** chance.integers(0, 5), "waiting_s": 600.0 * chance.integers(0, 9),
            "start_s": np.nan if "PENDING" in state else submit_s + 60.0 * chance.integers(0, 9),
            "time_limit_s": chance.choice([np.inf, 3_600.0, 86_400.0]), "comment": comments[chance.integers(5)],
        }  # fmt: skip

    rows = [row(int(job_id)) for job_id in 1 + np.flatnonzero(chance.permutation(2 * count) < count)]
    return snapshot(rows, "8x8", now_s=1e6, seed=seed, history_gpu_s=chance.lognormal(7.0, 2.0, 200))


def shifted(given: Snapshot, by_s: float) -> Snapshot:
    """The same snapshot at another time: by_s [s] is added to the clock and to every time of its tables.

    Deadlines in comments that are given as a time are shifted too. The carry and what is on record of operations stay.
    """
    tables = {
        "jobs": ("submit_s", "eligible_s", "start_s", "expected_start_s", "end_s", "first_submit_s"),
        "past": ("submit_s", "end_s"),
        "reservations": ("start_s", "end_s"),
    }
    moved: dict[str, Any] = {}
    for name, columns in tables.items():
        table = getattr(given, name)
        moved[name] = table.with_columns(**{column: getattr(table, column) + by_s for column in columns})
    comments = [_later(comment, by_s) for comment in given.jobs.comment]
    moved["jobs"] = moved["jobs"].with_columns(comment=Labels.of(comments))
    return replace(given, now_s=given.now_s + by_s, **moved)


def _later(comment: str, by_s: float) -> str:
    """A comment whose deadline, where it is a time, comes so much later."""
    deadline = parse_hints(comment).deadline
    if deadline is None or deadline.at_s is None:
        return comment
    later = datetime.fromtimestamp(deadline.at_s + by_s, UTC).isoformat()
    return re.sub(r"(?<=\sdeadline=)\S+", later, comment)


def _job(row: Row, number: int) -> dict[str, Any]:
    job = {"job_id": number, "submit_s": 0.0, "gpus": 1, "partition": PARTITION, "priority": 1, **row}
    job.setdefault("first_submit_s", job["submit_s"])
    job.setdefault("attained_gpu_s", job.get("executed_s", 0.0) * job["gpus"])
    if isinstance(job.get("state"), str):
        job["state"] = int(job_state(job["state"]))
    return job


def _jobs(given: Sequence[Row] | Jobs) -> Jobs:
    return given if isinstance(given, Jobs) else jobs(given)


def _nodes(given: Sequence[Row] | Nodes | str) -> Nodes:
    if isinstance(given, str):
        return fleet(given)
    return given if isinstance(given, Nodes) else _table(Nodes, sorted(map(_node, given), key=_name))


def _node(row: Row) -> dict[str, Any]:
    state = row.get("state")
    return {"partitions": PARTITION, **row, **({"state": int(node_state(state))} if isinstance(state, str) else {})}


def _used(nodes: Nodes, allocations: Allocations, submitted: Jobs) -> Nodes:
    """The nodes with the GPUs that are held counted as used, also in part; MIG devices are none."""
    row = {name: i for i, name in enumerate(nodes.name)}
    used, mask = nodes.gpus_used.copy(), nodes.gpu_mask_used.copy()
    parts = set(submitted.job_id[submitted.gpu_milli < 1000].tolist())
    columns = zip(
        allocations.job_id.tolist(),
        allocations.node,
        allocations.gpu_type,
        allocations.gpus,
        allocations.gpu_mask.tolist(),
        strict=True,
    )
    for job_id, name, gpu_type, gpus, gpu_mask in columns:
        if is_mig(gpu_type):
            continue
        n = row[name]
        used[n] += (gpu_mask & ~int(mask[n])).bit_count() if job_id in parts else gpus
        mask[n] |= gpu_mask
    return nodes.with_columns(gpus_used=used, gpu_mask_used=mask) if len(allocations) else nodes


def _table(kind: type[T], rows: Sequence[Row]) -> T:
    """A table from dicts; a column that a row lacks holds its default there."""
    given = {name for row in rows for name in row}
    default = {spec.name: spec.metadata["default"] for spec in fields(kind)}  # type: ignore[arg-type]
    return kind.build(len(rows), {name: [row.get(name, default.get(name)) for row in rows] for name in given})


def _name(row: Row) -> str:
    return row["name"]


def _place(row: Row) -> tuple[int, str, str]:
    return row["job_id"], row["node"], row.get("gpu_type", "")
