"""What Slurm was asked about one job beside the snapshot. What could not be read is told, and is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan

from slurmsched.model.acts import Reservations


@dataclass(frozen=True, slots=True)
class Pool:
    """One licence."""

    name: str
    total: int
    used: int


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """record: fields of `scontrol show job`. partitions: fields of `show partition`, by name. pools: licences.
    limits: what `scontrol -o show assoc_mgr` printed. ours: what slurmsched did to the job, oldest first, in words.
    waits_s: how long like jobs waited for their first start [s]. unread: what could not be read, and why."""

    record: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    limits: str = ""
    reservations: Reservations = field(default_factory=lambda: Reservations.build(0, {}))
    ours: tuple[str, ...] = ()
    waits_s: tuple[float, ...] = ()
    start_s: float = nan
    requeued: bool = False
    unread: tuple[str, ...] = ()

    def remembered(self, known: Facts) -> Facts:
        """With what is on record of the job and of others like it."""
        return replace(self, ours=known.ours, waits_s=known.waits_s, requeued=known.requeued,
                       unread=(*self.unread, *known.unread))  # fmt: skip
