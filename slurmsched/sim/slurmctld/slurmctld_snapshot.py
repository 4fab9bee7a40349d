"""The snapshot of a simulated slurmctld, as a reader of a live Slurm would give it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slurmsched.model import (
    Allocations,
    Jobs,
    JobState,
    Labels,
    Nodes,
    NodeState,
    Partitions,
    Rights,
    Site,
    Snapshot,
    frozen,
)
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.hints import MARK
from slurmsched.sim.cluster_layout import ClusterLayout, NodeSpec
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

if TYPE_CHECKING:
    from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld

_REQUEUED = JobState.PENDING | JobState.COMPLETING | JobState.REQUEUED
_STATES = np.array([0, JobState.PENDING, JobState.RUNNING, _REQUEUED, 0, 0], np.int64)  # by Phase
_REASONS = ("", "BeginTime", "Dependency")


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotConstants:
    """What never changes: made once, shared by all snapshots. order: rows of the layout by ascending name."""

    nodes: Nodes
    partitions: Partitions
    site: Site
    order: Int64s

    @classmethod
    def of(cls, layout: ClusterLayout, model: SlurmctldSettings) -> SnapshotConstants:
        names = [node.name for node in layout.nodes]
        order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        listed = sorted(layout.partitions, key=lambda partition: partition.name)
        masks = {partition.name: layout.mask(partition.nodes) for partition in listed}
        nodes = Nodes.build(len(names), {
            "name": [names[n] for n in order],
            "partitions": [",".join(name for name, mask in masks.items() if mask[n]) for n in order],
            "gpu_types": [_gpu_types(layout.nodes[n]) for n in order],
            "gpus": layout.column("gpus")[order],
            "cpus": layout.column("cpus")[order],
            "memory_mib": layout.column("memory_mib")[order],
        })  # fmt: skip
        weights = {"Age": model.weight_age, "JobSize": model.weight_job_size, "Partition": model.weight_partition,
                   "QOS": model.weight_qos, "FairShare": model.weight_fairshare}  # fmt: skip
        settings = {f"PriorityWeight{name}": str(weight) for name, weight in weights.items()}
        settings |= {"PriorityType": "priority/multifactor", "KillWait": f"{model.kill_wait_s:.0f} sec"}
        site = Site(cluster="simulated", rights=Rights.OPERATOR, user="slurmsched", settings=settings)
        partitions = Partitions.build(len(listed), {
            "name": [partition.name for partition in listed],
            "default": [partition == layout.partitions[0] for partition in listed],
            "priority_tier": [partition.tier for partition in listed],
            "job_factor": [partition.factor for partition in listed],
            "nodes": [int(masks[partition.name].sum()) for partition in listed],
            "max_time_s": [partition.max_time_s or np.inf for partition in listed],
            "min_nodes": [partition.min_nodes for partition in listed],
            "max_nodes": [partition.max_nodes or np.inf for partition in listed],
            "max_cpus_per_node": [partition.max_cpus_per_node or np.inf for partition in listed],
        })  # fmt: skip
        return cls(nodes, partitions, site, order)


def _gpu_types(node: NodeSpec) -> str:
    return node.gpu_types or (f"gpu:{node.gpus}" if node.gpus else "")


def snapshot(cluster: SimulatedSlurmctld) -> Snapshot:
    """Jobs that wait, run or ended lately; nodes; GPUs held."""
    scene = cluster.scene
    return Snapshot(
        now_s=cluster.now_s,
        jobs=_jobs(cluster),
        nodes=_nodes(cluster),
        partitions=scene.partitions,
        allocations=_allocations(cluster),
        site=scene.site,
        seed=cluster.seed,
        operations=cluster.operations,
        past_operations=cluster.past_operations,
        overrides=cluster.overrides,
        reservations=cluster.bookings.table(),
    )


def _records(cluster: SimulatedSlurmctld) -> tuple[Int64s, Int64s, Int64s]:
    """Rows shown by ascending id, that id, and how many tasks each stands for. All (R,).

    The waiting tasks of an array are one record under the array's id, with its first task's columns.
    """
    job, ids, now_s = cluster.job, cluster.trace.job_id, cluster.now_s
    rows = job.shown(now_s)
    untouched = (job.phase[rows] == JobPhase.PENDING) & (job.restarts[rows] == 0)
    shown = np.where(untouched, job.record_id[rows], ids[rows])
    order = np.lexsort((ids[rows], ~untouched, shown))
    rows, shown = rows[order], shown[order]
    shown, first, tasks = np.unique(shown, return_index=True, return_counts=True)
    return rows[first], shown, tasks


# Over 30 lines: one line for each column of the table.
def _jobs(cluster: SimulatedSlurmctld) -> Jobs:
    job, trace, asked, now_s = cluster.job, cluster.trace, cluster.job.requests, cluster.now_s
    rows, shown, tasks = _records(cluster)
    phase, gpus = job.phase[rows], cluster.gpus[rows]
    pending, running = phase == JobPhase.PENDING, phase == JobPhase.RUNNING
    run_s = np.where(running, now_s - job.start_s[rows], 0.0)
    executed_s = job.executed_s[rows] + run_s
    limit_s, eligible_s = trace.time_limit_s[rows], job.eligible_s[rows]
    waits = pending & (cluster.dependencies.open[rows] > 0)
    reason = np.where(waits, 2, np.where(pending & (eligible_s > now_s), 1, 0))
    ended = np.where(phase == JobPhase.ENDING, int(JobState.COMPLETING), 0) | job.ended_as[rows]
    default = cluster.layout.partitions[0].name
    return Jobs.build(len(rows), {
        "job_id": shown,
        "array_job_id": asked.array_id[rows],
        "array_tasks": tasks,
        "user": asked.user.take(rows),
        "account": asked.account.take(rows),
        "partition": Labels.of([name or default for name in asked.partition.take(rows)]),
        "qos": asked.qos.take(rows),
        "name": asked.name.take(rows),
        "comment": _comments(cluster, rows),
        "nodes_asked": asked.node_list.take(rows),
        "reservation": _named(cluster, rows),
        "reason": Labels(frozen(reason, np.int32), _REASONS).take(np.arange(len(rows))),
        "dependency": _open_dependencies(asked.dependency.take(rows), waits),
        "state": np.where(phase >= JobPhase.ENDING, ended, _STATES[phase]),
        "submit_s": job.submit_s[rows],
        "eligible_s": np.where(np.isinf(eligible_s), np.nan, eligible_s),
        "start_s": job.start_s[rows],
        "end_s": np.where(running, job.start_s[rows] + limit_s, job.end_s[rows]),
        "time_limit_s": limit_s,
        "run_s": run_s,
        "nodes": cluster.demand.nodes[rows],
        "cpus": cluster.demand.cpus[rows],
        "memory_mib": asked.memory_mib[rows],
        "gpus": gpus,
        "tasks": np.where(pending, cluster.demand.nodes[rows], 0),
        "gpus_by": Labels.constant("node", len(rows)),
        "gpu_request": _requests(asked.gpu_type.take(rows), gpus),
        "nice": job.nice[rows],
        "site_factor": job.site[rows],
        "priority": job.priority(rows, now_s),
        "base_priority": job.base_priority(rows, now_s),
        "qos_priority": cluster.demand.qos_priority[rows],
        "fair_share": cluster.fair_share.factors[cluster.fair_share.tree.of_job[rows]],
        "fixed_priority": asked.fixed_priority[rows] > 0,
        "restarts": job.restarts[rows],
        "wanted_gpus": cluster.wanted[rows],
        "requeueable": np.ones(len(rows), np.bool_),
        "first_submit_s": trace.submit_s[rows],
        "attained_gpu_s": executed_s * gpus,
        "executed_s": executed_s,
        "waiting_s": np.where(pending, now_s - job.stopped_s[rows], 0.0),
    })  # fmt: skip


def _comments(cluster: SimulatedSlurmctld, rows: Int64s) -> Labels:
    """The comments, with the progress of jobs that report it."""
    texts = cluster.job.requests.comment.take(rows)
    if not cluster.model.resizes:
        return texts
    done = cluster.job.done(rows, cluster.now_s).tolist()
    return Labels.of([f"{text} {MARK} progress={share:.9f}/1" if MARK in text else text
                      for text, share in zip(texts, done, strict=True)])  # fmt: skip


def _named(cluster: SimulatedSlurmctld, rows: Int64s) -> Labels:
    """The reservation that each row names."""
    named = cluster.bookings.named
    return Labels.of([named.get(row, "") for row in rows.tolist()]) if named else Labels.constant("", len(rows))


def _open_dependencies(texts: Labels, waits: Bools) -> Labels:
    """The text of dependencies that are not satisfied yet, as Slurm shows them."""
    if not waits.any():
        return Labels.constant("", len(texts))
    return Labels.of([text if waiting else "" for text, waiting in zip(texts, waits.tolist(), strict=True)])


def _nodes(cluster: SimulatedSlurmctld) -> Nodes:
    used = cluster.capacity - cluster.free
    partly = np.where(used == 0, int(NodeState.IDLE), int(NodeState.MIXED))
    state = np.where((used > 0) & (cluster.free == 0), int(NodeState.ALLOCATED), partly)
    state = np.where(cluster.open_nodes, state, state | int(NodeState.DRAIN))
    order = cluster.scene.order
    _, node, held = cluster.holdings.parts(cluster.holdings.rows)
    cpus, memory = (np.bincount(node, held[:, kind], len(used))[order] for kind in (1, 2))
    return cluster.scene.nodes.with_columns(
        state=state[order], gpus_used=used[order], cpus_used=cpus.astype(np.int32), memory_used_mib=memory
    )


def _allocations(cluster: SimulatedSlurmctld) -> Allocations:
    ids, scene = cluster.trace.job_id, cluster.scene
    place = np.argsort(scene.order)  # row of the table for each row of the layout
    rows = cluster.holdings.rows[np.argsort(ids[cluster.holdings.rows])]
    count, node, held = cluster.holdings.parts(rows)
    job_id, node = np.repeat(ids[rows], count), place[node]
    order = np.lexsort((node, job_id))
    return Allocations.build(len(node), {
        "job_id": job_id[order],
        "node": Labels(frozen(node[order], np.int32), scene.nodes.name.names).take(np.arange(len(node))),
        "gpus": held[order, 0],
    })  # fmt: skip


def _requests(gpu_type: Labels, gpus: Int64s) -> Labels:
    """What each job asks for in normal form, "gpu:4" or "gpu:a100:4". (R,)."""
    pairs = zip(gpu_type, gpus.tolist(), strict=True)
    return Labels.of([f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in pairs])
