"""Deadlines promised by packing leases, best effort in what they leave: Chronus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slurmsched.estimators.hint import Hint
from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats
from slurmsched.policies.cards import PREEMPTS, PROMISED, ROUNDS
from slurmsched.policies.checks import check_choice
from slurmsched.policies.deadlines import active, cluster_gpus, deadline_s, missing
from slurmsched.policies.expected import remaining_s, service
from slurmsched.policies.lease_plan import Demand, Packing, best, greedy
from slurmsched.policies.leases import chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import ordered
from slurmsched.policies.ranges import Count, Period, check_ranges
from slurmsched.protocols import Estimator
from slurmsched.words import some_of

_PACKINGS = {"milp": best, "greedy": greedy}
_PLAN = "lease_plan"  # in a carry: until when it stands
_PLANNED = ("admitted", "due_now")  # in a carry, by job: 1 or 0


@dataclass(frozen=True, slots=True)
class Chronus:
    """A deadline is promised if the leases needed can be packed before it; best effort fills the rest.

    lease_s: for how long a job that got GPUs keeps them [s]; the plan is in such leases, run times rounded up to whole
    ones.
    packing: "milp" promises as many deadlines as can be, "greedy" goes by slack and is faster.
    most_jobs: deadline jobs that one plan decides on, those promised before and then the earliest deadlines.
    estimator: where expected run times come from.
    Those with a lease now go first, then best effort by remaining service, then those whose leases come later. A job
    whose deadline cannot be promised is best effort, and asked about again at the next plan. Without an expected run
    time best effort goes by attained service.
    Raises ConfigError for a parameter out of range.
    Source: Gao et al. (Chronus), SoCC '21, for leases, admission and both packings. That those promised get early
    leases, asking again, and the cap are ours; its placement by profiled slowdown is left to the placement.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.DEADLINE,
        "Gao et al.: Chronus, SoCC 2021",
        left_out=(
            "Where jobs run: whole nodes for large jobs, and exchanging small ones by profiled slowdown, are the "
            "placement's to say.",
        ),
        needs=(Input.DEADLINE, Input.DURATION, Input.SERVICE),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(
            PREEMPTS,
            ROUNDS,
            PROMISED,
        ),
    )

    lease_s: Period = 1_200.0
    packing: str = "milp"
    most_jobs: Count = 60
    estimator: Estimator = field(default_factory=Hint)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_choice("packing", self.packing, tuple(_PACKINGS))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, held = snapshot.jobs, leases(snapshot, self.lease_s)
        left_s, due_s = remaining_s(self.estimator, snapshot), deadline_s(jobs)
        planned, until_s, notes = self._planned(snapshot, left_s, due_s)
        now, later = planned["due_now"] > 0, (planned["admitted"] > 0) & (planned["due_now"] == 0)
        group = np.where(now, 0, np.where(later, 2, 1))
        left_gpu_s = service(left_s, jobs)
        key = np.where(group == 1, left_gpu_s, due_s - np.where(np.isfinite(left_s), left_s, 0.0))
        order = ordered(jobs, ~held.held, group, key, jobs.attained_gpu_s)
        renewed = held.renewed(chosen(snapshot, order, held.held | contenders(snapshot, held)))
        carry = dict(remembered(jobs, renewed | planned))
        why = {"in_lease": held.held, "group": group, "left_gpu_s": left_gpu_s, "deadline_s": due_s}
        return Ranking(order, why=why, carry=carry | {_PLAN: {"until_s": until_s}},
                       notes=(*missing(active(snapshot), due_s, left_s), *notes))  # fmt: skip

    def _planned(
        self, snapshot: Snapshot, left_s: Floats, due_s: Floats
    ) -> tuple[dict[str, Floats], float, tuple[str, ...]]:
        """The plan by row, and until when it stands: the one there is, or a new one at the end of a lease or when a
        deadline job is new."""
        known = recall(snapshot.jobs, snapshot.carry, _PLANNED)
        wants = active(snapshot) & np.isfinite(due_s) & np.isfinite(left_s) & (left_s > 0)
        until_s = _until_s(snapshot.carry)
        held = {name: np.where(np.isnan(known[name]) | ~wants, 0.0, known[name]) for name in _PLANNED}
        if snapshot.now_s < until_s and not (wants & np.isnan(known["admitted"])).any():
            return held, until_s, self._told(wants, held["admitted"])
        rows, packing = self._packed(snapshot, wants, left_s, due_s, held["admitted"] > 0)
        made = {name: np.zeros(len(wants)) for name in _PLANNED}
        made["admitted"][rows], made["due_now"][rows] = packing.admitted, packing.now
        cut = () if packing.proven else ("the search for the best plan was cut short: more deadlines may be possible",)
        return made, snapshot.now_s + self.lease_s, (*self._told(wants, made["admitted"]), *cut)

    def _packed(
        self, snapshot: Snapshot, wants: Bools, left_s: Floats, due_s: Floats, firm: Bools
    ) -> tuple[Any, Packing]:
        """Rows of the jobs that a plan decides on, and the plan."""
        needed = np.ceil(np.where(wants, left_s, 0.0) / self.lease_s - 1e-9)
        within = np.floor(np.where(wants, np.clip(due_s - snapshot.now_s, 0.0, 1e9), 0.0) / self.lease_s + 1e-9)
        capacity = cluster_gpus(snapshot)
        can = wants & (needed <= within) & (snapshot.jobs.gpus <= capacity)
        order = ordered(snapshot.jobs, ~firm, due_s)
        rows = order[can[order]][: self.most_jobs]
        if not len(rows):
            return rows, Packing(np.zeros(0, np.bool_), np.zeros(0, np.bool_))
        gpus = snapshot.jobs.gpus[rows].astype(np.int64)
        demand = Demand(gpus, needed[rows].astype(np.int64), within[rows].astype(np.int64), firm[rows])
        return rows, _PACKINGS[self.packing](demand, capacity)

    def _told(self, wants: Bools, admitted: Floats) -> tuple[str, ...]:
        out = int((wants & (admitted == 0)).sum())
        return (f"{some_of(out, int(wants.sum()), 'deadline', 'is', 'are')} not promised: best effort",) if out else ()

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the plan or the next lease of those that hold GPUs is over [Unix s]."""
        held = leases(snapshot, self.lease_s)
        end_s = held.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)
        planned = bool(((ranking.why["deadline_s"] < np.inf) & ~snapshot.jobs.finished).any())
        return min(end_s, _until_s(ranking.carry) if planned else np.inf)


def _until_s(carry: Any) -> float:
    """Until when the plan of a carry stands, -infinity without one."""
    plan = carry.get(_PLAN)
    return float(plan["until_s"]) if isinstance(plan, dict) and "until_s" in plan else -np.inf
