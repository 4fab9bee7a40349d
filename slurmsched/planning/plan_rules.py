"""The gate's rules for actions that are being planned: scope, victims, bounds, caps, leases. Each says why not."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from slurmsched.model import Act
from slurmsched.model.hints import parse_hints
from slurmsched.model.pins import counted
from slurmsched.model.plan import (
    Action,
    Defer,
    Join,
    Move,
    PinNodes,
    Requeue,
    Reserve,
    Retype,
    SetLever,
    Signal,
    Step,
)
from slurmsched.planning import managed, victims
from slurmsched.planning.levers import LIMIT
from slurmsched.planning.view import View, row_of
from slurmsched.words import some

HOUR_S = 3_600.0


def unmanaged(action: Action | None, view: View) -> str:
    """A lever moves managed jobs only; steps need the job in scope, whatever became of its priority meanwhile."""
    if view.snapshot is None or action is None or _gives_back(action) or (row := row_of(action, view.snapshot)) < 0:
        return ""
    if isinstance(action, SetLever):
        left = view.left is not None and view.left[row] and view.snapshot.jobs.written[row]
        if left and action.new == action.base:
            return ""  # a job that left the scope gets its own back
        if action.new == action.old:
            return ""  # an array task keeps what it has, behind the write of its array
        index = -1 if view.verdict is None else int(view.verdict[row])
        rule = managed.JOB_RULES[index] if index >= 0 else None
        return rule.reason if rule and rule.name != "array" else ""  # a task gets what its managed array has
    in_scope = managed.scoped(view.snapshot.jobs.take(np.array([row])), view.scope)[0]
    return "" if in_scope or not (isinstance(action, Step) and action.act) else "it is not in scope"


def unwilling(action: Action | None, view: View) -> str:
    """What makes a job no victim at all counts while its grace runs, too."""
    if view.snapshot is None or not isinstance(action, Requeue | Signal) or not action.act:
        return ""
    if (row := row_of(action, view.snapshot)) < 0:
        return ""
    one = replace(view.snapshot, jobs=view.snapshot.jobs.take(np.array([row])))
    return victims.never(victims.case_of(one, view.taking, view.scope))


def out_of_bounds(action: Action | None, _: View) -> str:
    if isinstance(action, SetLever) and abs(action.new) > LIMIT:
        return f"{action.kind} {action.new} is beyond {LIMIT}, the most that Slurm takes"
    if isinstance(action, Reserve) and not action.nodes:
        return "it names no nodes"
    if isinstance(action, Reserve | Move) and not (isfinite(action.end_s) and not action.end_s <= action.start_s):
        return "its reservation would end before it begins"
    return ""


def other_size(action: Action | None, view: View) -> str:
    """A size of ours stays between what the job's hints name as its least and most."""
    if view.snapshot is None or not isinstance(action, Retype) or not action.resizes or _gives_back(action):
        return ""
    if (row := row_of(action, view.snapshot)) < 0:
        return ""
    hints, gpus = parse_hints(view.snapshot.jobs.comment[row]), counted(action.gpus)
    within = hints.min_gpus is not None and hints.max_gpus is not None and hints.min_gpus <= gpus <= hints.max_gpus
    return "" if within else f"{some(gpus, 'GPU is', 'GPUs are')} not between its hints min_gpus and max_gpus"


def _begins(action: Action | None, view: View) -> Act | None:
    """The act that this action begins, if it does."""
    if view.snapshot is None or not isinstance(action, Reserve) or action.act in {act.id for act in view.snapshot.acts}:
        return None
    return view.acts.get(action.act)


def _lately(act: Act, view: View) -> list[Act]:
    """Acts begun in the hour before this one."""
    assert view.snapshot is not None
    known = (*view.snapshot.past_acts, *view.snapshot.acts, *view.begun)
    return [each for each in known if each.begun_s > act.begun_s - HOUR_S]


def cycle_full(action: Action | None, view: View) -> str:
    most = view.limits.per_cycle
    full = _begins(action, view) is not None and len(view.begun) >= most
    return f"{some(most, 'act begins', 'acts begin')} in this cycle already (acts.per_cycle)" if full else ""


def hour_full(action: Action | None, view: View) -> str:
    act, most = _begins(action, view), view.limits.per_hour
    full = act is not None and len(_lately(act, view)) >= most
    return f"{some(most, 'act was', 'acts were')} begun in the last hour (acts.per_hour)" if full else ""


def user_full(action: Action | None, view: View) -> str:
    act, most = _begins(action, view), view.limits.per_user_per_hour
    if act is None or sum(each.user == act.user for each in _lately(act, view)) < most:
        return ""
    return f"{some(most, 'act was', 'acts were')} begun for {act.user} in the last hour (acts.per_user_per_hour)"


def swaps_back(action: Action | None, view: View) -> str:
    if view.snapshot is None or not isinstance(action, Requeue | Signal) or (act := view.acts.get(action.act)) is None:
        return ""
    if action.job_id not in victims.leased(view.snapshot, act.job_id, view.limits.lease_s):
        return ""
    return f"it got GPUs of job {act.job_id} less than {view.limits.lease_s:g} s ago (acts.lease_s)"


def _gives_back(action: Action) -> bool:
    """Steps that end an act may always go, or it could not be taken back; so may what gives a job its own again."""
    if isinstance(action, PinNodes):
        return action.nodes == action.base
    if isinstance(action, Retype):
        return action.gpus == action.base
    if isinstance(action, Defer):
        return action.back
    return action.kind in ("delay", "unreserve") or (isinstance(action, Join) and not action.name)
