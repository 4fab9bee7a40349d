"""Speed by GPU type, from a table in Gavel's form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.sim.physics.gpu_speed import GpuTypeSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import Place, holding

TABLE = {
    "v100": {"('A', 2)": {"null": 40.0, "('B', 1)": [1.0, 2.0]}, "('A', 4)": {"null": 60.0}, "('B', 2)": {"null": 8.0}},
    "v100_unconsolidated": {"('A', 2)": {"null": 20.0}, "('A', 4)": {"null": 15.0}},
    "k80": {"('A', 2)": {"null": 10.0}, "('A', 4)": {"null": 12.0}, "('B', 2)": {"null": 0.0}},
    "k80_unconsolidated": {"('A', 2)": {"null": 5.0}, "('A', 4)": {"null": 3.0}},
}
NODES = [{"name": f"n{i}", "gpus": 4, "gpu_types": f"gpu:{type_}4"} for i, type_ in enumerate(["v100:", "k80:", ""])]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "throughputs.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TABLE).encode()))
    return str(path)


def test_gpu_types__conforms(tmp_path: Path) -> None:
    """The rules of all physics, on nodes of A100."""
    sizes = {str(("A", gpus)): {"null": 1.0 + gpus} for gpus in range(1, 17)}
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"a100": sizes, "a100_unconsolidated": sizes}))
    check_physics(GpuTypeSpeed(str(path), "a100"), ("A",))


@pytest.mark.parametrize(
    ("place", "speed"),
    [
        ({0: 0b11}, 1.0), ({1: 0b11}, 0.25), ({2: 0b11}, 1.0),  # a node of no type has the reference's
        ({0: 1, 2: 1}, 0.5), ({0: 1, 1: 1}, 0.125), ({0: 0xF}, 1.0), ({1: 0xF}, 0.2),
    ],
)  # fmt: skip
def test_gpu_types__speed_over_that_of_the_reference_type(table: str, place: Place, speed: float) -> None:
    """By type, GPUs, and whether on one node; on two types the slower counts."""
    assert GpuTypeSpeed(table).speed(*holding([place], NODES, "", name="A")).tolist() == [speed]


@pytest.mark.parametrize(
    ("place", "efficiency", "speed"),
    [
        ({0: 0b1, 1: 0b1}, 0.0, 0.125),  # by equal parts of the batch, at the pace of the K80 on two nodes
        ({0: 0b1, 1: 0b1}, 1.0, (20 + 5) / 2 / 40), ({0: 0b1, 1: 0b1}, 0.8, 0.8 * (20 + 5) / 2 / 40),
        ({0: 0b111, 1: 0b1}, 0.8, 0.8 * (3 * 15 + 3) / 4 / 60),
        ({0: 0b1, 1: 0b1}, 0.2, 0.125),  # equal parts are better
        ({0: 0b1, 2: 0b1}, 0.8, 0.5), ({0: 0b11}, 0.8, 1.0),  # one type
    ],
)  # fmt: skip
def test_gpu_types__shares_of_the_batch_by_speed(table: str, place: Place, efficiency: float, speed: float) -> None:
    """The sum of what each GPU does in a gang of its type, times the efficiency, if that is more than equal parts."""
    found = GpuTypeSpeed(table, mixed_efficiency=efficiency).speed(*holding([place], NODES, "", name="A"))
    assert found.tolist() == [pytest.approx(speed)]


@pytest.mark.parametrize("value", [-0.1, 1.1, "much", True])
def test_gpu_types__refuses_an_efficiency_that_is_none(table: str, value: Any) -> None:
    """Of 0 to 1."""
    with pytest.raises(ConfigError) as caught:
        GpuTypeSpeed(table, mixed_efficiency=value)
    assert caught.value.key == "physics.mixed_efficiency"


@pytest.mark.parametrize(
    ("model", "gpus", "types"), [("A", 2, {"v100", "k80", ""}), ("A", 1, set()), ("B", 1, set()), ("C", 2, set())]
)
def test_gpu_types__runs_on(table: str, model: str, gpus: int, types: set[str]) -> None:
    """Types on which the table has a throughput on one node and on several; "" is the reference type."""
    assert GpuTypeSpeed(table).runs_on(model, gpus, ["v100", "k80", "h100", ""]) == types


def test_gpu_types__another_reference(table: str) -> None:
    """Run times are those on K80: a V100 is four times as fast."""
    assert GpuTypeSpeed(table, "k80").speed(*holding([{0: 0b11}], NODES, "", name="A")).tolist() == [4.0]


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("", {0: 0b11}, "job 1: model '' on 2 GPUs has no throughput on 'v100'"),
        ("A", {0: 1}, "job 1: model 'A' on 1 GPU has no throughput on 'v100'"),
        ("B", {1: 0b11}, "job 1: model 'B' on 2 GPUs has no throughput on 'k80'"),
    ],
)  # fmt: skip
def test_gpu_types__refuses_what_the_table_lacks(table: str, name: str, place: Place, message: str) -> None:
    """The job, its model, and the type are named."""
    with pytest.raises(InputError, match=message):
        GpuTypeSpeed(table).speed(*holding([place], NODES, "", name=name))


@pytest.mark.parametrize(
    ("words", "message"),
    [({}, "needs a table"), ({"reference": "h100"}, "has no type 'h100'; it has k80, k80_unconsolidated, v100")],
)
def test_gpu_types__refuses_a_missing_table_or_reference(table: str, words: dict[str, Any], message: str) -> None:
    """What there is is named."""
    with pytest.raises(ConfigError, match=message):
        GpuTypeSpeed(**({"throughputs": table} | words if words else {}))


@pytest.mark.parametrize("content", [b"[]", b'{"v100": 3}', b"no json"])
def test_gpu_types__refuses_a_file_that_is_no_table(tmp_path: Path, content: bytes) -> None:
    """The file is named."""
    path = tmp_path / "throughputs.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=str(path)):
        GpuTypeSpeed(str(path))


@pytest.mark.parametrize(("round_s", "speed"), [(0.0, 1.0), (0.11, 4 / 4.4), (0.01, 1.0)])
def test_gpu_types__whole_steps_of_a_round(table: str, round_s: float, speed: float) -> None:
    """40 steps a second are 4.4 in 0.11 s, of which 4 are whole; a round too short for one step cuts nothing."""
    place = holding([{0: 0b11}], NODES, "", name="A")
    assert GpuTypeSpeed(table, whole_steps_s=round_s).speed(*place).tolist() == pytest.approx([speed])
