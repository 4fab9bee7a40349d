"""The fairness family on the examples of its pages, and its shared maths on small cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.model import Past
from slurmsched.policies.astraea import Astraea, end_within
from slurmsched.policies.auction import auction
from slurmsched.policies.dorm import Dorm
from slurmsched.policies.gandiva_fair import NO_TRADE, GandivaFair
from slurmsched.policies.leases import leases
from slurmsched.policies.stride import turns
from slurmsched.policies.themis import Themis
from slurmsched.testing import check_policy, snapshot

SIX = [
    {"gpus": gpus, "submit_s": submit_s, "comment": "slurmsched: dur=1h"}
    for gpus, submit_s in ((8, 0.0), (1, 0.0), (2, 0.0), (4, 0.0), (1, 1800.0), (2, 3600.0))
]
PAGE = snapshot(SIX, "1x8", now_s=3600.0)
TENANTS = [{"gpus": 4, "account": account} for account in "aaaabb"]


def ids(policy, given=PAGE):
    return given.jobs.job_id[policy.rank(given).order].tolist()


def test_themis__rho_of_the_page() -> None:
    """rho is shared time over time on 1/N of the cluster."""
    rho = Themis(variant="sort").rank(PAGE).why["rho"]
    assert rho.round(2).tolist() == [0.33, 2.0, 1.33, 0.67, 1.5, 0.67]


def test_themis__sort_puts_the_worst_rho_first() -> None:
    """Worst rho first, ties by submission."""
    assert ids(Themis(variant="sort")) == [2, 5, 3, 4, 6, 1]


def test_themis__auction_is_open_to_the_worst_off_only() -> None:
    """Half of six bid: jobs 2, 5, 3; there is room for all, so all win."""
    ranking = Themis(fairness=0.5).rank(PAGE)
    assert ranking.why["urgency"].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]


def test_themis__minmax_shares_make_the_largest_rho_least() -> None:
    """Two new jobs of all 8 GPUs and equal length: half of the time each."""
    given = snapshot([{"gpus": 8, "comment": "slurmsched: dur=1h"}] * 2, "1x8")
    ranking = Themis(variant="minmax").rank(given)
    assert ranking.wants.share == pytest.approx([0.5, 0.5], rel=5e-3)


def test_themis__says_what_it_does_not_know() -> None:
    """Jobs without an expected run time are counted in one note."""
    assert Themis().rank(snapshot([{}, {}])).notes == (
        "2 jobs without an expected run time: taken to run as long again",
    )


def test_auction__takes_the_largest_product() -> None:
    """8 GPUs: two of 4 with gains 2 and 2 beat one of 8 with gain 3."""
    wins, _ = auction(np.array([3.0, 2.0, 2.0]), np.array([8, 4, 4]), 8)
    assert wins.tolist() == [False, True, True]


def test_auction__winner_pays_what_it_costs_the_others() -> None:
    """Of two gangs of all GPUs the better wins, and keeps exp(-gain of the other); alone it keeps all."""
    wins, part = auction(np.array([2.0, 0.5]), np.array([4, 4]), 4)
    assert wins.tolist() == [True, False]
    assert part == pytest.approx([np.exp(-0.5), 1.0])
    assert auction(np.array([2.0]), np.array([4]), 4)[1].tolist() == [1.0]


def test_leases__loser_contends_until_it_is_chosen() -> None:
    """A job keeps GPUs to the end of its lease, then contends; chosen, it has another lease."""
    rows = [{"state": "RUNNING", "start_s": 0.0, "gpus": 8, "comment": "slurmsched: dur=9h"}]
    policy, first = Themis(lease_s=100.0), snapshot(rows, "1x8", now_s=50.0)
    carry = policy.rank(first).carry
    over = policy.rank(replace(first, now_s=100.0, carry=carry))
    assert over.why["in_lease"].tolist() == [False]
    assert leases(replace(first, now_s=150.0, carry=over.carry), 100.0).until_s.tolist() == [200.0]
    assert policy.next_change_s(first, policy.rank(first), np.array([True])) == 100.0


def test_turns__tenants_alternate_by_ticket() -> None:
    """Equal strides: the tenant with pass 0 gets two turns before one with pass 2."""
    found = turns(np.array([0, 0, 0, 1]), np.arange(4), np.array([0.0, 2.0]), np.ones(4))
    assert found.tolist() == [0.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("policy", [GandivaFair(), Astraea()], ids=repr)
def test_tenants__take_turns(policy) -> None:
    """Four jobs of one account do not go before two of another one that came later."""
    assert ids(policy, snapshot(TENANTS, "1x8")) == [1, 5, 2, 6, 3, 4]


def test_gandiva_fair__tickets_are_shares() -> None:
    """An account with three times the shares gets three turns for one."""
    given = replace(snapshot([{"gpus": 1, "account": a} for a in "aaaabbbb"], "1x8"), shares={"a": 1.0, "b": 3.0})
    assert ids(GandivaFair(), given)[:5] == [1, 5, 6, 7, 2]


def test_gandiva_fair__newcomer_has_no_credit() -> None:
    """An account that comes late begins at the pass of who waits, not at nothing."""
    policy = GandivaFair(quantum_s=0.0)
    running = [{"account": "a", "gpus": 8, "state": "RUNNING", "start_s": 0.0}, {"account": "a", "gpus": 8}]
    carry = policy.rank(snapshot(running, "1x8")).carry
    later = snapshot([*running, {"account": "b", "gpus": 8, "submit_s": 60.0}], "1x8", now_s=60.0, carry=carry)
    assert policy.rank(later).why["pass_gpu_s"].tolist()[2] == policy.rank(later).why["pass_gpu_s"].tolist()[1] > 0


def test_gandiva_fair__says_that_it_does_not_trade() -> None:
    """Nodes of two types: a note."""
    nodes = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:a100:4"}, {"name": "n2", "gpus": 4, "gpu_types": "gpu:v100:4"}]
    assert GandivaFair().rank(snapshot([{}], nodes)).notes == (NO_TRADE,)


def test_astraea__starving_job_goes_first() -> None:
    """After four hours of waiting a job passes its tenant's turn."""
    rows = [
        {"gpus": 4, "account": account, "waiting_s": 14_400.0 * (job == 4)} for job, account in enumerate("aaaab", 1)
    ]
    assert ids(Astraea(), snapshot(rows, "1x8"))[0] == 4


