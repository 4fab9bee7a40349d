"""Which policy a trace speaks for: the one that waits least of those under which no user and no size clearly loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import JobTenants, ended_in_both

FEWEST = 5  # jobs of a user, or of a size, that is compared
WORSE_TIMES, WORSE_H = 1.25, 1.0  # both: a mean wait that grew by less is no clear loss
LEAST_S = 60.0  # a wait below counts as this long in a ratio
BETTER = 0.95  # of Slurm's mean wait: a policy that saves less is not worth a change
CANDIDATES = ("sjf", "srsf", "smallest", "response-ratio", "response-ratio:gpus_power=0.33", "discretized-las")


@dataclass(frozen=True, slots=True)
class Loss:
    """The group whose mean wait grows most. change_h: by how much [h]. times: over its mean wait before."""

    name: str = ""
    change_h: float = 0.0
    times: float = 1.0

    @property
    def clear(self) -> bool:
        return self.change_h > WORSE_H and self.times > WORSE_TIMES

    def __str__(self) -> str:
        return f"{self.name} {self.change_h:+.1f} h ({self.times:.2f}x)" if self.name else "nobody"


@dataclass(frozen=True, slots=True)
class Judged:
    """One policy against Slurm alone on a trace, over the jobs that ended under both.

    mean_wait, p95_wait, p99_jct: over Slurm's.
    mean_wait_h: its own.
    same: every job starts when it does under Slurm.
    """

    policy: str
    mean_wait: float
    p95_wait: float
    p99_jct: float
    mean_wait_h: float
    user: Loss
    size: Loss
    same: bool

    @property
    def harmless(self) -> bool:
        """Whether no user and no size of job clearly loses."""
        return not (self.user.clear or self.size.clear)


def judged(policy: str, trace: Trace, tenants: JobTenants, ours: JobOutcomes, slurm: JobOutcomes) -> Judged:
    """How a policy does on the jobs that ended under it and under Slurm."""
    both, other = ended_in_both(ours, slurm), ended_in_both(slurm, ours)
    wait_s, base_s = ours.delay_s[both], slurm.delay_s[other]
    jct_s, base_jct_s = ours.jct_s[both], slurm.jct_s[other]
    rows = np.searchsorted(trace.job_id[order := np.argsort(trace.job_id)], ours.job_id[both])
    code = tenants.code[order][rows]
    users = {name: code == number for number, name in enumerate(tenants.names)}
    gpus = ours.gpus[both]
    sizes = {f"{name} GPU{'s' * (name != '1')}": (gpus >= low) & (gpus <= (high or np.inf))
             for name, low, high in SIZE_CLASSES}  # fmt: skip
    return Judged(
        policy, _times(wait_s.mean(), base_s.mean()), _times(*(np.percentile(each, 95) for each in (wait_s, base_s))),
        _times(*(np.percentile(each, 99) for each in (jct_s, base_jct_s))), float(wait_s.mean()) / 3_600,
        worst(users, wait_s, base_s), worst(sizes, wait_s, base_s), bool(np.abs(wait_s - base_s).max(initial=0) < 1.0),
    )  # fmt: skip


def worst(groups: Mapping[str, Bools], wait_s: Floats, base_s: Floats) -> Loss:
    """The group of at least FEWEST jobs whose mean wait grows most."""
    found = [
        Loss(name, float(wait_s[chosen].mean() - base_s[chosen].mean()) / 3_600,
             _times(wait_s[chosen].mean(), base_s[chosen].mean()))
        for name, chosen in groups.items() if chosen.sum() >= FEWEST
    ]  # fmt: skip
    return max(found, key=lambda loss: loss.change_h, default=Loss())


def choose(rows: Sequence[Judged]) -> Judged | None:
    """The policy to propose: least mean wait among those that harm nobody clearly; None where none saves enough."""
    good = [row for row in rows if row.harmless and not row.same and row.mean_wait < BETTER]
    return min(good, key=lambda row: row.mean_wait, default=None)


COLUMNS = (
    "policy",
    "mean wait [h]>",
    "mean wait>",
    "p95 wait>",
    "p99 JCT>",
    "user that loses most",
    "size that loses most",
)


def table(rows: Sequence[Judged], slurm_wait_h: float) -> Iterator[tuple[str, ...]]:
    """The cells of COLUMNS, Slurm alone first."""
    yield "slurm", f"{slurm_wait_h:.2f}", "1.00x", "1.00x", "1.00x", "", ""
    for row in rows:
        if row.same:
            yield row.policy, f"{row.mean_wait_h:.2f}", "same", "same", "same", "nobody", "nobody"
        else:
            yield (row.policy, f"{row.mean_wait_h:.2f}", f"{row.mean_wait:.2f}x", f"{row.p95_wait:.2f}x",
                   f"{row.p99_jct:.2f}x", str(row.user), str(row.size))  # fmt: skip


def _times(ours: float, slurm: float) -> float:
    return float(max(ours, LEAST_S) / max(slurm, LEAST_S))
