"""The gate: every action of a plan passes here, when it is planned and again right before it is sent.

One table of rules; the first that catches an action is its reason. Rules of SEND look at the job as it is then, those
of APPLY at what keeps everything from being sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from slurmsched.model import Refusal, Rights
from slurmsched.model.plan import Action
from slurmsched.planning import plan_rules, send_rules
from slurmsched.planning.view import View


class When(StrEnum):
    """When a rule is asked."""

    PLAN = "plan"
    APPLY = "apply"  # before anything is sent, and between chunks; no action yet
    SEND = "send"  # right before the action is sent


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason to leave an action out. says: the reason in words, "" = it may pass. about: what it guards."""

    name: str
    when: When
    about: str
    says: Callable[[Action | None, View], str]


def refusal(action: Action | None, view: View, when: When) -> Refusal | None:
    """Why an action must not be planned or sent; None if it may be. action: None at APPLY, when all are meant."""
    for rule in RULES:
        if rule.when == when and (reason := rule.says(action, view)):
            return Refusal(action.job_id if action else 0, rule.name, reason)
    return None


def first_refusal(actions: Iterable[Action], view: View, when: When) -> Refusal | None:
    """The refusal of the first of these that may not pass; None if all may."""
    return next((found for action in actions if (found := refusal(action, view, when))), None)


def _rights(_: Action | None, view: View) -> str:
    site = view.site
    if site is None or site.rights >= Rights.OPERATOR:
        return ""
    return f"{site.user} is {site.rights.name.capitalize()} (slurmdbd away?), writing needs Operator"


RULES = (
    Rule("rights", When.APPLY, "writing needs the Operator right", _rights),
    Rule("stop-file", When.APPLY, "the administrator's stop file", lambda _, view: view.stopped),
    Rule("load", When.APPLY, "slurmctld's load, and how fast it answers", lambda _, view: view.busy),
    Rule("managed", When.PLAN, "the job is in scope, and its priority is ours to move", plan_rules.unmanaged),
    Rule("victim", When.PLAN, "the job can be requeued, and nobody said that it must not", plan_rules.unwilling),
    Rule("bounds", When.PLAN, "values that Slurm takes", plan_rules.out_of_bounds),
    Rule("size", When.PLAN, "a size between the job's hints", plan_rules.other_size),
    Rule("per-cycle", When.PLAN, "acts begun in a cycle", plan_rules.cycle_full),
    Rule("per-hour", When.PLAN, "acts begun in an hour", plan_rules.hour_full),
    Rule("per-user-per-hour", When.PLAN, "acts begun in an hour for one user", plan_rules.user_full),
    Rule("lease", When.PLAN, "no two jobs take GPUs of each other in turn", plan_rules.swaps_back),
    Rule("gone", When.SEND, "the job is in the queue", send_rules.gone),
    Rule("submit-time", When.SEND, "the job is known for good", send_rules.nameless),
    Rule("other-run", When.SEND, "it is the same run", send_rules.other_run),
    Rule("state", When.SEND, "it waits, or runs, as the action needs", send_rules.other_state),
    Rule("value", When.SEND, "nobody else changed the lever", send_rules.other_value),
    Rule("node-list", When.SEND, "nobody else changed its node list", send_rules.other_list),
    Rule("start", When.SEND, "nobody else changed its earliest start", send_rules.other_start),
    Rule("request", When.SEND, "nobody else changed its request, whose GPUs stay as many", send_rules.other_request),
    Rule("asks", When.SEND, "it asks for nothing that a list or request of ours breaks", send_rules.other_asks),
    Rule("reservation", When.SEND, "nobody else gave it a reservation", send_rules.other_reservation),
    Rule("exclusive", When.SEND, "it asks for no more of its nodes", send_rules.other_extent),
)
