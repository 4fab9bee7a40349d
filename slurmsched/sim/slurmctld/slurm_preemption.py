"""Slurm's own preemption: which running jobs a waiting one may end, and which of them slurmctld ends for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slurmsched.kernels.slurmctld_nodes import NodeRequest, pick_nodes
from slurmsched.kernels.slurmctld_passes import ClosedTimes, close
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.sim.slurmctld.scheduler_passes import main_records
from slurmsched.sim.slurmctld.simulated_jobs import JobPhase

if TYPE_CHECKING:
    from slurmsched.sim.slurmctld.slurmctld_state import SlurmctldState

OFF, CANCEL, REQUEUE = "off", "cancel", "requeue"


class PreemptionRules:
    """Who may preempt whom. With preempt/partition_prio a job of a higher PriorityTier those of lower ones, with
    preempt/qos a job whose QOS names the other's. Which mode ends a job is its own partition's or QOS's, else the
    cluster's.

    modes: (J,) codes of (OFF, CANCEL, REQUEUE), how each job is ended. grace_s: (J,) GraceTime of each [s].
    rank: (J,) those of the lowest go first.
    Source: Slurm's preempt/partition_prio and preempt/qos, and its page on preemption.
    """

    def __init__(self, cluster: SlurmctldState) -> None:
        layout, requests, kind = cluster.layout, cluster.job.requests, cluster.model.preempt_type
        qos = {each.name: each for each in layout.qos}
        self.kind = kind
        if kind == "qos":
            named = requests.qos.map(lambda name: _code(qos[name].preempt_mode if name in qos else ""), np.int64)
            self.rank: Floats = requests.qos.map(lambda name: qos[name].priority if name in qos else 0, np.float64)
            self.grace_s = requests.qos.map(lambda name: qos[name].grace_s if name in qos else 0.0, np.float64)
            self._named = {name: frozenset(each.preempts) for name, each in qos.items() if each.preempts}
        else:
            parts = np.array([_code(each.preempt_mode) for each in layout.partitions], np.int64)
            named = parts[cluster.demand.part]
            self.rank = layout.of_partitions("tier")[cluster.demand.part]
            self.grace_s = layout.of_partitions("grace_s")[cluster.demand.part]
        self.modes: Int64s = np.where(named < 0, _code(cluster.model.preempt_mode), named)

    def may_preempt(self, cluster: SlurmctldState, row: int, running: Int64s) -> Int64s:
        """Those of the running jobs that the row may end, in the order in which they are taken. (K,)."""
        long_enough = cluster.now_s - cluster.job.start_s[running] >= cluster.model.preempt_exempt_s
        stays = np.isinf(cluster.job.leave_s[running])
        rows = running[long_enough & stays & (self.modes[running] > 0) & self._lower(cluster, row, running)]
        return rows[np.lexsort((cluster.job.record_id[rows], -cluster.demand.nodes[rows], self.rank[rows]))]

    def cancels(self, row: int) -> bool:
        """Whether the job is cancelled; else it is requeued."""
        return bool(self.modes[row] == _code(CANCEL))

    def _lower(self, cluster: SlurmctldState, row: int, running: Int64s) -> Bools:
        if self.kind != "qos":
            return np.asarray(self.rank[running] < self.rank[row], np.bool_)
        wanted = self._named.get(cluster.job.requests.qos[row], frozenset())
        return cluster.job.requests.qos.take(running).isin(wanted) if wanted else np.zeros(len(running), np.bool_)


def _code(mode: str) -> int:
    """0, 1 or 2 of OFF, CANCEL and REQUEUE, -1 of another: as the cluster has it."""
    return {OFF: 0, CANCEL: 1, REQUEUE: 2}.get(mode.lower(), -1)


def preemptions(
    cluster: SlurmctldState, rules: PreemptionRules, waiting: dict[int, Int64s], full: bool
) -> list[tuple[int, Int64s]]:
    """Jobs that a main pass cannot start, and the running jobs that it ends for each.

    waiting: jobs whose victims still hold nodes, which preempt no other. full: the whole queue, else the first records.
    Of each partition only the first job counts, whether it preempts or not. A job that a limit stops is passed over,
    and so is one that names a reservation. So is one for which too few nodes are open until its time limit.
    """
    records, closed = main_records(cluster, full).row, ClosedTimes(*cluster.planned())
    order: Int64s = records[np.sort(np.unique(records, return_index=True)[1])]
    rows = cluster.holdings.rows
    running = rows[cluster.job.phase[rows] == JobPhase.RUNNING]
    found, blocked = list[tuple[int, Int64s]](), set[int]()
    for row in order[cluster.limits.within(order)].tolist():
        part = int(cluster.demand.area[row])
        if part in blocked:
            continue
        usable = _usable(cluster, row, closed)
        if usable.sum() < cluster.demand.nodes[row]:
            continue
        blocked.add(part)
        if row in waiting:
            continue
        candidates = rules.may_preempt(cluster, row, running)
        victims = _victims(cluster, row, candidates, usable) if len(candidates) else candidates
        if len(victims):
            found.append((row, victims))
            running = running[~np.isin(running, victims)]
    return found


def _usable(cluster: SlurmctldState, row: int, closed: ClosedTimes) -> Bools:
    """The nodes of the job's pool that are open now and stay so until its time limit. (N,)."""
    usable: Bools = cluster.demand.usable[cluster.demand.pool[row]] & cluster.open_nodes
    close(closed, cluster.now_s, cluster.now_s + float(cluster.trace.time_limit_s[row]), usable)
    return usable


def _victims(cluster: SlurmctldState, row: int, candidates: Int64s, usable: Bools) -> Int64s:
    """The fewest of the candidates, taken in order, without which the job fits; none if it fits on nodes that are
    completing, or never. (V,). usable: (N,)."""
    demand, free = cluster.demand, cluster.free_resources.copy()
    request = NodeRequest(int(demand.nodes[row]), demand.need[row], demand.last[row], bool(demand.least_loaded[row]))
    taken = np.zeros(len(usable), np.int64)
    if pick_nodes(free, usable, request, cluster.node_order, taken):
        return candidates[:0]
    gone = list[int]()
    for victim in candidates.tolist():
        node, held = cluster.holdings.of(victim)
        if not usable[node].any():
            continue
        free[:, node] += held.T
        gone.append(victim)
        if pick_nodes(free, usable, request, cluster.node_order, taken):
            return np.array(_needed(cluster, gone, free, usable, request, taken), np.int64)
    return candidates[:0]


def _needed(
    cluster: SlurmctldState, gone: list[int], free: Int64s, usable: Bools, request: NodeRequest, taken: Int64s
) -> list[int]:
    """Those of the jobs that must be gone for the request to fit. free: with all of them gone."""
    needed = list[int]()
    for victim in gone:
        node, held = cluster.holdings.of(victim)
        free[:, node] -= held.T
        if not pick_nodes(free, usable, request, cluster.node_order, taken):
            free[:, node] += held.T
            needed.append(victim)
    return needed
