"""Policies of elastic jobs: the jobs of their pages by hand, and what they keep to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.allocation.elastic import JobSizes, best_sizes, give_by_gain, thinned
from slurmsched.allocation.heterogeneity import GpuKinds
from slurmsched.allocation.size_rounds import SizeRound, gpus_now, size_changes
from slurmsched.errors import ConfigError
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Snapshot
from slurmsched.model.trace import Trace
from slurmsched.placements.baselines import Scattered
from slurmsched.policies.afs import Afs, longer_gains_more
from slurmsched.policies.best_scaling import BestScaling
from slurmsched.policies.dragon import Dragon, shared_by_load
from slurmsched.policies.elasticflow import ElasticFlow
from slurmsched.policies.marble import Marble
from slurmsched.policies.optimus import Optimus
from slurmsched.policies.pollux import Pollux
from slurmsched.policies.sia import Sia
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.scaling_speed import AmdahlSpeed
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.testing import check_policy, snapshot

ANY = "min_gpus=1 max_gpus=8"
OPTIMUS_SIX = ((1, f"dur=24h {ANY}"), (1, f"dur=12h {ANY}"), (1, f"dur=6h {ANY}"), (1, f"dur=2h {ANY}"), (2, "dur=1h"),
               (4, "dur=1h"))  # fmt: skip


def told(*jobs: tuple[int, str], nodes: Any = "1x12", **others: Any) -> Snapshot:
    """Jobs of (GPUs, hints), all submitted at 0."""
    return snapshot([{"gpus": gpus, "comment": f"slurmsched: {hints}"} for gpus, hints in jobs], nodes, **others)


@pytest.mark.parametrize(
    "policy",
    [
        Optimus(),
        Afs(),
        Afs(serial=0.0),
        Optimus(serial=0.0),
        Pollux(),
        Pollux(p=1.0),
        Pollux(p=0.0),
        Sia(),
        Sia(p=1.0),
        Dragon(),
        BestScaling(),
        Marble(),
    ],
)
def test_elastic__conforms(policy: Any) -> None:
    """The rules of all policies."""
    check_policy(policy)


def test_optimus__six_jobs_by_hand() -> None:
    """The page's: ten GPUs as least sizes, then one to job 1 for 12 h and one to job 2 for 6 h."""
    ranking = Optimus(serial=0.0).rank(told(*OPTIMUS_SIX))
    assert ranking.why["given_gpus"].tolist() == [2, 2, 1, 1, 2, 4]
    assert (ranking.order + 1).tolist() == [3, 4, 1, 2, 5, 6]
    assert ranking.changes is not None and ranking.changes.gpus is not None
    assert ranking.changes.gpus.tolist() == [2, 2, 1, 1, 2, 4]  # also what is asked for: a job may hold another size


def test_optimus__progress_counts() -> None:
    """Job 1 is nearly done, so that both GPUs go to job 2 and job 3."""
    first = (1, f"dur=24h progress=9/10 {ANY}")
    assert Optimus(serial=0.0).rank(told(first, *OPTIMUS_SIX[1:])).why["given_gpus"].tolist() == [1, 2, 2, 1, 2, 4]


def test_optimus__sizes_stand_until_the_next_round() -> None:
    """A job that comes in between waits for it: it does not start on what is left."""
    policy, first = Optimus(serial=0.0), told(*OPTIMUS_SIX)
    carry = policy.rank(first).carry
    later = told(*OPTIMUS_SIX, (1, f"dur=100h {ANY}"), now_s=599.0, carry=carry)
    waits = policy.rank(later)
    assert waits.why["given_gpus"].tolist() == [2, 2, 1, 1, 2, 4, 0]
    assert waits.changes is not None and waits.changes.start_s is not None
    assert waits.changes.start_s.tolist() == [*[-np.inf] * 6, 600.0]
    assert policy.next_change_s(first, policy.rank(first), np.zeros(6, np.bool_)) == 600.0
    after = told(*OPTIMUS_SIX, (1, f"dur=100h {ANY}"), now_s=600.0, carry=carry)
    assert policy.rank(after).why["given_gpus"].tolist() == [1, 1, 1, 1, 2, 4, 2]


