"""The fairness family on the examples of its pages, and its shared maths on small cases worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.allocation.finish_time import FinishTimes, auction
from slurmsched.allocation.heterogeneity import heterogeneous_cluster
from slurmsched.allocation.leases import leases
from slurmsched.allocation.tenants import fair_tickets, stride_order, trade_tickets
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Past
from slurmsched.policies.astraea import Astraea, end_within, level_of
from slurmsched.policies.dorm import Dorm
from slurmsched.policies.gandiva_fair import NO_TRADE, GandivaFair
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
    assert ranking.changes.share == pytest.approx([0.5, 0.5], rel=5e-3)


def test_themis__says_what_it_does_not_know() -> None:
    """Jobs without an expected run time are counted in one note."""
    assert Themis().rank(snapshot([{}, {}])).notes == (
        "2 jobs without an expected run time: taken to run as long again",
    )


def test_auction__takes_the_largest_product() -> None:
    """8 GPUs: two of 4 with gains 2 and 2 beat one of 8 with gain 3."""
    wins, _ = auction(np.array([[3.0], [2.0], [2.0]]), np.array([[8], [4], [4]]), 8)
    assert wins.tolist() == [-1, 0, 0]


def test_auction__winner_pays_what_it_costs_the_others() -> None:
    """Of two gangs of all GPUs the better wins, and keeps exp(-gain of the other); alone it keeps all."""
    wins, part = auction(np.array([[2.0], [0.5]]), np.array([[4], [4]]), 4)
    assert wins.tolist() == [0, -1]
    assert part == pytest.approx([np.exp(-0.5), 1.0])
    assert auction(np.array([[2.0]]), np.array([[4]]), 4)[1].tolist() == [1.0]


def test_auction__of_its_bids_each_has_one() -> None:
    """4 GPUs: 2.0 for all of them is less than 1.5 for half of them and 0.6 of the other; alone the former takes all. A
    bid of no gain is none."""
    gains, gpus = np.array([[1.5, 2.0], [0.6, 0.0]]), np.array([[2, 4], [2, 1]])
    wins, part = auction(gains, gpus, 4)
    assert wins.tolist() == [0, 0]
    assert part == pytest.approx([1.0, np.exp(-0.5)])
    assert auction(gains[:1], gpus[:1], 4)[0].tolist() == [1]
    assert auction(gains, gpus, 1)[0].tolist() == [-1, -1]


ELASTIC = {"gpus": 8, "comment": "slurmsched: dur=10h min_gpus=1 max_gpus=8"}


def test_themis__elastic_jobs_bid_for_parts_as_the_page_tells() -> None:
    """Two alike on 8 GPUs have 4 each; a gang alone is all or nothing, so that one has all."""
    given = snapshot([ELASTIC, ELASTIC], "1x8")
    both = Themis(fairness=0.0, elastic=True).rank(given)
    assert both.changes.gpus.tolist() == [4, 4]  # type: ignore[union-attr]
    assert both.why["urgency"].tolist() == [0.0, 0.0]
    one = Themis(fairness=0.0).rank(given)
    assert (one.changes, one.why["urgency"].tolist()) == (None, [0.0, 1.0])


def test_themis__who_runs_bids_for_its_own_size_alone() -> None:
    """Its lease is over, and two that wait win a half each: at every look until it is gone, so that no size changes."""
    runs = {**ELASTIC, "state": "RUNNING", "start_s": 0.0, "executed_s": 100.0}
    policy, given = Themis(fairness=0.0, elastic=True, lease_s=100.0), snapshot([runs, ELASTIC, ELASTIC], "1x8")
    carry = {}
    for now_s in (100.0, 110.0, 120.0, 230.0):
        ranked = policy.rank(replace(given, now_s=now_s, carry=carry))
        carry = ranked.carry
        assert given.jobs.job_id[ranked.order].tolist() == [2, 3, 1]
        assert ranked.changes.gpus.tolist() == [0, 4, 4]  # type: ignore[union-attr]
        assert ranked.carry["until_s"][0] == 100.0
    alone = policy.rank(replace(given, jobs=given.jobs.take(np.array([0])), now_s=100.0))
    assert (alone.changes, alone.carry["until_s"][0]) == (None, 200.0)


def test_themis__a_bid_for_all_gains_as_much_as_its_page_tells() -> None:
    """An hour left, 20 minutes of lease, just come: log(1 + 1200 / 3600) at all GPUs; at none of them nothing."""
    policy, times = Themis(), FinishTimes(np.zeros(2), np.array([3_600.0, 600.0]), np.ones(2))
    gains = policy._gains(times, np.array([0, 1]), np.array([[1.0, 0.5, 0.0]] * 2))
    assert gains[0] == pytest.approx([np.log(4 / 3), np.log(4_800 / 4_200), 0.0])
    assert gains[1] == pytest.approx([np.log(1_800 / 600), np.log(1_800 / 1_200), 0.0])


def test_themis__random_leftovers_change_with_the_lease_only() -> None:
    """One of 40 bids and wins; the others follow by chance: the same within a lease, in whatever order of rows, and
    when jobs come or go."""
    given = snapshot([{"gpus": 1, "submit_s": float(n), "comment": "slurmsched: dur=1h"} for n in range(40)], "1x8",
                     now_s=1_200.0)  # fmt: skip
    policy = Themis(fairness=0.99, leftovers="random")
    kept = policy.rank(given).carry
    first, soon, later = (ids(policy, replace(given, now_s=at_s, carry=kept)) for at_s in (1_200.0, 1_260.0, 2_400.0))
    by_rho = ids(Themis(fairness=0.99), given)
    assert (first == soon, first == later, first == by_rho) == (True, False, False)
    assert first[0] == by_rho[0] == 1
    assert policy.next_change_s(given, policy.rank(given), np.zeros(40, np.bool_)) == 2_400.0
    backwards = replace(given, jobs=given.jobs.take(np.arange(40)[::-1]))
    assert ids(policy, backwards) == first
    fewer = replace(given, jobs=given.jobs.take(np.delete(np.arange(40), [1, 7])))
    assert ids(policy, fewer) == [job for job in first if job not in (2, 8)]
    more = snapshot([{"gpus": 1, "submit_s": float(n), "comment": "slurmsched: dur=1h"} for n in range(41)], "1x8",
                    now_s=1_200.0)  # fmt: skip
    assert [job for job in ids(policy, more) if job != 41] == first
    with pytest.raises(ConfigError, match="lease_s above 0"):
        Themis(leftovers="random", lease_s=0.0)


SEARCH = [{"gpus": 2, "user": "ann", "name": f"lr_{n}", "comment": "slurmsched: dur=1h"} for n in range(1, 5)]
BOBS = {"gpus": 4, "user": "bob", "name": "train", "comment": "slurmsched: dur=1h"}


def test_themis__a_search_is_one_app_as_the_page_tells() -> None:
    """Four jobs of ann and one of bob, an hour after they came: by jobs ann's are worse off, by apps bob's. Both bid,
    bob for his job and ann for some of hers, and two of hers win with his."""
    given = snapshot([*SEARCH, BOBS], "1x8", now_s=3_600.0)
    by_job = Themis(variant="sort").rank(given)
    assert by_job.why["rho"].round(2).tolist() == [1.6] * 4 + [0.8]
    policy = Themis(variant="sort", apps="name")
    assert policy.rank(given).why["rho"].round(2).tolist() == [1.0] * 4 + [2.0]
    assert ids(policy, given) == [5, 1, 2, 3, 4]
    auctioned = Themis(fairness=0.0, apps="name").rank(given)
    assert auctioned.why["urgency"].tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert given.jobs.job_id[auctioned.order].tolist() == [5, 1, 2, 3, 4]


def test_themis__an_app_remembers_its_jobs_that_ended() -> None:
    """Half of ann's search has run for its hour, a fair half of the cluster: when those are gone rho is still 1."""
    policy = Themis(variant="sort", apps="name")
    first = policy.rank(snapshot([*SEARCH, BOBS], "1x8"))
    ran = [{**row, "job_id": n, "executed_s": 3_600.0 * (n < 3)} for n, row in enumerate([*SEARCH, BOBS], 1)]
    hour = policy.rank(snapshot(ran, "1x8", now_s=3_600.0, carry=first.carry))
    left = policy.rank(snapshot(ran[2:], "1x8", now_s=3_601.0, carry=hour.carry))
    assert left.why["rho"].round(2).tolist() == [1.0, 1.0, 2.0]
    assert policy.rank(snapshot(ran[2:], "1x8", now_s=3_601.0)).why["rho"].round(2).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("state", ["SUSPENDED", "PENDING,COMPLETING"])
