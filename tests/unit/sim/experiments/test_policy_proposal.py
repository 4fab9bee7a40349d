"""A policy judged against Slurm alone: who loses by it, and which one is proposed."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import JobTenants
from slurmsched.sim.experiments.policy_proposal import Judged, Loss, choose, judged, table

HOUR_S = 3_600.0
JOBS = 20
TRACE = Trace.of(
    range(1, JOBS + 1), [1] * 10 + [8] * 10, np.zeros(JOBS), np.full(JOBS, HOUR_S), user=["ann", "bob"] * 10
)


def outcomes(wait_h):
    """Every job runs for an hour after this wait [h]."""
    wait_s = np.broadcast_to(np.asarray(wait_h, float), JOBS) * HOUR_S
    zeros = np.zeros(JOBS)
    return JobOutcomes(
        TRACE.job_id, TRACE.gpus, zeros, wait_s, wait_s + HOUR_S, np.full(JOBS, HOUR_S), np.full(JOBS, HOUR_S),
        np.zeros(JOBS, np.int64), 16,
    )  # fmt: skip


def verdict(wait_h, slurm_h=4.0) -> Judged:
    return judged("new", TRACE, JobTenants.find(TRACE), outcomes(wait_h), outcomes(slurm_h))


def test_judged__gives_waits_over_slurms():
    """Mean and p95 wait, and p99 of the JCT, which has the hour of the run in it."""
    found = verdict(2.0)
    assert (found.mean_wait, found.p95_wait, found.p99_jct, found.mean_wait_h) == (0.5, 0.5, 0.6, 2.0)
    assert (found.same, found.harmless) == (False, True)


def test_judged__names_user_and_size_that_lose_most():
    """By their own mean wait before."""
    small_wait_less = np.where(TRACE.gpus == 1, 1.0, 9.0)
    found = verdict(small_wait_less)
    assert found.size == Loss("5-8 GPUs", 5.0, 2.25)
    by_user = verdict(np.where(TRACE.user.codes == 0, 2.0, 5.5))
    assert by_user.user == Loss("bob", 1.5, 1.375)
    assert not found.harmless
    assert not by_user.harmless


@pytest.mark.parametrize(
    ("bob_h", "clear"), [(4.9, False), (5.1, True), (4.0, False)], ids=["under an hour", "both", "none"]
)
def test_loss__is_clear_beyond_an_hour_and_a_quarter(bob_h, clear):
    """Both: an hour of a wait of a week is none, nor is twice a wait of a minute."""
    assert verdict(np.where(TRACE.user.codes == 0, 4.0, bob_h)).user.clear is clear
    assert Loss("x", 2.0, 1.2).clear is False


def test_judged__says_when_nothing_changes():
    """To the second."""
    assert verdict(4.0).same


def row(policy, mean_wait, *, harm=False, same=False):
    loss = Loss("bob", 9.0, 2.0) if harm else Loss("bob", 0.5, 1.1)
    return Judged(policy, mean_wait, 1.0, 1.0, 1.0, loss, Loss(), same)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("a", 0.8), row("b", 0.6)], "b"),
        ([row("a", 0.8), row("b", 0.6, harm=True)], "a"),
        ([row("a", 0.97)], None),
        ([row("a", 1.0, same=True)], None),
        ([], None),
    ],
    ids=["least wait", "nobody clearly loses", "worth a change", "changes something", "nothing tried"],
)
def test_choose__takes_the_least_wait_that_harms_nobody(rows, expected):
    """None where no policy helps."""
    found = choose(rows)
    assert (found and found.policy) == expected


def test_table__puts_slurm_first_and_says_who_loses():
    """A policy that changes nothing is said to be the same."""
    rows = list(table([row("a", 0.8), row("b", 1.0, same=True)], 4.0))
    assert rows[0][:3] == ("slurm", "4.00", "1.00x")
    assert rows[1][-2:] == ("bob +0.5 h (1.10x)", "nobody")
    assert rows[2][2:5] == ("same", "same", "same")