def test_optimus__gives_no_gpu_for_nothing() -> None:
    """Fully serial work: nobody is faster on more GPUs than one."""
    assert Optimus(serial=1.0).rank(told((1, f"dur=9h {ANY}"))).why["given_gpus"].tolist() == [1]


@pytest.fixture
def curves(tmp_path: Path) -> Throughputs:
    path = tmp_path / "speeds.csv"
    rows = [("fast", 1, 1.0), ("fast", 2, 2.0), ("fast", 4, 4.0), ("slow", 1, 1.0), ("slow", 2, 1.2), ("slow", 4, 1.32)]
    text = "".join(f"{model},0,{gpus},v100,{rate}\n" for model, gpus, rate in rows)
    path.write_text("model,batch,gpus,gpu_type,steps_per_s\n" + text)
    return Throughputs(str(path))


def test_pollux__three_rounds_by_hand(curves: Throughputs) -> None:
    """The page's: the least size, twice that, then what makes the best use of eleven GPUs."""
    jobs = tuple((1, f"model={model} min_gpus=1 max_gpus=4") for model in ("fast", "fast", "slow")) + ((1, ""),) * 3
    policy, carry, found = Pollux(speeds=curves), {}, []
    for now_s in (3_600.0, 7_200.0, 10_800.0):
        ranking = policy.rank(told(*jobs, nodes="1x11", now_s=now_s, carry=carry))
        found.append(ranking.why["given_gpus"].tolist())
        carry = dict(ranking.carry)
    assert found == [[1, 1, 1, 1, 1, 1], [2, 2, 2, 1, 1, 1], [3, 3, 2, 1, 1, 1]]
    assert (ranking.order + 1).tolist() == [1, 2, 3, 4, 5, 6]


def test_pollux__a_job_that_comes_begins_with_its_least_size() -> None:
    """Its first start is no change of size, so that it counts in full at an age of 0."""
    ranking = Pollux().rank(told((4, "min_gpus=1 max_gpus=8"), nodes="2x4"))
    assert ranking.why["given_gpus"].tolist() == [1]


def test_size_changes__rigid_jobs_have_none() -> None:
    """They have all they ask for, or what is left."""
    assert size_changes(told((4, "dur=1h"), (8, "dur=1h")), np.array([4, 0]), 600.0) is None


def test_size_changes__a_running_job_without_gpus_keeps_its_size_while_it_may() -> None:
    """It asks for four and holds two: it is not started again on four."""
    rows = [{"gpus": 4, "comment": f"slurmsched: {ANY}", "state": "RUNNING"}]
    seen = snapshot(rows, "2x4", allocations=[{"job_id": 1, "node": "n1", "gpus": 2}])
    wanted = size_changes(seen, np.zeros(1, np.int64), 600.0)
    assert wanted is not None and wanted.gpus is not None
    assert (wanted.gpus.tolist(), wanted.start_s) == ([2], None)


@pytest.mark.parametrize(("policy", "round_s"), [(Afs(), 600.0), (Optimus(), 600.0), (ElasticFlow(), 600.0)])
def test_elastic__a_running_job_goes_back_to_the_size_that_it_asks_for(policy: Any, round_s: float) -> None:
    """Job 1 asks for four and has grown to eight when job 2 comes at 100 s: the next round gives four to each."""
    hints = "slurmsched: min_gpus=1 max_gpus=16 dur=1h"
    trace = Trace.of([1, 2], [4, 4], [0.0, 100.0], [3_600.0, 3_600.0], comment=[hints, "slurmsched: dur=1h"])
    hardware = ClusterHardware.of(ClusterLayout.of_gpus([4, 4]).nodes)
    cluster = PhysicsCluster(trace, hardware, AmdahlSpeed())
    replay_events(cluster, DirectPlanner(policy, Scattered(), "skip"), CarryStore())
    assert cluster.outcomes().first_start_s.tolist() == [0.0, round_s]
    assert cluster.resizes.tolist()[1] == 0 < cluster.resizes[0]


