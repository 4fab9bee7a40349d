"""Nodes kept for a gang until running jobs have left them: which, from when on, and what each one waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slurmsched.config import GangsConfig, OperationsConfig
from slurmsched.model import NodeWait, Operation, OperationStage, Purpose, Ranking, Refusal, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hostlists import expand_hostlist, fold_hostlist
from slurmsched.planning.operations.preemption import operation_id, preemption_candidates
from slurmsched.planning.proposals import StartedOperations
from slurmsched.protocols import Estimator
from slurmsched.resources.eligibility import allowed_nodes
from slurmsched.resources.free import FreeResources, JobRequirements, nodes_beside_reservations
from slurmsched.resources.reservation_limits import YEAR_S, UnknownEligibility, reserved_from_s
from slurmsched.resources.timeline import ReleasedResources
from slurmsched.resources.topology_limits import (
    first_nodes_for_one_job,
    nodes_for_one_job,
    topology_for_job,
    topology_request,
    unknown_topology_rule,
)

_RENEWABLE = (OperationStage.BEGUN, OperationStage.PROMISED, OperationStage.REQUEUED)
_LOOKED_AT = 100  # gangs in a cycle, most urgent first


@dataclass(frozen=True, slots=True, eq=False)
class NodesReady:
    """When nodes have a share of one job free.

    ready_s: (N,) [Unix s], infinity = not as things are.
    last: (N,) row of the job that leaves last before that, -1 = nobody need leave.
    """

    ready_s: Floats
    last: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class GangReservations:
    """Begins and renews the gang reservations of one snapshot.

    leaving: what running jobs give back, and when.
    free: what is free now.
    """

    snapshot: Snapshot
    gangs: GangsConfig
    config: OperationsConfig
    leaving: ReleasedResources
    free: FreeResources

    @classmethod
    def of(
        cls, snapshot: Snapshot, gangs: GangsConfig, config: OperationsConfig, estimator: Estimator
    ) -> GangReservations:
        """Those of a snapshot. estimator: predicts when running jobs end."""
        end_s = end_times(snapshot, gangs, estimator)
        return cls(snapshot, gangs, config, ReleasedResources.of(snapshot, end_s), FreeResources.of(snapshot))

    def begin(self, ranking: Ranking, managed: Bools, begun: Sequence[Operation] = ()) -> StartedOperations:
        """Gang reservations for the most urgent managed gangs that cannot start now. begun: operations that this plan
        begins already.

        A gang that fits into what is free is left to Slurm, and what it will take counts as gone.
        """
        jobs = self.snapshot.jobs
        rows = preemption_candidates(self.snapshot, ranking, managed & (jobs.gpus >= self.gangs.least_gpus))
        busy, operations, refused = {operation.job_id for operation in begun}, list[Operation](), list[Refusal]()
        for row in rows[:_LOOKED_AT].tolist():
            if int(jobs.job_id[row]) in busy or not self._may_reserve(row, operations):
                continue
            found = self._for_gang(row, (*begun, *operations))
            if isinstance(found, Refusal):
                refused.append(found)
            elif found is not None:
                operations.append(found)
        return StartedOperations(tuple(operations), tuple(refused))

    def renewed(self, operation: Operation) -> Operation:
        """An open gang reservation by what is known now: on better nodes, earlier or later, or given up if it cannot be
        kept.

        Once its reservation has begun its nodes stay, since Slurm moves none that has.
        """
        row = self.snapshot.jobs.row_of(operation.job_id)
        if operation.stage not in _RENEWABLE or row < 0 or not self.snapshot.jobs.pending[row]:
            return operation
        now_s, need = self.snapshot.now_s, JobRequirements.of(self.snapshot, row)
        held = np.flatnonzero(self.snapshot.nodes.name.isin(expand_hostlist(operation.nodes)))
        outlook = self.outlook(need)
        kept_s = float(outlook.ready_s[held].max(initial=now_s))
        if operation.opens_s <= now_s:
            return self._begun(operation, kept_s, self._waits(held, outlook))
        if why := topology_request(self.snapshot, row):
            return self._given_up(operation, why)
        try:
            allowed = self._allowed(row, need, operation)
            best = self.chosen(need, outlook, allowed, self._lasts(operation.time_limit_s), operation, held)
        except UnknownEligibility as error:
            return self._given_up(operation, str(error))
        kept_s = kept_s if allowed[held].all() else inf
        early_s, late_s = operation.promised_s - self.gangs.least_gain_s, operation.promised_s + self.gangs.least_gain_s
        if best is not None and (best[1] <= now_s or best[1] < early_s or kept_s > late_s):
            return self._on(operation, *best, outlook)
        if best is None and kept_s == inf:
            return self._given_up(operation, "its nodes cannot be kept any more, and no others can")
        return replace(operation, waits=self._waits(held, outlook))

    def _begun(self, operation: Operation, kept_s: float, waits: tuple[NodeWait, ...]) -> Operation:
        """One whose reservation has begun: promised for when its nodes are free, as far as that is known."""
        now_s = self.snapshot.now_s
        due_s = kept_s if kept_s > now_s else min(operation.promised_s, now_s)
        return replace(operation, promised_s=due_s if due_s < inf else operation.promised_s, waits=waits)

    def outlook(self, need: JobRequirements) -> NodesReady:
        """When each node has a share of that need free, if nobody else came."""
        ready_s, last = np.full(len(self.free.gpus), inf), np.full(len(self.free.gpus), -1, np.int64)
        ready_s[self.free.fits(need)] = self.snapshot.now_s
        for node in np.flatnonzero(np.isinf(ready_s)).tolist():
            rows, free = self.leaving.on(node), self.free
            enough = free.gpus[node] + np.cumsum(self.leaving.gpus[rows]) >= need.gpus[node]
            enough &= free.cpus[node] + np.cumsum(self.leaving.cpus[rows]) >= need.cpus[node] - 1e-6
            enough &= free.memory_mib[node] + np.cumsum(self.leaving.memory_mib[rows]) >= need.memory_mib[node] - 1e-6
            if enough.any():
                at = rows.start + int(enough.argmax())
                ready_s[node], last[node] = self.leaving.end_s[at], self.leaving.job[at]
        return NodesReady(ready_s, last)

    def idle_gpu_s(self, until_s: float) -> Floats:
        """GPU seconds that each node has free from now until then, if nobody comes. (N,)."""
        gained = self.leaving.gpus * np.maximum(until_s - self.leaving.end_s, 0.0)
        later = np.bincount(self.leaving.node, weights=gained, minlength=len(self.free.gpus))
        idle: Floats = (self.free.gpus * (until_s - self.snapshot.now_s) + later).astype(np.float64)
        return idle

    def chosen(
        self,
        need: JobRequirements,
        outlook: NodesReady,
        allowed: Bools,
        lasts_s: float,
        operation: Operation | None = None,
        held: Int64s | None = None,
    ) -> tuple[Int64s, float] | None:
        """The nodes on which the job starts earliest, of those the ones with the fewest idle GPU seconds until then,
        and that start [Unix s]; None if there are too few.

        allowed: (N,) bool. lasts_s: how long its reservation lasts. held: nodes it has, taken where all else is equal.
        """  # fmt: skip
        blocked_s = reserved_from_s(self.snapshot, (operation,) if operation else ())
        candidates, has = allowed & np.isfinite(outlook.ready_s), np.zeros(len(allowed), np.bool_)
        has[held if held is not None else []] = True
        while len(early := self._earliest(candidates, outlook, need.nodes)):
            start_s = float(outlook.ready_s[early].max())
            clash = candidates & (blocked_s < start_s + lasts_s)
            if not clash.any():
                ready = self._ready(candidates & (outlook.ready_s <= start_s), need.nodes, has)
                order = np.lexsort((ready, ~has[ready], np.round(self.idle_gpu_s(start_s)[ready])))
                return np.sort(ready[order[: need.nodes]]), start_s
            candidates &= ~clash
        return None

    def _earliest(self, ready: Bools, outlook: NodesReady, count: int) -> Int64s:
        """Nodes on which that many are ready earliest where Slurm would start a job; none if there are too few."""
        rows = np.flatnonzero(ready)
        rows = rows[np.argsort(outlook.ready_s[rows], kind="stable")]
        return first_nodes_for_one_job(self.snapshot.topology, rows, count)

    def _ready(self, ready: Bools, count: int, has: Bools) -> Int64s:
        """Of these nodes some on any that many of which the job could start, those that it has if it could there."""
        found, held = (nodes_for_one_job(self.snapshot.topology, some, count) for some in (ready, ready & has))
        return np.flatnonzero(held if held.any() and (found & has).sum() < count else found)

    def _for_gang(self, row: int, begun: Sequence[Operation]) -> Operation | Refusal | None:
        """The gang reservation for one gang; a refusal that says why there is none; None for one that starts
        without."""
        snapshot, need = self.snapshot, JobRequirements.of(self.snapshot, row)
        jobs, now_s = snapshot.jobs, snapshot.now_s
        job_id, limit_s = int(jobs.job_id[row]), min(float(jobs.time_limit_s[row]), YEAR_S)
        outlook = self.outlook(need)
        try:
            allowed = self._allowed(row, need, None, begun)
            # Slurm starts it only where it is done before they begin.
            in_time, seen = nodes_beside_reservations(snapshot, row, self.free)
            best = self.chosen(need, outlook, allowed, self._lasts(limit_s))
        except UnknownEligibility as error:
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {error}")
        if why := unknown_topology_rule(topology_for_job(snapshot, row), need.nodes):
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {why}")
        room = allowed & in_time & seen.fits(need)
        free = np.flatnonzero(nodes_for_one_job(topology_for_job(snapshot, row), room, need.nodes))
        if len(free) >= need.nodes:
            self.free.take(free[: need.nodes], need)
            return None
        if why := topology_request(self.snapshot, row):
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {why}")
        if best is None:
            return Refusal(job_id, "ends", "no end is known of jobs on enough nodes that it could have")
        if best[1] > now_s + self.gangs.farthest_s:
            return Refusal(job_id, "far", "its nodes come free later than gangs.farthest_s")
        key = (operation_id(snapshot, job_id), Purpose.RESERVE, job_id, float(jobs.submit_s[row]), jobs.user[row])
        return self._on(Operation(*key, "", limit_s, now_s), *best, outlook)

    def _may_reserve(self, row: int, begun: Sequence[Operation]) -> bool:
        """Whether every partition of the job may have one more gang reservation."""
        jobs, count = self.snapshot.jobs, dict[str, int]()
        for operation in (*self.snapshot.operations, *begun):
            if operation.purpose == Purpose.RESERVE and (other := jobs.row_of(operation.job_id)) >= 0:
                for name in jobs.partition[other].split(","):
                    count[name] = count.get(name, 0) + 1
        most = self.gangs.promises_per_partition
        return all(count.get(name, 0) < most for name in jobs.partition[row].split(","))

    def _allowed(
        self, row: int, need: JobRequirements, operation: Operation | None, begun: Sequence[Operation] = ()
    ) -> Bools:
        """Nodes that the job may have and no other operation does. (N,) bool. Raises UnknownEligibility."""
        operations = (*self.snapshot.operations, *begun)
        others = [
            name
            for each in operations
            if operation is None or each.id != operation.id
            for name in expand_hostlist(each.nodes)
        ]
        taken = self.snapshot.nodes.name.isin(others)
        return allowed_nodes(self.snapshot, row) & need.fits_empty(self.snapshot) & ~taken

    def _lasts(self, time_limit_s: float) -> float:
        return time_limit_s + self.config.slack_s

    def _on(self, operation: Operation, nodes: Int64s, start_s: float, outlook: NodesReady) -> Operation:
        """The gang reservation on these nodes from then on.

        The reservation begins the kill wait earlier. So a job whose limit lets it run there until it begins is gone by
        the start as well.
        """
        hosts = fold_hostlist(self.snapshot.nodes.name[node] for node in nodes.tolist())
        opens_s = max(self.snapshot.now_s, start_s - self.snapshot.site.kill_wait_s)
        return replace(operation, nodes=hosts, promised_s=start_s, opens_s=opens_s, waits=self._waits(nodes, outlook))

    def _waits(self, nodes: Int64s, outlook: NodesReady) -> tuple[NodeWait, ...]:
        jobs, name = self.snapshot.jobs, self.snapshot.nodes.name
        last = [int(row) for row in outlook.last[nodes]]
        ids = [int(jobs.job_id[row]) if row >= 0 else 0 for row in last]
        rows = zip(nodes.tolist(), ids, strict=True)
        return tuple(NodeWait(name[node], job_id, float(outlook.ready_s[node])) for node, job_id in rows)

    def _given_up(self, operation: Operation, why: str) -> Operation:
        return replace(operation, stage=OperationStage.REVERSING, stage_s=self.snapshot.now_s, note=why)


def end_times(snapshot: Snapshot, gangs: GangsConfig, estimator: Estimator) -> Floats:
    """When each job will be gone, the kill wait included [Unix s]; infinity where nothing ends it. (J,).

    By time limits, or by the estimates with their error while a job has not outlived that.
    """
    jobs, site, now_s = snapshot.jobs, snapshot.site, snapshot.now_s
    end_s = np.nan_to_num(jobs.end_s, nan=inf) + site.over_time_s
    if gangs.ends == "estimate":
        guess_s = jobs.start_s + estimator.estimate(snapshot).total_s * (1 + gangs.error)
        end_s = np.where(guess_s > now_s, np.fmin(end_s, guess_s), end_s)
    made: Floats = np.maximum(end_s, now_s) + site.kill_wait_s
    return made
