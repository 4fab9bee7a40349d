"""The policy to propose to a site: its own jobs, from accounting, are replayed under each on the model of slurmctld.

That policy is proposed under which jobs wait least, of those under which no user and no size of job clearly loses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError, SlurmError
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.job_outcomes import SIZE_CLASSES, JobOutcomes
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.observe.fairness import JobTenants, ended_in_both
from slurmsched.plain_text import pluralize
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.cluster_slurm_conf import MADE_BY
from slurmsched.sim.experiments.comparison import ComparisonCase, PlayedCase, PolicyComparison
from slurmsched.sim.experiments.replay_request import ReplayRequest, parse_policy
from slurmsched.sim.experiments.replay_result import assumptions_text
from slurmsched.sim.experiments.worker_processes import play_cases
from slurmsched.sim.traces.trace_selection import chosen_by_default
from slurmsched.slurm.accounting_archive import AccountingArchive
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.site import read_settings
from slurmsched.topology.slurm_conf import INCLUDE

FEWEST = 5  # jobs of a user, or of a size, that is compared
WORSE_TIMES, WORSE_H = 1.25, 1.0  # both: a mean wait that grew by less is no clear loss
LEAST_S = 60.0  # a wait below counts as this long in a ratio
BETTER = 0.95  # of Slurm's mean wait: a policy that saves less is not worth a change
CANDIDATES = ("sjf", "srsf", "smallest", "response-ratio", "response-ratio:gpus_power=0.33", "discretized-las")


@dataclass(frozen=True, slots=True)
class GroupLoss:
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
class PolicyVerdict:
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
    user: GroupLoss
    size: GroupLoss
    same: bool

    @property
    def harmless(self) -> bool:
        """Whether no user and no size of job clearly loses."""
        return not (self.user.clear or self.size.clear)


def policy_verdict(
    policy: str, trace: Trace, tenants: JobTenants, ours: JobOutcomes, slurm: JobOutcomes
) -> PolicyVerdict:
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
    return PolicyVerdict(
        policy, _times(wait_s.mean(), base_s.mean()), _times(*(np.percentile(each, 95) for each in (wait_s, base_s))),
        _times(*(np.percentile(each, 99) for each in (jct_s, base_jct_s))), float(wait_s.mean()) / 3_600,
        worst_loss(users, wait_s, base_s), worst_loss(sizes, wait_s, base_s),
        bool(np.abs(wait_s - base_s).max(initial=0) < 1.0),
    )  # fmt: skip


def worst_loss(groups: Mapping[str, Bools], wait_s: Floats, base_s: Floats) -> GroupLoss:
    """The group of at least FEWEST jobs whose mean wait grows most."""
    found = [
        GroupLoss(name, float(wait_s[chosen].mean() - base_s[chosen].mean()) / 3_600,
             _times(wait_s[chosen].mean(), base_s[chosen].mean()))
        for name, chosen in groups.items() if chosen.sum() >= FEWEST
    ]  # fmt: skip
    return max(found, key=lambda loss: loss.change_h, default=GroupLoss())


def proposed_policy(rows: Sequence[PolicyVerdict]) -> PolicyVerdict | None:
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


def verdict_rows(rows: Sequence[PolicyVerdict], slurm_wait_h: float) -> Iterator[tuple[str, ...]]:
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


PREEMPTING, HINTS = "discretized-las", "slurmsched: preempt=yes ckpt=USR2@120"
COLUMNS_PLAIN = tuple(name.rstrip(">") for name in COLUMNS)
FEWEST_JOBS = 50  # fewer say nothing


@dataclass(frozen=True, slots=True)
class HistoryProposal:
    """What the history speaks for.

    policy: None where no policy saves enough without a clear loss for somebody.
    rows: every policy that was tried, by nice alone.
    preempting: discretized-las with preemption, if every job could be moved.
    days, jobs: of the history.
    notes: how far to trust it, what it rests on, and what was left out.
    """

    policy: PolicyVerdict | None
    rows: tuple[PolicyVerdict, ...]
    preempting: PolicyVerdict
    slurm_wait_h: float
    days: int
    jobs: int
    notes: tuple[str, ...] = ()

    @property
    def choice(self) -> tuple[str, dict[str, Any]]:
        """Name and parameters of the policy to write into a configuration; fifo where none helps."""
        return ("fifo", {}) if self.policy is None else parse_policy(self.policy.policy)

    @property
    def preempt(self) -> bool:
        """Whether preemption saves clearly more than the order alone, and harms nobody clearly."""
        ordered = 1.0 if self.policy is None else self.policy.mean_wait
        return self.preempting.harmless and self.preempting.mean_wait < BETTER * ordered

    def lines(self) -> Iterator[str]:
        """What was compared, the table, and what is proposed, for people."""
        yield f"{self.jobs:,} jobs of the last {self.days} days, replayed in the model of slurmctld. The last row takes"
        yield "GPUs from running jobs, as if every job had a checkpoint; the others only order the queue."
        rows = [COLUMNS_PLAIN, *verdict_rows((*self.rows, self.preempting), self.slurm_wait_h)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield from self.notes
        yield from self._conclusion()

    def _conclusion(self) -> Iterator[str]:
        if self.policy is None:
            yield f"No policy saves {1 - BETTER:.0%} of the mean wait without a clear loss for a user or a size of job."
            yield "fifo changes least."
        else:
            saver = f"{self.policy.policy} saves most of the mean wait"
            yield f"{saver} of those under which no user and no size of job clearly loses."
            yield f"Who loses most by it: {self.policy.user}; {self.policy.size}."
        verdict = "would save more" if self.preempt else "is not worth it"
        yield f"Preemption: {verdict} ({self.preempting.mean_wait:.2f}x of Slurm's mean wait); it stays off here."


def site_proposal(
    commands: Commands, tiers: Sequence[str], days: int, workers: int, on_progress: Callable[[int], None]
) -> HistoryProposal:
    """What the jobs of these last days speak for, on the cluster as it is today.

    Raises SlurmError where Slurm or accounting does not answer, InputError or ConfigError for what cannot be replayed.
    """
    with tempfile.TemporaryDirectory(prefix="slurmsched-init-") as place:
        trace, notes = pull_days(commands, days, Path(place) / "days")
        conf = Path(read_settings(commands).get("SLURM_CONF", "/etc/slurm/slurm.conf"))
        cluster = str(site_folder(commands, conf, Path(place) / "site"))
        trace, left_out = startable_now(trace, cluster)
        made = propose(trace, cluster, tiers, days, workers, on_progress)
    return replace(made, notes=(*made.notes, *notes, *left_out))


def pull_days(commands: Commands, days: int, folder: Path) -> tuple[Trace, tuple[str, ...]]:
    """The GPU jobs that ended on the site in these last whole days, and what to tell of them.

    Raises SlurmError where accounting does not answer, InputError for too few jobs.
    """
    last = datetime.now(UTC).date()
    pull = AccountingArchive(commands, folder, last - timedelta(days=days), last)
    for _ in pull.run():
        pass
    recorded = pull.trace()
    if len(recorded.trace) < FEWEST_JOBS:
        raise InputError(
            f"accounting has {pluralize(len(recorded.trace), 'GPU job')} of the last {days} days, of which at "
            f"least {FEWEST_JOBS} are needed; ask for more days"
        )
    return recorded.trace.with_user_limits(), recorded.warnings


def site_folder(commands: Commands, conf: Path, folder: Path) -> Path:
    """A folder with slurm.conf, what it includes, and what Slurm's commands print of limits and shares.

    Raises InputError where slurm.conf cannot be read from here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("slurm.conf", *_included(conf)):
        try:
            (folder / Path(name).name).write_bytes((conf.parent / name if name != "slurm.conf" else conf).read_bytes())
        except OSError as error:
            if name == "slurm.conf":
                raise InputError(f"cannot be read: {error.strerror}", source=str(conf)) from error
    for name, command in MADE_BY.items():
        try:
            (folder / name).write_text(commands.run(*command.split()), encoding="utf-8")
        except SlurmError:
            continue  # without slurmdbd there are none; what is left out is said when the folder is read
    return folder


