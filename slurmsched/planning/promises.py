"""Nodes kept for a gang until running jobs have left them: which, from when on, and what each one waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slurmsched.config import Acts, Gangs
from slurmsched.model import Act, Purpose, Ranking, Refusal, Snapshot, Stage, Wait
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hostlist import expand, fold
from slurmsched.planning.bounds import YEAR_S, UnknownForm, allowed_nodes, blocked_from_s, left_by_reservations
from slurmsched.planning.parts import Begun
from slurmsched.planning.reach import binding, shortest_head, unknown, within_reach
from slurmsched.planning.spread import asked
from slurmsched.planning.taking import act_id, candidates
from slurmsched.protocols import Estimator
from slurmsched.resources.free import FreeResources, JobRequirements, Leaving

_LOOKED_AT = 100  # gangs in a cycle, most urgent first


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """When nodes have a share of one job free. ready_s: (N,) [Unix s], infinity = not as things are.

    last: (N,) row of the job that leaves last before that, -1 = nobody need leave.
    """

    ready_s: Floats
    last: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """Begins and renews the promises of one snapshot.

    leaving: what running jobs give back, and when. stock: what is free now.
    """

    snapshot: Snapshot
    gangs: Gangs
    limits: Acts
    leaving: Leaving
    stock: FreeResources

    @classmethod
    def of(cls, snapshot: Snapshot, gangs: Gangs, limits: Acts, estimator: Estimator) -> Promises:
        end_s = end_times(snapshot, gangs, estimator)
        return cls(snapshot, gangs, limits, Leaving.of(snapshot, end_s), FreeResources.of(snapshot))

    def begin(self, ranking: Ranking, managed: Bools, begun: Sequence[Act] = ()) -> Begun:
        """Promises for the most urgent managed gangs that cannot start now. begun: acts that this plan begins already.

        A gang that fits into what is free is left to Slurm, and what it will take counts as gone.
        """
        jobs = self.snapshot.jobs
        rows = candidates(self.snapshot, ranking, managed & (jobs.gpus >= self.gangs.least_gpus))
        busy, acts, refused = {act.job_id for act in begun}, list[Act](), list[Refusal]()
        for row in rows[:_LOOKED_AT].tolist():
            if int(jobs.job_id[row]) in busy or not self._may_promise(row, acts):
                continue
            found = self._for_gang(row, (*begun, *acts))
            if isinstance(found, Refusal):
                refused.append(found)
            elif found is not None:
                acts.append(found)
        return Begun(tuple(acts), tuple(refused))

    def renewed(self, act: Act) -> Act:
        """An open promise by what is known now: on better nodes, earlier or later, or given up if it cannot be kept.

        Once its reservation has begun its nodes stay, since Slurm moves none that has.
        """
        jobs, row = self.snapshot.jobs, self.snapshot.jobs.row_of(act.job_id)
        if act.stage not in (Stage.BEGUN, Stage.PROMISED, Stage.REQUEUED) or row < 0 or not jobs.pending[row]:
            return act
        now_s, need = self.snapshot.now_s, JobRequirements.of(self.snapshot, row)
        held = np.flatnonzero(self.snapshot.nodes.name.isin(expand(act.nodes)))
        outlook = self.outlook(need)
        kept_s = float(outlook.ready_s[held].max(initial=now_s))
        if act.opens_s <= now_s:
            due_s = kept_s if kept_s > now_s else min(act.promised_s, now_s)
            return replace(act, promised_s=due_s if due_s < inf else act.promised_s, waits=self._waits(held, outlook))
        if why := asked(self.snapshot, row):
            return self._given_up(act, why)
        try:
            allowed = self._allowed(row, need, act)
            best = self.chosen(need, outlook, allowed, self._lasts(act.time_limit_s), act, held)
        except UnknownForm as error:
            return self._given_up(act, str(error))
        kept_s = kept_s if allowed[held].all() else inf
        early_s, late_s = act.promised_s - self.gangs.least_gain_s, act.promised_s + self.gangs.least_gain_s
        if best is not None and (best[1] <= now_s or best[1] < early_s or kept_s > late_s):
            return self._on(act, *best, outlook)
        if best is None and kept_s == inf:
            return self._given_up(act, "its nodes cannot be kept any more, and no others can")
        return replace(act, waits=self._waits(held, outlook))

    def outlook(self, need: JobRequirements) -> Outlook:
        """When each node has a share of that need free, if nobody else came."""
        ready_s, last = np.full(len(self.stock.gpus), inf), np.full(len(self.stock.gpus), -1, np.int64)
        ready_s[self.stock.fits(need)] = self.snapshot.now_s
        for node in np.flatnonzero(np.isinf(ready_s)).tolist():
            rows, stock = self.leaving.on(node), self.stock
            enough = stock.gpus[node] + np.cumsum(self.leaving.gpus[rows]) >= need.gpus[node]
            enough &= stock.cpus[node] + np.cumsum(self.leaving.cpus[rows]) >= need.cpus[node] - 1e-6
            enough &= stock.memory_mib[node] + np.cumsum(self.leaving.memory_mib[rows]) >= need.memory_mib[node] - 1e-6
            if enough.any():
                at = rows.start + int(enough.argmax())
                ready_s[node], last[node] = self.leaving.end_s[at], self.leaving.job[at]
        return Outlook(ready_s, last)

    def idle_gpu_s(self, until_s: float) -> Floats:
        """GPU seconds that each node has free from now until then, if nobody comes. (N,)."""
        gained = self.leaving.gpus * np.maximum(until_s - self.leaving.end_s, 0.0)
        later = np.bincount(self.leaving.node, weights=gained, minlength=len(self.stock.gpus))
        idle: Floats = (self.stock.gpus * (until_s - self.snapshot.now_s) + later).astype(np.float64)
        return idle

    def chosen(
        self,
        need: JobRequirements,
        outlook: Outlook,
        allowed: Bools,
        lasts_s: float,
        act: Act | None = None,
        held: Int64s | None = None,
    ) -> tuple[Int64s, float] | None:
        """The nodes on which the job starts earliest, of those the ones with the fewest idle GPU seconds until then,
        and that start [Unix s]; None if there are too few.

        allowed: (N,) bool. lasts_s: how long its reservation lasts. held: nodes it has, taken where all else is equal.
        """  # fmt: skip
        blocked_s = blocked_from_s(self.snapshot, (act,) if act else ())
        left, has = allowed & np.isfinite(outlook.ready_s), np.zeros(len(allowed), np.bool_)
        has[held if held is not None else []] = True
        while len(early := self._earliest(left, outlook, need.nodes)):
            start_s = float(outlook.ready_s[early].max())
            clash = left & (blocked_s < start_s + lasts_s)
            if not clash.any():
                ready = self._ready(left & (outlook.ready_s <= start_s), need.nodes, has)
                order = np.lexsort((ready, ~has[ready], np.round(self.idle_gpu_s(start_s)[ready])))
                return np.sort(ready[order[: need.nodes]]), start_s
            left &= ~clash
        return None

    def _earliest(self, left: Bools, outlook: Outlook, count: int) -> Int64s:
        """Nodes on which so many are ready earliest where Slurm would start a job; none if there are too few."""
        rows = np.flatnonzero(left)
        rows = rows[np.argsort(outlook.ready_s[rows], kind="stable")]
        return shortest_head(self.snapshot.topology, rows, count)

    def _ready(self, ready: Bools, count: int, has: Bools) -> Int64s:
        """Of these nodes some on any so many of which the job could start, those that it has if it could there."""
        found, held = (within_reach(self.snapshot.topology, some, count) for some in (ready, ready & has))
        return np.flatnonzero(held if held.any() and (found & has).sum() < count else found)

    def _for_gang(self, row: int, begun: Sequence[Act]) -> Act | Refusal | None:
        """The promise for one gang; a refusal that says why there is none; None for one that starts without."""
        snapshot, need = self.snapshot, JobRequirements.of(self.snapshot, row)
        jobs, now_s = snapshot.jobs, snapshot.now_s
        job_id, limit_s = int(jobs.job_id[row]), min(float(jobs.time_limit_s[row]), YEAR_S)
        outlook = self.outlook(need)
        try:
            allowed = self._allowed(row, need, None, begun)
            seen = replace(self.stock)
            in_time = left_by_reservations(snapshot, row, seen)  # Slurm starts it only where it is done before
            best = self.chosen(need, outlook, allowed, self._lasts(limit_s))
        except UnknownForm as error:
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {error}")
        if why := unknown(binding(snapshot, row), need.nodes):
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {why}")
        room = allowed & in_time & seen.fits(need)
        free = np.flatnonzero(within_reach(binding(snapshot, row), room, need.nodes))
        if len(free) >= need.nodes:
            self.stock.take(free[: need.nodes], need)
            return None
        if why := asked(self.snapshot, row):
            return Refusal(job_id, "constraint", f"no nodes are kept for it: {why}")
        if best is None:
            return Refusal(job_id, "ends", "no end is known of jobs on enough nodes that it could have")
        if best[1] > now_s + self.gangs.farthest_s:
            return Refusal(job_id, "far", "its nodes come free later than gangs.farthest_s")
        key = (act_id(snapshot, job_id), Purpose.PROMISE, job_id, float(jobs.submit_s[row]), jobs.user[row])
        return self._on(Act(*key, "", limit_s, now_s), *best, outlook)

    def _may_promise(self, row: int, begun: Sequence[Act]) -> bool:
        """Whether every partition of the job may have one more promise."""
        jobs, count = self.snapshot.jobs, dict[str, int]()
        for act in (*self.snapshot.acts, *begun):
            if act.purpose == Purpose.PROMISE and (other := jobs.row_of(act.job_id)) >= 0:
                for name in jobs.partition[other].split(","):
                    count[name] = count.get(name, 0) + 1
        most = self.gangs.promises_per_partition
        return all(count.get(name, 0) < most for name in jobs.partition[row].split(","))

    def _allowed(self, row: int, need: JobRequirements, act: Act | None, begun: Sequence[Act] = ()) -> Bools:
        """Nodes that the job may have and no other act does. (N,) bool. Raises UnknownForm."""
        acts = (*self.snapshot.acts, *begun)
        others = [name for each in acts if act is None or each.id != act.id for name in expand(each.nodes)]
        taken = self.snapshot.nodes.name.isin(others)
        return allowed_nodes(self.snapshot, row) & need.fits_empty(self.snapshot) & ~taken

    def _lasts(self, time_limit_s: float) -> float:
        return time_limit_s + self.limits.slack_s

    def _on(self, act: Act, nodes: Int64s, start_s: float, outlook: Outlook) -> Act:
        """The promise on these nodes from then on. The reservation begins the kill wait earlier, so that a job whose
        limit lets it run there until it begins is gone by the start as well."""
        hosts = fold(self.snapshot.nodes.name[node] for node in nodes.tolist())
        opens_s = max(self.snapshot.now_s, start_s - self.snapshot.site.kill_wait_s)
        return replace(act, nodes=hosts, promised_s=start_s, opens_s=opens_s, waits=self._waits(nodes, outlook))

    def _waits(self, nodes: Int64s, outlook: Outlook) -> tuple[Wait, ...]:
        jobs, name = self.snapshot.jobs, self.snapshot.nodes.name
        last = [int(row) for row in outlook.last[nodes]]
        ids = [int(jobs.job_id[row]) if row >= 0 else 0 for row in last]
        rows = zip(nodes.tolist(), ids, strict=True)
        return tuple(Wait(name[node], job_id, float(outlook.ready_s[node])) for node, job_id in rows)

    def _given_up(self, act: Act, why: str) -> Act:
        return replace(act, stage=Stage.REVERSING, stage_s=self.snapshot.now_s, note=why)


def end_times(snapshot: Snapshot, gangs: Gangs, estimator: Estimator) -> Floats:
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
