"""Two jobs on the same GPUs, at the speeds that a table has of the pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.model import Assignments, Labels, Snapshot
from slurmsched.model.trace import Trace
from slurmsched.sim.cluster_layout import ClusterLayout
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.cluster_hardware import ClusterHardware
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.physics_cluster import PhysicsCluster
from slurmsched.sim.physics.gpu_speed import GpuTypeSpeed, PairSpeed
from slurmsched.sim.physics.group_speed import GroupSpeed
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding

A, B, C = (f"('{name}', 1)" for name in "ABC")
TABLE = {
    "v100": {A: {"null": 10.0, A: [6.0, 6.0], B: [8.0, 15.0]}, B: {"null": 20.0}, C: {"null": 4.0}},
    "k80": {A: {"null": 5.0, B: [4.0, 3.0]}, B: {"null": 4.0}},
}
NODES = [{"name": "n0", "gpus": 2, "gpu_types": "gpu:v100:2"}, {"name": "n1", "gpus": 2, "gpu_types": "gpu:k80:2"}]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "throughputs.json"
    path.write_text(json.dumps(TABLE))
    return str(path)


def speeds(table: str, places: list[Place], models: str, **more: float) -> list[float]:
    """Of jobs with these models at these places."""
    given, held = holding(places, NODES, "")
    named = given.jobs.with_columns(name=Labels.of(list(models)))
    return PairSpeed(table, **more).speed(replace(given, jobs=named), held).tolist()  # type: ignore[arg-type]


def test_colocated__conforms(tmp_path: Path) -> None:
    """The rules of all physics."""
    sizes = {str(("A", gpus)): {"null": 1.0 + gpus} for gpus in range(1, 17)}
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"a100": sizes, "a100_unconsolidated": sizes}))
    check_physics(PairSpeed(str(path), "a100"), ("A",))


def test_colocated__alone_is_as_fast_as_by_gpu_type(table: str) -> None:
    """On V100, and on K80 at half of that."""
    given = holding([{0: 1}, {1: 1}], NODES, "", name="A")
    assert PairSpeed(table).speed(*given).tolist() == GpuTypeSpeed(table).speed(*given).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("places", "models", "expected"),
    [
        ([{0: 1}, {0: 1}], "AB", [0.8, 0.75]), ([{0: 1}, {0: 1}], "BA", [0.75, 0.8]),  # told in one order only
        ([{0: 1}, {0: 2}, {0: 1}], "AAB", [0.8, 1.0, 0.75]), ([{1: 1}, {1: 1}], "AB", [0.4, 0.15]),
        ([{0: 1}, {0: 1}], "AA", [0.6, 0.6]),
    ],
)  # fmt: skip
def test_colocated__beside_another_at_the_pairs_own_speed(
    table: str, places: list[Place], models: str, expected: list[float]
) -> None:
    """In seconds of V100 alone; on K80 the pair's throughputs there count."""
    assert speeds(table, places, models) == pytest.approx(expected)


def test_colocated__whole_steps_of_a_round_count_for_pairs_too(table: str) -> None:
    """8 steps/s for 0.4 s are 3 whole steps, and 15 are 6 of them."""
    assert speeds(table, [{0: 1}, {0: 1}], "AB", whole_steps_s=0.4) == pytest.approx([7.5 / 10, 15 / 20])


@pytest.mark.parametrize(
    ("places", "models", "message"),
    [
        ([{0: 1}, {0: 1}], "AC", "jobs 1 and 2: models 'A' and 'C' on the same 1 GPU have no throughputs on 'v100'"),
        ([{0: 1}, {0: 1}, {0: 1}], "ABA", "job 3 shares GPUs otherwise than all of them with 1 other job"),
    ],
)  # fmt: skip
def test_colocated__refuses_what_nobody_measured(table: str, places: list[Place], models: str, message: str) -> None:
    """Jobs, models and the type are named."""
    with pytest.raises(InputError, match=message):
        speeds(table, places, models)


