"""The slurmctld model against recordings of a real Slurm, without a Slurm: tests/recorded/twin, docs/fidelity.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin.fidelity import compare, other_nodes, same_end
from tests.twin.recording import Recording, replayed

RECORDED = Path(__file__).parents[1] / "recorded" / "twin"
FILES = sorted(RECORDED.glob("*.json.gz"))
LIMITED = [path for path in FILES if path.name.endswith(("-limits.json.gz", "-safe.json.gz"))]
ARRAYS = [path for path in FILES if path.name.endswith("-arrays.json.gz")]
RULES = [path for path in FILES if path.name.endswith("-rules.json.gz")]
MIXED = sorted(set(FILES) - set(LIMITED) - set(ARRAYS) - set(RULES))
# Closer than the target of docs/fidelity.md: jobs in order, error of the mean wait.
IN_ORDER, WAIT_ERROR = 0.99, 0.01


def case(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def test_recordings__are_of_both_versions() -> None:
    """Six cases of each Slurm that the lab has, two of them under limits, one of arrays, one of rules for nodes."""
    cases = [case(path).partition("-")[::2] for path in FILES]
    versions = {version for version, _ in cases}
    assert len(versions) == 2
    names = ("alone", "srsf", "limits", "safe", "arrays", "rules")
    assert {(version, name) for version in versions for name in names} <= set(cases)


@pytest.mark.parametrize("path", LIMITED, ids=case)
def test_model__holds_back_and_ends_whom_the_recorded_slurm_did(path: Path) -> None:
    """Under limits on what was used: the same jobs start, all within a second, and the same ones are ended."""
    recording = Recording.read(path)
    model = replayed(recording)
    assert any(each.ended for each in recording.ran) == case(path).endswith("-limits")
    assert same_end(recording, model)
    assert compare(recording, model).same_second == 1.0


@pytest.mark.parametrize("path", ARRAYS, ids=case)
def test_model__counts_tasks_of_arrays_as_the_recorded_slurm_did(path: Path) -> None:
    """All jobs start within a second of Slurm: what of an array a pass tests, and how many tasks run at once."""
    recording = Recording.read(path)
    seen = compare(recording, replayed(recording))
    assert (seen.jobs, seen.same_second) == (len(recording.ran), 1.0), seen


@pytest.mark.parametrize("path", RULES, ids=case)
def test_model__starts_jobs_on_the_nodes_of_the_recorded_slurm(path: Path) -> None:
    """Within a second of Slurm, and on its nodes: weights, LLN, features, GPU types, licences, MaxCPUsPerNode, whole
    nodes, several partitions. A preempted job ends when its GraceTime is over and Slurm tries the other again."""
    recording = Recording.read(path)
    model = replayed(recording)
    seen = compare(recording, model)
    assert (seen.jobs, seen.same_second) == (len(recording.ran), 1.0), seen
    assert other_nodes(recording, model) == {}
    assert [each.partition for each in recording.ran if each.ended] == ["low"]


@pytest.mark.parametrize("path", MIXED, ids=case)
def test_model__starts_jobs_as_the_recorded_slurm_did(path: Path) -> None:
    """Jobs in the same order, and the mean wait."""
    recording = Recording.read(path)
    seen = compare(recording, replayed(recording))
    assert path.name.startswith(f"{recording.version}-")
    assert seen.jobs >= 200
    assert seen.in_order >= IN_ORDER, seen
    assert abs(seen.wait_error) <= WAIT_ERROR, seen