def test_pollux__a_young_job_keeps_its_size(curves: Throughputs) -> None:
    """Both have one of the three GPUs and would be 1.2 times as fast on two. That is worth a restart after an hour, and
    not after a minute."""
    hints = "slurmsched: model=slow min_gpus=1 max_gpus=2"
    rows = [{"gpus": 1, "comment": hints, "state": "RUNNING", "submit_s": came_s} for came_s in (3_540.0, 0.0)]
    held = [{"job_id": job, "node": "n1", "gpus": 1} for job in (1, 2)]
    bare = snapshot(rows, "1x3", allocations=held, now_s=3_600.0)
    assert gpus_now(bare).tolist() == [1, 1]
    carry = SizeRound("pollux", np.ones(2, np.int64), np.ones(2, np.int64), np.zeros(2, np.int64), 0.0).carry(bare)
    seen = snapshot(rows, "1x3", allocations=held, now_s=3_600.0, carry=carry)
    assert Pollux(speeds=curves).rank(seen).why["given_gpus"].tolist() == [1, 2]


def test_pollux__refuses_a_mean_that_is_none() -> None:
    """Above 1 large speedups would count for more than their worth."""
    with pytest.raises(ConfigError, match=r"policy\.p"):
        Pollux(p=2.0)


OPTIONS = st.lists(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-20, 20)), max_size=4), min_size=1, max_size=4
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(options=OPTIONS, gpus=st.integers(0, 9))
def test_best_sizes__are_the_best_of_all(options: list[list[tuple[int, int]]], gpus: int) -> None:
    """As trying everything finds."""
    known = [dict([(0, 0), *each]) for each in options]
    sizes = [np.array(sorted(each)) for each in known]
    given_ = best_sizes(sizes, [np.array([each[k] for k in sorted(each)], np.float64) for each in known], gpus)
    worth = [sum(each[k] for each, k in zip(known, ks, strict=True))
             for ks in itertools.product(*map(sorted, known)) if sum(ks) <= gpus]  # fmt: skip
    assert given_.sum() <= gpus
    assert sum(each[k] for each, k in zip(known, given_.tolist(), strict=True)) == min(worth)


@settings(deadline=None, max_examples=60)
@given(lasts=st.lists(st.integers(1, 50), min_size=1, max_size=5), gpus=st.integers(0, 12))
def test_give_by_gain__is_best_where_gains_fall(lasts: list[int], gpus: int) -> None:
    """With gains that only fall one step after the other is as good as trying everything."""
    sizes = [JobSizes(np.arange(1, 5), np.arange(1, 5) * 1.0) for _ in lasts]
    given_ = give_by_gain(sizes, lambda job, now, then: lasts[job] * (1 / (now + 1) - 1 / (then + 1)), gpus)
    assert given_.sum() == min(gpus, 4 * len(lasts))
    if gpus >= len(lasts):
        each = [sum(last / k for last, k in zip(lasts, ks, strict=True))
                for ks in itertools.product(range(1, 5), repeat=len(lasts)) if sum(ks) <= gpus]  # fmt: skip
        assert sum(last / k for last, k in zip(lasts, given_.tolist(), strict=True)) == pytest.approx(min(each))


AFS_SIX = ((1, f"dur=8h {ANY}"), (1, f"dur=4h {ANY}"), (1, f"dur=2h {ANY}"), (1, f"dur=1h {ANY}"), (2, "dur=1h"),
           (4, "dur=1h"))  # fmt: skip


def test_afs__six_jobs_by_hand() -> None:
    """The page's: the eleventh GPU to job 4, by 0.82 against 0.45; the twelfth to job 3, by 0.45 against 0.38."""
    ranking = Afs(serial=0.1).rank(told(*AFS_SIX))
    assert ranking.why["given_gpus"].tolist() == [1, 1, 2, 2, 2, 4]
    assert (ranking.order + 1).tolist() == [4, 5, 6, 3, 2, 1]


