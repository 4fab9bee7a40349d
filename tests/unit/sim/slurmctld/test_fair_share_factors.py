"""Fair share as Slurm's priority/multifactor has it, on trees worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import PARENT, ClusterLayout, LimitSpec, NodeSpec, PartitionSpec
from slurmsched.sim.event_loop import replay
from slurmsched.sim.slurmctld.association_usage import AssociationTree, FairShareFactors
from slurmsched.sim.slurmctld.job_demands import SubmittedRequests
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings

FADING = SlurmctldSettings(weight_fairshare=1_000, calc_period_s=10.0, decay_half_life_s=693.0)  # a thousandth a second
CLASSIC = SlurmctldSettings(weight_fairshare=1_000, fair_tree=False)
TREE = (
    LimitSpec("big", shares=3), LimitSpec("small"), LimitSpec("big", user="ann"), LimitSpec("big", user="bob"),
    LimitSpec("small", user="cid"),
)  # fmt: skip


def shares(
    known: tuple[LimitSpec, ...], model: SlurmctldSettings = FADING, who: tuple[tuple[str, str], ...] = ()
) -> FairShareFactors:
    """That of one job of each user of `who`, one CPU each."""
    asked = SubmittedRequests.build(len(who), {"account": [each[0] for each in who], "user": [each[1] for each in who]})
    return FairShareFactors(AssociationTree.of(known, asked), model, np.ones(len(who)))


def factors(made: FairShareFactors) -> dict[str, float]:
    """Of users, by name."""
    return {
        each.user: round(float(factor), 6)
        for each, factor in zip(made.tree.limits, made.factors, strict=True)
        if each.user
    }


def used(**usage: float) -> tuple[LimitSpec, ...]:
    """The tree with the usage of its users."""
    return tuple(
        LimitSpec(each.name, user=each.user, shares=each.shares, usage=usage.get(each.user, 0)) for each in TREE
    )


def test_fair_tree__ranks_accounts_before_users() -> None:
    """big has used half with three quarters of the shares, so that even ann, who used all of that, passes cid."""
    assert factors(shares(used(ann=50, cid=50))) == {"bob": 1.0, "ann": 0.666667, "cid": 0.333333}
    assert factors(shares(used(ann=80, cid=10))) == {"cid": 1.0, "bob": 0.666667, "ann": 0.333333}


def test_fair_tree__ties_share_a_rank() -> None:
    """Without usage all are first; two accounts alike are one, so that dan is compared with ann and bob."""
    assert factors(shares(used())) == {"ann": 1.0, "bob": 1.0, "cid": 1.0}
    alike = (LimitSpec("a"), LimitSpec("b"), LimitSpec("a", user="ann", usage=30), LimitSpec("a", user="bob", usage=10),
             LimitSpec("b", user="dan", usage=20), LimitSpec("b", user="eve", usage=20))  # fmt: skip
    assert factors(shares(alike)) == {"bob": 1.0, "dan": 0.75, "eve": 0.75, "ann": 0.25}


def test_fair_tree__user_beside_an_account_of_equal_share() -> None:
    """root's own user ties with the first user of the account that used as much."""
    beside = (LimitSpec("root", user="root", usage=10), LimitSpec("a"), LimitSpec("a", user="ann", usage=4),
              LimitSpec("a", user="bob", usage=6))  # fmt: skip
    assert factors(shares(beside)) == {"root": 1.0, "ann": 1.0, "bob": 0.333333}


def test_fair_tree__shares_of_the_parent() -> None:
    """A user with them comes first in its account; an account with them is not a level of its own."""
    above = (
        LimitSpec("a", shares=PARENT),
        LimitSpec("a", user="ann", usage=10),
        LimitSpec("b"),
        LimitSpec("b", user="bob"),
        LimitSpec("b", user="cid", shares=PARENT, usage=90),
    )
    assert factors(shares(above)) == {"ann": 1.0, "bob": 0.666667, "cid": 0.666667}


def test_classic__halves_for_each_share_used() -> None:
    """2 to the minus (usage over share); ann's is mixed with big's: 0.5 + (0.5 - 0.5) * 1/2 over 3/8 of shares."""
    made = factors(shares(used(ann=50, cid=50), CLASSIC))
    assert made == {"ann": 0.39685, "bob": 0.629961, "cid": 0.25}
    damped = factors(shares(used(ann=50, cid=50), SlurmctldSettings(weight_fairshare=1, fair_tree=False, damping=2.0)))
    assert damped["cid"] == 0.5


