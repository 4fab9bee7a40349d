"""What the pages show of one cycle, as plain values: made when it is first asked for, then kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from slurmsched.cli.rows import queue_rows
from slurmsched.explain.explanation import Explanation, explain
from slurmsched.explain.facts import Facts
from slurmsched.model.plan import Plan
from slurmsched.model.snapshot import Snapshot
from slurmsched.survey.gpu_map import HELD, gpu_map
from slurmsched.survey.overview import overview

MOST_JOBS = 500  # in an answer
MOST_NODES = 1000
NOT_ASKED = "values of limits, licences and partitions: Slurm is not asked for pages, `slurmsched explain JOB` does"


@dataclass(eq=False)
class Frame:
    """One snapshot and its plan. lever: the lever's kind. note: what is wrong since, "" = nothing. past: what is on
    record of a job and of others of so many GPUs. ask: what Slurm tells of the job in a row, None = it is not asked.
    move, expected: those of Explanation, of the job in a row. All once a job, others not waiting meanwhile."""

    snapshot: Snapshot
    plan: Plan
    lever: str
    mode: str
    policy: str
    note: str = ""
    past: Callable[[int, int], Facts] = lambda job_id, gpus: Facts()
    ask: Callable[[int], Facts] | None = None
    move: Callable[[int], str] = lambda row: ""
    expected: Callable[[int], tuple[str, ...]] = lambda row: ()
    _known: dict[int, Explanation] = field(default_factory=dict, repr=False)
    _asking: dict[int, threading.Lock] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def private(self) -> bool:
        """Whether Slurm shows users no jobs but their own: then neither do we."""
        hidden = self.snapshot.site.settings.get("PrivateData", "").lower().split(",")
        return any(name.strip() in ("jobs", "users", "all") for name in hidden)

    @property
    def head(self) -> dict[str, Any]:
        """What every answer begins with."""
        return {"cluster": self.snapshot.site.cluster, "now_s": self.snapshot.now_s, "mode": self.mode,
                "policy": self.policy, "note": self.note}  # fmt: skip

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """All pending jobs in the policy's order."""
        return queue_rows(self.snapshot, self.plan, self.lever)

    def queue(self, user: str = "", partition: str = "") -> dict[str, Any]:
        """The first jobs of the queue, or of a user's or partition's part of it. of: how many there are."""
        with self._lock:
            rows = self.rows
        mine = [row for row in rows if user in ("", row["user"])
                and (not partition or partition in row["partition"].split(","))]  # fmt: skip
        return self.head | {"lever": self.lever, "of": len(mine), "jobs": mine[:MOST_JOBS],
                            "notes": list(self.plan.notes), "acts": self.acts}  # fmt: skip

    @cached_property
    def acts(self) -> list[dict[str, Any]]:
        """Preemptions and promises under way."""
        return [{"act": act.id, "purpose": str(act.purpose), "stage": str(act.stage), "job_id": act.job_id,
                 "user": act.user, "nodes": act.nodes, "victims": [victim.job_id for victim in act.victims]}
                for act in self.snapshot.acts]  # fmt: skip

    def gpus(self) -> dict[str, Any]:
        """GPUs by type, and node by node. of: how many nodes there are."""
        with self._lock:
            return self._gpus

    @cached_property
    def _gpus(self) -> dict[str, Any]:
        look = overview(self.snapshot)
        nodes = gpu_map(self.snapshot, frozenset(one.node for one in look.stranded))
        types = [{"name": one.name or "-", "gpus": one.gpus, "free": one.free, "stranded": one.stranded,
                  "used": one.used, "drained": one.drained, "down": one.down, "boot": one.boot, "unread": one.unread,
                  "sets": {str(gpus): count for gpus, count in one.sets.items()}} for one in look.types]  # fmt: skip
        return self.head | {"types": types, "of": len(nodes), "nodes": [
            {"name": node.name, "state": node.state, "types": node.gpu_types, "free": node.free, "exact": node.exact,
             "gpus": [self._gpu(gpu) for gpu in node.gpus]} for node in nodes[:MOST_NODES]
        ]}  # fmt: skip

    def _gpu(self, gpu: Any) -> dict[str, Any]:
        told = {"index": gpu.index, "what": gpu.what, "group": gpu.group}
        if gpu.what != HELD or self.private:
            return told
        return told | {"job_id": gpu.job_id, "user": gpu.user}

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
                facts, more = self._gathered(row, job_id), (self.expected(row), self.move(row))
                self._known[job_id] = explain(self.snapshot, self.plan, row, facts, *more)
            return self._known[job_id]

    def _gathered(self, row: int, job_id: int) -> Facts:
        """What Slurm tells of a job that waits, and what is on record of any."""
        jobs = self.snapshot.jobs
        told = Facts(reservations=self.snapshot.reservations)
        if jobs.pending[row]:
            told = self.ask(row) if self.ask else replace(told, unread=(NOT_ASKED,))
        known = self.past(job_id, int(jobs.gpus[row]))
        return told.remembered(known)
