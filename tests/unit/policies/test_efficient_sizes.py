"""Non-Intrusive, SMD and DL2: the jobs of their pages by hand, and what they keep to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.policy_network import PolicyNetwork
from slurmsched.model import Snapshot
from slurmsched.model.trace import Trace
from slurmsched.policies.dl2 import FEATURES, Dl2
from slurmsched.policies.non_intrusive import NonIntrusive
from slurmsched.policies.smd import Smd, rounded, shares, with_more
from slurmsched.sim.experiments.policy_training import check_trainable, train, with_lesson
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.testing import check_policy, snapshot
from tests.unit.policies.test_elastic import ANY, told

REQUEST = ReplayRequest(cluster="1x8", placement="consolidated", physics="amdahl")


def sizes(policy: Any, seen: Snapshot) -> list[int]:
    """GPUs that the policy gives each job."""
    return [int(gpus) for gpus in policy.rank(seen).why["given_gpus"]]


@pytest.mark.parametrize("policy", [NonIntrusive(), NonIntrusive(restart_cost_s=0.0), Smd(), Smd(roundings=1), Dl2()])
def test_policies__conform(policy: Any) -> None:
    """The rules of all policies."""
    check_policy(policy)


RUNNING = [
    {"gpus": 2, "comment": f"slurmsched: dur=10h progress=1/2 {ANY}", "state": "RUNNING"},
    {"gpus": 1, "comment": f"slurmsched: dur=1h progress=99/100 {ANY}", "state": "RUNNING"},
    {"gpus": 2, "state": "RUNNING"},
]
HELD = [{"job_id": 1, "node": "n1", "gpus": 2}, {"job_id": 2, "node": "n1", "gpus": 1},
        {"job_id": 3, "node": "n1", "gpus": 2}]  # fmt: skip


def test_non_intrusive__five_jobs_by_hand() -> None:
    """The page's: job 2 is nearly done, so that a restart does not pay; without its cost it grows."""
    rows = [*RUNNING, {"gpus": 4, "comment": "slurmsched: dur=4h min_gpus=2 max_gpus=8"}, {"gpus": 8}]
    seen = snapshot(rows, "1x12", allocations=HELD)
    assert sizes(NonIntrusive(serial=0.1), seen) == [4, 1, 2, 5, 0]
    assert sizes(NonIntrusive(serial=0.1, restart_cost_s=0.0), seen) == [3, 3, 2, 4, 0]
    assert sizes(NonIntrusive(serial=0.1, least_efficiency=0.9), seen) == [2, 1, 2, 3, 0]


def test_non_intrusive__arrivals_and_ends_choose_anew_and_running_jobs_shrink() -> None:
    """Not only at the end of a round; the waiting job gets its least size from those that have more."""
    policy = NonIntrusive(serial=0.0)
    alone = snapshot(RUNNING, "1x6", allocations=HELD)
    first = policy.rank(alone)
    assert first.why["given_gpus"].tolist() == [3, 1, 2]
    again = snapshot(RUNNING, "1x6", allocations=HELD, now_s=1.0, carry=first.carry)
    assert policy.rank(again).changes.gpus.tolist() == [3, 1, 2]  # type: ignore[union-attr]
    came = snapshot([*RUNNING, {"gpus": 1}], "1x6", allocations=HELD, now_s=2.0, carry=first.carry)
    assert sizes(policy, came) == [2, 1, 2, 1]


SMD_FIVE = ((2, "dur=1h min_gpus=1 max_gpus=4"), (4, "dur=2h min_gpus=2 max_gpus=4"), (8, "dur=1h"), (1, "dur=30m"),
            (4, f"dur=10h {ANY}"))  # fmt: skip


def test_smd__five_jobs_by_hand() -> None:
    """The page's; who is not chosen waits for the next interval."""
    ranking = Smd(serial=0.1).rank(told(*SMD_FIVE, nodes="1x8"))
    assert ranking.why["given_gpus"].tolist() == [4, 3, 0, 1, 0]
    assert (ranking.order + 1).tolist() == [1, 2, 4, 3, 5]
    assert ranking.changes is not None and ranking.changes.start_s is not None
    assert ranking.changes.start_s[4] == 60.0


def test_smd__cpus_and_memory_bound_the_choice() -> None:
    """Eight GPUs are free, and CPUs for one job, or memory for one."""
    hint = {"comment": "slurmsched: dur=1h", "gpus": 1}
    for column, node in (("cpus", {"cpus": 6}), ("memory_mib", {"memory_mib": 6.0})):
        jobs = [{**hint, column: 4}, {**hint, column: 4, "comment": "slurmsched: dur=30m"}]
        seen = snapshot(jobs, [{"name": "n1", "gpus": 8, **node}])
        assert sizes(Smd(), seen) == [0, 1]


def test_smd__running_jobs_keep_what_they_hold() -> None:
    """Only what is free is given out."""
    seen = snapshot([*RUNNING, {"gpus": 4, "comment": f"slurmsched: dur=1h {ANY}"}], "1x8", allocations=HELD)
    assert sizes(Smd(serial=0.0), seen) == [2, 1, 2, 3]


