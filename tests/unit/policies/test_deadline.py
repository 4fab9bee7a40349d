"""genie, chronus, elasticflow, oasis and aonline: six jobs each by hand as on their pages, and what they keep to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.allocation import leases
from slurmsched.allocation.elastic import amdahl, least_share_in_time, sizes_of, timetable
from slurmsched.allocation.leases import LeaseDemand
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Labels, Snapshot
from slurmsched.policies.aonline import AOnline
from slurmsched.policies.chronus import Chronus
from slurmsched.policies.elasticflow import ElasticFlow
from slurmsched.policies.genie import Genie
from slurmsched.policies.oasis import Oasis
from slurmsched.policies.themis import Themis
from slurmsched.testing import check_policy, mixed_snapshot, snapshot

HOUR = 3_600.0
FAMILY = (Genie(), Chronus(), Chronus(packing="greedy"), ElasticFlow(), Oasis(), Oasis(fill=False), AOnline(),
          AOnline(fill=False))  # fmt: skip


def told(*jobs: tuple[int, str], nodes: str = "1x8", **others: Any) -> Snapshot:
    """Jobs of (GPUs, hints), all submitted at 0."""
    return snapshot([{"gpus": gpus, "comment": f"slurmsched: {hints}"} for gpus, hints in jobs], nodes, **others)


def ids(policy: Any, given: Snapshot) -> list[int]:
    return given.jobs.job_id[policy.rank(given).order].tolist()


GENIE_SIX = ("dur=1h deadline=+4h", "dur=2h deadline=+3h", "dur=3h deadline=+2h", "dur=2h", "dur=30m deadline=+1h",
             "dur=1h")  # fmt: skip


def test_genie__six_jobs_by_hand() -> None:
    """Allowances 3 h, 1 h, -1 h, none, 0.5 h, none: 5, 2, 1, then by attained service those that cannot be in time."""
    given = snapshot([{"comment": f"slurmsched: {hints}", "executed_s": HOUR * (row == 3)}
                      for row, hints in enumerate(GENIE_SIX)])  # fmt: skip
    ranking = Genie().rank(given)
    assert (ranking.why["allowance_s"] / HOUR).tolist() == [3.0, 1.0, -1.0, np.inf, 0.5, np.inf]
    assert ids(Genie(), given) == [5, 2, 1, 3, 6, 4]
    assert ranking.notes == ("2 of 6 jobs have no deadline: best effort", "1 job cannot meet the deadline any more")


def test_genie__looks_again_when_an_allowance_is_used_up() -> None:
    """The job that waits with 0.5 h to spare loses its place a moment after that."""
    given = told((1, GENIE_SIX[0]), (1, GENIE_SIX[4]))
    assert Genie().next_change_s(given, Genie().rank(given), np.array([False, False])) == 1_801.0


def test_genie__waits_for_the_type_on_which_it_is_faster() -> None:
    """A model that a table knows to be faster on the V100 waits for that, with the allowance that it leaves."""
    nodes = [{"name": "n1", "gpus": 1, "gpu_types": "gpu:k80:1"}, {"name": "n2", "gpus": 1, "gpu_types": "gpu:v100:1"}]
    hints = "slurmsched: model=ResNet-50 batch=32 dur=2h deadline=+3h"
    given = snapshot([{"comment": hints}], nodes)
    policy = Genie(speeds=Throughputs(table="gavel", reference="k80"))
    ranking = policy.rank(given)
    assert ranking.changes is not None and list(ranking.changes.gpu_type or ()) == ["v100"]
    assert ranking.why["allowance_s"][0] > HOUR


FAST_AND_SLOW = [
    {"name": "n1", "gpus": 1, "gpu_types": "gpu:v100:1"},
    {"name": "n2", "gpus": 4, "gpu_types": "gpu:p100:4"},
]
RESNET = "slurmsched: model=ResNet-18 batch=128 dur=1h"  # 17.99 steps/s on a V100, 11.68 on a P100, 1.81 on a K80


@pytest.mark.parametrize(
    ("ran_s", "types"),
    [(None, ["v100", "p100", "p100"]), (0.0, ["p100", "p100", "p100"]), (1_800.0, ["v100", "p100", "p100"])],
)
def test_genie__waits_for_a_type_only_where_that_ends_sooner(ran_s: float | None, types: list[str]) -> None:
    """One V100 and four P100, an hour or 92 min each. Behind a job that still runs an hour there is nothing to gain
    by waiting; behind one that has half an hour left a job ends after 90 min; the third would end after 150."""
    rows = [{"job_id": n, "submit_s": 10.0 * n, "comment": RESNET} for n in (1, 2, 3)]
    held = []
    if ran_s is not None:
        rows.append({"job_id": 9, "state": "RUNNING", "start_s": 0.0, "executed_s": ran_s, "comment": RESNET})
        held = [{"job_id": 9, "node": "n1", "gpus": 1}]
    given = snapshot(rows, FAST_AND_SLOW, now_s=60.0, allocations=held)
    ranking = Genie(speeds=Throughputs("gavel")).rank(given)
    assert ranking.changes is not None and list(ranking.changes.gpu_type or ())[:3] == types


def test_genie__waits_for_a_fast_type_that_is_worth_it() -> None:
    """On a K80 the job would take ten times as long: it waits for the V100 behind one of an hour."""
    nodes = [FAST_AND_SLOW[0], {"name": "n2", "gpus": 4, "gpu_types": "gpu:k80:4"}]
    rows = [{"state": "RUNNING", "start_s": 0.0, "comment": RESNET}, {"comment": RESNET}]
    given = snapshot(rows, nodes, allocations=[{"job_id": 1, "node": "n1", "gpus": 1}])
    ranking = Genie(speeds=Throughputs("gavel")).rank(given)
    assert ranking.changes is not None and list(ranking.changes.gpu_type or ()) == ["", "v100"]


def test_genie__nobody_waits_for_gpus_that_others_hold_for_who_knows_how_long() -> None:
    """The V100 is held by a job without an expected run time, or by somebody whose job is not shown."""
    shown = snapshot([{"state": "RUNNING", "start_s": 0.0}, {"comment": RESNET}], FAST_AND_SLOW,
                     allocations=[{"job_id": 1, "node": "n1", "gpus": 1}])  # fmt: skip
    hidden = snapshot([{"comment": RESNET}], [{**FAST_AND_SLOW[0], "gpus_used": 1}, FAST_AND_SLOW[1]])
    for given in (shown, hidden):
        wants = Genie(speeds=Throughputs("gavel")).rank(given).changes
        assert wants is not None and list(wants.gpu_type or ())[-1] == "p100"


CHRONUS_SIX = ((8, "dur=2h deadline=+6h"), (8, "dur=1h deadline=+1h"), (8, "dur=4h deadline=+5h"), (8, "dur=3h"),
               (8, "dur=1h"), (8, "dur=3h deadline=+7h"))  # fmt: skip


def test_chronus__six_jobs_by_hand() -> None:
    """Leases of 1 h: 2 by 6, 1 by 1, 4 by 5 and 3 by 7 are ten in seven. At most three fit: jobs 1, 2 and 6."""
    ranking = Chronus(lease_s=HOUR).rank(told(*CHRONUS_SIX))
    assert ranking.why["group"].tolist() == [2, 0, 1, 1, 1, 2]
    assert (ranking.order + 1).tolist() == [2, 5, 4, 3, 1, 6]
    assert "1 of 4 deadlines is not promised: best effort" in ranking.notes


def test_chronus__greedy_goes_by_slack() -> None:
    """Slacks 4, 0, 1 and 4: jobs 2 and 3 are packed first and leave no room for the others."""
    ranking = Chronus(lease_s=HOUR, packing="greedy").rank(told(*CHRONUS_SIX))
    assert [1 + row for row, kept in enumerate(ranking.carry["admitted"]) if kept] == [2, 3]


def test_chronus__a_promise_is_kept_against_newcomers() -> None:
    """Two promised jobs fill four leases; two more that would fit in their place do not get it."""
    policy = Chronus(lease_s=HOUR)
    first = told((8, "dur=2h deadline=+4h"), (8, "dur=2h deadline=+4h"))
    more = told((8, "dur=2h deadline=+4h"), (8, "dur=2h deadline=+4h"), (8, "dur=1h deadline=+4h"),
                (8, "dur=1h deadline=+4h"), (8, "dur=1h deadline=+4h"), carry=policy.rank(first).carry)  # fmt: skip
    assert policy.rank(more).carry["admitted"] == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_chronus__a_plan_stands_for_its_lease() -> None:
    """Within a lease the plan is that of its begin; the next look is due at its end."""
    policy, given = Chronus(lease_s=HOUR), told(*CHRONUS_SIX)
    first = policy.rank(given)
    later = policy.rank(replace(given, now_s=HOUR / 2, carry=first.carry))
    assert later.carry["lease_plan"]["until_s"] == first.carry["lease_plan"]["until_s"] == HOUR
    assert policy.next_change_s(given, first, np.zeros(6, np.bool_)) == HOUR


def test_chronus__promised_jobs_take_gpus_from_best_effort_within_its_lease() -> None:
    """Job 1 holds all GPUs in a lease that ends at 20 min; job 2 must begin by then less 100 s, and goes first."""
    given = snapshot(
        [{"gpus": 8, "state": "RUNNING", "start_s": 0.0, "comment": "slurmsched: dur=10h"},
         {"gpus": 8, "submit_s": 600.0, "comment": "slurmsched: dur=20m deadline=+1300s"}],
        "1x8", now_s=600.0, allocations=[{"job_id": 1, "node": "n1", "gpus": 8, "gpu_mask": 255}],
    )  # fmt: skip
    ranking = Chronus().rank(given)
    assert given.jobs.job_id[ranking.order].tolist() == [2, 1]
    assert ranking.carry["lease_plan"]["times"] == {"2@600": [[600.0, 1_800.0]]}
    assert Chronus().next_change_s(given, ranking, np.array([False, True])) == 1_800.0


def test_chronus__short_jobs_are_promised_deadlines_within_a_lease() -> None:
    """47 s within 50 s are planned to the second, beside others of which some wait for their end."""
    given = told(*[(8, f"dur=47s deadline=+{50 + 47 * row}s") for row in range(4)], (8, "dur=47s deadline=+60s"))
    ranking = Chronus().rank(given)
    assert ranking.why["group"].tolist() == [0, 2, 2, 2, 1]
    assert ranking.notes == ("1 of 5 deadlines is not promised: best effort",)


def test_chronus__gangs_that_do_not_fit_beside_each_other_are_promised_one_after_the_other() -> None:
    """Two gangs of 5 GPUs, 15 leases each in 20: there are GPUs enough for both, but no two at a time of 8."""
    ranking = Chronus(lease_s=HOUR).rank(told((5, "dur=15h deadline=+20h"), (5, "dur=15h deadline=+20h")))
    assert ranking.why["group"].tolist() == [0, 1]


@pytest.mark.parametrize("remaining_s", [5e-6, 1e-5, 2e-5, 1e-3])
def test_chronus__a_promised_job_in_its_last_moment_is_planned(remaining_s: float) -> None:
    """Its times are past, and another promise cannot be kept: each keeps its times, of which it needs none."""
    carry = {"lease_plan": {"until_s": 9e3, "times": {"1@0": [[0.0, HOUR]], "2@0": [[HOUR, 2 * HOUR]]}}}
    jobs = [{"gpus": 4, "state": "RUNNING", "start_s": 0.0, "executed_s": HOUR - remaining_s,
             "comment": "slurmsched: dur=1h deadline=+2h"},
            {"gpus": 4, "comment": "slurmsched: dur=2h deadline=+2h"}]  # fmt: skip
    ranking = Chronus().rank(snapshot(jobs, "1x8", now_s=HOUR, carry=carry))
    assert len(ranking.order) == 2


def test_chronus__a_promise_that_cannot_be_kept_is_told() -> None:
    """The job has not run since its plan was made, and can be in time no more: it is best effort, and the plan says
    so. One that is being requeued keeps its promise."""
    first = told((8, "dur=1h deadline=+1h"))
    carry = Chronus().rank(first).carry
    late = Chronus().rank(replace(first, now_s=60.0, carry=carry))
    assert late.carry["lease_plan"]["times"] == {} and late.why["group"].tolist() == [1]
    assert "1 promised deadline cannot be kept any more: run times or GPUs are not as expected" in late.notes
    requeued = {"gpus": 8, "state": "PENDING,COMPLETING", "comment": "slurmsched: dur=1h deadline=+2h"}
    kept = {"lease_plan": {"until_s": 1_200.0, "times": {"1@0": [[0.0, 3_600.0]]}}}
    two = snapshot([requeued], "1x8", now_s=60.0, carry=kept)
    assert Chronus().rank(two).carry["lease_plan"]["times"] == {"1@0": [[60.0, 3_660.0]]}


@pytest.mark.parametrize("pack", [leases.pack_by_programme, leases.pack_greedily])
def test_packing__far_leases_are_counted_in_blocks(pack: Any) -> None:
    """20 leases in 40: blocks of 8 single ones, then 2 to 32; two such jobs fit into them, three not. Of equals the
    earlier deadline, which comes first, is taken."""
    assert leases.blocks(40).tolist() == [1] * 8 + [2, 4, 8, 16, 32]
    twenty, forty = np.full(3, 20), np.full(3, 40)
    made = pack(LeaseDemand(np.full(3, 8), twenty, forty, np.zeros(3, np.bool_)), 8)
    assert made.admitted.tolist() == [True, True, False]


ELASTIC = "min_gpus=1 max_gpus=8"
FLOW_SIX = ((2, f"dur=2h deadline=+4h {ELASTIC}"), (4, f"dur=2h deadline=+2h {ELASTIC}"), (4, "dur=1h deadline=+1h"),
            (8, "dur=1h deadline=+2h"), (1, "dur=1h min_gpus=1 max_gpus=2"), (2, "dur=1h"))  # fmt: skip
FLOW = ElasticFlow(serial=0.0, slot_s=HOUR)


def test_elasticflow__six_jobs_by_hand() -> None:
    """12 GPUs: 3 has 4, 2 has 4 (its least share), 4 has its 8 in the next hour, 1 has 2; the two GPUs left go to 5."""
    ranking = FLOW.rank(told(*FLOW_SIX, nodes="1x12"))
    assert ranking.why["given_gpus"].tolist() == [2, 4, 4, 0, 2, 0]
    assert ranking.why["admitted"].tolist() == [True, True, True, True, False, False]
    assert (ranking.order + 1).tolist() == [3, 2, 1, 5, 4, 6]
    assert ranking.changes is not None and ranking.changes.gpus is not None
    assert ranking.changes.gpus.tolist() == [2, 4, 4, 0, 2, 0]  # also what is asked for: a job may hold another size


def test_elasticflow__refuses_what_would_break_a_promise() -> None:
    """On 8 GPUs job 4 fits neither beside jobs 2 and 3 nor after them in time."""
    ranking = FLOW.rank(told(*FLOW_SIX))
    assert ranking.why["admitted"].tolist() == [True, True, True, False, False, False]
    assert "1 of 4 deadlines is not promised: best effort" in ranking.notes


def test_elasticflow__sizes_stand_until_the_next_slot() -> None:
    """A best-effort job that comes in between gets none of the sizes already given."""
    first = told(*FLOW_SIX, nodes="1x12")
    later = told(*FLOW_SIX, (2, "dur=1m"), nodes="1x12", now_s=60.0, carry=FLOW.rank(first).carry)
    assert FLOW.rank(later).why["given_gpus"].tolist() == [2, 4, 4, 0, 2, 0, 0]
    assert FLOW.next_change_s(first, FLOW.rank(first), np.zeros(6, np.bool_)) == HOUR


def test_filled__the_least_share_that_is_in_time() -> None:
    """4 GPU hours by hour 2 take 2 GPUs; where 1 is free in the first hour they take 4 in the second."""
    given = told((2, f"dur=2h deadline=+4h {ELASTIC}"))
    sizes, table = sizes_of(given, [0], 0.0)[0], timetable(0.0, HOUR, 4, 8)
    assert least_share_in_time(sizes, 2 * HOUR, 2 * HOUR, table).tolist() == [2, 2, 0, 0]  # type: ignore[union-attr]
    table.take(np.array([7, 0, 0, 0]))
    assert least_share_in_time(sizes, 2 * HOUR, 2 * HOUR, table).tolist() == [1, 4, 0, 0]  # type: ignore[union-attr]
    assert least_share_in_time(sizes, 9 * HOUR, 2 * HOUR, table) is None


def test_sizes_of__doublings_between_the_hints_and_what_is_asked() -> None:
    """1 to 8 with 3 asked: 1, 2, 3, 4, 8, at speeds over that of 3 GPUs; without hints 3 alone."""
    given = told((3, ELASTIC), (3, "dur=1h"))
    elastic, fixed = sizes_of(given, [0, 1], 0.1)
    assert elastic.gpus.tolist() == [1, 2, 3, 4, 8] and fixed.gpus.tolist() == [3]
    assert elastic.speed[2] == fixed.speed[0] == 1.0
    assert elastic.speed[4] == pytest.approx((1 / (0.1 + 0.9 / 8)) * (0.1 + 0.9 / 3))
    assert amdahl(np.array([1, 2]), 0.0).tolist() == [1.0, 2.0]


@pytest.fixture
def curves(tmp_path: Path) -> Throughputs:
    """Model m: 1.8 times as fast on two GPUs as on one, 2.4 times on four and on eight."""
    rows = ("model,batch,gpus,gpu_type,steps_per_s", "m,,1,v100,10", "m,,2,v100,18", "m,,4,v100,24", "m,,8,v100,24")
    (tmp_path / "curves.csv").write_text("\n".join(rows))
    return Throughputs(str(tmp_path / "curves.csv"))


def test_sizes_of__by_a_curve_that_is_known(curves: Throughputs) -> None:
    """Eight GPUs are no faster than four: left out, be they what is asked for; others by Amdahl's law."""
    given = told((1, f"model=m {ELASTIC}"), (8, f"model=m {ELASTIC}"), (1, f"model=x {ELASTIC}"), (2, "model=m"))
    first, asked, unknown, fixed = sizes_of(given, [0, 1, 2, 3], 0.0, curves)
    assert (first.gpus.tolist(), first.speed.round(6).tolist()) == ([1, 2, 4], [1.0, 1.8, 2.4])
    assert (asked.gpus.tolist(), asked.speed.round(6).tolist()) == ([1, 2, 4], [0.416667, 0.75, 1.0])
    assert unknown.speed.tolist() == [1.0, 2.0, 4.0, 8.0] and fixed.gpus.tolist() == [2]


