"""The levers of a cycle, in the order in which they propose changes, and undo. A new lever is a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from slurmsched.model import Plan
from slurmsched.planning.proposals import Lever

if TYPE_CHECKING:
    from slurmsched.model import Snapshot
    from slurmsched.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class LeverEntry:
    """One lever.

    at: module and class, loaded when it is needed.
    fields: of the overrides that are its own.
    on: whether it is switched on. While a job has an override of a lever, the lever also runs when it is off, to give
    the job its own value back.
    """

    name: str
    at: str
    fields: tuple[str, ...] = ()
    on: Callable[[Planner], bool] = lambda _: True

    def load(self) -> type[Lever]:
        """The class, imported now."""
        module, _, name = self.at.partition(":")
        made: type[Lever] = getattr(import_module(module), name)
        return made


LEVERS = [
    LeverEntry("out-of-scope", "slurmsched.planning.job_scope:OutOfScopeLever"),
    LeverEntry(
        "start",
        "slurmsched.planning.earliest_starts:StartLever",
        ("start_time",),
        on=lambda planner: planner.lever.start,
    ),
    LeverEntry("size", "slurmsched.planning.job_sizes:SizeLever", ("size",), on=lambda planner: planner.lever.size),
    LeverEntry("cpus", "slurmsched.planning.host_resources:CpuLever", ("cpus",), on=lambda planner: planner.lever.cpus),
    LeverEntry(
        "memory",
        "slurmsched.planning.host_resources:MemoryLever",
        ("memory",),
        on=lambda planner: planner.lever.memory,
    ),
    LeverEntry(
        "share",
        "slurmsched.planning.shard_requests:ShardLever",
        ("shard_node", "shards"),
        on=lambda planner: planner.lever.share,
    ),
    LeverEntry(
        "node-list",
        "slurmsched.planning.node_lists.node_list_lever:NodeListLever",
        ("node_list", "gpu_type"),
        on=lambda planner: planner.placement_config.places,
    ),
    LeverEntry("priority", "slurmsched.planning.priorities.priority_values:PriorityLever"),
    LeverEntry("operation", "slurmsched.planning.operations.operation_planner:OperationLever"),
    LeverEntry("shrink", "slurmsched.planning.job_sizes:ShrinkLever", on=lambda planner: planner.lever.shrink),
    LeverEntry(
        "running-size",
        "slurmsched.planning.job_sizes:RunningSizeLever",
        on=lambda planner: planner.reports.sizes,
    ),
    LeverEntry(
        "admin-comment",
        "slurmsched.planning.admin_comments:AdminCommentLever",
        ("admin_comment",),
        on=lambda planner: planner.lever.admin_comment,
    ),
]


def levers_of(planner: Planner, snapshot: Snapshot) -> dict[str, Lever]:
    """The levers that run in this cycle, by name."""
    held = {record.field for record in snapshot.overrides}
    return {
        entry.name: entry.load().of(planner) for entry in LEVERS if entry.on(planner) or held.intersection(entry.fields)
    }


def lever_of(field: str) -> LeverEntry:
    """The lever of this field; for a field without a lever, a plain one."""
    found = next((entry for entry in LEVERS if field in entry.fields), None)
    return found or LeverEntry(field, f"{Lever.__module__}:{Lever.__name__}", (field,))


def undo_plan(snapshot: Snapshot) -> Plan:
    """The actions that restore what is on record. snapshot: with all its overrides, those of nice and site factor too.

    If a job has a value that slurmsched never sent, somebody else has changed it. It is refused.
    """
    parts = [entry.load().restore(snapshot) for entry in LEVERS]
    return Plan(
        actions=tuple(action for part in parts for action in part.actions),
        refused=tuple(refusal for part in parts for refusal in part.refusals),
        overrides=tuple(record for part in parts for record in part.overrides),
        operations=tuple(operation for part in parts for operation in part.operations),
    )
