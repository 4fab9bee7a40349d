"""How a cluster is opened for a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.config import Config
from slurmsched.slurm import open_cluster as opening
from tests.recorded.playback import Playback


@pytest.mark.parametrize(
    ("pin", "indices", "expected"), [("off", False, False), ("off", True, True), ("hints", False, True)]
)
def test_open_live__reads_which_gpus_runs_hold_where_jobs_are_placed_by_them(
    monkeypatch, tmp_path, pin, indices, expected
):
    """`plan` and `tick` too: without the indices every node with a running job would be left out."""
    asked: list[bool] = []

    class Reader:
        def begin(self) -> None: ...

    monkeypatch.setattr(opening, "open_commands", lambda settings: Playback(tmp_path))
    monkeypatch.setattr(opening, "open_reader", lambda settings, *, indices, sprio: asked.append(indices) or Reader())
    config = Config.model_validate({"placement": {"pin": pin}, "ledger": {"journal": str(tmp_path / "journal.jsonl")}})
    opening.open_live(config, apply=False, indices=indices)
    assert asked == [expected]


@pytest.mark.parametrize(("placement", "expected"), [({}, False), ({"pin": "hints"}, True), ({"types": True}, True)])
def test_open_live__reads_reservations_where_jobs_are_placed(monkeypatch, tmp_path, placement, expected):
    """Without operations too: no job gets a node that is another's before it would be over."""
    given: list[dict[str, Any]] = []

    class Reader:
        def begin(self) -> None: ...

    monkeypatch.setattr(opening, "open_commands", lambda settings: Playback(tmp_path))
    monkeypatch.setattr(opening, "open_reader", lambda settings, **options: Reader())
    monkeypatch.setattr(opening, "LiveCluster", lambda *parts, **options: given.append(options))
    config = Config.model_validate({"placement": placement, "ledger": {"journal": str(tmp_path / "journal.jsonl")}})
    opening.open_live(config, apply=False)
    assert [options["inputs"].always for options in given] == [expected]