def test_afs__a_job_too_large_for_what_is_left_has_none() -> None:
    """On 8 GPUs the last of six, by run time, finds one of its two."""
    assert Afs(serial=0.1).rank(told(*AFS_SIX, nodes="1x8")).why["given_gpus"].tolist() == [0, 0, 1, 1, 2, 4]


SPEEDS = st.tuples(st.floats(0.1, 10.0), st.floats(1.0, 2.0)).map(lambda pair: (pair[0], pair[0] * pair[1]))


@settings(deadline=None, max_examples=200)
@given(shorter=SPEEDS, longer=SPEEDS, work=st.floats(0.1, 10.0), more=st.floats(0.01, 10.0))
def test_longer_gains_more__is_the_least_sum_of_completion_times(
    shorter: tuple[float, float], longer: tuple[float, float], work: float, more: float
) -> None:
    """As both ways played out say: one or the other has the GPU until the shorter job ends, then the longer one."""
    work_longer = longer[1] * work / shorter[0] + more  # it ends later in any case

    def sum_s(to_longer: bool) -> float:
        first_s = work / shorter[0 if to_longer else 1]
        done = first_s * longer[1 if to_longer else 0]
        return 2 * first_s + (work_longer - done) / longer[1]

    kept, lent = sum_s(False), sum_s(True)
    if abs(kept - lent) > 1e-6 * kept:
        assert longer_gains_more(shorter, longer) == (lent < kept)


@pytest.fixture
def types(tmp_path: Path) -> Throughputs:
    """`big` is four times as fast on an A100 as on a T4, and scales; `small` is twice as fast, and hardly scales."""
    path, rates = tmp_path / "types.csv", {"big": (4.0, (1.0, 2.0, 4.0)), "small": (2.0, (1.0, 1.2, 1.3))}
    rows = [(model, gpus, kind, pace * (ratio if kind == "a100" else 1.0)) for model, (ratio, paces) in rates.items()
            for gpus, pace in zip((1, 2, 4), paces, strict=True) for kind in ("a100", "t4")]  # fmt: skip
    text = "".join(f"{model},0,{gpus},{kind},{rate}\n" for model, gpus, kind, rate in rows)
    path.write_text("model,batch,gpus,gpu_type,steps_per_s\n" + text)
    return Throughputs(str(path), reference="t4")


TYPED = [{"name": "n1", "gpus": 4, "gpu_types": "gpu:a100:4"}, {"name": "n2", "gpus": 8, "gpu_types": "gpu:t4:8"}]
SIA_SIX = ((1, "model=big min_gpus=1 max_gpus=4"), (1, "model=small min_gpus=1 max_gpus=4"), (2, "model=small"),
           (2, "model=small"), (4, "model=small"), (1, "model=small"))  # fmt: skip


def test_sia__two_rounds_by_hand(types: Throughputs) -> None:
    """The page's: the A100 go to the jobs of one GPU, job 1 grows an hour later, the others keep type and size."""
    policy, carry = Sia(speeds=types), {}
    for now_s, sizes in ((0.0, [1, 1, 2, 2, 4, 1]), (3_600.0, [2, 1, 2, 2, 4, 1])):
        ranking = policy.rank(told(*SIA_SIX, nodes=TYPED, now_s=now_s, carry=carry))
        wanted, carry = ranking.changes, dict(ranking.carry)
        assert ranking.why["given_gpus"].tolist() == sizes
        assert wanted is not None and wanted.gpu_type is not None
        assert list(wanted.gpu_type) == ["a100", "a100", "t4", "t4", "t4", "a100"]
    assert (ranking.order + 1).tolist() == [5, 1, 3, 4, 2, 6]


