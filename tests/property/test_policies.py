"""What holds of every policy of ours, on clusters of every shape."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.model import JobState, Ranking, Snapshot
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.policies.discretized_las import DiscretizedLas, queue_of
from slurmsched.policies.fifo import Fifo
from slurmsched.policies.gittins import Gittins, gittins_index
from slurmsched.policies.las import Las
from slurmsched.policies.response_ratio import ResponseRatio
from slurmsched.policies.sjf import Sjf
from slurmsched.policies.smallest import Smallest
from slurmsched.policies.srsf import Srsf
from slurmsched.policies.srtf import Srtf
from slurmsched.protocols import Policy
from slurmsched.sim.experiments.released_policies import GittinsAsReleased
from slurmsched.testing.strategies import snapshots
from tests.reference import las as reference

POLICIES = [
    ResponseRatio(), ResponseRatio(0.33),
    Fifo(), Sjf(), Smallest(), Srtf(), Srsf(), Las(), Las("1d", 0.0), Gittins(least_samples=1),
    GittinsAsReleased(),
    *(DiscretizedLas(promote_knob=knob, fifo_by=by) for knob in (0.5, np.inf) for by in ("start", "arrival", "submit")),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@settings(deadline=None, max_examples=30)
@given(cluster=snapshots(), backwards=st.booleans())
def test_rank__is_one_order_of_all_jobs(policy: Policy, cluster: Snapshot, backwards: bool) -> None:
    """Every job once, and the same order of ids whatever the rows, also with the policy's own carry."""
    first = policy.rank(cluster)
    cluster = replace(cluster, carry=json.loads(json.dumps(dict(first.carry))), now_s=cluster.now_s + 60.0)
    turned = replace(cluster, jobs=cluster.jobs.take(np.arange(len(cluster.jobs))[::-1])) if backwards else cluster
    ids = [given.jobs.job_id[policy.rank(given).order].tolist() for given in (cluster, turned)]
    assert ids[0] == ids[1]
    assert sorted(ids[0]) == cluster.jobs.job_id.tolist()


@settings(deadline=None, max_examples=60)
@given(cluster=snapshots(), thresholds=st.lists(st.floats(1.0, 1e6), unique=True, max_size=4).map(sorted))
def test_discretized_las__orders_by_queue_first(cluster: Snapshot, thresholds: list[float]) -> None:
    """Along the order the queue never falls, and it is the number of thresholds reached."""
    ranking = DiscretizedLas(tuple(thresholds)).rank(cluster)
    reached = [sum(service >= limit for limit in thresholds) for service in cluster.jobs.attained_gpu_s]
    assert ranking.why["queue"].tolist() == reached
    assert (np.diff(ranking.why["queue"][ranking.order]) >= 0).all()


@settings(deadline=None, max_examples=60)
@given(cluster=snapshots())
def test_discretized_las__unchanged_cluster_keeps_its_order(cluster: Snapshot) -> None:
    """Pending jobs keep their order at the next quantum when nothing but the clock changed: nothing to write."""
    policy, orders = DiscretizedLas(), []
    for _ in range(3):
        ranking = policy.rank(cluster)
        orders.append([int(row) for row in ranking.order if cluster.jobs.pending[row]])
        cluster = replace(cluster, carry=ranking.carry, now_s=cluster.now_s + 60.0)
    assert orders[1:] == orders[:-1]


@pytest.mark.parametrize("fifo_by", ["start", "arrival", "submit"])
@settings(deadline=None, max_examples=60)
@given(first=snapshots(), seeds=st.lists(st.integers(0, 999), max_size=4), knob=st.sampled_from([0.3, 2.0, np.inf]))
def test_discretized_las__agrees_with_reference(fifo_by: str, first: Snapshot, seeds: list[int], knob: float) -> None:
    """The same order and the same memory quantum after quantum, whatever becomes of the jobs."""
    policy, past = DiscretizedLas((2_000.0, 20_000.0), knob, fifo_by), {}
    ranking, cluster = Ranking(np.arange(0)), first
    for seed in [None, *seeds]:
        cluster = cluster if seed is None else later(cluster, seed)
        ranking = policy.rank(replace(cluster, carry=ranking.carry))
        order, past = reference.rank(policy, cluster, past)
        assert ranking.order.tolist() == order
        kept = {name: [each[name] for _, each in sorted(past.items())] for name in next(iter(past.values()), ())}
        assert {name: ranking.carry[name] for name in kept} == kept


def later(cluster: Snapshot, seed: int) -> Snapshot:
    """The cluster a while later: some jobs are gone, others ran, started or were preempted."""
    chance = np.random.default_rng(seed)
    jobs = cluster.jobs.take(chance.random(len(cluster.jobs)) < 0.9)
    rows = len(jobs)
    executed_s = jobs.executed_s + chance.choice([0.0, 0.0, 700.0, 9_000.0], rows)
    state = np.where(chance.random(rows) < 0.5, int(JobState.RUNNING), int(JobState.PENDING))
    changed = jobs.with_columns(
        state=state, executed_s=executed_s, attained_gpu_s=executed_s * jobs.gpus,
        start_s=np.where(state == int(JobState.RUNNING), cluster.now_s, np.nan),
        waiting_s=chance.choice([0.0, 400.0, 5_000.0], rows),
    )  # fmt: skip
    return replace(cluster, jobs=changed, now_s=cluster.now_s + float(chance.choice([60.0, 3_600.0])))


@settings(deadline=None, max_examples=60)
@given(
    history=st.lists(st.integers(0, 50), min_size=1, max_size=40).map(sorted),
    attained=st.integers(0, 60),
    delta=st.integers(1, 30),
)
def test_gittins_index__agrees_with_the_definition(history: list[int], attained: int, delta: int) -> None:
    """P(S - a <= delta | S > a) / E[min(S - a, delta) | S > a], sample by sample; 0 without a sample above a."""
    left = [sample - attained for sample in history if sample > attained]
    ending = sum(each <= delta for each in left)
    expected = ending / sum(min(each, delta) for each in left) if left else 0.0
    index = gittins_index(np.array(history, np.float64), np.array([float(attained)]), float(delta))
    assert index[0] == pytest.approx(expected, rel=1e-12)


@given(service=st.lists(st.floats(0.0, 1e9), max_size=20))
def test_queue_of__more_service_is_never_more_urgent(service: list[float]) -> None:
    """The queue ascends with service."""
    assert (np.diff(queue_of(np.sort(np.array(service)), (10.0, 1e5))) >= 0).all()


@settings(deadline=None, max_examples=300)
@given(comment=st.text() | st.text(alphabet="slurmched:= durptok2h@/+-.19T\t").map("slurmsched:".__add__))
def test_parse_hints__never_raises(comment: str) -> None:
    """Whatever a user writes, hints come back."""
    assert isinstance(parse_hints(comment), Hints)
