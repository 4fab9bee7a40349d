"""Sizes, lists and whoever else changes a job, in any order: undo gives it what its user asked for."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.config import LeverConfig, PlacementConfig, ScopeConfig
from slurmsched.db.override_log import OverrideLog
from slurmsched.model import (
    JobChanges,
    JobState,
    Operation,
    Outcome,
    Plan,
    Purpose,
    Ranking,
    Rights,
    SetGpuRequest,
    SetNodeList,
    Site,
    Snapshot,
    Step,
)
from slurmsched.model.columns import Labels
from slurmsched.model.gpu_selection import counted
from slurmsched.model.ordering import ordered
from slurmsched.planning.gate import CurrentJob, GateContext, GateTime, refusal
from slurmsched.planning.job_overrides import NODE_LIST_FIELDS, SIZE_FIELDS, restore_proposal
from slurmsched.planning.planner import Planner
from slurmsched.slurm.recorder import OverrideRecorder
from slurmsched.testing import snapshot

HINT = "slurmsched: min_gpus=1 max_gpus=6"
OPERATION = Operation("1-9", Purpose.PREEMPT, 1, 900.0, "bob", "n1", 60.0, 990.0)
CYCLES = st.tuples(
    st.sampled_from([0, 1, 2, 4, 6]),  # GPUs that the policy wants
    st.booleans(),  # whether it wants a type
    st.sampled_from(["", "", "change", "requeue", "operation", "limit"]),  # before the cycle
    st.sampled_from(["", "", "change", "bars", "refused", "cut", "unsent", "dies"]),  # while it writes
)


@dataclass(frozen=True)
class Fixed:
    """A policy that wants this of every job."""

    gpus: int
    gpu_type: str

    def rank(self, given: Snapshot) -> Ranking:
        rows = len(given.jobs)
        wants = JobChanges(gpus=np.full(rows, self.gpus, np.int32), gpu_type=Labels.of([self.gpu_type] * rows))
        return Ranking(ordered(given.jobs), changes=wants)


@dataclass
class World:
    """One job as Slurm has it. own: what its user asked for last."""

    log: OverrideLog
    request: str = "gpu:2"
    own: str = "gpu:2"
    nodes: str = ""
    submit_s: float = 900.0
    theirs: int = 1
    pinning: OverrideRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.pinning = OverrideRecorder(self.log)

    def seen(self, event: str = "") -> Snapshot:
        row = {"job_id": 1, "submit_s": self.submit_s, "gpus": counted(self.request), "nodes": 1, "comment": HINT,
               "gpu_request": self.request, "nodes_asked": self.nodes,
               "reason": "QOSMaxGRESPerUser" if event == "limit" else ""}  # fmt: skip
        operations = (replace(OPERATION, submit_s=self.submit_s),) if event == "operation" else ()
        site = Site(rights=Rights.OPERATOR)
        return snapshot([row], "2x8", now_s=1_000.0, site=site, overrides=self.pinning.known, operations=operations)

    def happens(self, event: str) -> None:
        if event == "change":  # to a number that no policy wants, and that no user asked for before
            self.theirs += 2
            self.request = self.own = f"gpu:{self.theirs}"
        if event == "requeue":
            self.submit_s += 1

    def cycle(self, plan: Plan, trouble: str) -> None:
        self.pinning.begin(plan, np.array([1]))
        self.happens(trouble)
        steps = [step for step in plan.actions if isinstance(step, SetNodeList | SetGpuRequest)]
        outcomes = self.sent(steps[: {"cut": 1, "unsent": 0}.get(trouble)], trouble)
        if trouble == "dies":
            self.pinning = OverrideRecorder(self.log)
        else:
            self.pinning.end(outcomes)

    def sent(self, steps: list[Step], trouble: str) -> list[Outcome]:
        """As the cluster does: a step that the gate or Slurm refuses keeps later ones of its operation from being
        sent."""
        outcomes: list[Outcome] = []
        for step in steps:
            bars = ("memory by GPU",) if trouble == "bars" and getattr(step, "new", "") != self.own else ()
            now = CurrentJob(self.submit_s, JobState.PENDING, 0, nodes=self.nodes, gpus=self.request, bars=bars)
            earlier = any(outcome.status == "refused" for outcome in outcomes)
            if earlier or refusal(step, GateContext(seen={1: now}), GateTime.SEND):
                outcomes.append(Outcome(step, "refused", "the gate"))
            else:
                outcomes.append(self.answered(step, refused=trouble == "refused"))
        return outcomes

    def answered(self, step: Step, *, refused: bool) -> Outcome:
        if isinstance(step, SetNodeList):
            self.nodes = self.nodes if refused else step.new
        elif isinstance(step, SetGpuRequest):
            self.request = step.base if refused else step.new  # the job's own is written after a refusal
        return Outcome(step, "refused" if refused else "written")


@given(cycles=st.lists(CYCLES, max_size=8))
def test_sizes__undo_gives_a_job_what_its_user_asked_for(cycles: list[tuple[int, bool, str, str]]) -> None:
    """Whatever was wanted, refused, cut, or changed by somebody else meanwhile."""
    placement = registry.make_plugin("placements", "consolidated", {}, key="placement")
    with tempfile.TemporaryDirectory() as folder:
        world = World(OverrideLog(Path(folder) / "journal.jsonl"))
        for gpus, typed, event, trouble in cycles:
            planner = Planner(
                Fixed(gpus, "a100" if typed else ""),
                scope=ScopeConfig(partitions=("gpu",)),
                lever=LeverConfig(size=True),
                placement=placement,
                placement_config=PlacementConfig(types=True),
            )
            world.happens(event)
            plan = planner.plan(world.seen(event))
            assert event != "operation" or not [
                step for step in plan.actions if isinstance(step, SetNodeList | SetGpuRequest)
            ]
            world.cycle(plan, trouble)
        back = restore_proposal(world.seen(), (*NODE_LIST_FIELDS, *SIZE_FIELDS), "undo")
        world.cycle(Plan(actions=back.actions, overrides=back.overrides), "")
        assert (world.request, world.nodes) == (world.own, "")
        assert not [pin for pin in world.pinning.known if pin.open]
