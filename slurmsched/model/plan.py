"""What deciding code returns: a ranking, estimates, assignments, and the plan of typed actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.model.acts import Act
from slurmsched.model.columns import Floats, Int64s, frozen
from slurmsched.model.deferrals import Deferral
from slurmsched.model.pins import Pin
from slurmsched.model.quick import quickly
from slurmsched.model.wants import Wants

_NO_INTS, _NO_BOOLS, _NO_BYTES = frozen([], np.int64), frozen([], np.bool_), frozen([], np.int8)


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Who goes first.

    order: (N,) int64, every row of snapshot.jobs once, most urgent first.
    why: name -> (N,) array by row, the criteria behind the order, for `queue` and `explain`.
    carry: comes back as snapshot.carry at the next quantum. Plain numbers, texts, lists, mappings.
    notes: what the policy could not honour, in words.
    wants: size, GPU type and earliest start of jobs, for a policy that decides those too.
    """

    order: Int64s
    why: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    carry: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wants: Wants | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", frozen(self.order, np.int64))


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Expected run time. total_s: (N,) whole run time of each job [s], NaN when there is none.

    source: (N,) int8 index into sources, where each estimate comes from.
    """

    total_s: Floats
    source: NDArray[np.int8]
    sources: tuple[str, ...] = ()


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Which jobs should hold GPUs now. Gangs are whole: a job has all its GPUs or none.

    rows: (R,) int64 rows of snapshot.jobs, in ranking order. first, count and node: row i of `rows` holds
    gpus[k] GPUs on nodes row node[k] for k in first[i] .. first[i]+count[i]. All int64.
    gpu_mask: which ones, bit i for GPU index i; empty where only counts were decided.
    host: (R,) int64 row of the job on whose GPUs this one is, -1 = on its own; such guests come after all others.
    Empty: no two jobs share.
    """

    rows: Int64s
    first: Int64s
    count: Int64s
    node: Int64s
    gpus: Int64s
    gpu_mask: Int64s = field(default_factory=lambda: _NO_INTS)
    host: Int64s = field(default_factory=lambda: _NO_INTS)


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one job. Every action says why."""

    kind: ClassVar[str] = ""

    job_id: int
    submit_s: float  # as the snapshot saw it: an id used again is not touched
    reason: str


@dataclass(frozen=True, slots=True)
class SetLever(Action):
    """Give a pending job's lever the value `new`; it has `old`. `base` is what undo gives back."""

    old: int = 0
    new: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class SetNice(SetLever):
    """`base` is the user's own part of the nice."""

    kind: ClassVar[str] = "nice"


@dataclass(frozen=True, slots=True)
class SetSiteFactor(SetLever):
    """Users have no part in the site factor: `base` is 0."""

    kind: ClassVar[str] = "site_factor"


@dataclass(frozen=True, slots=True)
class Step(Action):
    """A step of an act (see acts.Act); sent only when the steps of that act before it were written. act: its id."""

    act: str = ""


@dataclass(frozen=True, slots=True)
class Requeue(Step):
    """Take its GPUs from a running job; it waits again with what it attained. restarts: of the run that is meant."""

    kind: ClassVar[str] = "requeue"

    restarts: int = -1


@dataclass(frozen=True, slots=True)
class Reserve(Step):
    """Keep these nodes (hostlist) for the job's user under this name, though others may still run there.

    whole: the job needs them whole, and was planned so.
    """

    kind: ClassVar[str] = "reserve"

    name: str = ""
    nodes: str = ""
    user: str = ""
    start_s: float = math.nan
    end_s: float = math.nan
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Move(Step):
    """Let the reservation `name` begin and end then, on these nodes. nodes "": it has begun, only its end changes."""

    kind: ClassVar[str] = "move"

    name: str = ""
    nodes: str = ""
    start_s: float = math.nan
    end_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Join(Step):
    """Let a pending job run in the reservation `name` only; "" = in none, which a running job may be told too."""

    kind: ClassVar[str] = "join"

    name: str = ""


@dataclass(frozen=True, slots=True)
class Signal(Step):
    """Send the batch step of a running job this signal, for which it has asked."""

    kind: ClassVar[str] = "signal"

    signal: str = ""
    restarts: int = -1


@dataclass(frozen=True, slots=True)
class Delay(Step):
    """Let a pending job start at start_s at the earliest."""

    kind: ClassVar[str] = "delay"

    start_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Defer(Delay):
    """As Delay, because the policy wants so; on record as a Deferral. back: it gives the job its own start back.

    was_s: the start it has, NaN = not known.
    """

    kind: ClassVar[str] = "defer"

    back: bool = False
    was_s: float = math.nan