def _included(conf: Path) -> Iterator[str]:
    try:
        lines = conf.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    yield from (match[1] for line in lines if (match := INCLUDE.fullmatch(line.strip())))


def startable_now(trace: Trace, cluster: str) -> tuple[Trace, tuple[str, ...]]:
    """The jobs that the cluster as it is today could start, and how many were left out. Raises InputError if all."""
    layout = cluster_of(cluster, trace).layout
    known = {partition.name for partition in layout.partitions}
    named = trace.partition.map(lambda name: not name or all(part in known for part in name.split(",")), np.bool_)
    largest = int(layout.column("gpus").sum())
    fits = (trace.gpus <= largest) & named
    if not fits.any():
        raise InputError("no job of the history fits the cluster as it is today", source=cluster)
    gone = int((~fits).sum())
    left_out = (
        (f"{pluralize(gone, 'job')} left out: their partition or their GPUs are not there any more",) if gone else ()
    )
    return trace.take(fits), left_out


def propose(
    trace: Trace, cluster: str, tiers: Sequence[str], days: int, workers: int,
    on_progress: Callable[[int], None] = lambda ended: None, candidates: Sequence[str] = CANDIDATES,
) -> HistoryProposal:  # fmt: skip
    """Replay the jobs under Slurm alone, under each candidate by nice alone, and with preemption. Raises InputError.

    A history with recorded starts begins warm, and its first and last tenth do not count, as in `compare`.
    """
    recorded = chosen_by_default(RecordedTrace(trace), slurm=True)
    trace = recorded.trace
    plain = ReplayRequest(cluster=cluster, model="slurm", policy="slurm", requeue=False)
    ordered = [replace(plain, policy=policy, tiers=tuple(tiers)) for policy in candidates]
    moved = replace(plain, policy=PREEMPTING, tiers=tuple(tiers), hints=HINTS,
                    preempt={"preemption": {"partitions": ["*"]}})  # fmt: skip
    every = [ComparisonCase(0, request) for request in (plain, *ordered, moved)]
    made = play_cases([trace], every, workers, on_progress)
    if len(made) < len(every) or not all(each.complete for each in made):
        raise InputError("the comparison was interrupted; nothing is proposed")
    slurm, *others, preempting = _judged_schedules(trace, made)
    return HistoryProposal(proposed_policy(others), tuple(others), preempting, slurm.mean_wait_h, days, len(trace),
                           tuple(_trust(recorded, made)))  # fmt: skip


def _trust(recorded: RecordedTrace, made: Sequence[PlayedCase]) -> Iterator[str]:
    """The lines of `compare`: how well Slurm alone repeats the record, and what the figures rest on. made: Slurm alone
    first."""
    compared = PolicyComparison("", recorded, made)
    if compared.back_test is not None:
        yield f"Trust: {compared.back_test.verdict}"
    yield f"{assumptions_text(compared.assumptions)}."


def _judged_schedules(trace: Trace, made: Sequence[PlayedCase]) -> list[PolicyVerdict]:
    tenants, first = JobTenants.find(trace), made[0].outcomes
    return [policy_verdict(each.title, trace, tenants, each.outcomes, first) for each in made]
