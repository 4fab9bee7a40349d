"""Which deadlines of a trace a replay met: users tell them in the comments of their jobs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.model.hints import parse_hints
from slurmsched.replay.metrics import Outcomes
from slurmsched.replay.traces import Trace


def due_s(trace: Trace) -> Floats:
    """When each job must have ended, on the clock of submit_s [s]; infinity without a deadline. (J,)."""
    if trace.comment.names in ((), ("",)):
        return np.full(len(trace), math.inf)
    told = [parse_hints(comment).deadline for comment in trace.comment]
    pairs = zip(told, trace.submit_s.tolist(), strict=True)
    return np.array([math.inf if due is None else due.due_s(at_s) for due, at_s in pairs], np.float64)


def met(done: Outcomes, trace: Trace) -> dict[str, Any]:
    """`deadlines`, those of the jobs that ended, and `deadlines_met`, the share of them in time; {} without any."""
    due = dict(zip(trace.job_id.tolist(), due_s(trace).tolist(), strict=True))
    mine = np.array([due[job] for job in done.job_id.tolist()], np.float64)
    told = np.isfinite(mine)
    if not told.any():
        return {}
    return {"deadlines": int(told.sum()), "deadlines_met": float((done.end_s <= mine)[told].mean())}