def test_usage__fades_and_is_counted_up_to_root() -> None:
    """10 s of a job, then 10 s in which it fades by a thousandth a second; each count fades what it adds."""
    made = shares(TREE, who=(("big", "ann"),))
    made.started(0, 0.0)
    made.count(10.0)
    first = 10 * 0.999**10
    assert made.usage[[0, 1, 3]] == pytest.approx([first, first, first])
    made.stopped(0, 14.0)
    made.count(20.0)
    assert made.usage[0] == pytest.approx((first + 4 * 0.999**4) * 0.999**10)
    assert made.usage[[2, 4]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("period", "until_s"),
    [("daily", 86_400), ("weekly", 3 * 86_400), ("monthly", 31 * 86_400), ("quarterly", 90 * 86_400),
     ("yearly", 365 * 86_400)],
)  # fmt: skip
def test_usage__is_forgotten_by_the_calendar(period: str, until_s: float) -> None:
    """From Thursday, 1 January 1970 on: at midnight, on Sunday, on the first of the month, quarter, year."""
    made = shares(used(ann=50), SlurmctldSettings(weight_fairshare=1, usage_reset=period, decay_half_life_s=0.0))
    made.count(until_s - 1.0)
    before = made.usage[0]
    made.count(float(until_s))
    assert (before, made.usage[0]) == (50, 0)


@pytest.mark.parametrize("model", [FADING, CLASSIC])
def test_factors__change_when_usage_is_counted_not_at_the_end_of_a_job(model: SlurmctldSettings) -> None:
    """ann's job ends between two counts: bob stands no better until the next."""
    made = shares(TREE, model, who=(("big", "ann"), ("big", "bob")))
    made.started(0, 0.0)
    before = factors(made)
    made.stopped(0, 4.0)
    assert (factors(made), made.usage[0] > 0) == (before, True)
    made.count(10.0)
    assert factors(made)["ann"] < factors(made)["bob"]


def test_associations__of_jobs_that_nobody_told_of() -> None:
    """Account and user get one share each; a user is looked up in the account."""
    made = shares(TREE, who=(("big", "ann"), ("new", "ann"), ("big", "eve")))
    named = [(made.tree.limits[row].name, made.tree.limits[row].user) for row in made.tree.of_job.tolist()]
    assert named == [("big", "ann"), ("new", "ann"), ("big", "eve")]


def test_associations__a_job_without_a_user_is_the_accounts_own() -> None:
    """It makes no second row of the account: ann stays below big, which stays below the whole."""
    made = shares(
        (LimitSpec("big", parent="all", group_gpus=4), LimitSpec("all")), who=(("big", ""), ("big", "ann"))
    ).tree
    named = [
        [(made.limits[row].name, made.limits[row].user) for row in made.chain(job)] for job in made.of_job.tolist()
    ]
    assert named[0] == [("big", ""), ("all", ""), ("root", "")]
    assert (named[1], len(made.limits)) == ([("big", "ann"), *named[0]], 4)


@pytest.mark.parametrize(
    ("field", "value"), [("damping", 0.0), ("decay_half_life_s", 0.5), ("decay_half_life_s", float("nan"))]
)
def test_model__refuses_what_no_usage_fades_by(field: str, value: float) -> None:
    """By these shares would be no numbers."""
    with pytest.raises(ConfigError) as caught:
        SlurmctldSettings(**{field: value})
    assert caught.value.key == f"model.{field}"


@pytest.mark.parametrize(
    ("known", "said"),
    [((LimitSpec("a", parent="b"), LimitSpec("b", parent="a")), "'a' is below itself"),
     ((LimitSpec("a", parent="gone"),), "'a' is below 'gone', which is no account")],
)  # fmt: skip
def test_associations__name_the_account_that_hangs_nowhere(known: tuple[LimitSpec, ...], said: str) -> None:
    """An InputError."""
    with pytest.raises(InputError, match=said):
        shares(known)


def test_replay__who_used_less_goes_first_once_it_is_counted() -> None:
    """ann's job 1 runs 30 s on the only node; of 2 (ann) and 3 (bob), both waiting, 3 is first by usage and then 2."""
    trace = Trace.of([1, 2, 3], [8] * 3, [0.0, 1.0, 2.0], [30.0] * 3, [60.0] * 3)
    asked = SubmittedRequests.build(3, {"account": ["big"] * 3, "user": ["ann", "ann", "bob"]})
    layout = ClusterLayout((NodeSpec("n1", 8, 64),), (PartitionSpec("gpu", billing=(2.0, 0.0, 0.0)),), accounts=TREE)
    weights = {"weight_fairshare": 1_000, "weight_age": 0, "calc_period_s": 10.0}
    model = SlurmctldSettings(backfill="none", batch_sched_delay_s=0.0, **weights)
    made = SimulatedSlurmctld(trace, layout, model, requests=asked)
    made.advance(25.0)
    assert made.fair_share.usage[0] == pytest.approx(20 * 16, rel=1e-3)
    replay(made)
    assert made.job.first_start_s.tolist() == [0, 60, 30]
