"""What papers prove of fairness, on clusters and jobs made at random; each law where its paper has it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.allocation.finish_time import auction
from slurmsched.allocation.fisher_market import RoundBuyers, RoundOffer, buy_rounds
from slurmsched.allocation.heterogeneity import HeterogeneousCluster
from slurmsched.allocation.programmes import (
    PRECISION,
    AllocationProblem,
    finish_time_fairness,
    isolated,
    least_rho_of,
    max_weighted_sum,
    raise_least,
    throughput_weight,
)
from slurmsched.allocation.solver import water_fill
from slurmsched.allocation.tenants import fair_tickets, stride_order, trade_tickets
from slurmsched.allocation.water_filling import AccountWeights, max_min, water_filled
from slurmsched.policies.dorm import Dorm
from slurmsched.policies.themis import Themis
from slurmsched.testing import snapshot


@st.composite
def auctions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Tables of up to three bids each, and GPUs offered; a gain of 0 is no bid."""
    bids = draw(st.integers(1, 3))
    bidders = draw(st.integers(1, 5))
    cells = bids * bidders
    gains = draw(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 3.0)), min_size=cells, max_size=cells))
    gpus = draw(st.lists(st.integers(1, 8), min_size=cells, max_size=cells))
    shape = bidders, bids
    return np.array(gains).reshape(shape), np.array(gpus, np.int64).reshape(shape), draw(st.integers(1, 16))


def _worth(gains: np.ndarray, gpus: np.ndarray, offered: int, bids: tuple[int, ...]) -> float:
    """Sum of gains of these bids, -1 = none; below 0 where they do not fit."""
    chosen = [(row, bid) for row, bid in enumerate(bids) if bid >= 0]
    return sum(gains[each] for each in chosen) if sum(gpus[each] for each in chosen) <= offered else -1.0


@settings(deadline=None, max_examples=80)
@given(sale=auctions())
def test_auction__no_choice_of_bids_has_a_larger_product(sale: tuple[np.ndarray, np.ndarray, int]) -> None:
    """Pareto efficiency: the winners fit, and of all choices that fit theirs is best."""
    gains, gpus, offered = sale
    wins, part = auction(gains, gpus, offered)
    every = itertools.product(range(-1, gains.shape[1]), repeat=len(gains))
    best = max(_worth(gains, gpus, offered, each) for each in every)
    assert _worth(gains, gpus, offered, tuple(wins.tolist())) == pytest.approx(best)
    assert ((part > 0) & (part <= 1)).all() and (part[wins < 0] == 1).all()


@settings(deadline=None, max_examples=120)
@given(
    sale=auctions(), liar=st.integers(0, 5),
    lies=st.lists(st.floats(0.01, 6.0), min_size=3, max_size=3),
)  # fmt: skip
def test_auction__nobody_gains_by_a_lie(sale: tuple[np.ndarray, np.ndarray, int], liar: int, lies: list[float]) -> None:
    """Strategy-proof, as the partial allocation mechanism is: what a bidder has, less its hidden payment, is never more
    when it reports another table."""
    gains, gpus, offered = sale
    who = liar % len(gains)

    def worth(reported: np.ndarray) -> float:
        wins, part = auction(reported, gpus, offered)
        return float((gains[who, wins[who]] if wins[who] >= 0 else 0.0) + np.log(part[who]))

    told = gains.copy()
    told[who] = lies[: gains.shape[1]]
    assert worth(told) <= worth(gains) + 1e-9


@settings(deadline=None, max_examples=30)
@given(jobs=st.lists(st.tuples(st.integers(1, 8), st.integers(600, 90_000)), min_size=1, max_size=10))
def test_themis__nobody_new_is_worse_off_than_on_its_own_part(jobs: list[tuple[int, int]]) -> None:
    """Sharing incentive: shares that make the largest rho least give all that have just come a rho of at most 1."""
    rows = [{"gpus": gpus, "comment": f"slurmsched: dur={run_s}s"} for gpus, run_s in jobs]
    ranking = Themis(variant="minmax").rank(snapshot(rows, "2x8"))
    assert ranking.changes is not None and ranking.changes.share is not None
    gpus, run_s = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    alone_s = run_s * np.maximum(1.0, gpus * len(jobs) / 16)
    assert (run_s / ranking.changes.share <= alone_s * (1 + 1e-3)).all()


