"""The nouns: frozen tables of jobs, nodes and partitions, the snapshot, the plan."""

from slurmsched.model.columns import Labels, frozen
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.plan import (
    Action,
    Assignments,
    Estimates,
    Outcome,
    Plan,
    Ranking,
    Receipt,
    Refusal,
    Requeue,
    SetLever,
    SetNice,
    SetSiteFactor,
    Wake,
)
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.model.states import FINISHED, JobState, NodeState, job_state, node_state
from slurmsched.model.topology import Fabric, GpuTopology, LinkKind, SiteTopology

__all__ = [
    "FINISHED", "Action", "Allocations", "Assignments", "Estimates", "Fabric", "GpuTopology", "JobState", "Jobs",
    "Labels", "LinkKind", "NodeState", "Nodes", "Outcome", "Partitions", "Plan", "Ranking", "Receipt", "Refusal",
    "Requeue", "Rights", "SetLever", "SetNice", "SetSiteFactor", "Site", "SiteTopology", "Snapshot", "Wake", "frozen",
    "job_state", "node_state",
]  # fmt: skip
