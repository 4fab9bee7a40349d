"""What the gate's rules look at: the snapshot when an action is planned, its job as it is right before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import NDArray

from slurmsched.config import Acts, Preemption, Scope
from slurmsched.model import Act, JobState, Site, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.plan import Action


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as the last look shows it. site_factor: None where sprio does not show the job (held, or not yet eligible).

    exclusive: whether it asks for whole nodes; looked at only where nodes are about to be reserved. eligible_s: when it
    may start [Unix s], NaN = not told.
    """

    submit_s: float
    state: JobState
    nice: int
    site_factor: int | None = None
    reservation: str = ""
    exclusive: bool = False
    nodes: str = ""  # that it asks for
    gpus: str = ""  # that it asks for by node, in normal form
    bars: tuple[str, ...] = ()  # what it asks for that a list or request of ours could break; read where one is given
    eligible_s: float = nan

    @property
    def pending(self) -> bool:
        """Waiting, and not still completing an earlier run."""
        return bool(self.state & JobState.PENDING) and not self.state & JobState.COMPLETING


@dataclass(frozen=True, slots=True)
class View:
    """What rules look at. A rule is asked only about what belongs to its time.

    PLAN: snapshot, scope, taking and limits; verdict, of managed.verdicts; left, of managed.out_of_scope; acts: id ->
    those of the plan; begun: those that it lets begin so far. APPLY: site; stopped and busy, why nothing may be sent,
    in words. SEND: seen, by job id.
    """

    snapshot: Snapshot | None = None
    scope: Scope = field(default_factory=Scope)
    taking: Preemption = field(default_factory=Preemption)
    limits: Acts = field(default_factory=Acts)
    verdict: NDArray[np.int8] | None = None
    acts: Mapping[str, Act] = field(default_factory=dict)
    begun: tuple[Act, ...] = ()
    left: Bools | None = None
    site: Site | None = None
    stopped: str = ""
    busy: str = ""
    seen: Mapping[int, Seen] = field(default_factory=dict)


def row_of(action: Action, snapshot: Snapshot) -> int:
    """Row of the action's job, -1 if it is not in the snapshot."""
    return snapshot.jobs.row_of(action.job_id)