def test_elasticflow__goes_by_the_curve_as_the_page_tells(curves: Throughputs) -> None:
    """4 h of work due in two: two GPUs do 3.6 h, so four, and not more; by Amdahl's law all that are idle."""
    given = told((1, f"dur=4h deadline=+2h model=m {ELASTIC}"))
    measured, law = (replace(FLOW, **more).rank(given) for more in ({"speeds": curves}, {}))
    assert (measured.why["given_gpus"].tolist(), law.why["given_gpus"].tolist()) == ([4], [8])
    assert [ranking.notes for ranking in (measured, law)] == [(), ()]


@pytest.mark.parametrize(
    ("make", "gpus"),
    [(ElasticFlow, 4), (Oasis, None), (AOnline, None), (partial(Themis, elastic=True, fairness=0.0), 4)],
    ids=["elasticflow", "oasis", "aonline", "themis"],
)  # fmt: skip
def test_elastic_policies__keep_to_the_curve(make: Any, gpus: int | None, curves: Throughputs) -> None:
    """A job of two GPUs alone on 16 has all of them by Amdahl's law, and with its curve four, or its two, where GPU
    time has a price. One that no table knows is told of, and has all."""
    known, unknown = (told((2, f"dur=9h model={model} min_gpus=1 max_gpus=16"), nodes="2x8") for model in "mx")
    policy = make(serial=0.0, speeds=curves)
    wants, others = policy.rank(known).changes, policy.rank(unknown)
    assert (None if wants is None else wants.gpus.tolist()) == (gpus and [gpus])
    assert others.changes is not None and others.changes.gpus.tolist() == [16]
    assert "1 of 1 elastic job is in no table of speeds: Amdahl's law" in others.notes
    check_policy(policy)


