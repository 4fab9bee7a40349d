"""What deciding code returns: a ranking, estimates, assignments, and the plan of typed actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Floats, Int64s, frozen
from slurmsched.model.gpu_selection import counted, nodes_of_size
from slurmsched.model.operations import Operation
from slurmsched.model.overrides import JobChanges, Override
from slurmsched.model.slurm_text import memory_mib

_NO_INTS, _NO_BOOLS, _NO_BYTES = frozen([], np.int64), frozen([], np.bool_), frozen([], np.int8)
_NO_FLOATS = frozen([], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Who goes first.

    order: (N,) int64, every row of snapshot.jobs once, most urgent first.
    why: name -> (N,) array by row, the criteria behind the order, for `queue` and `explain`.
    carry: comes back as snapshot.carry at the next quantum. Plain numbers, texts, lists, mappings.
    notes: what the policy could not honour, as text.
    changes: size, GPU type and earliest start of jobs, for a policy that decides those too.
    words: of criteria, as PolicyInfo.criteria; the planner adds those of the policy.
    """

    order: Int64s
    why: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    carry: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    changes: JobChanges | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", frozen(self.order, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Expected run time.

    total_s: (N,) whole run time of each job [s], NaN when there is none.
    source: (N,) int8 index into sources, where each estimate comes from.
    """

    total_s: Floats
    source: NDArray[np.int8]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Which jobs should hold GPUs now. Gangs are whole: a job has all its GPUs or none.

    rows: (R,) int64 rows of snapshot.jobs, in ranking order.
    first, count and node: row i of `rows` holds gpus[k] GPUs on nodes row node[k] for k in first[i] ..
        first[i]+count[i]. All int64.
    gpu_mask: which ones, bit i for GPU index i; empty where only counts were decided.
    host: (R,) int64 row of the job on whose GPUs this one is, -1 = on its own; such guests come after all others.
        Empty: no two jobs share.
    cpus, memory_mib: (R,) float64 CPUs and memory of each job on all its nodes together, by GPUs on each; 0 = as it
        asks. Empty where the placement does not choose them.
    """

    rows: Int64s
    first: Int64s
    count: Int64s
    node: Int64s
    gpus: Int64s
    gpu_mask: Int64s = field(default_factory=lambda: _NO_INTS)
    host: Int64s = field(default_factory=lambda: _NO_INTS)
    cpus: Floats = field(default_factory=lambda: _NO_FLOATS)
    memory_mib: Floats = field(default_factory=lambda: _NO_FLOATS)


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one job. Every action says why."""

    kind: ClassVar[str] = ""

    job_id: int
    submit_s: float  # as the snapshot saw it: an id used again is not touched
    reason: str


@dataclass(frozen=True, slots=True)
class SetPriority(Action):
    """Give a pending job the nice or site factor `new`; it has `old`. `base` is what undo gives back."""

    old: int = 0
    new: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class SetNice(SetPriority):
    """`base` is the user's own part of the nice."""

    kind: ClassVar[str] = "nice"


@dataclass(frozen=True, slots=True)
class SetSiteFactor(SetPriority):
    """Users have no part in the site factor: `base` is 0."""

    kind: ClassVar[str] = "site_factor"


@dataclass(frozen=True, slots=True)
class Step(Action):
    """A step of an operation (see operations.Operation); sent only when the steps of that operation before it were
    written.

    operation: its id.
    """

    operation: str = ""


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
class MoveReservation(Step):
    """Let the reservation `name` begin and end then, on these nodes. nodes "": it has begun, only its end changes."""

    kind: ClassVar[str] = "move"

    name: str = ""
    nodes: str = ""
    start_s: float = math.nan
    end_s: float = math.nan


@dataclass(frozen=True, slots=True)
class JoinReservation(Step):
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
class AskSize(Step):
    """Ask a job to change to that many GPUs at its own pace, 0 = no other size is wanted any more. Slurm is not told.

    restarts: of the run that is meant; the next run does not see the request.
    """

    kind: ClassVar[str] = "want"

    gpus: int = 0
    restarts: int = -1


@dataclass(frozen=True, slots=True)
class ShrinkJob(Step):
    """Let a running job keep the first `nodes` of its nodes and give the others back. A requeue gives it all again.

    old: nodes that it has.
    gpus: those of the nodes that it keeps.
    restarts: of the run that is meant.
    """

    kind: ClassVar[str] = "shrink"
    columns: ClassVar[tuple[str, ...]] = ("NumNodes", "RestartCnt")

    nodes: int = 1
    old: int = 1
    gpus: int = 0
    restarts: int = -1


