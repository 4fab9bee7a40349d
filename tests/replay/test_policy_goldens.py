"""The deadline family and e-las on a trace with deadlines, exactly: tests/replay/data/deadlines.csv (made at random,
48 jobs), 16 GPUs, the ideal cluster.

Anew: pytest tests/replay/test_policy_goldens.py --update-goldens.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.model.hints import parse_hints
from slurmsched.model.trace import Trace
from slurmsched.placements.count import Count
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.sim.traces.trace_io import read_trace

HERE = Path(__file__).parent
TRACE = read_trace(HERE / "data" / "deadlines.csv")
POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {}, "las": {"dimension": "1d", "quantum_gpu_s": 60.0}, "discretized-las": {"dimension": "1d"},
    "gittins": {"promote_knob": 2.0},
    "e-las": {"quantum_gpu_s": 60.0}, "edf": {}, "genie": {}, "chronus": {}, "elasticflow": {}, "oasis": {},
    "aonline": {},
}  # fmt: skip


def figures(name: str, trace: Trace = TRACE, gpus: int = 16) -> dict[str, float | int]:
    """Mean JCT [s], last end [s], preemptions, and how many of the deadlines were met."""
    cluster, policy = IdealCluster(trace, [gpus]), registry.make_plugin("policies", name, POLICIES[name])
    replay_events(cluster, DirectPlanner(policy, Count()), CarryStore())
    done = cluster.outcomes()
    told = [parse_hints(comment).deadline for comment in trace.comment]
    due_s = np.array([math.inf if due is None else due.due_s(at_s)
                      for due, at_s in zip(told, trace.submit_s.tolist(), strict=True)])  # fmt: skip
    met = (done.end_s <= due_s) & np.isfinite(due_s)
    return {"mean_jct_s": round(float((done.end_s - done.submit_s).mean()), 3), "end_s": float(done.end_s.max()),
            "preemptions": int(done.preemptions.sum()), "met": int(met.sum())}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_policy__equals_golden(name: str, request: pytest.FixtureRequest) -> None:
    """Every figure."""
    made, path = figures(name), HERE / "goldens" / "deadlines_48.json"
    if request.config.getoption("--update-goldens"):
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(known | {name: made}, indent=2) + "\n", encoding="utf-8")
    assert made == json.loads(path.read_text(encoding="utf-8"))[name]


@pytest.mark.parametrize("name", ["edf", "genie", "chronus", "elasticflow", "oasis"])
def test_deadline_policy__meets_more_deadlines_than_fifo(name: str) -> None:
    """What the family is for; aonline knows no deadlines."""
    assert figures(name)["met"] > figures("fifo")["met"]


@pytest.mark.parametrize("name", ["deadlines_tight", "deadlines_mix"])
def test_chronus__meets_as_many_deadlines_as_the_earliest_first(name: str) -> None:
    """Gangs of 1 to 24 GPUs on 64, run times of less than a minute to nine hours, of which many are far shorter than a
    lease: promises cost no deadline."""
    trace = read_trace(HERE / "data" / f"{name}.csv")
    chronus, edf = (figures(policy, trace, 64)["met"] for policy in ("chronus", "edf"))
    assert chronus >= edf > 0.9 * sum("deadline=" in comment for comment in trace.comment)
