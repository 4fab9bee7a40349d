"""What `explain` asks Slurm and the ledger, and the answer made of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from slurmsched.config import Config
from slurmsched.daemon import cycle_parts
from slurmsched.errors import SlurmError
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.model import Plan, Snapshot
from slurmsched.model.job_details import JobDetails
from slurmsched.observe.explain.explanation import (
    Explanation,
    explain,
    interference_outlook,
    preemption_outlook,
    run_time_terms,
)
from slurmsched.observe.explain.node_obstacles import why_not
from slurmsched.observe.gpu_use_sources import PeriodicUse, read_gpu_use
from slurmsched.protocols import DecidingPlanner
from slurmsched.slurm.accounted_history import history_of, may_read_ledger
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_queries import begin_details, begin_standing, find_row, read_details, read_standing
from slurmsched.slurm.reader import open_commands, read_cluster_once

NO_LEDGER = "the ledger, which you may not read: past waits, and writes that the AdminComment does not have"
NOT_ASKED = "what slurmsched did and past waits: not asked with --as-user"


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """Why a job waits. why_not: why it cannot run on the node asked for, "" = no known reason; None = none asked for.

    now_s: when the queue was read [Unix s].
    """

    answer: Explanation
    why_not: str | None
    now_s: float
    warnings: tuple[str, ...]


def explain_job(config: Config, job: str, *, as_user: bool, node: str | None) -> JobExplanation:
    """Read the cluster and explain a job.

    job: a job id, an array task such as 7_3, or a component such as 7+1.
    as_user: use only what squeue shows.
    node: also say why the job cannot run there.
    Raises SlurmError, ConfigError and InputError.
    """
    with closing(open_commands(config.slurm)) as commands:
        begin_details(commands, job)
        snapshot, row, plan, planner = _look(config, commands, job, as_user)
        snapshot = _with_measured_use(config, snapshot, row)
        details = read_details(commands, snapshot, row, no_limits="not asked with --as-user" if as_user else "")
        details = read_standing(commands, snapshot, row, details)
    if as_user:
        details = replace(details, unread=(*details.unread, NOT_ASKED))
    else:
        details = _with_history(config, snapshot, row, details)
    move = "" if as_user else preemption_outlook(snapshot, row, config.preemption, config.scope)
    terms = run_time_terms(planner, snapshot, row)
    beside = interference_outlook(snapshot, row, GroupSpeeds(measured=config.measured_use.profiles))
    answer = explain(snapshot, plan, row, details, terms, move, lever=config.lever.kind, beside=beside)
    obstacle = None if node is None else why_not(snapshot, row, node, details)
    return JobExplanation(answer, obstacle, snapshot.now_s, snapshot.warnings)


def _look(
    config: Config, commands: Commands, job: str, as_user: bool
) -> tuple[Snapshot, int, Plan | None, DecidingPlanner | None]:
    """The queue and the job's row, whose standing is asked for; the plan and the planner unless as_user."""
    if as_user:
        snapshot = read_cluster_once(config, priorities=True)
        return snapshot, _row_asked(commands, snapshot, job), None, None
    with cycle_parts.open_cycle_parts(config, apply=False, read_only=True) as parts:
        snapshot = parts.read()
        return snapshot, _row_asked(commands, snapshot, job), parts.planner.plan(snapshot), parts.planner


def _row_asked(commands: Commands, snapshot: Snapshot, job: str) -> int:
    """Row of the job. Slurm is asked for its standing, and answers while the plan is made."""
    row = find_row(commands, snapshot, job)
    begin_standing(commands, snapshot, row)
    return row


def _with_measured_use(config: Config, snapshot: Snapshot, row: int) -> Snapshot:
    """With the measured use of a running job, where there is a source; a warning where it does not answer."""
    jobs, source = snapshot.jobs, config.measured_use
    job = int(jobs.job_id[row])
    if source.source == "none" or not jobs.running[row] or not jobs.gpus[row] or jobs.gpu_use[row] >= 0:
        return snapshot
    return PeriodicUse(
        source, lambda gpus: read_gpu_use(source, open_commands(config.slurm), {job: gpus.get(job, 0)}, [job])
    )(snapshot)


def _with_history(config: Config, snapshot: Snapshot, row: int, details: JobDetails) -> JobDetails:
    """With what the ledger knows of the job and of jobs of its size, or what accounting shows of the job."""
    job_id = int(snapshot.jobs.job_id[row])
    if may_read_ledger(config):
        from slurmsched.db.job_history import LedgerPlace, past_of_job  # late: SQLAlchemy loads while squeue runs

        return details.remembered(past_of_job(LedgerPlace.of(config), job_id, int(snapshot.jobs.gpus[row])))
    try:
        rows, _, _ = history_of(config, job_id)
    except SlurmError as error:
        return replace(details, unread=(*details.unread, str(error)))
    ours = tuple(each.line for each in rows if each.by == "slurmsched")
    return replace(details, ours=ours, unread=(*details.unread, NO_LEDGER))