@dataclass(frozen=True, slots=True)
class AllowStart(Step):
    """Let a pending job start at start_s at the earliest."""

    kind: ClassVar[str] = "delay"

    start_s: float = math.nan


@dataclass(frozen=True, slots=True)
class SetField(Step):
    """Give a field of a pending job the value `new`; it has `old`, and by its user `base`. On record as an Override.

    operation: the name under which the changes of one job go together; after a refused one the others are not sent.
    """

    field: ClassVar[str] = ""  # of Override.field
    option: ClassVar[str] = ""  # as `scontrol update` calls it
    alike: ClassVar[tuple[str, ...]] = ()  # options that get the same value
    columns: ClassVar[tuple[str, ...]] = ()  # as `squeue -O` calls them, where the gate has no rule of its own for them

    new: Any = ""
    old: Any = ""
    base: Any = ""

    def has_old(self, shown: str) -> bool:
        """Whether a column of squeue shows the value that it replaces."""
        return shown == str(self.old)

    @property
    def restores(self) -> bool:
        """Whether it gives the job its own value back."""
        return bool(self.new == self.base)

    @property
    def options(self) -> tuple[str, ...]:
        """The options that it writes."""
        return (self.option, *self.alike)


@dataclass(frozen=True, slots=True)
class SetStart(SetField):
    """Let it start at `new` at the earliest [Unix s]. old: NaN = not known. base: equal to new to restore, else 0."""

    kind: ClassVar[str] = "defer"
    field: ClassVar[str] = "start_time"
    option: ClassVar[str] = "StartTime"

    new: float = math.nan
    old: float = math.nan
    base: float = 0.0


@dataclass(frozen=True, slots=True)
class SetNodeList(SetField):
    """Give it a node list of as many nodes as it gets, "" = none.

    picked: the nodes were chosen by what the job asks for, which holds only while it asks for no more.
    """

    kind: ClassVar[str] = "pin"
    field: ClassVar[str] = "node_list"
    option: ClassVar[str] = "NodeList"

    picked: bool = False


@dataclass(frozen=True, slots=True)
class SetGpuRequest(SetField):
    """Let it ask for as many GPUs of these Types, in normal form, by node."""

    kind: ClassVar[str] = "retype"
    field: ClassVar[str] = "gpu_type"
    option: ClassVar[str] = "Gres"  # TresPerNode by the name that every version has


@dataclass(frozen=True, slots=True)
class SetSize(SetGpuRequest):
    """Let it ask for another number of GPUs, in the way in which it asks for them.

    new, old, base: as gpu_selection.size_text.
    by: what its option counts by, as Jobs.gpus_by.
    nodes, tasks, cpus: what it asks for with `old`. They grow and shrink with its GPUs where it asks by node for
    several nodes, or by task: then each of these keeps its GPUs.
    """

    field: ClassVar[str] = "size"
    columns: ClassVar[tuple[str, ...]] = (
        "tres-per-job", "tres-per-task", "NumNodes", "NumTasks", "NumCPUs", "tres-alloc",
    )  # fmt: skip

    by: str = "node"
    nodes: int = 1
    tasks: int = 0
    cpus: int = 0

    @property
    def scales(self) -> bool:
        """Whether the number of its nodes or tasks changes, and not the GPUs of each."""
        return self.by == "task" or any(nodes_of_size(text) > 1 for text in (self.new, self.old, self.base))

    def scaled(self, number: int) -> int:
        """What becomes of a number of nodes, tasks or CPUs that it asks for with `old`."""
        return number * counted(self.new) // counted(self.old)


@dataclass(frozen=True, slots=True)
class SetShardNode(SetNodeList):
    """Give a job that asks for shards the node where it is to share a GPU."""

    field: ClassVar[str] = "shard_node"


@dataclass(frozen=True, slots=True)
class SetShards(SetGpuRequest):
    """Let it ask for so many shards ("shard:2") in place of its one GPU ("gpu:a100:1").

    shards_per_gpu: how many make up one GPU there, 0 if it gets its own request back.
    measured_part: the part that counts for a job without the hint gpu_part; 0 = none.
    """

    field: ClassVar[str] = "shards"

    shards_per_gpu: int = 0
    measured_part: float = 0.0