def test_sia__a_young_job_keeps_its_type(types: Throughputs) -> None:
    """It would be twice as fast on the A100 that got free: worth a restart after an hour, and not after a minute."""
    rows = [{"gpus": 1, "comment": "slurmsched: model=small", "state": "RUNNING", "submit_s": came_s}
            for came_s in (0.0, 3_580.0)]  # fmt: skip
    held = [{"job_id": job, "node": "n2", "gpus": 1} for job in (1, 2)]
    bare = snapshot(rows, TYPED, allocations=held, now_s=3_600.0)
    ones = np.ones(2, np.int64)
    kept = {
        **SizeRound("sia", ones, ones, 0 * ones, 0.0).carry(bare),
        "on_type": [1.0, 1.0],
        "sia_types": ["a100", "t4"],
    }
    ranking = Sia(speeds=types).rank(snapshot(rows, TYPED, allocations=held, now_s=3_600.0, carry=kept))
    assert ranking.changes is not None and ranking.changes.gpu_type is not None
    assert list(ranking.changes.gpu_type) == ["a100", "t4"]
    assert ranking.carry["changes"] == [1.0, 0.0]


def test_sia__sizes_leave_no_rests() -> None:
    """Doublings within a node, then whole nodes: of 3 GPUs in a job's hints it takes two."""
    kinds = GpuKinds.of(snapshot([], [{"name": f"n{n}", "gpus": 6, "gpu_types": "gpu:t4:6"} for n in range(3)]))
    assert [sizes.tolist() for sizes in kinds.sizes] == [[1, 2, 4, 6, 12, 18]]
    assert Sia(serial=0.0).rank(told((2, "min_gpus=2 max_gpus=3"))).why["given_gpus"].tolist() == [2]
    assert Sia(serial=0.0).rank(told((3, "min_gpus=3 max_gpus=3"))).why["given_gpus"].tolist() == [3]


def test_sia__a_job_keeps_a_size_that_leaves_a_rest() -> None:
    """Three GPUs and one of four, for three rounds: the first job neither stops nor takes the GPU of the second. Nor
    does it shrink when what it had before is forgotten."""
    hints = ("min_gpus=3 max_gpus=8", "")
    rows = [{"gpus": gpus, "comment": f"slurmsched: {each}"} for gpus, each in zip((3, 1), hints, strict=True)]
    held, carry = [{"job_id": 1, "node": "n1", "gpus": 3}, {"job_id": 2, "node": "n1", "gpus": 1}], {}
    for now_s in (0.0, 600.0, 1_200.0):
        seen = snapshot(
            [{**row, "state": "RUNNING" if now_s else "PENDING"} for row in rows], "1x4", now_s=now_s,
            allocations=held if now_s else [], carry=carry,
        )  # fmt: skip
        ranking = Sia().rank(seen)
        assert ranking.why["given_gpus"].tolist() == [3, 1]
        carry = dict(ranking.carry)
    eight = {"gpus": 8, "comment": f"slurmsched: {ANY}", "state": "RUNNING"}
    forgotten = snapshot([eight], "1x8", now_s=600.0, allocations=[{"job_id": 1, "node": "n1", "gpus": 8}])
    assert Sia().rank(forgotten).why["given_gpus"].tolist() == [8]


DRAINS = [{"name": "n1", "gpus": 8, "state": "DRAINING"}, {"name": "n2", "gpus": 4}]


@pytest.mark.parametrize("policy", [Dragon(), BestScaling(serial=0.0), Optimus(serial=0.0)])
def test_elastic__idle_gpus_of_draining_nodes_are_given_to_nobody(policy: Any) -> None:
    """Four of twelve GPUs take jobs. What runs on the draining node has its two besides."""
    waits = {"gpus": 1, "comment": "slurmsched: min_gpus=1 max_gpus=16 dur=9h"}
    assert policy.rank(snapshot([waits], DRAINS)).why["given_gpus"].tolist() == [4]
    held = [{"job_id": 1, "node": "n1", "gpus": 2}]
    both = snapshot([{"gpus": 2, "state": "RUNNING"}, waits], DRAINS, allocations=held)
    assert policy.rank(both).why["given_gpus"].tolist() == [2, 4]