@pytest.mark.parametrize("make", [ElasticFlow, Oasis, AOnline, partial(Themis, elastic=True, fairness=0.0)])
def test_elastic_policies__a_job_that_can_run_in_none_of_its_sizes_has_what_it_asks_for(
    make: Any, tmp_path: Path
) -> None:
    """The table says that it cannot run on two or four, which are all that its hints allow."""
    (tmp_path / "b.csv").write_text(
        "model,batch,gpus,gpu_type,steps_per_s\nb,,1,v100,2\nb,,2,v100,0\nb,,4,v100,0\nb,,8,v100,3"
    )
    given = told((1, "dur=1h deadline=+9h model=b min_gpus=2 max_gpus=4"))
    policy = make(speeds=Throughputs(str(tmp_path / "b.csv")))
    assert [each.gpus.tolist() for each in sizes_of(given, [0], 0.0, policy.speeds)] == [[1]]
    ranking = policy.rank(given)
    assert ranking.changes is None or ranking.changes.gpus is None or ranking.changes.gpus[0] in (0, 1)


def test_timetable__slots_end_at_multiples_and_grow() -> None:
    """At 90 s into slots of 60 s the first one has 30 s left; the thirteenth is 2 slots long."""
    table = timetable(90.0, 60.0, 14, 4)
    assert (table.begin_s[0], table.end_s[0], table.end_s[1]) == (90.0, 120.0, 180.0)
    assert table.end_s[12] - table.begin_s[12] == 120.0


