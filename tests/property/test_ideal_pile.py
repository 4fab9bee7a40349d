"""The compiled cluster of one pile, and its heap, do what the plain ones do."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import ConfigError
from slurmsched.kernels.end_heap import heap_push, heap_remove
from slurmsched.placements.count import Count
from slurmsched.planning.direct import DirectPlanner
from slurmsched.policies.las import Las
from slurmsched.protocols import Planner
from slurmsched.replay.carry_store import CarryStore
from slurmsched.replay.engine import replay_events
from slurmsched.replay.ideal import IdealCluster
from slurmsched.replay.ideal_model import IdealModel
from slurmsched.replay.ideal_pile import PileCluster
from slurmsched.replay.traces import Trace
from tests.property.test_ideal import GPUS, MODELS, PLANNERS, Chaos, traces


def played(kind: type[IdealCluster], trace: Trace, planner: Planner, model: IdealModel) -> tuple[IdealCluster, int]:
    cluster = kind(trace, [GPUS], model)
    cycles = replay_events(cluster, planner, CarryStore(np.array([30.0, 80.0, 300.0, 900.0])))
    return cluster, cycles


def everything(cluster: IdealCluster) -> list[bytes]:
    """All that a replay leaves behind."""
    runs = cluster.runs.of(cluster.job_id, cluster.gpus)
    columns = [column.tobytes() for column in (*runs, *cluster.history.steps())]
    return [*columns, cluster.outcomes().digest.encode(), repr(cluster.now_s).encode()]


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: f"{type(p.policy).__name__}-{p.filling}")
@settings(deadline=None, max_examples=25)
@given(trace=traces(), model=MODELS)
def test_pile_cluster__equals_the_plain_one(planner: DirectPlanner, trace: Trace, model: IdealModel) -> None:
    """The same cycles, outcomes, runs and steps of the history, byte for byte."""
    if isinstance(planner.policy, Las):  # which swaps two jobs so often that costs leave no progress
        model = IdealModel()
    (plain, cycles), (compiled, ours) = (played(kind, trace, planner, model) for kind in (IdealCluster, PileCluster))
    assert ours == cycles
    assert everything(compiled) == everything(plain)


@settings(deadline=None, max_examples=40)
@given(trace=traces(), model=MODELS, seed=st.integers(0, 99))
def test_pile_cluster__shows_the_same_under_any_plan(trace: Trace, model: IdealModel, seed: int) -> None:
    """Plans of no reason at all: snapshots keep the laws (Chaos checks), and all goes as on the plain cluster."""
    plain, compiled = (played(kind, trace, Chaos(Count(), seed), model)[0] for kind in (IdealCluster, PileCluster))
    assert everything(compiled) == everything(plain)


@settings(deadline=None, max_examples=40)
@given(trace=traces(), until_s=st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_pile_cluster__advances_to_any_time(trace: Trace, until_s: list[int]) -> None:
    """Clock, next event, jobs that wait and the end of those that run, step by step."""
    clusters = [kind(trace, [GPUS]) for kind in (IdealCluster, PileCluster)]
    for time_s in sorted(until_s):
        for cluster in clusters:
            cluster.advance(float(time_s))
            cluster.apply(PLANNERS[0].plan(cluster.read()))
        plain, compiled = (
            (each.now_s, each.next_event_s, each.waiting, each.quiet_s, each.ended, each.undecided) for each in clusters
        )
        assert compiled == plain


def test_pile_cluster__packs_its_tables_as_they_fill() -> None:
    """More ends than the tables hold at a time."""
    jobs = 9_000
    trace = Trace.of(np.arange(jobs), np.ones(jobs, int), np.arange(jobs) * 3, np.full(jobs, 7.0))
    (plain, _), (compiled, _) = (played(kind, trace, PLANNERS[1], IdealModel()) for kind in (IdealCluster, PileCluster))
    assert len(compiled.runs.of(compiled.job_id, compiled.gpus).job_id) == jobs
    assert everything(compiled) == everything(plain)


@pytest.mark.parametrize(
    ("nodes", "model"), [((4, 4), {}), ((8,), {"round_s": 5.0}), ((8,), {"node_gpus": 4})], ids=str
)
def test_pile_cluster__refuses_what_it_cannot_stand_for(nodes: tuple[int, ...], model: dict[str, float]) -> None:
    """Nodes told apart, rounds, quirks."""
    with pytest.raises(ConfigError, match="IdealCluster"):
        PileCluster(Trace.of([1], [1], [0], [1]), nodes, IdealModel.of(model))


@settings(deadline=None, max_examples=200)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 4)), max_size=40))
def test_end_heap__keeps_the_earliest_first(steps: list[tuple[bool, int, int]]) -> None:
    """After each row that comes or goes, the first is the earliest, of equal ones the lowest."""
    until_s, heap, seat, size = np.zeros(10), np.zeros(10, np.int64), np.zeros(10, np.int64), 0
    there: dict[int, float] = {}
    for comes, row, time_s in steps:
        if comes and row not in there:
            there[row] = until_s[row] = float(time_s)
            size = heap_push(row, until_s, heap, seat, size)
        elif not comes and row in there:
            del there[row]
            size = heap_remove(row, until_s, heap, seat, size)
        assert size == len(there)
        if there:
            assert int(heap[0]) == heapq.nsmallest(1, ((at, row) for row, at in there.items()))[0][1]
