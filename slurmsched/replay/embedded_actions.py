"""What becomes of an action that reaches an embedded cluster: refused as slurmctld would, or carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmsched.model import SetNice, SetSiteFactor, Step
from slurmsched.model.plan import Action
from slurmsched.replay import act_steps
from slurmsched.replay.jobtable import Phase

if TYPE_CHECKING:
    from slurmsched.replay.embedded_state import EmbeddedState


def refusal(cluster: EmbeddedState, action: Action) -> str:
    """Why slurmctld would refuse the action, "" if it would not."""
    if isinstance(action, Step):
        return act_steps.refusal(cluster, action)
    phases = {Phase(cluster.job.phase[row]) for row in cluster.rows_of(action.job_id)
              if cluster.job.submit_s[row] == action.submit_s}  # fmt: skip
    if not phases:
        return "Invalid job id specified"
    if not isinstance(action, SetNice | SetSiteFactor):
        return f"no such action here: {action.kind}"
    return "" if phases & {Phase.PENDING, Phase.COMPLETING} else "Job is no longer pending execution"


def do(cluster: EmbeddedState, action: Action) -> None:
    """Carry out an action that would be accepted now: on a job, or on what is left of an array."""
    if isinstance(action, Step):
        act_steps.do(cluster, action)
    rows = () if isinstance(action, Step) else cluster.rows_of(action.job_id)
    for row in rows:
        if cluster.job.phase[row] in (Phase.PENDING, Phase.COMPLETING):
            if isinstance(action, SetNice):
                cluster.job.nice[row] = action.new
            elif isinstance(action, SetSiteFactor):
                cluster.job.site[row] = action.new
    cluster.poke()