def test_knapsack__no_choice_exceeds_what_is_free() -> None:
    """Of random knapsacks: one choice a job at most, within each resource; more only adds worth."""
    chance = np.random.default_rng(1)
    for _ in range(20):
        counts = chance.integers(1, 5, 8)
        worth = [chance.random(count) for count in counts]
        use = [np.sort(chance.integers(1, 6, (count, 2)), axis=0).astype(float) for count in counts]
        free = chance.integers(2, 14, 2).astype(float)
        made = rounded(shares(worth, use, free), worth, use, free, 4, chance)
        more = with_more(made, worth, use, free)
        for chosen in (made, more):
            taken = sum((use[job][at] for job, at in enumerate(chosen.tolist()) if at >= 0), np.zeros(2))
            assert (taken <= free + 1e-9).all()
        total = [sum(worth[job][at] for job, at in enumerate(each.tolist()) if at >= 0) for each in (made, more)]
        assert total[1] >= total[0] - 1e-12


DL2_FOUR = ((1, ANY), (1, "min_gpus=1 max_gpus=3"), (2, "min_gpus=2 max_gpus=8"), (2, ""))


def test_dl2__four_jobs_by_hand_without_weights() -> None:
    """The page's; it says what to do."""
    ranking = Dl2().rank(told(*DL2_FOUR))
    assert ranking.why["given_gpus"].tolist() == [4, 3, 3, 2]
    assert "slurmsched policy train dl2" in ranking.notes[0]


def test_dl2__takes_the_highest_score_until_it_stops(tmp_path: Path) -> None:
    """A network that likes stopping, and one that likes large jobs. Jobs beyond the window have their least size."""
    for feature, score, expected in (("stop", 1.0, [1, 1, 2, 2]), ("asked", 1.0, [2, 1, 7, 2])):
        weights = np.zeros((len(FEATURES), 1))
        weights[FEATURES.index("stop")] = -9.0
        weights[FEATURES.index(feature)] = score
        path = tmp_path / f"{feature}.json"
        path.write_text(PolicyNetwork(((weights, np.zeros(1)),), FEATURES).text())
        seen = told((1, ANY), (1, "min_gpus=1 max_gpus=3"), (2, "min_gpus=2 max_gpus=7"), (2, ""))
        assert sizes(Dl2(weights=str(path)), seen) == expected
        assert Dl2(weights=str(path)).rank(seen).notes == ()
    assert sizes(Dl2(most_jobs=1), told(*DL2_FOUR)) == [7, 1, 2, 2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [("", "cannot be read"), ('{"inputs": ["x"], "layers": []}', "do not fit"),
     ('{"inputs": ["x"], "layers": [{"weights": [[1e999]], "bias": [0]}]}', "no finite number"),
     ('{"inputs": ["x"], "layers": [{"weights": [[1]], "bias": [0]}]}', "other features")],
)  # fmt: skip
def test_dl2__refuses_weights_that_it_cannot_use(tmp_path: Path, text: str, fault: str) -> None:
    """When it is made: nothing is asked of Slurm by then."""
    (path := tmp_path / "weights.json").write_text(text)
    with pytest.raises(InputError, match=fault):
        Dl2(weights=str(path))


def test_network__gradients_are_those_of_its_scores() -> None:
    """Against differences."""
    chance = np.random.default_rng(3)
    network = PolicyNetwork.new(("a", "b"), 1, (3,))
    network = PolicyNetwork(tuple((w + chance.normal(size=w.shape), b) for w, b in network.layers), network.inputs)
    features, slope = chance.normal(size=(4, 2)), chance.normal(size=4)
    found = network.gradients(features, slope)
    for layer, place in ((0, (1, 2)), (1, (0, 0))):
        weights = [w.copy() for w, _ in network.layers]
        weights[layer][place] += 1e-6
        moved = PolicyNetwork(tuple(zip(weights, (b for _, b in network.layers), strict=True)), network.inputs)
        rise = float(slope @ (moved.scores(features) - network.scores(features))) / 1e-6
        assert found[layer][0][place] == pytest.approx(rise, rel=1e-4)


def test_train__the_lesson_is_learnt_and_the_same_seed_gives_the_same_file() -> None:
    """After the lesson the network does as the simple rule does; replays after it keep what is best."""
    hints = f"slurmsched: {ANY}"
    trace = Trace.of(job_id=range(1, 7), gpus=[2] * 6, submit_s=[0, 0, 600, 600, 1_200, 1_800], comment=[hints] * 6,
                     duration_s=[7_200, 3_600, 1_200, 5_400, 3_600, 600])  # fmt: skip
    said: list[float] = []
    texts = [train(trace, REQUEST, Dl2(serial=0.1), 2, 5, lambda _, jct_s: said.append(jct_s)).text() for _ in "ab"]
    assert texts[0] == texts[1]
    assert (len(said), said[:3]) == (6, said[3:])
    taught = [(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]]), 2), (np.array([[1.0, 0.0], [0.0, 3.0]]), 1)] * 50
    network = with_lesson(PolicyNetwork.new(("stop", "share"), 0), taught, 0)
    assert [int(network.scores(features).argmax()) for features, _ in taught[:2]] == [2, 1]


def test_train__needs_a_network_and_jobs_with_sizes() -> None:
    """What is missing is named."""
    with pytest.raises(ConfigError, match="dl2 and harmony have one"):
        check_trainable("fifo")
    with pytest.raises(ConfigError, match="min_gpus and max_gpus"):
        train(Trace.of(job_id=[1], gpus=[2], submit_s=[0], duration_s=[60]), REQUEST, Dl2(), 1, 0)
