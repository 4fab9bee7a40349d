"""The slurmctld model on some hours of a site, recorded once: told slurmctld's passes, and as a site would run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin.fidelity import compare
from tests.twin.recording import Recording, replayed
from tests.twin.site_replay import blind_fidelity, replayed_blind

RECORDED = Path(__file__).parents[1] / "recorded" / "twin" / "site"
FILES = sorted(RECORDED.glob("*.json.gz"))
# docs/fidelity.md: the targets of pairs and of the mean wait are met on 32 nodes. On 8 nodes the mean wait turns on
# chance, and the last figure only guards what was measured, as those of the longest sequence in order do.
# The calmer workload has a recording in which the nodes of a job became free one by one: with its passes given 98.4 %.
PAIRS_IN_ORDER, IN_ORDER, WAIT_ERROR, WAIT_ERROR_OF_8_NODES = 0.98, 0.80, 0.05, 0.35


def case(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


@pytest.mark.parametrize("path", FILES, ids=case)
def test_model__told_the_passes_repeats_half_a_day(path: Path) -> None:
    """As on the short recordings."""
    recording = Recording.read(path)
    seen = compare(recording, replayed(recording))
    assert path.name.startswith(f"{recording.version}-")
    order, error = (0.98, 0.03) if "-calm-" in path.name else (0.99, 0.01)
    assert seen.in_order >= order and abs(seen.wait_error) <= error, seen


@pytest.mark.parametrize("path", FILES, ids=case)
def test_model__of_what_a_site_has_repeats_the_order(path: Path) -> None:
    """sacct, slurm.conf and scontrol show config alone: no pass and no completing time is told, seconds are whole."""
    recording = Recording.read(path)
    seen = blind_fidelity(*replayed_blind(recording, case(path).split("-")[1]))
    large, calm = case(path).endswith("-32"), "-calm-" in path.name
    assert seen.jobs >= (300 if calm else 600 if large else 150)
    assert seen.same_order >= PAIRS_IN_ORDER and seen.in_order >= (0.94 if calm else IN_ORDER), seen
    assert abs(seen.wait_error) <= (WAIT_ERROR if large else WAIT_ERROR_OF_8_NODES), seen
