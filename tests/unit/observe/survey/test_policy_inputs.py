from __future__ import annotations

from slurmsched.config_file import parse_config
from slurmsched.model import Past, PolicyInput, PolicyLever
from slurmsched.observe.survey.policy_inputs import available_inputs, disabled_levers, missing_inputs
from slurmsched.testing import snapshot

JOBS = (
    {"comment": "slurmsched: dur=2h deadline=+3h"},
    {"comment": "slurmsched: dur=1h"},
    {"state": "COMPLETED"},
)


def test_missing_inputs__counts_jobs_without_the_hint() -> None:
    """Waiting and running jobs without the hint are counted; what all of them give is not missing."""
    told = missing_inputs(snapshot(JOBS), (PolicyInput.DURATION, PolicyInput.DEADLINE))
    assert told == ("deadline hints: 1 of 2 jobs gives no deadline= hint",)


def test_missing_inputs__says_that_nothing_is_known_yet() -> None:
    """No job that ended, and no shares."""
    told = missing_inputs(snapshot(JOBS), (PolicyInput.PAST, PolicyInput.SHARES, PolicyInput.SERVICE))
    assert told == (
        "jobs that ended: no job that ended is on record",
        "shares of accounts: Slurm shows no account shares; all accounts count alike",
    )
    assert (
        missing_inputs(snapshot(JOBS, history_gpu_s=[1.0], shares={"a": 1.0}), (PolicyInput.PAST, PolicyInput.SHARES))
        == ()
    )


def test_available_inputs__says_how_far_the_past_goes() -> None:
    """Who ended since when; nothing for a policy that does not look, or while nothing is known."""
    past = Past.build(2, {"user": ["ann", "bob"], "end_s": [1_758_844_800.0, 1_758_900_000.0]})
    here = snapshot(JOBS, past=past)
    assert available_inputs(here, (PolicyInput.PAST,)) == ("jobs that ended: 2 since 2025-09-26, of 2 users",)
    assert (available_inputs(here, (PolicyInput.SHARES,)), available_inputs(snapshot(JOBS), (PolicyInput.PAST,))) == (
        (),
        (),
    )


def test_disabled_levers__names_the_settings_of_levers_that_are_not_written() -> None:
    """In the order of the card; what is on, and the order itself, is not told."""
    config = parse_config({"lever": {"start": True}})
    told = disabled_levers(
        config, (PolicyLever.ORDER, PolicyLever.SIZE, PolicyLever.START, PolicyLever.REQUEUE, PolicyLever.GPU_TYPE)
    )
    assert [line.split(" is false")[0] for line in told] == [
        "size: lever.size", "requeue: preemption.enabled", "gpu type: placement.types"]  # fmt: skip
