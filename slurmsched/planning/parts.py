"""What the parts of a plan come to, apart from their code: a cycle that has no use for a part does not load it."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model.acts import Act
from slurmsched.model.deferrals import Deferral
from slurmsched.model.pins import Pin
from slurmsched.model.plan import Defer, Refusal, Step


@dataclass(frozen=True, slots=True)
class Pinned:
    """actions: to send, in this order. refused: why jobs that would be placed are not. pins: records as they are from
    now on, of those that change."""

    actions: tuple[Step, ...] = ()
    refused: tuple[Refusal, ...] = ()
    pins: tuple[Pin, ...] = ()

    @property
    def jobs(self) -> list[int]:
        """Ids of those that are written."""
        return [action.job_id for action in self.actions]


@dataclass(frozen=True, slots=True)
class Deferred:
    """actions: to send. refused: why jobs that were to start later are not told so. deferrals: records that change,
    as they are from now on. left: jobs whose change waits for the next cycle."""

    actions: tuple[Defer, ...] = ()
    refused: tuple[Refusal, ...] = ()
    deferrals: tuple[Deferral, ...] = ()
    left: tuple[int, ...] = ()

    @property
    def jobs(self) -> list[int]:
        """Ids of those whose start is to change."""
        return [*(action.job_id for action in self.actions), *self.left]


@dataclass(frozen=True, slots=True)
class Begun:
    """acts: to begin now. refused: why urgent jobs got none."""

    acts: tuple[Act, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def __add__(self, other: Begun) -> Begun:
        return Begun((*self.acts, *other.acts), (*self.refused, *other.refused))