def test_end_within__is_the_share_of_those_that_ran_as_long() -> None:
    """Of ended jobs of 100, 200, 300 s, half of those above 100 end within 100 more."""
    past = Past.build(3, {"gpus": [1, 1, 1], "executed_s": [100.0, 200.0, 300.0]})
    given = replace(snapshot([{"executed_s": 0.0}, {"executed_s": 100.0}]), past=past)
    assert end_within(given, 100.0) == pytest.approx([1 / 3, 1 / 2])


def test_dorm__fair_sizes_of_the_page() -> None:
    """Six elastic jobs share 12 GPUs alike."""
    rows = [{"gpus": 2, "comment": "slurmsched: min_gpus=1 max_gpus=4"}] * 6
    ranking = Dorm(theta1=0.0).rank(snapshot(rows, "1x12"))
    assert ranking.wants.gpus.tolist() == [2] * 6


def test_dorm__changes_no_more_running_jobs_than_told() -> None:
    """theta2 0: running jobs keep their sizes, whatever would be fair."""
    hint = {"comment": "slurmsched: min_gpus=1 max_gpus=8"}
    rows = [{"gpus": 7, "state": "RUNNING", "start_s": 0.0, **hint}, {"gpus": 4, **hint}]
    assert Dorm(theta1=0.0, theta2=0.0).rank(snapshot(rows, "1x8", now_s=9.0)).why["given_gpus"].tolist() == [7, 1]


def test_dorm__rigid_jobs_have_all_or_nothing() -> None:
    """Without hints a gang is whole, and no size is wanted."""
    ranking = Dorm(theta1=1.0).rank(snapshot([{"gpus": 5}, {"gpus": 4}, {"gpus": 4}], "1x8"))
    assert (ranking.why["given_gpus"].tolist(), ranking.wants) == ([0, 4, 4], None)


@pytest.mark.parametrize("variant", ["sort", "minmax"])
def test_themis__variants_conform(variant: str) -> None:
    """Every rule of check_policy."""
    assert check_policy(Themis(variant=variant)) is None


@pytest.mark.parametrize(
    ("make", "key"),
    [(lambda: Themis(variant="x"), "policy.variant"), (lambda: Themis(fairness=1.0), "policy.fairness"),
     (lambda: GandivaFair(quantum_s=-1.0), "policy.quantum_s"), (lambda: Astraea(levels=0), "policy.levels"),
     (lambda: Dorm(most_jobs=0), "policy.most_jobs")],
)  # fmt: skip
def test_parameters__out_of_range_name_the_setting(make, key: str) -> None:
    """A ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
