"""The demo's outcomes, exactly: shipped trace, its first 320 jobs, limits of seed 0, 4 nodes of 8 GPUs.

Anew: pytest tests/replay/test_goldens.py --update-goldens. The same figures: slurmsched demo --first 320 --json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmsched.sim.experiments.demo_runs import Demo, DemoPolicy, demo_policies
from slurmsched.sim.traces.trace_io import sample_trace

GOLDENS = Path(__file__).parent / "goldens"
JOBS = 320


@pytest.mark.parametrize("contender", demo_policies(), ids=lambda contender: contender.name)
def test_demo__equals_golden(contender: DemoPolicy, request: pytest.FixtureRequest) -> None:
    """Every figure, and the digest of all job times."""
    made = Demo(sample_trace().first(JOBS)).run(contender).figures
    path = GOLDENS / f"demo_{JOBS}_{contender.name}.json"
    if request.config.getoption("--update-goldens"):
        path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    assert made == json.loads(path.read_text(encoding="utf-8"))