def test_themis__an_app_remembers_while_no_job_of_it_contends(state: str) -> None:
    """A job that ran an hour is suspended, or requeued and still ending: its work counts thereafter too."""
    policy, carry = Themis(variant="sort", apps="name"), {}
    row = {**SEARCH[0], "executed_s": 3_600.0, "start_s": 0.0, "comment": "slurmsched: dur=2h"}
    for now_s, each in ((3_600.0, "RUNNING"), (3_660.0, state), (3_660.0, "PENDING")):
        ranking = policy.rank(snapshot([{**row, "state": each}, BOBS], "1x8", now_s=now_s, carry=carry))
        carry = ranking.carry
    assert ranking.why["rho"][0] == pytest.approx((3_660.0 + 3_600.0) / (3_600.0 + 3_600.0))


def test_themis__what_an_app_holds_counts_in_its_bids() -> None:
    """Ann's first two jobs are in their lease: the other two gain as much as from half to whole speed; bob's more."""
    runs = [{**row, "state": "RUNNING", "start_s": 3_000.0} for row in SEARCH[:2]]
    given = snapshot([*runs, *SEARCH[2:], BOBS], "1x8", now_s=3_600.0)
    ranked = Themis(fairness=0.0, apps="name").rank(given)
    assert (ranked.why["in_lease"].tolist(), ranked.why["urgency"].tolist()) == (
        [True, True, False, False, False], [1.0, 1.0, 1.0, 1.0, 0.0]
    )  # fmt: skip


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
    found = stride_order(np.array([0, 0, 0, 1]), np.arange(4), np.array([0.0, 2.0]), np.ones(4))
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


