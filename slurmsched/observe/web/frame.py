"""What the pages show of one cycle, as plain values: made when it is first asked for, then kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from slurmsched.model.hostlists import counting_key, folded
from slurmsched.model.job_details import JobDetails
from slurmsched.model.operations import RESERVATION_PREFIX, Reservations
from slurmsched.model.plan import Plan
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.observe.explain.explanation import Explanation, explain
from slurmsched.observe.queue_rows import QueueRow, RunningRow, queue_rows, running_rows
from slurmsched.observe.survey.gpu_overview import HELD, gpu_map, gpu_overview

MOST_JOBS = 500  # in an answer
MOST_NODES = 1000
MOST_TENANTS = 100
JOB_FILTERS = ("user", "account", "partition", "qos")
NOT_ASKED = "values of limits, licences and partitions: Slurm is not asked for pages, `slurmsched explain JOB` does"


@dataclass(eq=False)
class Frame:
    """One snapshot and its plan. Each job's parts are made once; requests for other jobs do not wait meanwhile.

    lever: the lever's kind.
    mode: dry-run or apply.
    policy: name of the policy.
    note: what is wrong since, "" = nothing.
    past: what is on record of a job, by its id, and of others of that many GPUs.
    ask: what Slurm says of the job in a row; None = Slurm is not asked.
    move: that of Explanation, of the job in a row.
    expected: that of Explanation, of the job in a row.
    """

    snapshot: Snapshot
    plan: Plan
    lever: str
    mode: str
    policy: str
    note: str = ""
    past: Callable[[int, int], JobDetails] = lambda job_id, gpus: JobDetails()
    ask: Callable[[int], JobDetails] | None = None
    move: Callable[[int], str] = lambda row: ""
    expected: Callable[[int], tuple[str, ...]] = lambda row: ()
    _known: dict[int, Explanation] = field(default_factory=dict, repr=False)
    _asking: dict[int, threading.Lock] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def private(self) -> bool:
        """Whether Slurm shows users no jobs but their own: then neither do we."""
        return self.snapshot.site.hides("jobs", "users")

    @property
    def head(self) -> dict[str, Any]:
        """The first lines of every page."""
        return {"cluster": self.snapshot.site.cluster, "now_s": self.snapshot.now_s, "mode": self.mode,
                "policy": self.policy, "note": self.note}  # fmt: skip

    @cached_property
    def rows(self) -> list[QueueRow]:
        """All pending jobs in the policy's order."""
        return queue_rows(self.snapshot, self.plan, self.lever)

    @cached_property
    def running(self) -> list[RunningRow]:
        """All jobs that hold nodes, the one that must end first at the top."""
        return running_rows(self.snapshot)

    def queue(self, wanted: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """The first jobs of the queue, or of the part that is wanted (JOB_FILTERS). of: how many there are."""
        with self._lock:
            rows = self.rows
        mine = [row for row in rows if _is_wanted(row, wanted)]
        shown = [asdict(row) | {"waiting_s": max(self.snapshot.now_s - row.submit_s, 0.0)} for row in mine[:MOST_JOBS]]
        return self.head | {"lever": self.lever, "of": len(mine), "jobs": shown,
                            "notes": list(self.plan.notes), "operations": self.operations}  # fmt: skip

    def held(self, wanted: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """The first jobs that hold nodes, or of the part that is wanted (JOB_FILTERS). of: how many there are."""
        with self._lock:
            rows = self.running
        mine = [row for row in rows if _is_wanted(row, wanted)]
        shown = [asdict(row) | {"node_list": folded(row.node_list)} for row in mine[:MOST_JOBS]]
        return self.head | {"of": len(mine), "jobs": shown}

    def use(self) -> dict[str, Any]:
        """GPUs by type; and by account and user what they hold and wait for, unless Slurm hides that."""
        with self._lock:
            types = self._gpus["types"]
            names = ("account", "user") if not self.private else ()
            return self.head | {"types": types, "private": self.private,
                                **{f"{name}s": self._tenants(name) for name in names}}  # fmt: skip

    def _tenants(self, by: str) -> list[dict[str, Any]]:
        """GPUs that each tenant holds and waits for, the one that holds most first."""
        made: dict[str, dict[str, Any]] = {}
        held: tuple[Sequence[QueueRow | RunningRow], str, str] = self.running, "gpus", "jobs"
        for rows, gpus, jobs in (held, (self.rows, "waiting_gpus", "waiting_jobs")):
            for row in rows:
                name = getattr(row, by)
                one = made.setdefault(name, {"name": name, "gpus": 0, "jobs": 0, "waiting_gpus": 0, "waiting_jobs": 0})
                one[gpus] += row.gpus
                one[jobs] += 1
        return sorted(made.values(), key=lambda one: (-one["gpus"], -one["waiting_gpus"], one["name"]))[:MOST_TENANTS]

    @cached_property
    def operations(self) -> list[dict[str, Any]]:
        """Preemptions and gang reservations under way."""
        return [{"operation": operation.id, "purpose": str(operation.purpose), "stage": str(operation.stage),
        "job_id": operation.job_id,
                 "user": operation.user, "nodes": folded(operation.nodes),
                 "victims": [victim.job_id for victim in operation.victims]}
                for operation in self.snapshot.operations]  # fmt: skip

    def gpus(self) -> dict[str, Any]:
        """GPUs by type, and node by node. of: how many nodes there are."""
        with self._lock:
            return self._gpus

    @cached_property
    def _gpus(self) -> dict[str, Any]:
        look = gpu_overview(self.snapshot)
        nodes = gpu_map(self.snapshot, frozenset(one.node for one in look.stranded))
        alike = [{"nodes": line.nodes, "state": line.state, "type": line.gpu_type, "gpus": line.gpus, "free": line.free,
                  "linked": line.linked, "reason": line.reason} for line in look.nodes]  # fmt: skip
        alike.sort(key=lambda line: counting_key(str(line["nodes"]).replace("[", "")))
        types = [{"name": one.name or "-", "gpus": one.gpus, "free": one.free, "stranded": one.stranded,
                  "used": one.used, "drained": one.drained, "down": one.down, "boot": one.boot, "unread": one.unread,
                  "sets": {str(gpus): count for gpus, count in one.sets.items()}} for one in look.types]  # fmt: skip
        return self.head | {"types": types, "alike": alike[:MOST_NODES], "of": len(nodes), "nodes": [
            {"name": node.name, "state": node.state, "types": node.gpu_types, "free": node.free, "exact": node.exact,
             "gpus": [self._gpu(gpu) for gpu in node.gpus]} for node in nodes[:MOST_NODES]
        ]}  # fmt: skip

    def _gpu(self, gpu: Any) -> dict[str, Any]:
        record = {"index": gpu.index, "what": gpu.what, "group": gpu.group}
        if gpu.what != HELD or self.private:
            return record
        return record | {"job_id": gpu.job_id, "user": gpu.user}

    def job(self, job_id: int) -> dict[str, Any] | None:
        """Why a job waits, from this snapshot, Slurm and what is on record; None where it is not in the snapshot.

        An array's or het job's id will do.
        """
        jobs = self.snapshot.jobs
        columns: Sequence[Any] = (jobs.job_id, jobs.array_job_id, jobs.het_job_id)
        row = next((int(rows[0]) for column in columns if len(rows := (column == job_id).nonzero()[0])), None)
        if row is None or job_id <= 0:
            return None
        return self.head | asdict(self._explained(row))

    def _explained(self, row: int) -> Explanation:
        job_id = int(self.snapshot.jobs.job_id[row])
        with self._lock:
            asking = self._asking.setdefault(job_id, threading.Lock())
        with asking:
            if job_id not in self._known:
                details, more = self._gathered(row, job_id), (self.expected(row), self.move(row))
                details = replace(details, reservations=_without_hidden(details.reservations, self.snapshot.site))
                self._known[job_id] = explain(self._for_readers, self.plan, row, details, *more)
            return self._known[job_id]

    @cached_property
    def _for_readers(self) -> Snapshot:
        """The snapshot without what Slurm hides of reservations; they are then told to be hidden, as users are."""
        seen, site = self.snapshot, self.snapshot.site
        rights = min(site.rights, Rights.USER) if site.hides("reservations") else site.rights
        return replace(seen, reservations=_without_hidden(seen.reservations, site), site=replace(site, rights=rights))

    def _gathered(self, row: int, job_id: int) -> JobDetails:
        """Slurm's facts on a job that waits, and the records of any job."""
        jobs = self.snapshot.jobs
        details = JobDetails(reservations=self.snapshot.reservations)
        if jobs.pending[row]:
            details = self.ask(row) if self.ask else replace(details, unread=(NOT_ASKED,))
        known = self.past(job_id, int(jobs.gpus[row]))
        return details.remembered(known)


def _without_hidden(table: Reservations, site: Site) -> Reservations:
    """Reservations without those, or without the names, that Slurm hides from users."""
    if site.hides("reservations"):
        table = table.take(np.array([name.startswith(RESERVATION_PREFIX) for name in table.name], np.bool_))
    if not site.hides("accounts"):
        return table
    nobody = [""] * len(table)
    return table.with_columns(users=nobody, accounts=nobody, groups=nobody, qos=nobody)


def _is_wanted(row: QueueRow | RunningRow, wanted: Mapping[str, str]) -> bool:
    """Whether a job has these values; of a list of partitions one is enough."""
    return all(value in ("", getattr(row, name)) or (name == "partition" and value in row.partition.split(","))
               for name, value in wanted.items() if name in JOB_FILTERS)  # fmt: skip