@pytest.mark.parametrize("policy", [Dragon(), BestScaling(serial=0.0)])
@pytest.mark.parametrize("large", [(64, ""), (1, "min_gpus=9999999 max_gpus=9999999"), (6, "")])
def test_elastic__a_job_that_never_fits_keeps_nobody_waiting(policy: Any, large: tuple[int, str]) -> None:
    """It is first in line; the others start and grow. So it is where a node that it may not use would be enough."""
    gpus, hints = large
    rows = [{"gpus": gpus, "comment": f"slurmsched: {hints}", "nodes_excluded": "n1" if gpus == 6 else ""},
            {"gpus": 1, "comment": "slurmsched: min_gpus=1 max_gpus=5"}, {"gpus": 2}]  # fmt: skip
    ranking = policy.rank(snapshot(rows, "2x4"))
    assert ranking.why["given_gpus"].tolist() == [0, 5, 2]
    assert ranking.notes == ("1 job needs more GPUs than the usable nodes have: given none",)


def test_sia__a_job_on_a_draining_node_keeps_what_it_has() -> None:
    """It holds two GPUs there and one of the four open ones: three are left for the job that waits."""
    rows = [{"gpus": 3, "comment": f"slurmsched: {ANY}", "state": "RUNNING"},
            {"gpus": 4, "comment": "slurmsched: min_gpus=3 max_gpus=4"}]  # fmt: skip
    held = [{"job_id": 1, "node": node, "gpus": gpus} for node, gpus in (("n1", 2), ("n2", 1))]
    ranking = Sia().rank(snapshot(rows, DRAINS, allocations=held))
    assert ranking.why["given_gpus"].tolist() == [3, 3]
    assert ranking.order.tolist() == [0, 1]


def test_sia__without_a_solution_the_last_round_stays(types: Throughputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is stopped because the solver found nothing; job 7, of which the last round knows nothing, runs on."""
    policy = Sia(speeds=types)
    first = policy.rank(told(*SIA_SIX, nodes=TYPED))
    monkeypatch.setattr("slurmsched.policies.sia.matched", lambda *_: None)
    rows = [{"gpus": gpus, "comment": f"slurmsched: {hints}"} for gpus, hints in SIA_SIX]
    held = [{"job_id": 7, "node": "n2", "gpus": 1}]
    later = policy.rank(
        snapshot([*rows, {"state": "RUNNING"}], TYPED, now_s=600.0, carry=first.carry, allocations=held)
    )
    assert later.why["given_gpus"].tolist() == [1, 1, 2, 2, 4, 1, 1]
    assert later.notes == ("the solver found no solution: each job keeps what it had in the last round",)
    assert later.changes is not None and later.changes.gpu_type is not None
    assert list(later.changes.gpu_type) == ["a100", "a100", "t4", "t4", "t4", "a100", "t4"]


def test_dragon__two_rounds_by_hand() -> None:
    """The page's: jobs 1 and 2 give seven GPUs to jobs 5, 6 and 4, and when jobs 3 and 5 are gone they grow in turn."""
    sizes = ((6, 1, 8), (4, 2, 6), (2, 2, 2), (0, 4, 4), (0, 1, 1), (0, 2, 4))
    has, low, high = (np.array(column) for column in zip(*sizes, strict=True))
    first = shared_by_load(has, low, high * 1.0, 12)
    assert first.tolist() == [1, 2, 2, 4, 1, 2]
    left = np.array([0, 1, 3, 5])
    assert shared_by_load(first[left], low[left], high[left] * 1.0, 12).tolist() == [2, 3, 4, 3]


def test_dragon__nobody_shrinks_in_vain_and_nobody_grows_while_one_waits() -> None:
    """Job 2 needs six and job 1 could give three of four besides the two that are free; job 3 needs two, as job 2 is
    served before it only if it can start."""
    one = np.array([4, 0]), np.array([1, 6]), np.array([8.0, 6.0])
    assert shared_by_load(*one, 6).tolist() == [4, 0]
    small = np.array([4, 0, 0]), np.array([1, 6, 2]), np.array([8.0, 6.0, 2.0])
    assert shared_by_load(*small, 6).tolist() == [4, 0, 2]
    assert shared_by_load(np.array([4, 3]), np.array([1, 3]), np.array([8.0, 3.0]), 2).tolist() == [2, 0]


def test_dragon__replays_without_a_stop() -> None:
    """Job 1 fills the cluster by 60 s, and gives four GPUs to job 2 at the next round."""
    hints = "slurmsched: min_gpus=1 max_gpus=8"
    trace = Trace.of([1, 2], [1, 4], [0.0, 100.0], [3_600.0, 3_600.0], comment=[hints, "slurmsched: dur=1h"])
    cluster = PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([4, 4]).nodes), AmdahlSpeed())
    replay_events(cluster, DirectPlanner(Dragon(), Scattered(), "skip"), CarryStore())
    outcomes = cluster.outcomes()
    assert (outcomes.first_start_s.tolist(), outcomes.preemptions.sum()) == ([0.0, 120.0], 0)