@settings(deadline=None, max_examples=30)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 8), st.integers(600, 90_000), st.integers(0, 9_000)), min_size=1,
                  max_size=8),
    variant=st.sampled_from(["sort", "auction"]),
)  # fmt: skip
def test_themis__apps_of_one_job_are_as_jobs(jobs: list[tuple[int, int, int]], variant: str) -> None:
    """Where no two names are alike, apps change nothing, now and at the next look."""
    rows = [
        {"gpus": gpus, "name": "abcdefgh"[n], "submit_s": submit_s, "comment": f"slurmsched: dur={run_s}s"}
        for n, (gpus, run_s, submit_s) in enumerate(jobs)
    ]
    by_job, by_app = (Themis(variant=variant, fairness=0.4, apps=apps) for apps in ("job", "name"))
    carries: list[dict[str, object]] = [{}, {}]
    for now_s, ran_s in ((9_000.0, 0.0), (9_600.0, 500.0)):
        given = [snapshot([{**row, "executed_s": ran_s} for row in rows], "2x8", now_s=now_s, carry=carry)
                 for carry in carries]  # fmt: skip
        one, other = (policy.rank(each) for policy, each in zip((by_job, by_app), given, strict=True))
        assert one.why["rho"] == pytest.approx(other.why["rho"])
        assert one.why["urgency"] == pytest.approx(other.why["urgency"])
        carries = [dict(one.carry), dict(other.carry)]


@st.composite
def problems(draw: st.DrawFn) -> AllocationProblem:
    """Jobs that have just come, of one GPU, on two GPU types."""
    jobs = draw(st.integers(1, 6))
    speed = np.array(draw(st.lists(st.floats(0.1, 4.0), min_size=2 * jobs, max_size=2 * jobs))).reshape(jobs, 2)
    capacity = np.array(draw(st.lists(st.integers(1, 4), min_size=2, max_size=2)), np.float64)
    remaining_s = np.array(draw(st.lists(st.floats(100.0, 9_000.0), min_size=jobs, max_size=jobs)))
    return AllocationProblem(capacity, np.ones(jobs), speed, remaining_s, np.zeros(jobs), np.ones(jobs))


@settings(deadline=None, max_examples=30)
@given(problem=problems())
def test_finish_time_fairness__nobody_new_ends_later_than_alone(problem: AllocationProblem) -> None:
    """Sharing incentive, with several GPU types: what each would have on its own part is one of the choices."""
    speed = (finish_time_fairness(problem) * problem.speed).sum(axis=1)
    alone = (isolated(problem) * problem.speed).sum(axis=1)
    assert (speed >= alone * (1 - 1e-2)).all()


@settings(deadline=None, max_examples=40)
@given(problem=problems(), waited=st.lists(st.floats(0.0, 30_000.0), min_size=6, max_size=6))
def test_least_rho_of__is_as_low_as_by_bisection(problem: AllocationProblem, waited: list[float]) -> None:
    """The same rho, to the precision that both have, for jobs that waited too."""
    problem = replace(problem, elapsed_s=np.array(waited[: len(problem.gpus)]))

    def rho(share: np.ndarray) -> float:
        made, alone = ((each * problem.speed).sum(axis=1) for each in (share, isolated(problem)))
        elapsed_s = problem.elapsed_s
        return float(np.max((elapsed_s + problem.remaining_s / made) / (elapsed_s + problem.remaining_s / alone)))

    found = least_rho_of(
        problem, lambda worth: raise_least(problem, problem.speed * worth[:, None]),
        lambda share: (share * problem.speed).sum(axis=1),
    )  # fmt: skip
    assert rho(found) == pytest.approx(rho(finish_time_fairness(problem)), rel=2 * PRECISION)


