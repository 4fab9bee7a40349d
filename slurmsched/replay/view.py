"""The snapshot of an embedded cluster, as a reader of a live Slurm would give it."""

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
from slurmsched.model.columns import Int64s
from slurmsched.replay.jobtable import Phase
from slurmsched.replay.slurm_model import SlurmModel

if TYPE_CHECKING:
    from slurmsched.replay.embedded import EmbeddedCluster

PARTITION = "gpu"
_REQUEUED = JobState.PENDING | JobState.COMPLETING | JobState.REQUEUED
_STATES = np.array([0, JobState.PENDING, JobState.RUNNING, _REQUEUED, JobState.COMPLETED], np.int64)  # by Phase


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What never changes: made once, shared by all snapshots."""

    nodes: Nodes
    partitions: Partitions
    site: Site

    @classmethod
    def of(cls, capacity: Int64s, model: SlurmModel) -> Scene:
        width = len(str(len(capacity)))
        nodes = Nodes.build(len(capacity), {
            "name": [f"node{n:0{width}d}" for n in range(1, len(capacity) + 1)],
            "partitions": Labels.constant(PARTITION, len(capacity)),
            "gpu_types": [f"gpu:{gpus}" for gpus in capacity.tolist()],
            "gpus": capacity,
        })  # fmt: skip
        settings = {"PriorityType": "priority/multifactor", "PriorityWeightAge": str(model.weight_age)}
        site = Site(cluster="embedded", rights=Rights.OPERATOR, user="slurmsched", settings=settings)
        return cls(nodes, Partitions.build(1, {"name": [PARTITION], "default": [True], "nodes": [len(capacity)]}), site)


def snapshot(cluster: EmbeddedCluster) -> Snapshot:
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
    )


def _jobs(cluster: EmbeddedCluster) -> Jobs:
    job, trace, now_s = cluster.job, cluster.trace, cluster.now_s
    recent = (job.phase == Phase.DONE) & (job.end_s > now_s - cluster.model.min_job_age_s)
    rows = np.flatnonzero(((job.phase > Phase.FUTURE) & (job.phase < Phase.DONE)) | recent)
    rows = rows[np.argsort(trace.job_id[rows], kind="stable")]
    phase, gpus = job.phase[rows], trace.gpus[rows]
    pending, running = phase == Phase.PENDING, phase == Phase.RUNNING
    run_s = np.where(running, now_s - job.start_s[rows], 0.0)
    executed_s = job.executed_s[rows] + run_s
    limit_s = trace.time_limit_s[rows]
    delayed = pending & (job.eligible_s[rows] > now_s)
    return Jobs.build(len(rows), {
        "job_id": trace.job_id[rows],
        "user": Labels.constant("trace", len(rows)),
        "account": Labels.constant("trace", len(rows)),
        "partition": Labels.constant(PARTITION, len(rows)),
        "qos": Labels.constant("normal", len(rows)),
        "reason": Labels(frozen(delayed, np.int32), ("", "BeginTime")).take(np.arange(len(rows))),
        "state": np.where(job.timed_out[rows] & (phase == Phase.DONE), int(JobState.TIMEOUT), _STATES[phase]),
        "submit_s": job.submit_s[rows],
        "eligible_s": job.eligible_s[rows],
        "start_s": job.start_s[rows],
        "end_s": np.where(running, job.start_s[rows] + limit_s, job.end_s[rows]),
        "time_limit_s": limit_s,
        "run_s": run_s,
        "nodes": -(-gpus // cluster.size),
        "gpus": gpus,
        "gpu_request": Labels.of([f"gpu:{count}" for count in gpus.tolist()]),
        "nice": job.nice[rows],
        "site_factor": job.site[rows],
        "priority": job.priority(rows, now_s),
        "base_priority": job.base_priority(rows, now_s),
        "restarts": job.restarts[rows],
        "requeueable": np.ones(len(rows), np.bool_),
        "first_submit_s": trace.submit_s[rows],
        "attained_gpu_s": executed_s * gpus,
        "executed_s": executed_s,
        "waiting_s": np.where(pending, now_s - job.stopped_s[rows], 0.0),
    })  # fmt: skip


def _nodes(cluster: EmbeddedCluster) -> Nodes:
    used = cluster.capacity - cluster.free
    partly = np.where(used == 0, int(NodeState.IDLE), int(NodeState.MIXED))
    state = np.where((used > 0) & (cluster.free == 0), int(NodeState.ALLOCATED), partly)
    return cluster.scene.nodes.with_columns(state=state, gpus_used=used)


def _allocations(cluster: EmbeddedCluster) -> Allocations:
    ids, names = cluster.trace.job_id, cluster.scene.nodes.name.names
    rows = sorted(cluster.shares, key=ids.__getitem__)
    held = np.array([cluster.shares[row] for row in rows], np.int64).reshape(len(rows), len(names))
    place, node = np.nonzero(held)
    return Allocations.build(len(place), {
        "job_id": ids[np.array(rows, np.int64)][place],
        "node": Labels(frozen(node, np.int32), names).take(np.arange(len(node))),
        "gpus": held[place, node],
    })  # fmt: skip
