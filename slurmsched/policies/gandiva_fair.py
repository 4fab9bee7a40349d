"""Stride scheduling over users' tickets: Gandiva-fair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slurmsched.model import Card, Family, Input, Ranking, Snapshot, Use
from slurmsched.model.columns import Bools, Floats
from slurmsched.policies.cards import PREEMPTS, ROUNDS
from slurmsched.policies.checks import check_number
from slurmsched.policies.isolated import contending
from slurmsched.policies.leases import chosen, contenders, leases
from slurmsched.policies.memory import recall, remembered
from slurmsched.policies.order import ordered
from slurmsched.policies.stride import turns
from slurmsched.policies.tenants import Tenants, tenants

KEY = "passes"  # in a carry: pass of each tenant, and the GPU time that it counts
NO_TRADE = "GPUs are not traded across types: no speed by GPU type is known"


@dataclass(frozen=True, slots=True)
class GandivaFair:
    """Equal GPU time by ticket for every account, split over its jobs by stride, whole gangs at a time.

    quantum_s: for how long a job that got GPUs keeps them [s]; 0 = it contends at every look.
    An account's shares are its tickets. The account with the least pass (GPU time per ticket) is picked, then its job
    with the least attained service per GPU; its pass moves on by the gang's quantum. A gang that does not fit is
    passed over and keeps its pass, so that it comes first later. Whoever comes new begins at the least pass of those
    that contend, so idle time is no credit.
    Raises ConfigError for a negative quantum.
    Source: Chaudhary et al. (Gandiva-fair), EuroSys '20, for tickets of users, strides and whole gangs. Picking the
    account, then the job, instead of splitting tickets over jobs is ours: the shares are the same, and jobs shorter
    than a quantum get theirs too. Not done: trading across GPU types and migration.
    """

    preemptive: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        Family.FAIRNESS,
        "Chaudhary et al.: Gandiva-fair, EuroSys 2020",
        needs=(Input.SERVICE, Input.SHARES),
        uses=(Use.ORDER, Use.REQUEUE),
        on_slurm=(PREEMPTS, ROUNDS, "Jobs are neither migrated nor suspended: a turn ends with a requeue."),
    )

    quantum_s: float = 60.0

    def __post_init__(self) -> None:
        check_number("quantum_s", self.quantum_s)

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, book, held = snapshot.jobs, tenants(snapshot), leases(snapshot, self.quantum_s)
        passes = _passes(snapshot, book)
        tickets = book.shares[book.tenant]
        stride = np.where(contending(snapshot), jobs.gpus * max(self.quantum_s, 1.0), 0.0) / tickets
        served_s = jobs.attained_gpu_s / np.maximum(jobs.gpus, 1)
        own = ordered(jobs, ~held.held, served_s)
        turn = turns(book.tenant, own, passes, stride)
        order = ordered(jobs, ~held.held, turn)
        renewed = held.renewed(chosen(snapshot, order, held.held | contenders(snapshot, held)))
        known = {name: [now, had] for name, now, had in
                 zip(book.names, passes.tolist(), book.received_gpu_s.tolist(), strict=True)}  # fmt: skip
        carry = {**remembered(jobs, renewed), **book.carry, KEY: known}
        notes = (NO_TRADE,) if len(_types(snapshot)) > 1 else ()
        why = {"turn_gpu_s": turn, "pass_gpu_s": passes[book.tenant], "in_quantum": held.held}
        return Ranking(order, why=why, carry=carry, notes=notes)

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """When the next quantum of those that hold GPUs is over [Unix s]."""
        held = leases(snapshot, self.quantum_s)
        return held.next_end_s(recall(snapshot.jobs, ranking.carry, ("until_s",)), running)


def _passes(snapshot: Snapshot, book: Tenants) -> Floats:
    """GPU time that each tenant had per ticket, those that join lifted to the least of who contends. (T,) [GPU s]."""
    before = snapshot.carry.get(KEY)
    before = before if isinstance(before, dict) else {}
    known = np.array([before.get(name, (np.nan, 0.0)) for name in book.names], np.float64).reshape(-1, 2)
    passes = known[:, 0] + (book.received_gpu_s - known[:, 1]) / book.shares
    waits = book.demand_gpus > book.held_gpus
    active = ~np.isnan(passes)
    contended = active & waits if (active & waits).any() else active
    floor = float(np.min(passes, initial=np.inf, where=contended))
    return np.where(active & waits, passes, np.fmax(passes, floor if np.isfinite(floor) else 0.0))


def _types(snapshot: Snapshot) -> set[str]:
    """GPU types of the nodes, as they name them without counts."""
    return {part.split(":")[1] for text in snapshot.nodes.gpu_types.names for part in text.split(",")
            if part.count(":") == 2}  # fmt: skip