MIXED = [
    {"name": "n1", "gpus": 4, "gpu_types": "gpu:v100:4"}, {"name": "n2", "gpus": 8, "gpu_types": "gpu:k80:8"},
    {"name": "n3", "gpus": 0, "gpu_types": ""},
]  # fmt: skip
TRADERS = [{"gpus": 4, "account": account, "comment": f"slurmsched: model={account}"} for account in "aabbcc"]


@pytest.fixture
def table(tmp_path: Path) -> Throughputs:
    """Gains from a V100 over a K80: 5, 3 and 1.25 of the models a, b and c."""
    steps = {"a": (5.0, 1.0), "b": (3.0, 1.0), "c": (5.0, 4.0)}
    rows = [f"{model},0,4,{kind},{step}" for model, two in steps.items()
            for kind, step in zip(("v100", "k80"), two, strict=True)]  # fmt: skip
    (tmp_path / "speeds.csv").write_text("\n".join(["model,batch,gpus,gpu_type,steps_per_s", *rows]))
    return Throughputs(table=str(tmp_path / "speeds.csv"))


def test_gandiva_fair__trades_as_its_page_tells(table: Throughputs) -> None:
    """Tickets after the deals and throughput before and after, in the page's table."""
    given = snapshot(TRADERS, MIXED)
    here = heterogeneous_cluster(given, table)
    account = np.array([0, 0, 1, 1, 2, 2])
    before = fair_tickets(here, account, np.ones(3))
    after, _ = trade_tickets(before, here, account)
    have, had = ((tickets * here.speed).sum(axis=1) for tickets in (after, before))
    rows = [(f"{row[2]:.2f}", f"{row[1]:.2f}", f"{now:.2f} from {then:.2f}")
            for row, now, then in zip(after, have, had, strict=True)]  # fmt: skip
    page = (Path(__file__).parents[3] / "docs" / "policies" / "gandiva-fair.md").read_text(encoding="utf-8")
    block = page[page.index("| job |") :].partition("\n\n")[0].splitlines()[2:]
    assert here.types == ("", "k80", "v100")
    assert rows == [tuple(cell.strip() for cell in line.strip("|").split("|")[3:]) for line in block]


def test_gandiva_fair__tells_the_trade_until_the_next(table: Throughputs) -> None:
    """One note, kept within trade_s; shares of time are tickets over GPUs; a round later it still stands."""
    policy, given = GandivaFair(quantum_s=60.0, speeds=table), snapshot(TRADERS, MIXED)
    first = policy.rank(given)
    later = policy.rank(replace(given, now_s=given.now_s + 60.0, carry=json.loads(json.dumps(dict(first.carry)))))
    told = "traded 1.3 v100 for 3.2 k80 GPUs: each has 1.12 to 1.36 times as much"
    assert (first.notes, later.notes) == ((told,), (told,))
    share = first.changes.share  # type: ignore[union-attr]
    assert share.round(3).tolist() == [0.278, 0.278, 0.472, 0.5, 0.639, 0.833]


