"""When a job's turn comes, by hand and against a plain walk through time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model import Reservations
from slurmsched.model.job_details import JobDetails
from slurmsched.observe.explain.explanation import explain
from slurmsched.observe.explain.start_estimate import MOST_JOBS_BEFORE, EligibleNodes, starts_by_plan
from slurmsched.resources.eligibility import eligibility
from slurmsched.resources.job_request import request_of
from slurmsched.testing import snapshot
from slurmsched.testing.strategies import snapshots


def running(job_id, gpus, end_s, nodes="n1"):
    return {"job_id": job_id, "state": "R", "gpus": gpus, "nodes": 1, "node_list": nodes, "end_s": end_s}


def waiting(job_id, gpus, limit_s=100.0, **more):
    return {"job_id": job_id, "gpus": gpus, "time_limit_s": limit_s, **more}


def nodes(used, gpus=8):
    return [{"name": f"n{at + 1}", "gpus": gpus, "gpus_used": held, "cpus": 8} for at, held in enumerate(used)]


def row_of(site, job_id):
    return site.jobs.job_id.tolist().index(job_id)


@pytest.mark.parametrize(
    ("rows", "used", "before", "expected"),
    [
        ([waiting(9, 8), running(1, 8, 50.0)], [8], [], (50.0, 50.0)),
        ([waiting(9, 8), running(1, 8, 50.0), waiting(2, 8)], [8], [2], (50.0, 150.0)),
        ([waiting(9, 4), running(1, 8, 50.0), waiting(2, 4)], [8], [2], (50.0, 50.0)),  # side by side
        ([waiting(9, 8), waiting(2, 2, array_tasks=6)], [0], [2], (0.0, 200.0)),  # four tasks, then two
        ([waiting(9, 16, nodes=2), running(1, 8, 50.0), running(2, 8, 70.0, "n2")], [8, 8], [], (70.0, 70.0)),
        ([waiting(9, 8), running(1, 8, 50.0), waiting(2, 99)], [8], [2], (50.0, 50.0)),  # it fits nowhere
        ([waiting(9, 8), running(1, 8, 50.0), waiting(2, 8, math.inf)], [8], [2], (50.0, math.nan)),
        ([waiting(9, 8), running(1, 8, math.inf)], [8], [], (math.nan, math.nan)),
        ([waiting(9, 0), running(1, 8, 50.0)], [8], [], (math.nan, math.nan)),
        ([waiting(9, 4), waiting(2, 4, 500.0, exclusive=True)], [0], [2], (0.0, 500.0)),
        ([waiting(9, 8), waiting(2, 16), running(1, 8, 50.0)], [8, 0], [2], (0.0, 150.0)),  # on two, by --gpus alone
        ([waiting(9, 8), waiting(2, 8, cpus=9)], [0], [2], (0.0, 100.0)),  # its tasks may be on several nodes
        ([waiting(9, 1), waiting(2, 1, array_tasks=MOST_JOBS_BEFORE + 1)], [0], [2], (math.nan, math.nan)),
    ],
)
def test_by_plan__each_in_its_turn(rows, used, before, expected):
    """Ends free GPUs, jobs before it take them; where one of these never ends, the time is not known."""
    site = snapshot(rows, nodes(used), now_s=0.0)
    found = starts_by_plan(site, [row_of(site, job) for job in before], row_of(site, 9), JobDetails())
    assert found == pytest.approx(expected, nan_ok=True)


def typed(used):
    """n1 of a100 and n2 of h100, in partitions of their own and one of both."""
    return [{**node, "gpu_types": f"gpu:{kind}:8", "partitions": f"all,{kind}"}
            for node, kind in zip(nodes(used), ("a100", "h100"), strict=True)]  # fmt: skip


A100 = {"gpu_request": "gpu:a100:8"}


@pytest.mark.parametrize(
    ("ahead", "used", "expected"),
    [(A100, [8, 0], 3_600.0 + 86_400.0), ({"gpu_request": "gpu:h100:8"}, [0, 8], 0.0), ({}, [8, 0], 3_600.0),
     ({"nodes_excluded": "n2"}, [8, 0], 90_000.0), ({"nodes_asked": "n1"}, [8, 0], 90_000.0),
     ({"features_asked": "big"}, [8, 0], 3_600.0), ({"partition": "a100"}, [8, 0], 90_000.0)],
)  # fmt: skip
def test_by_plan__jobs_before_it_have_wishes_too(ahead, used, expected):
    """By GPU type, names of nodes, features and partition: they take the nodes that Slurm would give them."""
    busy = running(1, 8, 3_600.0, "n1" if used[0] else "n2")
    rows = [waiting(9, 8, partition="all", **A100), waiting(2, 8, 86_400.0, **{"partition": "all", **ahead}), busy]
    site = snapshot(rows, typed(used), now_s=0.0)
    assert starts_by_plan(site, [row_of(site, 2)], row_of(site, 9), JobDetails())[1] == expected


@pytest.mark.parametrize(
    ("span", "named", "limit_s", "expected"),
    [((1_000.0, 9_000.0), "", 500.0, 500.0), ((1_000.0, 9_000.0), "", 800.0, 9_000.0),
     ((-9.0, 600.0), "", 100.0, 600.0), ((-9.0, 9e9), "", 100.0, math.nan), ((-9.0, 9e9), "m", 100.0, 500.0)],
)  # fmt: skip
def test_by_plan__heeds_reservations(span, named, limit_s, expected):
    """One that begins before the job would be over, and one until it ends; an endless one gives nothing back."""
    site = snapshot([waiting(9, 8, limit_s, reservation=named), running(1, 8, 500.0)], nodes([8]), now_s=0.0)
    table = {"name": ["m"], "flags": [""], "start_s": [span[0]], "end_s": [span[1]], "node_list": ["n1"]}
    found = starts_by_plan(site, [], row_of(site, 9), JobDetails(reservations=Reservations.build(1, table)))
    assert found[0] == pytest.approx(expected, nan_ok=True)


def test_by_plan__gpus_alone_may_come_from_several_nodes():
    """`--gpus=12` shows one node while it waits; with -N1 it fits on none."""
    site = snapshot([waiting(9, 12), running(1, 8, 50.0)], nodes([8, 0]), now_s=0.0)
    records = [{"TresPerJob": "gres/gpu:12", "NumNodes": number} for number in ("1", "1-1")]
    found = [starts_by_plan(site, [], row_of(site, 9), JobDetails(record=record))[0] for record in records]
    assert found == pytest.approx([50.0, math.nan], nan_ok=True)


def test_by_plan__a_whole_node_is_waited_for():
    """Until all of its GPUs are free."""
    rows = [waiting(9, 2, exclusive=True), running(1, 4, 50.0), running(2, 1, 70.0)]
    site = snapshot(rows, nodes([5]), now_s=0.0)
    assert starts_by_plan(site, [], row_of(site, 9), JobDetails()) == (70.0, 70.0)


def test_explain__passes_by_jobs_that_wait_for_something_else():
    """A limit, another job or a time to begin."""
    others = [{"reason": "QOSMaxJobsPerUserLimit"}, {"dependency": "afterok:3"}, {"eligible_s": 99.0}]
    rows = [waiting(9, 8, reason="Priority"), *(waiting(2 + at, 8, 1e6, priority=9, **one)
                                                for at, one in enumerate(others))]  # fmt: skip
    site = snapshot(rows, nodes([0]), now_s=10.0)
    told = explain(site, None, row_of(site, 9), JobDetails())
    assert (told.estimate.latest_s, told.ahead.rank) == (10.0, 4)


def test_by_plan__a_closed_node_gives_nothing_back():
    """What runs there ends, and nothing new starts."""
    site = snapshot([waiting(9, 8), running(1, 8, 50.0)], [{**nodes([8])[0], "state": "DOWN"}], now_s=0.0)
    assert math.isnan(starts_by_plan(site, [], row_of(site, 9), JobDetails())[0])


def test_explain__tells_the_plan_where_the_past_tells_nothing():
    """With a job ahead as a range, by its own count; a past that tells something comes first."""
    rows = [waiting(9, 8, reason="Priority", submit_s=0.0), running(1, 8, 50.0), waiting(2, 8, priority=9)]
    site = snapshot(rows, nodes([8]), now_s=0.0)
    row = row_of(site, 9)
    told = explain(site, None, row, JobDetails()).estimate
    assert (told.source, told.earliest_s, told.latest_s) == ("plan", 50.0, 150.0)
    assert told.why.startswith(
        "from its start if it were next, to that after the 1 job before it that may start; GPUs of"
    )
    assert explain(site, None, row, JobDetails(waits_s=(30.0,) * 20)).estimate.source == "history"


def walked(gpus, ends, asked):
    """One node, second by second: when the last of these starts, each in its turn."""
    free, now_s, left = gpus - sum(held for held, _ in ends), 0, list(ends)
    for number, (need, limit_s) in enumerate(asked):
        while free < need:
            now_s += 1
            free += sum(held for held, end_s in left if end_s == now_s)
        free -= need
        left.append((need, now_s + limit_s))
        if number == len(asked) - 1:
            return now_s
    raise AssertionError


short = st.tuples(st.integers(1, 8), st.integers(1, 9))


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 9)), max_size=4), st.lists(short, min_size=1, max_size=6))
def test_by_plan__agrees_with_a_walk_through_time(ends, asked):
    """On one node of eight GPUs."""
    rows = [waiting(90 + at, need, float(limit_s)) for at, (need, limit_s) in enumerate(asked)]
    rows += [running(at + 1, held, float(end_s)) for at, (held, end_s) in enumerate(ends)]
    site = snapshot(rows, nodes([sum(held for held, _ in ends)]), now_s=0.0)
    order = [row_of(site, 90 + number) for number in range(len(asked))]
    soonest_s, latest_s = starts_by_plan(site, order[:-1], order[-1], JobDetails())
    assert latest_s == walked(8, ends, asked)
    assert soonest_s == walked(8, ends, asked[-1:])


@given(st.lists(st.tuples(st.booleans(), *[st.integers(1, 8), st.integers(1, 9)]), min_size=1, max_size=6))
def test_by_plan__types_wait_apart(asked):
    """Jobs of two types on a node of each: each node is walked alone."""
    kinds = ["a100" if first else "h100" for first, *_ in asked]
    rows = [waiting(90 + at, need, float(limit_s), partition="all", gpu_request=f"gpu:{kinds[at]}:{need}")
            for at, (_, need, limit_s) in enumerate(asked)]  # fmt: skip
    site = snapshot(rows, typed([0, 0]), now_s=0.0)
    order = [row_of(site, 90 + number) for number in range(len(asked))]
    latest_s = starts_by_plan(site, order[:-1], order[-1], JobDetails())[1]
    held, now_s = [], 0
    for kind, (_, need, limit_s) in zip(kinds, asked, strict=True):
        while kind == kinds[-1] and sum(gpus for gpus, end_s in held if end_s > now_s) + need > 8:
            now_s += 1
        held += [(need, now_s + limit_s)] * (kind == kinds[-1])
    assert latest_s == now_s


@given(site=snapshots(), sizes=st.lists(st.tuples(st.integers(1, 80), st.integers(1, 3)), min_size=20, max_size=20))
def test_nodes__those_that_another_job_could_have_are_those_of_eligibility(site, sizes):
    """Worked out once for jobs that say the same of nodes, and cut to those that are large enough."""
    many = len(site.jobs)
    jobs = site.jobs.with_columns(cpus=[cpus for cpus, _ in sizes[:many]], nodes=[nodes for _, nodes in sizes[:many]])
    site = replace(site, jobs=jobs, nodes=site.nodes.with_columns(cpus=[64] * len(site.nodes)))
    found = EligibleNodes.of(site, JobDetails())
    for row in range(many):
        expected = eligibility(site, request_of(site, row)).ever
        assert found.could(row).tolist() == expected.tolist() or not expected.any()