@dataclass(frozen=True, slots=True)
class SetCpus(SetField):
    """Let its one task ask for so many CPUs: of the job, of each task and of each node. Only a job that asks for `old`
    of them in all three ways, as by --cpus-per-task, is changed.

    omitted: options that are left out of a step back, since somebody else changed them.
    """

    kind: ClassVar[str] = "cpus"
    field: ClassVar[str] = "cpus"
    option: ClassVar[str] = "CPUsPerTask"
    alike: ClassVar[tuple[str, ...]] = ("NumCPUs", "MinCPUsNode")
    columns: ClassVar[tuple[str, ...]] = ("cpus-per-task", "NumCPUs", "mincpus")

    new: int = 0
    old: int = 0
    base: int = 0
    omitted: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(name for name in (self.option, *self.alike) if name not in self.omitted)


@dataclass(frozen=True, slots=True)
class SetMemory(SetField):
    """Let it ask for so much memory on its one node [MiB], as by --mem."""

    kind: ClassVar[str] = "memory"
    field: ClassVar[str] = "memory"
    option: ClassVar[str] = "MinMemoryNode"
    columns: ClassVar[tuple[str, ...]] = ("MinMemory",)

    new: int = 0
    old: int = 0
    base: int = 0

    def has_old(self, shown: str) -> bool:
        """squeue shows 8192 MiB as "8G"."""
        try:
            return memory_mib(shown) == self.old
        except UnreadableError:
            return False


@dataclass(frozen=True, slots=True)
class SetAdminComment(SetField):
    """Let its AdminComment say what slurmsched did to it, "" = nothing.

    texts: all that slurmsched meant for it before; any other text is somebody else's and stays.
    accounting: True = in the record of slurmdbd, where an Operator may write it; False = in slurmctld.
    """

    kind: ClassVar[str] = "comment"
    field: ClassVar[str] = "admin_comment"
    option: ClassVar[str] = "AdminComment"

    texts: tuple[str, ...] = ()
    accounting: bool = False


@dataclass(frozen=True, slots=True)
class DeleteReservation(Step):
    """Delete the reservation `name`; the job is the one it was for."""

    kind: ClassVar[str] = "unreserve"

    name: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action or a job that the gate left out. `rule` is the gate's rule, `reason` is for people."""

    job_id: int
    rule: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What this cycle would change, and why; only what differs from now.

    actions: in the order to send them.
    refused: what was left out.
    deferred: actions wanted beyond this cycle's cap, left to the next.
    notes: for people.
    operations: those that this plan begins or moves on, as they are from now on; overrides likewise.
    next_look_s: when to plan again though nothing happens [Unix s].
    """

    actions: tuple[Action, ...] = ()
    refused: tuple[Refusal, ...] = ()
    deferred: int = 0
    notes: tuple[str, ...] = ()
    ranking: Ranking | None = None
    wanted_values: Int64s = field(default_factory=lambda: _NO_INTS)  # (N,) value by row; old where unmanaged
    managed: NDArray[np.bool_] = field(default_factory=lambda: _NO_BOOLS)
    verdict: NDArray[np.int8] = field(default_factory=lambda: _NO_BYTES)  # index into job_scope.JOB_RULES, -1: managed
    next_look_s: float = math.inf
    operations: tuple[Operation, ...] = ()
    overrides: tuple[Override, ...] = ()

    @property
    def priority_changes(self) -> tuple[SetPriority, ...]:
        """The actions that change a job's priority field."""
        return tuple(action for action in self.actions if isinstance(action, SetPriority))

    @property
    def steps(self) -> tuple[Step, ...]:
        """All other actions: requests, node lists, and the steps of operations."""
        return tuple(action for action in self.actions if isinstance(action, Step))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action: "written", "refused" (Slurm said no), "unknown" (no answer came)."""

    action: Action
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What apply did.

    dry_run: nothing was sent, `outcomes` is empty and `planned` counts.
    stopped: why sending ended early, as text.
    exit_code: the same as a number of docs/exit-codes.md, 0 if it did not.
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


# Parts of an estimate.


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeFactors:
    """Of each job: expected run time = usual_s times all its factors.

    names: (F,) what each factor stands for.
    value: (N, F) what the job has there, NaN = not known.
    factor: (N, F).
    usual_s: the run time of a job whose factors are all 1 [s].
    """

    names: tuple[str, ...]
    usual_s: float
    value: Floats
    factor: Floats
