"""Nodes that gangs take consolidated."""

from __future__ import annotations

import pytest

from slurmsched.sim.experiments.published_quirks import WholeNodes


def test_rooms__a_gang_needs_the_fewest_nodes() -> None:
    """On two nodes of 4: 3 and 3 leave one GPU on each, where no gang of two fits, until one of them is gone."""
    rooms = WholeNodes(8, 4, "fullest")
    assert [rooms.take(1, 3), rooms.take(2, 3), rooms.take(3, 2)] == [True, True, False]
    rooms.give(1)
    assert rooms.take(3, 2)


def test_rooms__wide_gangs_take_whole_nodes() -> None:
    """Six GPUs on nodes of 4 are a whole node and two of another; a node with one job on it is not whole."""
    rooms = WholeNodes(8, 4, "fullest")
    assert rooms.take(1, 1)
    assert not rooms.take(2, 8)
    assert rooms.take(3, 6)


@pytest.mark.parametrize(("choice", "fits"), [("fullest", True), ("rest-emptiest", False)])
def test_rooms__choice_of_the_node_for_the_rest(choice: str, fits: bool) -> None:
    """Nodes of 4, one of them with two GPUs taken: the rest of a gang of six goes there, or breaks an idle node."""
    rooms = WholeNodes(16, 4, choice)  # type: ignore[arg-type]
    assert rooms.take(1, 2)
    assert rooms.take(2, 6)
    assert rooms.take(3, 8) is fits