OASIS_SIX = ((8, "dur=1h"), (8, "dur=1h deadline=+2h"), (8, "dur=1h deadline=+1h"), (8, "dur=2h"),
             (4, "dur=1h deadline=+10h"), (4, "dur=1h deadline=+10h"))  # fmt: skip
OASIS = Oasis(serial=0.0, slot_s=HOUR)


def test_oasis__six_jobs_by_hand() -> None:
    """Hours 0, 1, none (it could end 2 h late only), 2 and 3, 4, and 5: GPUs beside job 5 cost ten times as much."""
    ranking = OASIS.rank(told(*OASIS_SIX))
    assert (ranking.why["start_s"] / HOUR).tolist() == [0.0, 1.0, np.inf, 2.0, 4.0, 5.0]
    assert (ranking.order + 1).tolist() == [1, 2, 4, 5, 6, 3]
    assert ranking.notes == ("1 job is worth less than the GPUs of any plan cost: last",)


def test_oasis__decides_once() -> None:
    """A promise and a refusal stand, whoever has left since; the order follows the clock."""
    first = OASIS.rank(told(*OASIS_SIX))
    later = OASIS.rank(told(*OASIS_SIX, now_s=HOUR, carry=first.carry))
    assert later.carry == first.carry
    assert (later.order + 1).tolist()[:2] == [2, 1]  # job 2 is due now, job 1 overran its hour
    assert OASIS.next_change_s(told(*OASIS_SIX), first, np.zeros(6, np.bool_)) == HOUR


