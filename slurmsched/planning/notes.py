"""What keeps a plan from working at a site, in words."""

from __future__ import annotations

from slurmsched.config import Scope
from slurmsched.model import Rights, Snapshot

ON_BASIC = ("Slurm orders jobs by PriorityType=priority/basic, which no nice or site factor can steer: nothing is "
            "written. Set PriorityType=priority/multifactor in slurm.conf")  # fmt: skip


def site_notes(snapshot: Snapshot, scope: Scope) -> tuple[str, ...]:
    """What keeps the plan from working at this site, in words."""
    site, found = snapshot.site, []
    if site.rights < Rights.OPERATOR:
        who = site.user or "this user"
        found.append(
            f"{who} has no Operator right in Slurm, which negative nice and SiteFactor need: nothing can be written"
        )
    if not site.multifactor:
        found.append(ON_BASIC)
    if not scope.partitions:
        found.append('scope.partitions is empty: no job is managed; name partitions, or "*" for all')
    if unknown := unknown_partitions(snapshot, scope):
        told = f"scope.partitions names what Slurm does not know: {', '.join(unknown)}"
        found.append(f"{told}; until it does, no job that left the scope gets its own value back")
    return tuple(found)


def unknown_partitions(snapshot: Snapshot, scope: Scope) -> list[str]:
    """Names in scope.partitions that Slurm does not know; none where it told of no partition at all."""
    return sorted({*scope.partitions} - {"*", *snapshot.partitions.name}) if len(snapshot.partitions) else []
