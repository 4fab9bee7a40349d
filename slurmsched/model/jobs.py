"""The jobs of a snapshot: one row a job record Slurm keeps, in ascending job id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.states import FINISHED, HELD, JobState
from slurmsched.model.table import Table, column, text

NAN = float("nan")
_PENDING = int(JobState.PENDING)
_PENDING_OR_COMPLETING = int(JobState.PENDING | JobState.COMPLETING)
INF = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Jobs(Table):
    """One row a job record, as slurmctld keeps it. Times are Unix seconds, NaN when not known.

    A pending array is one record (`array_tasks` > 1, job_id = array_job_id); a task that started
    has its own. A het component is a row of its own. All columns are (N,).
    """

    job_id: Int64s = column(np.int64, 0)
    array_job_id: Int64s = column(np.int64, 0)  # 0: not an array
    array_tasks: Int32s = column(np.int32, 1)  # tasks this record stands for
    het_job_id: Int64s = column(np.int64, 0)  # leader's id, 0: not a het job
    het_offset: Int32s = column(np.int32, 0)
    user: Labels = text()
    account: Labels = text()
    partition: Labels = text()  # comma list as submitted
    qos: Labels = text()
    name: Labels = text()
    comment: Labels = text()
    reason: Labels = text()
    dependency: Labels = text()
    reservation: Labels = text()
    node_list: Labels = text()  # nodes held, hostlist text
    features_asked: Labels = text()  # constraint of the nodes, as submitted, e.g. "a100&nvlink"
    nodes_asked: Labels = text()  # hostlist text: must be among its nodes
    nodes_excluded: Labels = text()  # hostlist text
    state: Int64s = column(np.int64, int(JobState.PENDING))  # 0: one that this release does not know
    state_text: Labels = text()  # what Slurm prints for a state that this release does not know
    submit_s: Floats = column(np.float64, NAN)  # Slurm's; moves to the requeue time at a requeue
    eligible_s: Floats = column(np.float64, NAN)
    start_s: Floats = column(np.float64, NAN)  # real start; NaN for a pending job
    end_s: Floats = column(np.float64, NAN)  # real or latest possible end
    time_limit_s: Floats = column(np.float64, INF)
    run_s: Floats = column(np.float64, 0.0)  # executed in this run, suspensions left out
    nodes: Int32s = column(np.int32, 1)  # asked (pending) or held
    cpus: Int32s = column(np.int32, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    gpus: Int32s = column(np.int32, 0)  # whole GPUs asked or held, all nodes, one array task
    mig_devices: Int32s = column(np.int32, 0)
    shards: Int32s = column(np.int32, 0)
    gpu_request: Labels = text()  # normal form, e.g. "gpu:a100:4" or "gpu:h100:2,gpu:h200:4"
    gpus_by: Labels = text()  # what its option counts GPUs by: "node", "job", "task" or "socket"; "" = not known
    nice: Int64s = column(np.int64, 0)
    site_factor: Int64s = column(np.int64, 0)
    priority: Int64s = column(np.int64, 0)  # may be stale: never verify a write by it
    base_priority: Floats = column(np.float64, NAN)  # sum of weighted factors, without nice and site
    pinned: Bools = column(np.bool_, False)  # priority= set by an operator: nice and site act on nothing
    restarts: Int32s = column(np.int32, 0)
    requeueable: Bools = column(np.bool_, False)
    batch: Bools = column(np.bool_, True)
    cron: Bools = column(np.bool_, False)
    exclusive: Bools = column(np.bool_, False)  # asks for whole nodes; read where acts are on
    # Of jobs that hold GPUs where these are read by index, and of waiting gangs where acts are on; else 0.
    switches: Int32s = column(np.int32, 0)  # leaf switches at most (--switches), 0: any number, -1: not known
    segment_nodes: Int32s = column(np.int32, 0)  # nodes of each segment (--segment), 0: not asked for, -1: not known
    # Filled by the store from the ledger; a reader leaves the defaults.
    first_submit_s: Floats = column(np.float64, NAN)  # with job_id the key of a job for good
    attained_gpu_s: Floats = column(np.float64, 0.0)  # over all runs
    executed_s: Floats = column(np.float64, 0.0)  # over all runs
    waiting_s: Floats = column(np.float64, 0.0)  # pending since it last ran (or was submitted)
    base_nice: Int64s = column(np.int64, 0)  # what user or admin chose
    written: Bools = column(np.bool_, False)  # a lever value of ours is on record
    backoff: Bools = column(np.bool_, False)  # somebody else set the lever lately: leave alone
    moved_cost_s: Floats = column(np.float64, NAN)  # median of the latest moves of its user's jobs of its name
    moves_seen: Int32s = column(np.int32, 0)  # how many they are

    def row_of(self, job_id: int) -> int:
        """Row of a job, -1 if it is not there."""
        row = int(np.searchsorted(self.job_id, job_id))
        return row if row < len(self.job_id) and self.job_id[row] == job_id else -1

    def is_state(self, state: JobState) -> Bools:
        """Whether any of these flags is set. (N,) bool."""
        return (self.state & int(state)) != 0

    @property
    def pending(self) -> Bools:
        """Waiting, and not still completing an earlier run."""
        return (self.state & _PENDING_OR_COMPLETING) == _PENDING

    @property
    def running(self) -> Bools:
        return self.is_state(JobState.RUNNING)

    @property
    def finished(self) -> Bools:
        return self.is_state(FINISHED)

    @property
    def leader(self) -> Int64s:
        """Id of the record through which Slurm writes a task or component too, 0: none. (N,) int64."""
        return np.where(self.array_job_id > 0, self.array_job_id, self.het_job_id)

    @property
    def held(self) -> Bools:
        """Held by user, admin or Slurm: a pending state, and priority 0 or a flag that says so."""
        return self.pending & ((self.priority == 0) | self.is_state(HELD))


@dataclass(frozen=True, slots=True, eq=False)
class Allocations(Table):
    """GPUs held: one row a job, node and GPU type, ascending (job_id, node, type). All columns (A,)."""

    job_id: Int64s = column(np.int64, 0)
    node: Labels = text()
    gpu_type: Labels = text()
    gpus: Int32s = column(np.int32, 0)
    gpu_mask: Int64s = column(np.int64, 0)  # bit i: GPU index i; 0 when Slurm shows counts only