def test_oasis__an_elastic_job_buys_the_size_that_is_cheapest() -> None:
    """4 GPU hours by hour 1, alone on 8 GPUs: 4 GPUs for an hour, though it asks for 1."""
    given = told((1, "dur=4h deadline=+1h min_gpus=1 max_gpus=8"))
    ranking = Oasis(serial=0.0, slot_s=HOUR, steepness=50.0).rank(given)
    assert ranking.changes is not None and ranking.changes.gpus is not None
    assert ranking.changes.gpus.tolist() == [4]


def test_oasis__without_fill_jobs_wait_for_their_slot() -> None:
    """Who is due later is told when, who is refused not to start."""
    wants = Oasis(serial=0.0, slot_s=HOUR, fill=False).rank(told(*OASIS_SIX)).changes
    assert wants is not None and wants.start_s is not None
    assert (wants.start_s / HOUR).tolist() == [-np.inf, 1.0, np.inf, 2.0, 4.0, 5.0]


ONLINE_SIX = ((8, "dur=1h"), (4, "dur=2h"), (2, "dur=1h"), (8, "dur=4h"), (1, "dur=1h"), (4, "dur=1h"))
ONLINE = AOnline(window_s=4 * HOUR, slots=4, serial=0.0)


def test_aonline__six_jobs_by_hand() -> None:
    """Least service first, each where it is cheapest: 5 in hour 0, 3 in 1, 6 in 2, 1 in 3, 2 in 0 and 1; 4 is left."""
    ranking = ONLINE.rank(told(*ONLINE_SIX))
    assert (ranking.why["begin_s"] / HOUR).tolist() == [3.0, 0.0, 1.0, np.inf, 0.0, 2.0]
    assert (ranking.order + 1).tolist() == [2, 5, 3, 6, 1, 4]
    assert ranking.notes == ("1 job waits for the next batch",)


