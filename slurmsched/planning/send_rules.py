"""The gate's rules for actions about to be sent: is the job still as the snapshot saw it? Each says why not."""

from __future__ import annotations

from math import isfinite

from slurmsched.model.acts import RESERVATION_PREFIX
from slurmsched.model.deferrals import SAME_S
from slurmsched.model.hostlist import same_hosts
from slurmsched.model.pins import counted
from slurmsched.model.plan import (
    Action,
    Defer,
    Join,
    PinNodes,
    Requeue,
    Reserve,
    Retype,
    SetLever,
    SetNice,
    Signal,
    Unreserve,
)
from slurmsched.model.states import FINISHED, JobState
from slurmsched.planning.view import Seen, View
from slurmsched.words import some

CHANGED = "changed since the snapshot"
ASKS = f"{CHANGED}: it asks for"
_RUNS = JobState.RUNNING | JobState.SUSPENDED


def gone(action: Action | None, view: View) -> str:
    if action is None or isinstance(action, Unreserve) or action.job_id in view.seen:
        return ""
    return f"{CHANGED}: it left the queue"


def nameless(action: Action | None, _: View) -> str:
    if action is None or isinstance(action, Unreserve) or isfinite(action.submit_s):
        return ""
    return "its submit time is not known, so that its id could not be told from one used again"


def other_run(action: Action | None, view: View) -> str:
    same = (seen := _seen(action, view)) is None or action is None or abs(seen.submit_s - action.submit_s) < 1
    return "" if same else f"{CHANGED}: it was requeued, or its id is used again"


def other_state(action: Action | None, view: View) -> str:
    """Steps that take something from a job need it running, those that give it something need it waiting: a
    reservation set on a running job kills it at its end, a requeue of an ended one runs it again. A value that gives
    the base back may go to a job that has started meanwhile: it does no harm there, and a requeue keeps it."""
    if (seen := _seen(action, view)) is None or (isinstance(action, Join) and not action.name):
        return ""
    if isinstance(action, Requeue | Signal):
        fits = bool(seen.state & _RUNS)
    elif isinstance(action, SetLever) and action.new == action.base:
        fits = not seen.state & FINISHED
    else:
        fits = seen.pending
    return "" if fits else f"{CHANGED}: it is {_words(seen.state)}"


def other_value(action: Action | None, view: View) -> str:
    if (seen := _seen(action, view)) is None or not isinstance(action, SetLever):
        return ""
    now = seen.nice if isinstance(action, SetNice) else seen.site_factor
    return "" if now is None or now == action.old else f"{CHANGED}: its {action.kind} is {now}, not {action.old}"


def other_list(action: Action | None, view: View) -> str:
    if (seen := _seen(action, view)) is None or not isinstance(action, PinNodes) or same_hosts(seen.nodes, action.was):
        return ""
    return f"{CHANGED}: its node list is {seen.nodes or 'empty'}"


def other_start(action: Action | None, view: View) -> str:
    if (seen := _seen(action, view)) is None or not isinstance(action, Defer) or not isfinite(action.was_s):
        return ""
    same = abs(seen.eligible_s - action.was_s) <= SAME_S
    return "" if same else f"{CHANGED}: its earliest start is another one"


def other_request(action: Action | None, view: View) -> str:
    if (seen := _seen(action, view)) is None or not isinstance(action, Retype):
        return ""
    if seen.gpus != action.was:
        return f"{CHANGED}: it asks for {seen.gpus or 'no GPUs by node'}"
    gets = counted(action.gpus)
    other = next((count for count in (counted(action.base), counted(action.was)) if count != gets), gets)
    return "" if other == gets or action.resizes else f"it would get {some(gets, 'GPU')} instead of {other}"


def other_asks(action: Action | None, view: View) -> str:
    """Slurm's list of jobs does not show all that a job asks for: it may have changed since it was read."""
    if (seen := _seen(action, view)) is None or not isinstance(action, PinNodes | Retype) or not seen.bars:
        return ""
    own = (action.nodes if isinstance(action, PinNodes) else action.gpus) == action.base
    return "" if own else f"{ASKS} {' and '.join(seen.bars)}"


def other_reservation(action: Action | None, view: View) -> str:
    """Only a free job joins a reservation, and only the name of its own act is taken off."""
    if (seen := _seen(action, view)) is None or not isinstance(action, Join):
        return ""
    fits = not seen.reservation if action.name else seen.reservation == RESERVATION_PREFIX + action.act
    return "" if fits else f"{CHANGED}: its reservation is {seen.reservation or 'none'}"


def other_extent(action: Action | None, view: View) -> str:
    if (seen := _seen(action, view)) is None or not isinstance(action, Reserve) or action.whole or not seen.exclusive:
        return ""
    return f"{CHANGED}: it asks for whole nodes (--exclusive)"


def _seen(action: Action | None, view: View) -> Seen | None:
    """The action's job; None where that does not matter: a reservation is deleted whatever became of its job."""
    return None if action is None or isinstance(action, Unreserve) else view.seen.get(action.job_id)


def _words(state: JobState) -> str:
    return "+".join(flag.name or "" for flag in JobState if flag & state)