@settings(deadline=None, max_examples=30)
@given(problem=problems())
def test_max_min__nobody_can_be_better_off_without_another_being_worse(problem: AllocationProblem) -> None:
    """Pareto efficiency: where nobody may have less, nobody's speed can be raised, the others' least being theirs."""
    have = (max_min(problem) * problem.speed).sum(axis=1)
    for one in range(len(have)):
        others = problem.speed / have[:, None]
        more = others.copy()
        more[one] /= 1 + 1e-2
        _, level = raise_least(problem, more)
        assert level <= 1 + 1e-4


@st.composite
def families(draw: st.DrawFn, types: int) -> tuple[AllocationProblem, AccountWeights]:
    """Jobs of one to four GPUs, of up to three accounts, some of which serve theirs in turn."""
    jobs, accounts = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    speed = draw(st.lists(st.floats(0.1, 4.0), min_size=types * jobs, max_size=types * jobs)) if types > 1 else 1.0
    row = {"min_size": jobs, "max_size": jobs}
    problem = AllocationProblem(
        np.array(draw(st.lists(st.integers(1, 6), min_size=types, max_size=types)), np.float64),
        np.array(draw(st.lists(st.sampled_from([1.0, 2.0, 4.0]), **row))),
        np.broadcast_to(speed, (jobs * types,)).reshape(jobs, types), np.ones(jobs), np.zeros(jobs),
        np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), **row))),
        account=np.array(draw(st.lists(st.integers(0, accounts - 1), **row)), np.int64),
    )  # fmt: skip
    weight = draw(st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=accounts, max_size=accounts))
    in_turn = draw(st.lists(st.booleans(), min_size=accounts, max_size=accounts))
    return problem, AccountWeights(np.array(weight), np.array(in_turn, np.bool_))


@settings(deadline=None, max_examples=80)
@given(family=families(1))
def test_water_filled__on_one_type_is_water_filling_within_water_filling(
    family: tuple[AllocationProblem, AccountWeights],
) -> None:
    """What each account has is its weighted max-min share, and what each of its jobs has that of this; in turn the
    first have all that they can use."""
    problem, accounts = family
    gpus, account = problem.gpus, problem.account
    told = np.zeros(len(gpus))
    own = water_fill(np.bincount(account, gpus, len(accounts.weight)), accounts.weight, float(problem.capacity[0]))
    for one, have in enumerate(own.tolist()):
        rows = np.flatnonzero(account == one)
        told[rows] = water_fill(gpus[rows], problem.weight[rows], have)
        for row in rows.tolist() if accounts.in_turn[one] else ():
            told[row] = min(float(gpus[row]), have)
            have -= told[row]
    assert water_filled(problem, accounts)[:, 0] * gpus == pytest.approx(told, abs=1e-4)


@settings(deadline=None, max_examples=40)
@given(family=families(2))
def test_water_filled__more_for_one_is_less_for_another_who_has_no_more(
    family: tuple[AllocationProblem, AccountWeights],
) -> None:
    """The law of max-min fairness, on several GPU types, of jobs that weigh alike: raising one's level takes from who
    has no higher one."""
    problem = replace(family[0], weight=np.ones(len(family[0].gpus)))
    gain = problem.speed * throughput_weight(problem)[:, None]
    level = (max_min(problem) * gain).sum(axis=1)
    for one in range(len(level)):
        floor = np.where(level <= level[one] * (1 + 1e-3), level, 0.0) * (1 - 1e-6)
        floor[one] = 0.0
        most = (max_weighted_sum(problem, gain, floor, np.arange(len(level)) == one) * gain).sum(axis=1)[one]
        assert most <= level[one] * (1 + 1e-2)


@settings(deadline=None, max_examples=60)
@given(
    demand=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=8), capacity=st.floats(0.5, 100.0),
    liar=st.integers(0, 7), lie=st.floats(0.0, 120.0),
)  # fmt: skip
def test_water_fill__nobody_gains_by_a_lie(demand: list[float], capacity: float, liar: int, lie: float) -> None:
    """Strategy-proof: nobody can use more than the demand, and asking for more or less gives no more of that."""
    asked, who = np.array(demand), liar % len(demand)
    told = asked.copy()
    told[who] = lie
    honest, lied = (water_fill(each, np.ones(len(asked)), capacity)[who] for each in (asked, told))
    assert min(lied, asked[who]) <= honest + 1e-9