def test_aonline__weights_go_before_service() -> None:
    """Job 2 weighs eight: it is put in first, and leaves no hour empty for job 1."""
    given = told(*ONLINE_SIX)
    given = replace(given, jobs=given.jobs.with_columns(qos=Labels.of(["", "high", "", "", "", ""])))
    begin_s = replace(ONLINE, weights=("qos:high=8",)).rank(given).why["begin_s"]
    assert (begin_s / HOUR).tolist() == [np.inf, 0.0, 3.0, np.inf, 2.0, 2.0]


def test_aonline__the_next_window_is_twice_as_long() -> None:
    """Job 4 is left over: the batch after the window has 8 h; one after which nobody is left has the first length."""
    first = ONLINE.rank(told(*ONLINE_SIX))
    left, new = ({"job_id": job, "gpus": 8, "comment": "slurmsched: dur=4h"} for job in (4, 7))
    second = ONLINE.rank(snapshot([left], "1x8", now_s=4 * HOUR, carry=first.carry))
    third = ONLINE.rank(snapshot([new], "1x8", now_s=12 * HOUR, carry=second.carry))
    lengths = [ranking.carry["batch"]["length_s"] / HOUR for ranking in (first, second, third)]
    assert lengths == [4.0, 8.0, 4.0]
    assert (second.why["begin_s"].tolist(), second.notes) == ([4 * HOUR], ())


