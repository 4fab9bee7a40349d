"""Speeds on other numbers of GPUs: Amdahl's law, profiles of training, tables by size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Assignments, Snapshot
from slurmsched.sim.physics.gpu_speed import GpuTypeSpeed
from slurmsched.sim.physics.scaling_speed import AmdahlSpeed, TrainingSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding

CIFAR = "cifar10 (batch size 512)"


def asking(gpus: int, places: list[Place], **job: Any) -> tuple[Snapshot, Assignments]:
    """Jobs that hold the places and ask for so many GPUs."""
    nodes = [{"name": f"n{i}", "gpus": 4, "gpu_types": "gpu:v100:4"} for i in range(4)]
    given, held = holding(places, nodes, "", **job)
    jobs = given.jobs.with_columns(gpus=np.full(len(places), gpus, np.int32))
    return Snapshot(given.now_s, jobs, given.nodes, given.partitions, given.allocations, given.site), held


def test_amdahl__by_hand() -> None:
    """A fifth of the work is serial: 1 / (0.2 + 0.8 / 4) is 2.5 times as fast on four as on one. At the size asked for
    it is 1 to the last digit."""
    places = [{0: 0b1}, {1: 0b1111}, {2: 0b1111, 3: 0b1111}]
    assert AmdahlSpeed(serial=0.2).speed(*asking(1, places)).tolist() == pytest.approx([1.0, 2.5, 1 / 0.3])
    assert AmdahlSpeed(serial=0.2).speed(*asking(4, places)).tolist()[1] == 1.0


def test_amdahl__conforms() -> None:
    """The rules of all physics."""
    check_physics(AmdahlSpeed())


def test_amdahl__refuses_a_share_that_is_none() -> None:
    """Of 0 to 1."""
    with pytest.raises(ConfigError, match="serial"):
        AmdahlSpeed(serial=1.5)


def test_goodput__as_recorded_on_the_fewest_nodes() -> None:
    """A job at its own size, batch and nodes needs the recorded time in all. On more nodes it needs longer, and with
    the best batch size less."""
    together, apart = {0: 0b1111}, {0: 0b1, 1: 0b1, 2: 0b1, 3: 0b1}

    def run_s(physics: TrainingSpeed, place: Place) -> float:
        given, held = asking(4, [place], name=CIFAR)
        done, total = np.zeros(1), 0.0
        while done[0] < 1.0:
            speed, until = physics.pace(given, held, done)
            assert until[0] > done[0]
            total += (min(until[0], 1.0) - done[0]) / speed[0]
            done = np.minimum(until, 1.0)
        return float(total)

    assert run_s(TrainingSpeed(), together) == pytest.approx(1.0, rel=0.01)
    assert run_s(TrainingSpeed(), apart) > 1.2
    assert run_s(TrainingSpeed(adapt=True), together) < 1.0


def test_goodput__gangs_of_several_nodes_slow_each_other() -> None:
    """Two gangs meet on a node: both lose a quarter. A job of one node beside them loses nothing."""
    places: list[Place] = [{0: 0b11, 1: 0b11}, {1: 0b1100, 2: 0b11}, {2: 0b1100}, {3: 0b1111}]
    given, held = asking(4, places, name=CIFAR)
    alone, beside = TrainingSpeed().speed(given, held), TrainingSpeed(interference=0.25).speed(given, held)
    assert (beside / alone).tolist() == pytest.approx([0.75, 0.75, 1.0, 1.0])
    assert [TrainingSpeed().shared, TrainingSpeed(interference=0.25).shared] == [False, True]


@pytest.mark.parametrize(("name", "says"), [("gpt (batch size 8)", "has no profile"), ("cifar10", "has no batch size")])
def test_goodput__says_what_a_job_lacks(name: str, says: str) -> None:
    """A model without a profile, and one without a batch size."""
    with pytest.raises(InputError, match=says):
        TrainingSpeed().speed(*asking(1, [{0: 1}], name=name))


def test_goodput__refuses_a_loss_that_is_none() -> None:
    """Below 1."""
    with pytest.raises(ConfigError, match="interference"):
        TrainingSpeed(interference=1.0)


def test_gpu_types__other_sizes_by_the_table(tmp_path: Path) -> None:
    """Steps of one batch: on two GPUs, between one and four along a straight line in logarithms. At the size asked for
    it is 1 to the last digit. A model on one size only has no speed on another."""
    path = tmp_path / "speeds.csv"
    path.write_text("model,batch,gpus,gpu_type,steps_per_s\nA,8,1,v100,3\nA,8,4,v100,12\n"
                    "A,8,1,v100_unconsolidated,3\nA,8,4,v100_unconsolidated,12\nB,8,1,v100,5\n")  # fmt: skip
    physics, name = GpuTypeSpeed(str(path)), "A (batch size 8)"
    assert physics.speed(*asking(1, [{0: 1}, {1: 0b11}, {2: 0b1111}], name=name)).tolist() == pytest.approx([1, 2, 4])
    assert physics.speed(*asking(1, [{0: 1}], name=name)).tolist() == [1.0]
    with pytest.raises(InputError, match="on 2 GPUs has no throughput"):
        physics.speed(*asking(1, [{0: 0b11}], name="B (batch size 8)"))


def test_gpu_types__sizes_of_a_shipped_table() -> None:
    """Gavel's steps of one V100 and of four: 24.1 and 95.6 a second."""
    physics, name = GpuTypeSpeed("gavel"), "ResNet-18 (batch size 64)"
    one, four = physics.speed(*asking(1, [{0: 1}, {1: 0b1111}], name=name)).tolist()
    assert (one, round(four, 2)) == (1.0, 3.97)