def test_gandiva_fair__of_equal_gains_the_first_trades_first(table: Throughputs) -> None:
    """In whatever order of rows: jobs 5 and 6 gain alike, and 6 sells all."""
    given = snapshot(TRADERS, MIXED)
    rows = np.array([3, 5, 1, 0, 4, 2])
    wants = (
        GandivaFair(quantum_s=60.0, speeds=table).rank(each).changes
        for each in (given, replace(given, jobs=given.jobs.take(rows)))
    )
    straight, shuffled = (want.share for want in wants)  # type: ignore[union-attr]
    assert shuffled.tolist() == pytest.approx(straight[rows].tolist())


def test_gandiva_fair__without_trades_each_has_its_part_of_every_type(table: Throughputs) -> None:
    """A sixth of all 12 GPUs each, half of the time; no note."""
    ranked = GandivaFair(quantum_s=60.0, speeds=table, trade=False).rank(snapshot(TRADERS, MIXED))
    assert (ranked.notes, ranked.changes.share.tolist()) == ((), pytest.approx([0.5] * 6))  # type: ignore[union-attr]


def test_gandiva_fair__rounds_give_the_tickets_after_the_trade(table: Throughputs) -> None:
    """Of 100 quanta each job has on each type as many as the page's tickets over its 4 GPUs say, give or take four."""
    policy, given = GandivaFair(quantum_s=60.0, speeds=table), snapshot(TRADERS, MIXED)
    had = {kind: np.zeros(6) for kind in ("v100", "k80", "")}
    for _ in range(100):
        ranked = policy.rank(given)
        on = list(ranked.changes.gpu_type)  # type: ignore[union-attr]
        for job, kind in enumerate(on):
            had[kind][job] += 1
        ran_s = given.jobs.executed_s + np.array([60.0 * bool(kind) for kind in on])
        given = replace(
            given, jobs=given.jobs.with_columns(executed_s=ran_s), now_s=given.now_s + 60.0, carry=ranked.carry
        )
    assert had["v100"] == pytest.approx(np.array([1.11, 1.11, 1.11, 0.67, 0.0, 0.0]) * 25, abs=4)
    assert had["k80"] == pytest.approx(np.array([0.0, 0.0, 0.78, 1.33, 2.56, 3.33]) * 25, abs=4)


def test_gandiva_fair__a_lone_job_is_on_the_fastest_type(table: Throughputs) -> None:
    """No other: no trade, all of its time on the V100; an empty cluster and one without jobs are fine."""
    alone = GandivaFair(quantum_s=60.0, speeds=table).rank(snapshot(TRADERS[:1], MIXED))
    assert (list(alone.changes.gpu_type), alone.changes.share.tolist()) == (["v100"], [1.0])  # type: ignore[union-attr]
    assert alone.notes[0].startswith("no trade")
    assert GandivaFair(quantum_s=60.0, speeds=table).rank(snapshot([], MIXED)).order.tolist() == []


def test_traded__one_account_trades_between_its_jobs(table: Throughputs) -> None:
    """Where all jobs are of one account, each trades for itself."""
    rows = [row | {"account": "x"} for row in TRADERS]
    assert GandivaFair(quantum_s=60.0, speeds=table).rank(snapshot(rows, MIXED)).notes[0].startswith("traded")


def test_gandiva_fair__ends_a_round_of_trades(table: Throughputs) -> None:
    """The next change is the end of the quantum while somebody runs."""
    policy, given = GandivaFair(quantum_s=60.0, speeds=table), snapshot(TRADERS, MIXED, now_s=100.0)
    ranked = policy.rank(given)
    assert policy.next_change_s(given, ranked, np.ones(6, np.bool_)) == 160.0
    assert policy.next_change_s(given, ranked, np.zeros(6, np.bool_)) == np.inf


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.0, 0), (1e-9, 1), (0.1, 1), (0.5, 2), (0.99, 3), (1.0, 3), (1.5, 4), (4.0, 5), (1e9, 5)]
)
def test_astraea__levels_are_those_of_the_released_code(ratio: float, level: int) -> None:
    """Level 0 is for jobs that had nothing; a ratio of 1 is in the middle of the others."""
    assert level_of(np.array([ratio]), 5).tolist() == [level]