@settings(deadline=None, max_examples=80)
@given(
    tickets=st.lists(st.floats(0.5, 4.0), min_size=2, max_size=4),
    gangs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), min_size=2, max_size=40),
)
def test_stride__service_by_ticket_stays_within_a_gang(tickets: list[float], gangs: list[tuple[int, int]]) -> None:
    """Of any two tenants that still have jobs, at no time has one had more per ticket than the other by more than its
    own largest gang."""
    tenant = np.array([each % len(tickets) for each, _ in gangs], np.int64)
    stride = np.array([gpus for _, gpus in gangs]) / np.array(tickets)[tenant]
    turn = stride_order(tenant, np.arange(len(gangs)), np.zeros(len(tickets)), stride)
    most = np.array([stride[tenant == each].max(initial=0.0) for each in range(len(tickets))])
    had, left = np.zeros(len(tickets)), np.bincount(tenant, minlength=len(tickets))
    for row in np.lexsort((np.arange(len(turn)), turn)).tolist():
        had[tenant[row]] += stride[row]
        left[tenant[row]] -= 1
        waits = np.flatnonzero(left > 0)
        assert all(had[a] - had[b] <= most[a] + 1e-9 for a in waits for b in waits)


@st.composite
def markets(draw: st.DrawFn) -> tuple[HeterogeneousCluster, np.ndarray]:
    """Jobs on up to three GPU types, some not on all of them, and whose each is."""
    jobs, types = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    speed = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.3, 4.0]), min_size=jobs * types,
                          max_size=jobs * types))  # fmt: skip
    gpus = np.array(draw(st.lists(st.integers(1, 8), min_size=jobs, max_size=jobs)), np.float64)
    capacity = np.array(draw(st.lists(st.integers(0, 12), min_size=types, max_size=types)), np.float64)
    table = np.array(speed).reshape(jobs, types)
    account = np.array(draw(st.lists(st.integers(0, 2), min_size=jobs, max_size=jobs)), np.int64)
    return HeterogeneousCluster(("a", "b", "c")[:types], capacity, gpus, table, (table > 0).any(axis=1)), account


@settings(deadline=None, max_examples=60)
@given(sale=markets(), shares=st.lists(st.floats(0.5, 4.0), min_size=3, max_size=3))
def test_tickets__are_all_that_there_is_and_no_more(
    sale: tuple[HeterogeneousCluster, np.ndarray], shares: list[float]
) -> None:
    """No type gives more than it has, and no job has more than it asks for or any of a type that it cannot run on.

    Where a job lacks GPUs, types that it could use are given out.
    """
    here, account = sale
    tickets = fair_tickets(here, account, np.array(shares))
    assert (tickets >= 0).all() and (tickets[here.speed == 0] == 0).all()
    assert (tickets.sum(axis=0) <= here.capacity + 1e-9).all()
    assert (tickets.sum(axis=1) <= here.gpus + 1e-9).all()
    full = tickets.sum(axis=0) >= here.capacity - 1e-9
    lacking = tickets.sum(axis=1) < here.gpus - 1e-6
    assert full[(here.speed[lacking] > 0).any(axis=0)].all()


@settings(deadline=None, max_examples=60)
@given(sale=markets(), shares=st.lists(st.floats(0.5, 4.0), min_size=3, max_size=3))
def test_trade__nobody_has_less_and_every_type_stays_given_out(
    sale: tuple[HeterogeneousCluster, np.ndarray], shares: list[float]
) -> None:
    """Sharing incentive, of each job and so of each account; what is sold is bought."""
    here, account = sale
    before = fair_tickets(here, account, np.array(shares))
    after, deals = trade_tickets(before, here, account)
    made, had = ((tickets * here.speed).sum(axis=1) for tickets in (after, before))
    assert (made >= had - 1e-9).all()
    assert after.sum(axis=0) == pytest.approx(before.sum(axis=0))
    assert (after >= 0).all() and (after.sum(axis=1) <= here.gpus + 1e-9).all()
    for deal in deals:
        sells, buys = (here.speed[row, deal.fast] / here.speed[row, deal.slow] for row in (deal.seller, deal.buyer))
        assert deal.gpus > 0 and sells <= deal.price <= buys


