"""Gang reservations: the best nodes of all, and the published case of a gang before endless small jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slurmsched.config import GangsConfig, OperationsConfig
from slurmsched.config_file import parse_config
from slurmsched.estimators.requested_time import Hint
from slurmsched.model import Action, Operation, OperationStage, Reservations, Rights, Site, Snapshot
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.planning.operations.gang_reservations import GangReservations
from slurmsched.planning.planner import Planner
from slurmsched.resources.free import JobRequirements
from slurmsched.testing import fleet, snapshot

KILL_WAIT_S, CYCLE_S = 30.0, 60.0
SITE = Site(rights=Rights.OPERATOR, settings={"KillWait": f"{KILL_WAIT_S:.0f} sec"})
GANG = 1


@settings(deadline=None, max_examples=60)
@given(
    jobs=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 50)), max_size=14),
    nodes=st.integers(1, 4), gpus=st.integers(1, 8),
)  # fmt: skip
def test_chosen__no_other_nodes_start_earlier_or_are_idle_less(jobs, nodes, gpus):
    """Against every set of nodes, by counting seconds one by one. jobs: node, GPUs and end [s] of each."""
    free, placed = [8] * 5, []
    for node, held, end_s in jobs:
        if held <= free[node]:
            free[node] -= held
            placed.append((node, held, end_s))
    rows = [
        {"job_id": i, "state": "RUNNING", "gpus": held, "end_s": float(end_s)}
        for i, (_, held, end_s) in enumerate(placed, 2)
    ]
    held_by = [{"job_id": i, "node": f"n{node + 1}", "gpus": held} for i, (node, held, _) in enumerate(placed, 2)]
    asks = {"job_id": 1, "gpus": gpus * nodes, "nodes": nodes}
    at = snapshot([asks, *rows], "5x8", allocations=held_by, site=Site(settings={"KillWait": "0 sec"}))
    reserving, need = GangReservations.of(at, GangsConfig(), OperationsConfig(), Hint()), JobRequirements.of(at, 0)
    found = reserving.chosen(need, reserving.outlook(need), np.ones(5, np.bool_), 0.0)
    then = [[free[node] + sum(h for n, h, e in placed if n == node and e <= t) for t in range(51)] for node in range(5)]
    ready = [next(t for t in range(51) if row[t] >= gpus) for row in then]
    best = min((max(ready[n] for n in some), sum(sum(then[n][: max(ready[m] for m in some)]) for n in some))
               for some in combinations(range(5), nodes))  # fmt: skip
    assert found is not None
    rows_of, start_s = found
    assert (start_s, sum(sum(then[n][: int(start_s)]) for n in rows_of.tolist())) == best


@dataclass
class World:
    """Slurm as far as the published case needs it: GPUs, time limits, one reservation. Each job runs up to its limit.

    ends: job -> node and end. waits: small jobs in the queue with their limit. used: those that began on kept nodes.
    """

    now_s: float = 0.0
    ends: dict[int, tuple[str, float]] = field(default_factory=dict)
    waits: dict[int, float] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    joined: bool = False
    operations: tuple[Operation, ...] = ()
    gang_start_s: float = np.inf
    used: int = 0
    last_id: int = 1

    def seen(self) -> Snapshot:
        rows = [{"job_id": GANG, "gpus": 32, "nodes": 4, "time_limit_s": 3_600.0, "user": "bob",
                 "reservation": self.kept.get("name", "") if self.joined else "",
                 "state": "RUNNING" if self.gang_start_s < np.inf else "PENDING"}]  # fmt: skip
        rows += [{"job_id": job, "state": "RUNNING", "end_s": end_s} for job, (_, end_s) in self.ends.items()]
        rows += [{"job_id": job, "time_limit_s": limit_s, "submit_s": 1.0} for job, limit_s in self.waits.items()]
        held = [{"job_id": job, "node": node, "gpus": 1} for job, (node, _) in self.ends.items()]
        one = {name: [value] for name, value in self.kept.items()}
        return snapshot(rows, fleet("8x8"), now_s=self.now_s, allocations=held, operations=self.operations, site=SITE,
                        reservations=Reservations.build(len(one.get("name", ())), one))  # fmt: skip

    def send(self, action: Action) -> None:
        if action.kind in ("reserve", "move"):
            names = {"name": "name", "node_list": "nodes", "start_s": "start_s", "end_s": "end_s"}
            changed = {column: getattr(action, name) for column, name in names.items()}
            assert action.kind == "reserve" or self.kept["start_s"] > self.now_s, "Slurm moves none that has begun"
            self.kept = changed
        elif action.kind == "join":
            self.joined = bool(action.name)  # type: ignore[attr-defined]
        elif action.kind == "unreserve":
            assert not self.joined
            self.kept = {}

    def second(self) -> None:
        """A second passes: jobs end, the gang and then small jobs start where they may."""
        self.now_s += 1
        self.ends = {job: at for job, at in self.ends.items() if at[1] > self.now_s}
        free = {f"n{node}": 8 for node in range(1, 9)}
        for node, _ in self.ends.values():
            free[node] -= 1
        kept = set(expand_hostlist(self.kept["node_list"])) if self.kept else set()
        if self.joined and self.kept["start_s"] <= self.now_s and all(free[node] == 8 for node in kept):
            self.gang_start_s = min(self.gang_start_s, self.now_s)
        for job, limit_s in sorted(self.waits.items()):
            crosses = bool(self.kept) and self.now_s + limit_s > self.kept["start_s"]
            node = next((n for n in free if free[n] and not (crosses and n in kept)), None)
            if node is not None:
                free[node] -= 1
                self.ends[job] = node, self.now_s + limit_s
                self.used += node in kept
                del self.waits[job]

    def comes(self, limit_s: float) -> None:
        self.last_id += 1
        self.waits[self.last_id] = limit_s


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 1_000))
def test_promise__gang_before_endless_small_jobs_starts_in_time(seed):
    """8 x 8 GPUs busy with 1-GPU jobs that end at spread times, a 4-node gang at the head, a 1-GPU job every ten
    seconds: it starts within the longest remaining time and a cycle, and short jobs still run on its nodes."""
    chance = np.random.default_rng(seed)
    world = World()
    for node in range(1, 9):
        for _ in range(8):
            world.last_id += 1
            world.ends[world.last_id] = f"n{node}", float(chance.integers(1, 1_200))
    longest_s = max(end_s for _, end_s in world.ends.values())
    assume(longest_s > 900)
    planner = Planner.from_config(parse_config({
        "policy": {"name": "fifo"}, "scope": {"partitions": ["*"]}, "gangs": {"reserve": True},
    }))  # fmt: skip
    while world.gang_start_s == np.inf and world.now_s < 3 * longest_s:
        plan = planner.plan(world.seen())
        for action in plan.actions:
            world.send(action)
        world.operations = tuple(operation for operation in plan.operations if operation.stage != OperationStage.CLOSED)
        for second in range(int(CYCLE_S)):
            if second % 10 == 0:
                world.comes(float(chance.choice([60, 120, 300, 1_200])))
            world.second()
    assert world.gang_start_s <= longest_s + KILL_WAIT_S + CYCLE_S
    assert world.used > 0
