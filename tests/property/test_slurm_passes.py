"""The kernels of slurmctld's passes agree with their naive twins."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.pass_cases import Scene, check_backfill_pass, check_main_pass, check_pick_nodes, scene_of

scenes = st.builds(scene_of, st.randoms(use_true_random=False), st.booleans())


@given(scenes, st.booleans())
@settings(deadline=None, max_examples=300)
def test_pick_nodes__agrees_with_reference(scene: Scene, shortest: bool) -> None:
    """The same nodes, or none."""
    check_pick_nodes(scene, shortest)


@given(scenes, st.integers(0, 5), st.booleans())
@settings(deadline=None, max_examples=300)
def test_main_pass__agrees_with_reference(scene: Scene, depth: int, shortest: bool) -> None:
    """The same jobs start on the same nodes."""
    check_main_pass(scene, depth, shortest)


@given(
    scenes,
    st.sampled_from([0.0, 60.0]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 7),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=500)
def test_backfill_pass__agrees_with_reference(
    scene: Scene, step: float, most: int, most_of_array: int, most_records: int, most_tested: int,
    most_of_group: tuple[int, ...], shortest: bool, last_of_all: bool,
) -> None:  # fmt: skip
    """The same jobs start on the same nodes, also where a part of the queue settles it; none where none fits."""
    check_backfill_pass(
        scene, step, most, most_of_array, most_records, most_tested, most_of_group, shortest, last_of_all
    )
