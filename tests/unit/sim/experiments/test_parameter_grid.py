"""A grid in words, and the points that it spans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmsched.config_file import read_toml
from slurmsched.errors import ConfigError
from slurmsched.sim.experiments.parameter_grid import grid_points
from slurmsched.sim.experiments.replay_request import ReplayRequest

GRID = """
trace = "b.csv"
cluster = ["1x4", "2x4"]
seed = [0, 1]
[[policy]]
name = ["fifo", "srsf"]
[[policy]]
name = "discretized-las"
thresholds_gpu_s = [[4.0], [8.0, 9.0]]
"""


def test_points_of__spans_traces_clusters_seeds_and_policies(tmp_path: Path) -> None:
    """Traces of the command come first; a list of lists holds lists; a table's parameters are its own."""
    (tmp_path / "g.toml").write_text(GRID)
    points = grid_points(read_toml(tmp_path / "g.toml"), traces=["a.csv"])
    assert len(points) == 2 * 2 * 2 * 4
    assert [point.trace for point in points] == ["a.csv"] * 16 + ["b.csv"] * 16
    assert [(p.request.policy, p.request.parameters) for p in points[:4]] == [
        ("fifo", {}), ("srsf", {}), ("discretized-las", {"thresholds_gpu_s": [4.0]}),
        ("discretized-las", {"thresholds_gpu_s": [8.0, 9.0]}),
    ]  # fmt: skip
    assert {(p.request.cluster, p.request.seed) for p in points} == {(c, s) for c in ("1x4", "2x4") for s in (0, 1)}


def test_points_of__pairs_are_a_value_each_and_replace_the_files() -> None:
    """`policy.PARAMETER` is of the policies that have it; without a policy it is the default's."""
    pairs = ["policy.thresholds_gpu_s=[4.0]", "policy.thresholds_gpu_s=[8.0]", "seed=7"]
    made = grid_points({"cluster": "1x4", "seed": [1, 2, 3], "policy": ["fifo", "discretized-las"]}, pairs, ["a.csv"])
    first, second = ({"thresholds_gpu_s": [value]} for value in (4.0, 8.0))
    told = [(p.request.policy, p.request.parameters, p.request.seed) for p in made]
    assert told == [("fifo", {}, 7), ("discretized-las", first, 7), ("discretized-las", second, 7)]
    (alone,) = grid_points({}, ["policy.thresholds_gpu_s=[4.0]"], ["a.csv"])
    assert alone.request == ReplayRequest(policy="discretized-las", parameters=first)


def test_points_of__texts_that_look_like_numbers_stay_texts() -> None:
    """0x8 is a cluster, of no nodes, and no eight; one in quotes loses them."""
    (made,) = grid_points({}, ["cluster=0x8", "past=7", "seed=0x8"], ["a.csv"])
    assert (made.request.cluster, made.request.past, made.request.seed) == ("0x8", "7", 8)
    assert [p.request.cluster for p in grid_points({}, ['cluster="1x4"', "cluster=2x4"], ["2024"])] == ["1x4", "2x4"]


def test_points_of__gives_equal_points_once() -> None:
    """A value given twice is one value."""
    assert len(grid_points({"seed": [1, 1], "policy": ["fifo", "fifo"]}, traces=["a.csv", "a.csv"])) == 1


@pytest.mark.parametrize(
    ("tree", "pairs", "said"),
    [
        ({"clustr": "1x4"}, [], "grid.toml: clustr: is no axis of a sweep \\(did you mean 'cluster'"),
        ({"policy": "fif"}, [], "policy: no policy 'fif' \\(did you mean 'fifo'"),
        ({"policy": {"name": "las", "thresholds": [1]}}, [], "policy.thresholds: is no parameter of las"),
        ({"policy": {"thresholds": [1]}}, [], "policy: must be a name or a table with a name"),
        ({"policy": {"name": 3}}, [], "policy.name: must be a text in quotes, got 3"),
        ({}, ["policy=fifo", "policy.x=1"], "policy.x: no policy of the grid has this parameter"),
        ({"round_s": "soon"}, [], "round_s: .*number.*got 'soon'"),
        ({"model": "real"}, [], "model: .*'ideal' or 'slurm', got 'real'"),
        ({"trace": 5}, [], "trace: must be a file's name in quotes, got 5"),
        ({}, ["seed"], "'seed' is not AXIS=VALUE"),
    ],
)
def test_points_of__refuses_what_it_does_not_know(tree: dict[str, Any], pairs: list[str], said: str) -> None:
    """Before anything is played, with file, key and the nearest known name."""
    with pytest.raises(ConfigError, match=said):
        grid_points(tree, pairs, ["a.csv"], "grid.toml")


def test_points_of__needs_a_trace() -> None:
    """From the command or from the file."""
    with pytest.raises(ConfigError, match="no trace; name one"):
        grid_points({})


@pytest.mark.parametrize("content", [None, b"seed = ", b"\xff"])
def test_read_toml__names_a_file_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    """Not there, no TOML, no text."""
    if content is not None:
        (tmp_path / "g.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"g\.toml: (cannot be read|is not TOML)"):
        read_toml(tmp_path / "g.toml")
