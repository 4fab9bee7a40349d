"""Parts of a cycle whose time is noted; they do what the parts do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import Cluster, Planner, Store

Note = Callable[[str, float], None]  # stage, seconds


@dataclass(frozen=True, slots=True)
class Timed:
    """A cluster, planner and store in one. A stage that fails is not noted."""

    cluster: Cluster
    planner: Planner
    store: Store
    note: Note

    def read(self) -> Snapshot:
        with self._noted("read"):
            return self.cluster.read()

    def recall(self, snapshot: Snapshot) -> Snapshot:
        with self._noted("recall"):
            return self.store.recall(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        with self._noted("plan"):
            return self.planner.plan(snapshot)

    def apply(self, plan: Plan) -> Receipt:
        with self._noted("apply"):
            return self.cluster.apply(plan)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        with self._noted("remember"):
            self.store.append(snapshot, plan, receipt)

    @contextmanager
    def _noted(self, stage: str) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self.note(stage, time.perf_counter() - begun_s)