def test_aonline__without_fill_jobs_wait_for_their_run() -> None:
    """Planned jobs are told their time, the one left over not to start."""
    wants = replace(ONLINE, fill=False).rank(told(*ONLINE_SIX)).changes
    assert wants is not None and wants.start_s is not None
    assert (wants.start_s / HOUR).tolist() == [3.0, 0.0, 1.0, np.inf, 0.0, 2.0]


@pytest.mark.parametrize("policy", FAMILY, ids=repr)
def test_deadline_family__conforms(policy: Any) -> None:
    """Every rule that all policies keep, with deadlines and elastic sizes in the queue."""
    hints = (
        "dur=1h deadline=+5h",
        "dur=3h",
        "",
        f"dur=2h deadline=+9h {ELASTIC}",
        "deadline=+2h",
        "dur=10m deadline=+1m",
    )
    rows = [{"gpus": 2 ** (row % 4), "submit_s": 60.0 * (row // 3), "comment": f"slurmsched: {hints[row % 6]}"}
            for row in range(36)]  # fmt: skip
    check_policy(policy, [snapshot(rows, "2x8", now_s=900.0)])


@pytest.mark.parametrize("policy", FAMILY, ids=repr)
def test_deadline_family__without_deadlines_and_run_times_goes_by_attained_service(policy: Any) -> None:
    """Nothing told: least attained service first, and the plan says that something is missing."""
    given = snapshot([{"executed_s": 900.0 * (7 * row % 5)} for row in range(5)])
    ranking = policy.rank(given)
    assert given.jobs.attained_gpu_s[ranking.order].tolist() == sorted(given.jobs.attained_gpu_s)
    assert ranking.notes


@pytest.mark.parametrize("policy", FAMILY, ids=repr)
def test_deadline_family__a_busy_cluster_is_ranked(policy: Any) -> None:
    """Jobs of every state and hundreds of ties: every row once."""
    given = mixed_snapshot(200, seed=5)
    assert sorted(policy.rank(given).order.tolist()) == list(range(len(given.jobs)))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [(Chronus, {"lease_s": 0.0}), (Chronus, {"packing": "best"}), (ElasticFlow, {"serial": 1.5}),
     (ElasticFlow, {"slot_s": 0.0}), (Oasis, {"least_price": 0.0}), (Oasis, {"slots": 0}), (AOnline, {"serial": 2.0}),
     (AOnline, {"window_s": 0.0})],
)  # fmt: skip
def test_deadline_family__refuses_bad_parameters(kind: Any, parameters: dict[str, Any]) -> None:
    """A parameter out of range is a ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert caught.value.key == f"policy.{next(iter(parameters))}"