@settings(deadline=None, max_examples=60)
@given(sale=markets(), shares=st.lists(st.floats(0.5, 4.0), min_size=3, max_size=3))
def test_trade__a_deal_gives_some_job_more(sale: tuple[HeterogeneousCluster, np.ndarray], shares: list[float]) -> None:
    """No deal is for nothing: after any somebody has more, and without a difference in gains there is none."""
    here, account = sale
    before = fair_tickets(here, account, np.array(shares))
    after, deals = trade_tickets(before, here, account)
    gain = ((after - before) * here.speed).sum()
    assert gain > 0 or not [deal for deal in deals if deal.gpus > 1e-9]
    alike = replace(here, speed=(here.speed > 0).astype(np.float64))
    assert trade_tickets(before, alike, account)[1] == []


@settings(deadline=None, max_examples=30)
@given(
    holds=st.lists(st.integers(1, 4), max_size=4), waits=st.lists(st.integers(1, 8), max_size=5),
    theta2=st.sampled_from([0.0, 0.3, 1.0]),
)  # fmt: skip
def test_dorm__keeps_to_sizes_capacity_and_changes(holds: list[int], waits: list[int], theta2: float) -> None:
    """Every job has nothing or a size that it may have, no more is given than there is, and no more running jobs are
    changed than theta2 allows."""
    elastic = "slurmsched: min_gpus=1 max_gpus=6"
    rows = [{"gpus": gpus, "comment": elastic, "state": "RUNNING", "start_s": 0.0} for gpus in holds]
    rows += [{"gpus": gpus, "comment": elastic if gpus % 2 else ""} for gpus in waits]
    held = [
        {"job_id": number, "node": f"n{1 + (number - 1) // 2}", "gpus": gpus} for number, gpus in enumerate(holds, 1)
    ]
    ranking = Dorm(theta2=theta2).rank(snapshot(rows, "2x8", now_s=10.0, allocations=held))
    given_gpus, asked = ranking.why["given_gpus"], np.array([row["gpus"] for row in rows], np.int64)
    may = np.array([bool(row["comment"]) for row in rows], np.bool_)
    assert int(given_gpus.sum()) <= 16
    assert (~may | (given_gpus <= 6)).all()
    assert (may | (given_gpus == 0) | (given_gpus == asked)).all()
    changed = given_gpus[: len(holds)] != asked[: len(holds)]
    assert int(changed.sum()) <= int(np.ceil(theta2 * len(holds)))


@settings(deadline=None, max_examples=30)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 4), st.floats(0.0, 0.9), st.floats(60.0, 2_000.0), st.floats(1.0, 12.0)),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_shockwave__ends_in_time_whom_it_can(jobs: list[tuple[int, float, float, float]]) -> None:
    """Sharing incentive: where rounds can be bought so that nobody ends later than with a fair share, they are."""
    gpus, done, whole_s, slack = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    offer = RoundOffer(rounds=6, gpus=4.0, round_s=120.0, now_s=0.0, k=1e-3, power=12.0, rho_max=1.0)
    remaining_s = whole_s * (1 - done)
    share = min(1.0, offer.gpus / len(jobs))
    fair_s = 720.0 + remaining_s * slack
    rounds, _ = buy_rounds(
        RoundBuyers(gpus.astype(np.int64), done, remaining_s, whole_s, fair_s, np.zeros(len(jobs))), offer
    )
    assert (rounds >= 0).all() and (rounds <= 6).all() and float(gpus @ rounds) <= 24
    need = np.ceil(np.maximum(remaining_s - (fair_s - 720.0) * share - 1e-6, 0.0) / 120.0)
    if (need <= 6).all() and float(gpus @ need) <= 24:
        assert (rounds >= need).all()
