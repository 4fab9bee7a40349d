"""The nouns: frozen tables of jobs, nodes and partitions, the snapshot, the plan."""

from slurmsched.model.acts import Act, Purpose, Reservations, Stage, Victim, Wait
from slurmsched.model.card import Card, Family, Input, Use
from slurmsched.model.columns import Labels, frozen
from slurmsched.model.deferrals import Deferral
from slurmsched.model.jobs import Allocations, Jobs
from slurmsched.model.nodes import Nodes, Partitions
from slurmsched.model.past import Past
from slurmsched.model.pins import Picking, Pin, Placed, Wish
from slurmsched.model.plan import (
    Action,
    Assignments,
    Defer,
    Delay,
    Estimates,
    Join,
    Move,
    Outcome,
    PinNodes,
    Plan,
    Ranking,
    Receipt,
    Refusal,
    Requeue,
    Reserve,
    Retype,
    SetLever,
    SetNice,
    SetSiteFactor,
    Signal,
    Step,
    Unreserve,
    Wake,
)
from slurmsched.model.snapshot import Rights, Site, Snapshot
from slurmsched.model.states import FINISHED, JobState, NodeState, job_state, node_state, read_node_state
from slurmsched.model.topology import Fabric, GpuTopology, LinkKind, SiteTopology
from slurmsched.model.wants import Wants

__all__ = [
    "Act", "Action", "Allocations", "Assignments", "Card", "Defer", "Deferral", "Delay", "Estimates", "FINISHED",
    "Fabric", "Family", "GpuTopology", "Input", "JobState", "Jobs", "Join", "Labels", "LinkKind", "Move",
    "NodeState", "Nodes", "Outcome", "Partitions", "Past", "Picking", "Pin", "PinNodes", "Placed", "Plan",
    "Purpose", "Ranking", "Receipt", "Refusal", "Requeue", "Reservations", "Reserve", "Retype", "Rights",
    "SetLever", "SetNice", "SetSiteFactor", "Signal", "Site", "SiteTopology", "Snapshot", "Stage", "Step",
    "Unreserve", "Use", "Victim", "Wait", "Wake", "Wants", "Wish", "frozen", "job_state", "node_state",
    "read_node_state",
]  # fmt: skip