def test_colocated__refuses_a_part_of_the_gpus() -> None:
    """A job on two GPUs and another on one of them."""
    with pytest.raises(InputError, match="job 2 shares GPUs otherwise"):
        PairSpeed("gavel").speed(*holding([{0: 0b11}, {0: 0b01}], NODES, "", name="ResNet-18 (batch size 16)"))


def test_grouped__jobs_of_a_node_slow_each_other_on_other_gpus() -> None:
    """By the root of what they keep on the same GPU; of a job on two nodes the slower counts."""
    one, other, alone = "ResNet-50 (batch size 128)", "A3C", "LM (batch size 80)"
    check_physics(GroupSpeed(node_loss=0.5), (one, other))
    given, held = holding([{0: 1}, {0: 2, 1: 1}, {1: 2}], NODES, "")
    given = replace(given, jobs=given.jobs.with_columns(name=Labels.of([one, other, alone])))
    kept = GroupSpeeds()
    first, second = kept.kept((one, other), 1).kept
    third, fourth = kept.kept((other, alone), 1).kept
    expected = [first**0.5, min(second, third) ** 0.5, fourth**0.5]
    assert GroupSpeed(node_loss=0.5).speed(given, held).tolist() == pytest.approx(expected)
    assert GroupSpeed().speed(given, held).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ConfigError, match="node_loss"):
        GroupSpeed(node_loss=2.0)


class Together:
    """Job 2 on the GPU of job 1 as long as both are there, and job 3 on the other."""

    def plan(self, snapshot: Snapshot) -> IdealPlan:
        rows = np.arange(len(snapshot.jobs))
        ids = snapshot.jobs.job_id.tolist()
        node = np.zeros(len(rows), np.int64)
        order = np.array([row for row in rows if ids[row] != 2] + [row for row in rows if ids[row] == 2], np.int64)
        host = np.array([ids.index(1) if ids[row] == 2 and 1 in ids else -1 for row in order], np.int64)
        ones = np.ones(len(rows), np.int64)
        return IdealPlan(target=Assignments(order, rows, ones, node, ones, host=host))


def cluster(physics: GpuTypeSpeed, models: str, duration_s: list[int]) -> PhysicsCluster:
    jobs = len(models)
    trace = Trace.of(range(1, jobs + 1), [1] * jobs, [0] * jobs, duration_s, model=list(models))
    return PhysicsCluster(trace, ClusterHardware.of(ClusterLayout.of_gpus([2], ["v100"]).nodes), physics)


def test_cluster__two_share_and_who_is_left_goes_on_alone(table: str) -> None:
    """A at 0.8 and B at 0.75 of their speed: B's 15 s take 20, in which A made 16 of its 26 s; 10 are left alone.
    Two of two GPUs are held all the time, and never three."""
    made = cluster(PairSpeed(table), "ABC", [26, 15, 60])
    replay_events(made, Together(), CarryStore())
    assert made.outcomes().end_s.tolist() == pytest.approx([30.0, 20.0, 60.0])
    _, busy, waiting = made.history.steps()
    assert (busy.tolist(), waiting.max()) == ([2, 2, 1, 0], 0)


def test_cluster__a_gpu_is_free_when_both_have_left_it(table: str) -> None:
    """The host ends first, the guest keeps the GPU: one of two is free then."""
    made = cluster(PairSpeed(table), "AB", [8, 75])
    made.advance(0.0)
    made.apply(Together().plan(made.read()))
    assert (made.free, made.read().nodes.gpus_used.tolist()) == (1, [1])
    made.advance(10.0)
    assert (made.ended, made.free, made.read().nodes.gpu_mask_used.tolist()) == (1, 1, [1])
    made.advance(200.0)
    assert (made.finished, made.free) == (True, 2)


def test_cluster__refuses_to_share_without_physics_that_knows(table: str) -> None:
    """How fast two jobs are on a GPU is not to be made up."""
    made = cluster(GpuTypeSpeed(table), "AB", [8, 8])
    made.advance(0.0)
    with pytest.raises(ConfigError, match=r"jobs 1 and 2 would share GPUs.*--physics colocated"):
        made.apply(Together().plan(made.read()))
