"""Jobs: those of a snapshot, those that ended, and by which options they asked for GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import INF, NAN, Bools, Floats, Int32s, Int64s, Labels, Table, column, text_column
from slurmsched.model.states import FINISHED, HELD, JobState

_PENDING = int(JobState.PENDING)
_PENDING_OR_COMPLETING = int(JobState.PENDING | JobState.COMPLETING)


@dataclass(frozen=True, slots=True, eq=False)
class Jobs(Table):
    """One row for each job record of slurmctld. Times are Unix seconds, NaN if unknown. All columns are (N,).

    A pending array is one record (`array_tasks` > 1, job_id = array_job_id). A task that started has its own record. So
    has each het component.
    """

    job_id: Int64s = column(np.int64, 0)
    array_job_id: Int64s = column(np.int64, 0)  # 0: not an array
    array_tasks: Int32s = column(np.int32, 1)  # tasks of this record
    het_job_id: Int64s = column(np.int64, 0)  # leader's id, 0: not a het job
    het_offset: Int32s = column(np.int32, 0)
    user: Labels = text_column()
    account: Labels = text_column()
    partition: Labels = text_column()  # comma list as submitted
    qos: Labels = text_column()
    name: Labels = text_column()
    comment: Labels = text_column()
    reason: Labels = text_column()
    dependency: Labels = text_column()
    reservation: Labels = text_column()
    node_list: Labels = text_column()  # nodes held, hostlist text
    features_asked: Labels = text_column()  # constraint of the nodes, as submitted, e.g. "a100&nvlink"
    nodes_asked: Labels = text_column()  # hostlist text: must be among its nodes
    nodes_excluded: Labels = text_column()  # hostlist text
    state: Int64s = column(np.int64, int(JobState.PENDING))  # 0: unknown to this release
    state_text: Labels = text_column()  # the word of an unknown state
    submit_s: Floats = column(np.float64, NAN)  # of Slurm; a requeue sets it to the requeue time
    eligible_s: Floats = column(np.float64, NAN)
    start_s: Floats = column(np.float64, NAN)  # real start; NaN for a pending job
    # Of a pending job, by Slurm's backfill; NaN = it has no estimate.
    expected_start_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)  # real or latest possible end
    time_limit_s: Floats = column(np.float64, INF)
    run_s: Floats = column(np.float64, 0.0)  # executed in this run, without suspensions
    nodes: Int32s = column(np.int32, 1)  # requested (pending) or held
    tasks: Int32s = column(np.int32, 0)  # of a pending job, at least; 0 = not known
    cpus: Int32s = column(np.int32, 0)
    memory_mib: Floats = column(np.float64, 0.0)
    gpus: Int32s = column(np.int32, 0)  # whole GPUs requested or held on all nodes, for one array task
    mig_devices: Int32s = column(np.int32, 0)
    shards: Int32s = column(np.int32, 0)  # or MPS
    # Where a running job has its shards, e.g. "n1 0" for the first GPU of n1; "" = not shown, or on several GPUs.
    shared_gpu: Labels = text_column()
    shared_milli: Int32s = column(np.int32, 0)  # part of that GPU that it holds [1/1000]
    gpu_milli: Int32s = column(np.int32, 1000)  # part of each of its GPUs that it asks for or holds [1/1000]
    gpu_request: Labels = text_column()  # normal form, e.g. "gpu:a100:4" or "gpu:h100:2,gpu:h200:4"
    gpus_by: Labels = text_column()  # unit of its option: "node", "job", "task" or "socket"; "" = unknown
    nice: Int64s = column(np.int64, 0)
    site_factor: Int64s = column(np.int64, 0)
    priority: Int64s = column(np.int64, 0)  # may be outdated: never verify a write by it
    base_priority: Floats = column(np.float64, NAN)  # sum of weighted factors, without nice and site
    lifted_limits: Int32s = column(np.int32, 0)  # bits of LIFTING_FLAGS: partition limits that its QOS lifts
    # What tiers order by, NaN = not known or not asked for.
    qos_priority: Floats = column(np.float64, NAN)  # Priority of its QOS
    association_priority: Floats = column(np.float64, NAN)  # Priority of its association
    fair_share: Floats = column(np.float64, NAN)  # the site's own factor, 0 to 1
    fixed_priority: Bools = column(np.bool_, False)  # an operator set priority=: nice and site factor have no effect
    restarts: Int32s = column(np.int32, 0)
    requeueable: Bools = column(np.bool_, False)
    batch: Bools = column(np.bool_, True)
    cron: Bools = column(np.bool_, False)
    exclusive: Bools = column(np.bool_, False)  # asks for whole nodes; read if operations are on
    # For jobs whose GPUs are read by index, and for pending gangs if operations are on; else 0.
    switches: Int32s = column(np.int32, 0)  # most leaf switches (--switches), 0: any number, -1: unknown
    segment_nodes: Int32s = column(np.int32, 0)  # nodes of each segment (--segment), 0: not requested, -1: unknown
    # From the ledger; readers leave the defaults.
    first_submit_s: Floats = column(np.float64, NAN)  # with job_id the permanent key of a job
    attained_gpu_s: Floats = column(np.float64, 0.0)  # over all runs
    executed_s: Floats = column(np.float64, 0.0)  # over all runs
    waiting_s: Floats = column(np.float64, 0.0)  # pending time since its last run or its submission
    base_nice: Int64s = column(np.int64, 0)  # the nice that user or administrator chose
    written: Bools = column(np.bool_, False)  # a lever value of ours is on record
    backoff: Bools = column(np.bool_, False)  # somebody else set the lever recently: not managed
    moved_cost_s: Floats = column(np.float64, NAN)  # median cost of recent moves of its user's jobs with its name
    moves_seen: Int32s = column(np.int32, 0)  # number of those moves
    # As measured lately, of running jobs, where measured_use.every_s is set.
    gpu_use: Floats = column(np.float64, NAN)  # mean share of the time in which its GPUs computed, 0 to 1
    idle_gpus: Floats = column(np.float64, NAN)  # GPUs that computed less than 1 % of the time
    wanted_gpus: Int32s = column(np.int32, 0)  # to which it was asked to change (`job wants`), 0: none
    gpu_memory_mib: Floats = column(np.float64, NAN)  # the most memory in use on one of them
    # Of pending jobs that may share a GPU: the part that jobs like it needed as measured, NaN = not known; and why so.
    measured_part: Floats = column(np.float64, NAN)
    measured_part_why: Labels = text_column()

    def row_of(self, job_id: int) -> int:
        """Row of a job, -1 if absent."""
        row = int(np.searchsorted(self.job_id, job_id))
        return row if row < len(self.job_id) and self.job_id[row] == job_id else -1

    def id_and_submit(self, row: int) -> tuple[int, float]:
        """Job id and submit time [Unix s] of this row: an id may come again, not with the same time."""
        return int(self.job_id[row]), float(self.submit_s[row])

    def is_state(self, state: JobState) -> Bools:
        """Whether any of these flags is set. (N,) bool."""
        return (self.state & int(state)) != 0

    @property
    def pending(self) -> Bools:
        """Pending, and no longer completing an earlier run."""
        return (self.state & _PENDING_OR_COMPLETING) == _PENDING

    @property
    def running(self) -> Bools:
        return self.is_state(JobState.RUNNING)

    @property
    def finished(self) -> Bools:
        return self.is_state(FINISHED)

    @property
    def held_gpus(self) -> Floats:
        """GPUs requested or held, parts of a GPU as fractions: 0.25 for a running job with 1 of 4 shards. (N,)."""
        return np.where(self.gpus > 0, self.gpus * self.gpu_milli, self.shared_milli) / 1000

    @property
    def leader(self) -> Int64s:
        """Id of the array or het record through which Slurm also writes this one, 0: none. (N,) int64."""
        return np.where(self.array_job_id > 0, self.array_job_id, self.het_job_id)

    @property
    def held(self) -> Bools:
        """Held by user, administrator or Slurm: pending, with priority 0 or a flag for it."""
        return self.pending & ((self.priority == 0) | self.is_state(HELD))


@dataclass(frozen=True, slots=True, eq=False)
class Allocations(Table):
    """Held GPUs: one row for each job, node and GPU type, ascending (job_id, node, type). All columns are (A,)."""

    job_id: Int64s = column(np.int64, 0)
    node: Labels = text_column()
    gpu_type: Labels = text_column()
    gpus: Int32s = column(np.int32, 0)
    gpu_mask: Int64s = column(np.int64, 0)  # bit i: GPU index i; 0 if only counts are known


# Jobs that ended.


@dataclass(frozen=True, slots=True, eq=False)
class Past(Table):
    """One row for each job that ended, in ascending end; jobs of equal end in any order. All columns are (P,).

    submit_s: first submission.
    executed_s, attained_gpu_s: over all runs.
    completed: it ended by itself and successfully.
    gpu_type: the type of its last run, "" = unknown.
    model: as in its hints.
    """

    job_id: Int64s = column(np.int64, 0)
    user: Labels = text_column()
    account: Labels = text_column()
    partition: Labels = text_column()
    name: Labels = text_column()
    model: Labels = text_column()
    gpu_type: Labels = text_column()
    gpus: Int32s = column(np.int32, 0)
    submit_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)
    executed_s: Floats = column(np.float64, 0.0)
    attained_gpu_s: Floats = column(np.float64, 0.0)
    completed: Bools = column(np.bool_, True)


NO_PAST = Past.build(0, {})


# The options behind a request.


@dataclass(frozen=True, slots=True, eq=False)
class GpuOptions(Table):
    """One row for each job, in ascending job id. Texts are TRES texts of Slurm, "" = option not used. All are (N,)."""

    job_id: Int64s = column(np.int64, 0)
    per_job: Labels = text_column()  # --gpus
    per_node: Labels = text_column()  # --gpus-per-node, --gres
    per_task: Labels = text_column()  # --gpus-per-task
    per_socket: Labels = text_column()  # --gpus-per-socket
    tasks: Int32s = column(np.int32, 1)
    whole_memory: Bools = column(np.bool_, False)  # the job gets all memory of its nodes
    exclusive: Bools = column(np.bool_, False)  # requested, as far as Slurm shows it