def test_best_scaling__six_jobs_by_hand(curves: Throughputs) -> None:
    """The page's: 4 + 3 + 1 times as fast is more than the 3 + 3 + 1.2 of pollux; a seventh job of six GPUs waits."""
    jobs = tuple((1, f"model={model} min_gpus=1 max_gpus=4") for model in ("fast", "fast", "slow")) + ((1, ""),) * 3
    ranking = BestScaling(speeds=curves).rank(told(*jobs, nodes="1x11"))
    assert ranking.why["given_gpus"].tolist() == [4, 3, 1, 1, 1, 1]
    ranking = BestScaling(speeds=curves).rank(told(*jobs, (6, ""), (1, ""), nodes="1x11"))
    assert ranking.why["given_gpus"].tolist() == [4, 3, 1, 1, 1, 1, 0, 0]


def test_best_scaling__large_sizes_are_thinned_and_many_jobs_have_the_least() -> None:
    """Up to 64 every size, then eight a doubling and the largest; of three jobs the last has its least size."""
    some = thinned(JobSizes(np.arange(1, 300), np.arange(1, 300) * 1.0))
    assert some.gpus.tolist() == [*range(1, 65), *range(72, 129, 8), *range(144, 257, 16), 288, 299]
    assert (some.speed == some.gpus).all()
    assert BestScaling(most_jobs=2).rank(told(*[(1, ANY)] * 3, nodes="1x9")).why["given_gpus"].tolist() == [4, 4, 1]


def test_marble__six_jobs_by_hand(curves: Throughputs) -> None:
    """The page's; a job that runs keeps what it has."""
    jobs = ((1, "model=fast min_gpus=1 max_gpus=8"), (1, "model=slow min_gpus=1 max_gpus=8"),
            (1, "model=fast min_gpus=1 max_gpus=2"), (2, ""), (8, ""), (1, "min_gpus=1 max_gpus=8"))  # fmt: skip
    ranking = Marble(serial=0.15, speeds=curves).rank(told(*jobs, nodes="2x4"))
    assert ranking.changes is not None and ranking.changes.gpus is not None
    assert ranking.changes.gpus.tolist() == [4, 1, 2, 2, 8, 3]
    assert (ranking.order + 1).tolist() == [1, 2, 3, 4, 5, 6]
    one = [{"gpus": 1, "comment": f"slurmsched: {ANY}"}]
    assert Marble(serial=0.0).rank(snapshot(one, DRAINS)).why["given_gpus"].tolist() == [4]  # eight drain
    named = [{**one[0], "nodes_excluded": name} for name in ("n1", "")]
    of_eight = [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 4}]
    assert Marble(serial=0.0).rank(snapshot(named, of_eight)).why["given_gpus"].tolist() == [4, 8]
    rows = [{"gpus": 4, "comment": f"slurmsched: {ANY}", "state": "RUNNING"}]
    seen = snapshot(rows, "2x4", allocations=[{"job_id": 1, "node": "n1", "gpus": 2}])
    wanted = Marble().rank(seen).changes
    assert wanted is not None and wanted.gpus is not None and wanted.gpus.tolist() == [2]
