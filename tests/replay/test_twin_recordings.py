"""The slurmctld model against recordings of a real Slurm, without a Slurm: tests/recorded/twin, docs/fidelity.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin.fidelity import compare
from tests.twin.recording import Recording, replayed

RECORDED = Path(__file__).parents[1] / "recorded" / "twin"
FILES = sorted(RECORDED.glob("*.json.gz"))
# The target of docs/fidelity.md: jobs in order, error of the mean wait.
IN_ORDER, WAIT_ERROR = 0.95, 0.05


def test_recordings__are_of_both_versions() -> None:
    """Two cases of each Slurm that the lab has."""
    assert len(FILES) == 2 * len({path.name.partition("-")[0] for path in FILES}) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_model__starts_jobs_as_the_recorded_slurm_did(path: Path) -> None:
    """Jobs in the same order, and the mean wait, within the target that the docs state."""
    recording = Recording.read(path)
    seen = compare(recording, replayed(recording))
    assert path.name.startswith(f"{recording.version}-")
    assert seen.jobs >= 200
    assert seen.in_order >= IN_ORDER, seen
    assert abs(seen.wait_error) <= WAIT_ERROR, seen
