"""Every metric there is: its kind, its meaning, and the closed sets of its labels' values.

Names follow Prometheus: base units, `_total` for what only grows. No job, user or node is ever a label. What Slurm's
own endpoint serves from 25.11 on (counts of jobs, nodes and partitions by state) is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from slurmsched.model.acts import Purpose, Stage
from slurmsched.model.plan import Action
from slurmsched.planning.gate import RULES, When
from slurmsched.planning.managed import JOB_RULES, PIN_RULES, START_RULES

PREFIX = "slurmsched_"
GAUGE, COUNTER, HISTOGRAM, INFO = "gauge", "counter", "histogram", "info"
MANY = "10+"
NO_QUEUE = "none"
OTHER = "other"

SIZES = ("1", "2-4", "5-8", ">8")  # GPUs asked for; the classes of every table and plot
STAGES = ("read", "recall", "plan", "apply", "remember")
CYCLES = ("done", "failed", "dropped", "standby")
OUTCOMES = ("written", "changed", "refused", "unknown")
ENDS = ("slurm", "ledger", "not-leading", "rights", "paused", "busy", OTHER)
CAUSES = {"CPUs": "cpus", "memory": "memory", "CPUs and memory": "both"}


def _kinds(action: type[Action]) -> set[str]:
    """What it and all made from it are called."""
    return {action.kind, *(kind for each in action.__subclasses__() for kind in _kinds(each))} - {""}


KINDS = tuple(sorted(_kinds(Action)))
QUEUES = (*map(str, range(10)), MANY, NO_QUEUE)
PURPOSES, OPEN_STAGES = tuple(map(str, Purpose)), tuple(str(stage) for stage in Stage if stage != Stage.CLOSED)
_OF_PLANNERS = ("constraint", "ends", "far", "limit", "nodes", "unread", "victims", "pin-asks", "pin-form", "pin-gang")
RULE_NAMES = tuple(sorted({
    *(rule.name for rule in (*JOB_RULES, *PIN_RULES, *START_RULES) if rule.in_scope),
    *(rule.name for rule in RULES if rule.when == When.PLAN), *_OF_PLANNERS, OTHER,
}))  # fmt: skip

WAIT_BUCKETS_S = (10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
STAGE_BUCKETS_S = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RATIO_BUCKETS = (0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """name: without prefix. labels: name -> every value it may have; () = as many as the site's own configuration has,
    and one at a time. buckets: upper bounds of a histogram, the infinite one left out."""

    name: str
    kind: str
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def samples(self) -> tuple[str, ...]:
        """Names under which its values are exported."""
        if self.kind == HISTOGRAM:
            return tuple(f"{self.full_name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.full_name,)

    @property
    def series(self) -> Iterator[tuple[str, ...]]:
        """Every combination of label values."""
        return product(*self.labels.values())


GPU_STATES = ("idle", "boot", "allocated", "draining", "down", "unknown")  # as model.Nodes.gpu_use

METRICS = (
    Metric("build_info", INFO, "Version, policy and lever at work; always 1.",
           {"version": (), "policy": (), "lever": ()}),
    Metric("cycle_interval_seconds", GAUGE, "Time between two cycles as configured."),
    Metric("cycle_timestamp_seconds", GAUGE, "When the last cycle that worked was over, Unix time."),
    Metric("snapshot_timestamp_seconds", GAUGE,
           "Clock of the snapshot that all gauges are of, Unix time; its age is time() less this."),
    Metric("cycles_total", COUNTER, "Cycles by how they went. dropped: another host took the lease meanwhile; standby: "
           "another host leads.", {"outcome": CYCLES}),
    Metric("failed_cycles_in_a_row", GAUGE, "Cycles that failed since the last that worked."),
    Metric("cycle_stage_seconds", HISTOGRAM, "Time of a cycle's stages. recall and remember are the ledger's.",
           {"stage": STAGES}, STAGE_BUCKETS_S),
    Metric("leader", GAUGE, "1 where this host may write and remember, 0 where it stands by."),
    Metric("apply", GAUGE, "1 where values are sent to Slurm, 0 in a dry-run."),
    Metric("paused", GAUGE, "1 while the administrator's stop file is there."),
    Metric("snapshot_warnings", GAUGE, "What could not be read or understood in the last snapshot."),
    Metric("managed_jobs", GAUGE, "Pending records that the lever may move, by the policy's queue, if it has any.",
           {"queue": QUEUES}),
    Metric("left_alone_jobs", GAUGE, "Jobs of the scope that the gate leaves alone, by its rule (docs/gate.md).",
           {"rule": RULE_NAMES}),
    Metric("longest_wait_seconds", GAUGE, "Longest present wait of a pending GPU job, by GPUs asked for.",
           {"gpus": SIZES}),
    Metric("first_wait_seconds", HISTOGRAM, "From a GPU job's first submission to its first start, by GPUs held.",
           {"gpus": SIZES}, WAIT_BUCKETS_S),
    Metric("planned_writes", GAUGE, "Actions of the last plan."),
    Metric("deferred_writes", GAUGE, "Actions that the last plan left to the next, by pace.writes_per_cycle."),
    Metric("writes_total", COUNTER, "Actions by what became of them. changed: the job had changed since the snapshot; "
           "refused: Slurm said no; unknown: no answer came.", {"kind": KINDS, "outcome": OUTCOMES}),
    Metric("early_ends_total", COUNTER, "Cycles whose writing ended early or never began, by reason.",
           {"reason": ENDS}),
    Metric("open_acts", GAUGE, "Preemptions and promises under way.", {"purpose": PURPOSES, "stage": OPEN_STAGES}),
    Metric("acts_begun_total", COUNTER, "Preemptions and promises begun.", {"purpose": PURPOSES}),
    Metric("acts_given_up_total", COUNTER, "Preemptions and promises taken back before their job ran.",
           {"purpose": PURPOSES}),
    Metric("lost_gpu_seconds_total", COUNTER, "Work lost by requeues of ours, as estimated, in GPU seconds."),
    Metric("idle_gpu_seconds_total", COUNTER, "GPU seconds idle on nodes while an act kept them.",
           {"purpose": PURPOSES}),
    Metric("placement_quality_ratio", HISTOGRAM, "Links that jobs of several GPUs got at their start over the best "
           "that was free then; of jobs of several nodes the least share kept of cells, --switches and --segment.", {},
           RATIO_BUCKETS),
    Metric("missed_placements_total", COUNTER, "Jobs of several GPUs that started where better linked ones were free, "
           "or not as their --switches or --segment ask."),
    Metric("gpus", GAUGE, "GPUs by what they are for now. boot: free after a boot; unknown: how many are used cannot "
           "be read.", {"state": GPU_STATES}),
    Metric("stranded_gpus", GAUGE, "Free GPUs that no job can get, by what is taken beside them.",
           {"cause": tuple(CAUSES.values())}),
    Metric("largest_linked_set_gpus", GAUGE, "GPUs of the largest free set that NVLink or XGMI joins, of any node."),
    Metric("orphan_reservations", GAUGE, "Reservations of ours that no act on record knows."),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
CUMULATIVE = tuple(metric for metric in METRICS if metric.kind in (COUNTER, HISTOGRAM))


def all_samples() -> frozenset[str]:
    """Every name that is exported."""
    return frozenset(name for metric in METRICS for name in metric.samples)


def kind_of_end(exit_code: int, text: str) -> str:
    """The label of Receipt.stopped. exit_code: the receipt's."""
    if exit_code == 75:
        return "paused" if text.startswith("paused") else "busy"
    return {3: "slurm", 4: "ledger", 5: "not-leading", 6: "rights"}.get(exit_code, OTHER)
