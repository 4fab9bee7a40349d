"""Slowdown, rho, and who gains and loses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.errors import InputError
from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import Trace
from slurmsched.observe.fairness import FairnessFigures, JobTenants, jain, jct_alone_s, tenant_changes
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession

# two users on 2 GPUs: ann fills them for 100 s, bob's short jobs come meanwhile
TRACE = Trace.of([1, 2, 3], [2, 1, 1], [0, 10, 20], [100, 20, 20], user=["ann", "bob", "bob"], account=["x", "x", "x"])


def outcomes(policy: str, trace: Trace = TRACE) -> JobOutcomes:
    return ReplaySession(trace, ReplayRequest(cluster="1x2", policy=policy)).run().outcomes


@pytest.mark.parametrize(("values", "index"), [([3.0, 3.0, 3.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 2.0], 0.9)])
def test_jain__of_known_shares(values: list[float], index: float) -> None:
    """1 for equals, 1/n where one has all."""
    assert index == pytest.approx(jain(np.array(values)))


def test_tenants__are_users_then_accounts_then_jobs() -> None:
    """What the trace tells; --by chooses."""
    nobody = TRACE.with_columns(user=[""] * 3)
    bare = nobody.with_columns(account=[""] * 3)
    found = [JobTenants.find(TRACE), JobTenants.find(TRACE, "account"), JobTenants.find(nobody), JobTenants.find(bare)]
    assert [(each.of, each.names) for each in found] == [
        ("user", ("ann", "bob")), ("account", ("x",)), ("account", ("x",)), ("job", ()),
    ]  # fmt: skip


def test_tenants__that_are_not_recorded_are_an_error() -> None:
    """The file is named."""
    with pytest.raises(InputError, match=r"t\.csv: does not have the user of its jobs"):
        JobTenants.find(TRACE.with_columns(user=[""] * 3), "user", "t.csv")


def test_jct_alone__on_half_the_cluster_each() -> None:
    """ann's two GPUs become one: 200 s. bob's second job waits for the first: 20 s, then 10 + 20."""
    assert jct_alone_s(TRACE, JobTenants.find(TRACE), 2).tolist() == [200.0, 20.0, 30.0]


def test_jct_alone__jobs_without_gpus_have_none_and_their_users_no_share() -> None:
    """A history has them beside the others."""
    more = Trace.of([1, 2, 3, 4, 5], [2, 1, 1, 0, 0], [0, 10, 20, 30, 40], [100, 20, 20, 5, 5], least_gpus=0,
                    user=["ann", "bob", "bob", "cy", "bob"])  # fmt: skip
    found_s = jct_alone_s(more, JobTenants.find(more), 2)
    assert (found_s[:3].tolist(), np.isnan(found_s[3:]).tolist()) == ([200.0, 20.0, 30.0], [True, True])


def test_fairness__under_fifo() -> None:
    """ann: 100 s over 200. bob: 110 and 100 s, over 20 and 30: (110 + 100) / 50. Slowdowns 1, and (5.5 + 5) / 2."""
    tenants = JobTenants.find(TRACE)
    fair = FairnessFigures.of(TRACE, tenants, jct_alone_s(TRACE, tenants, 2), outcomes("fifo"))
    assert (fair.slowdown.tolist(), fair.rho.tolist()) == ([1.0, 5.25], [0.5, 4.2])
    told = fair.figures()
    assert (told["max_rho"], told["max_rho_tenant"], told["mean_rho"]) == (4.2, "bob", pytest.approx(2.35))
    assert told["jain_slowdown"] == pytest.approx(6.25**2 / (2 * (1 + 5.25**2)))


def test_fairness__of_jobs_without_users() -> None:
    """Each job is its own tenant: slowdowns are told, rho is not."""
    bare = TRACE.with_columns(user=[""] * 3, account=[""] * 3)
    tenants = JobTenants.find(bare)
    fair = FairnessFigures.of(bare, tenants, jct_alone_s(bare, tenants, 2), outcomes("fifo", bare))
    assert fair.slowdown.tolist() == [1.0, 5.5, 5.0]
    assert (fair.figures()["max_rho"], fair.figures()["max_rho_tenant"]) == (None, None)


def test_slowdown__of_a_short_job_is_bounded() -> None:
    """1 s of run counts as 10 s: after 100 s of wait the slowdown is 10.1, not 101."""
    trace = Trace.of([1, 2], [2, 2], [0, 0], [100, 1], user=["ann", "bob"])
    tenants = JobTenants.find(trace)
    fair = FairnessFigures.of(trace, tenants, jct_alone_s(trace, tenants, 2), outcomes("fifo", trace))
    assert fair.slowdown.tolist() == [1.0, 10.1]


def test_fairness__of_jobs_of_0_s() -> None:
    """Alone it would have ended at once, so that there is no ratio. It ran as long as recorded: no slowdown in that."""
    trace = Trace.of([1, 2], [2, 2], [0, 0], [100, 0], user=["ann", "bob"])
    tenants, done = JobTenants.find(trace), outcomes("fifo", trace)
    fair = FairnessFigures.of(trace, tenants, jct_alone_s(trace, tenants, 2), done)
    np.testing.assert_array_equal(fair.rho, [0.5, np.nan])
    assert (fair.slowdown.tolist(), done.slowdown.tolist()) == ([1.0, 10.0], [1.0, 1.0])


def test_changes__names_who_gains_and_who_loses() -> None:
    """SRTF lets bob pass: his mean wait falls from 85 s, and ann waits while he runs. Most gained first."""
    changed = tenant_changes(TRACE, JobTenants.find(TRACE), outcomes("fifo"), outcomes("srtf"))
    assert [(each.tenant, each.jobs, each.wait_before_s, each.wait_after_s) for each in changed] == [
        ("bob", 2, 85.0, 0.0), ("ann", 1, 0.0, 30.0),
    ]  # fmt: skip
    assert [each.gpu_hours * 3600 for each in changed] == pytest.approx([40.0, 200.0])


def test_changes__counts_jobs_that_ended_in_both() -> None:
    """A job that did not end in one of them says nothing."""
    before, after = outcomes("fifo"), outcomes("srtf")
    names = [name for name in JobOutcomes.__slots__ if name not in ("cluster_gpus", "gpu_share")]
    cut = replace(after, **{name: getattr(after, name)[1:] for name in names})
    assert [(each.tenant, each.jobs) for each in tenant_changes(TRACE, JobTenants.find(TRACE), before, cut)] == [
        ("bob", 2)
    ]


def test_changes__is_empty_between_equals() -> None:
    """Nobody gains, nobody loses."""
    assert tenant_changes(TRACE, JobTenants.find(TRACE), outcomes("fifo"), outcomes("fifo")) == []