def test_astraea__a_tenant_below_a_fifth_of_its_quota_goes_first() -> None:
    """Account a got more than it deserved and holds nothing, b less and holds half of its quota: a goes first, until
    it has a fifth."""
    rows = [{"account": "b", "state": "RUNNING", "start_s": 0.0, "gpus": 2}, {"account": "b", "gpus": 1},
            {"account": "a", "gpus": 1}, {"account": "a", "gpus": 1}]  # fmt: skip
    book = {"at_s": 60.0, "rows": {"a": [9_000.0, 1_000.0, 0.0, 0.0], "b": [100.0, 1_000.0, 0.0, 0.0]}}
    given = snapshot(rows, "1x8", now_s=60.0, carry={"tenants": book},
                     allocations=[{"job_id": 1, "node": "n1", "gpus": 2, "gpu_mask": 3}])  # fmt: skip
    ranking = Astraea().rank(given)
    assert (ids(Astraea(), given), ranking.why["below_quota"].tolist()) == ([1, 3, 2, 4], [False, False, True, False])


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
    assert ranking.changes.gpus.tolist() == [2] * 6


def test_dorm__fair_sizes_are_by_weight() -> None:
    """Of six on 14 GPUs the one that weighs double has 4, the others 2."""
    hint = "slurmsched: min_gpus=1 max_gpus=4"
    rows = [{"gpus": 2, "qos": qos, "comment": hint} for qos in ("", "", "", "high", "", "")]
    ranking = Dorm(theta1=0.0, weights=("qos:high=2",)).rank(snapshot(rows, "1x14"))
    assert ranking.changes.gpus.tolist() == [2, 2, 2, 4, 2, 2]


def test_dorm__changes_no_more_running_jobs_than_told() -> None:
    """theta2 0: running jobs keep their sizes, whatever would be fair."""
    hint = {"comment": "slurmsched: min_gpus=1 max_gpus=8"}
    rows = [{"gpus": 7, "state": "RUNNING", "start_s": 0.0, **hint}, {"gpus": 4, **hint}]
    assert Dorm(theta1=0.0, theta2=0.0).rank(snapshot(rows, "1x8", now_s=9.0)).why["given_gpus"].tolist() == [7, 1]


def test_dorm__rigid_jobs_have_all_or_nothing() -> None:
    """Without hints a gang is whole, and no size is wanted."""
    ranking = Dorm(theta1=1.0).rank(snapshot([{"gpus": 5}, {"gpus": 4}, {"gpus": 4}], "1x8"))
    assert (ranking.why["given_gpus"].tolist(), ranking.changes) == ([0, 4, 4], None)


@pytest.mark.parametrize(
    "policy",
    [Themis(variant="sort"), Themis(variant="minmax"), Themis(elastic=True, leftovers="random", fairness=0.0),
     Themis(apps="name", fairness=0.0), Themis(apps="name", variant="sort")],
    ids=["sort", "minmax", "elastic", "apps", "apps, sort"],
)  # fmt: skip
def test_themis__variants_conform(policy: Themis) -> None:
    """Every rule of check_policy."""
    assert check_policy(policy) is None


@pytest.mark.parametrize(
    ("make", "key"),
    [(lambda: Themis(variant="x"), "policy.variant"), (lambda: Themis(fairness=1.0), "policy.fairness"),
     (lambda: Themis(leftovers="x"), "policy.leftovers"), (lambda: Themis(serial=1.5), "policy.serial"),
     (lambda: Themis(elastic=1.5), "policy.elastic"), (lambda: Themis(apps="user"), "policy.apps"),
     (lambda: Themis(speeds=Throughputs("gavel")), "policy.speeds"),
     (lambda: Themis(apps="name", elastic=True), "policy.apps"),
     (lambda: Themis(apps="name", variant="minmax"), "policy.apps"),
     (lambda: GandivaFair(quantum_s=-1.0), "policy.quantum_s"),
     (lambda: GandivaFair(trade_s=-1.0), "policy.trade_s"), (lambda: GandivaFair(trade=2), "policy.trade"),
     (lambda: Astraea(levels=0), "policy.levels"),
     (lambda: Dorm(most_jobs=0), "policy.most_jobs"), (lambda: Dorm(weights=("high=2",)), "policy.weights")],
)  # fmt: skip
def test_parameters__out_of_range_name_the_setting(make, key: str) -> None:
    """A ConfigError that names the setting."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