@dataclass(frozen=True, slots=True)
class PinNodes(Step):
    """Give a pending job the node list `nodes`, of as many nodes as it gets; it has `was`.

    base: what its user asked for, "" = none.
    picked: the nodes were chosen by what the job asks for, which holds only while it asks for no more.
    """

    kind: ClassVar[str] = "pin"

    nodes: str = ""
    was: str = ""
    base: str = ""
    picked: bool = False


@dataclass(frozen=True, slots=True)
class Retype(Step):
    """Let a pending job ask for GPUs of these Types (normal form, by node); it asks for `was`. base: its own.

    resizes: their number is to change too, or to be its own again.
    """

    kind: ClassVar[str] = "retype"

    gpus: str = ""
    was: str = ""
    base: str = ""
    resizes: bool = False


@dataclass(frozen=True, slots=True)
class Unreserve(Step):
    """Delete the reservation `name`; the job is the one it was for."""

    kind: ClassVar[str] = "unreserve"

    name: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action or a job that the gate left out. `rule` is the gate's rule, `reason` is for people."""

    job_id: int
    rule: str
    reason: str


@quickly
@dataclass(frozen=True, slots=True)
class Wake:
    """When the next plan can differ from this one, so that a cycle in between would be for nothing.

    at_s: the order may change by itself at this time [Unix s]. free_gpus: before that, nothing changes while
    fewer GPUs are free. arrivals: except by a job that comes and asks for fewer; False: not even then.
    fits: no job waits, and whoever comes gets GPUs while there are enough: nothing is to be decided until a job comes
    that finds too few. takes: whoever comes may take GPUs from others, so that each matters however few are free.
    running: at at_s jobs may move though none waits. lets_in_gpu_s: whoever comes and finds enough GPUs starts at once,
    and nothing changes before it has attained so much [GPU s]; None: only a plan lets in. The default rules nothing out
    but a change with time.
    """

    at_s: float = math.inf
    free_gpus: int = 0
    arrivals: bool = True
    fits: bool = False
    takes: bool = False
    running: bool = False
    lets_in_gpu_s: float | None = None


ANY_EVENT = Wake()


@quickly
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What this cycle would change, and why; only what differs from now.

    actions: in the order to send them. refused: what was left out. deferred: actions wanted beyond this
    cycle's cap, left to the next. notes: for people. target: who should hold GPUs now, and where, for a cluster
    that can be told so; None if the planner has no placement. acts: those that this plan begins or moves on, as they
    are from now on; pins and deferrals likewise. queue: rows of waiting jobs in the order in which they
    take GPUs that come free, each when it fits, if no newer plan says otherwise; jobs that come later go behind. None:
    only the next plan tells. queue_needs: (Q,) GPUs that must be free before each of the queue has its turn, whoever
    waits before it: what it asks for, less what jobs after it hold. Where any do, the next plan tells. Empty: nobody
    passes the first, and each needs what it asks for.
    """

    actions: tuple[Action, ...] = ()
    refused: tuple[Refusal, ...] = ()
    deferred: int = 0
    notes: tuple[str, ...] = ()
    ranking: Ranking | None = None
    lever_wanted: Int64s = field(default_factory=lambda: _NO_INTS)  # (N,) value by row; old where unmanaged
    managed: NDArray[np.bool_] = field(default_factory=lambda: _NO_BOOLS)
    verdict: NDArray[np.int8] = field(default_factory=lambda: _NO_BYTES)  # index into managed.JOB_RULES, -1: managed
    target: Assignments | None = None
    wake: Wake = ANY_EVENT
    queue: Int64s | None = None
    queue_needs: Int64s = field(default_factory=lambda: _NO_INTS)
    acts: tuple[Act, ...] = ()
    pins: tuple[Pin, ...] = ()
    deferrals: tuple[Deferral, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action: "written", "refused" (Slurm said no), "unknown" (no answer came)."""

    action: Action
    status: str
    message: str = ""


@quickly
@dataclass(frozen=True, slots=True)
class Receipt:
    """What apply did. dry_run: nothing was sent, `outcomes` is empty and `planned` counts.

    stopped: why sending ended early, in words. exit_code: the same as a number of docs/exit-codes.md, 0 if it did not.
    """

    outcomes: tuple[Outcome, ...] = ()
    planned: int = 0
    dry_run: bool = False
    stopped: str = ""
    exit_code: int = 0

    @property
    def written(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.status == "written")

    @property
    def refused(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.status != "written")
