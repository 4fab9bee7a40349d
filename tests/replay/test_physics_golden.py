"""Mean slowdown of placements, exactly: the small form of the table in docs/physics.md.

Anew: pytest tests/replay/test_physics_golden.py --update-goldens. One of the figures: slurmsched replay
slurmsched/sim/traces/shipped/gavel_96_v100.csv.gz --cluster 4x8 --topology dgx-1v --physics mapa --placement linked
--json.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import read_trace

GOLDENS = Path(__file__).parent / "goldens"
PLACEMENTS = ("random", "spread", "best-fit", "consolidated", "topology-aware", "mapa", "linked")


def played(physics: str) -> dict[str, Any]:
    """Figures by placement, seed 0."""
    trace = read_trace(files("slurmsched.sim.traces") / "shipped" / "gavel_96_v100.csv.gz")
    words = {"cluster": "4x8", "topology": "dgx-1v", "physics": physics}
    found = {}
    for placement in PLACEMENTS:
        made = ReplaySession(trace, ReplayRequest(placement=placement, **words)).run()
        names = ("mean_slowdown", "avg_jct_s", "makespan_s")
        found[placement] = {name: made.figures[name] for name in names} | {"digest": made.outcomes.digest}
    return found


@pytest.mark.parametrize("physics", ["mapa", "topology-aware"])
def test_physics__equals_golden(physics: str, request: pytest.FixtureRequest) -> None:
    """Every figure, and the digest of all job times; every placement that knows links beats all that do not."""
    made = played(physics)
    path = GOLDENS / f"physics_{physics}.json"
    if request.config.getoption("--update-goldens"):
        path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    assert made == json.loads(path.read_text(encoding="utf-8"))
    slowdown = {placement: figures["mean_slowdown"] for placement, figures in made.items()}
    assert max(slowdown[name] for name in PLACEMENTS[4:]) < min(slowdown[name] for name in PLACEMENTS[:4])
