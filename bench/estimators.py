"""How wrong the estimators that learn are: relative error of each on the last part of a trace.

python -m bench.estimators TRACE          each job is estimated at its submission by what had ended before that day
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from slurmsched import registry
from slurmsched.model import Estimates, Past, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.trace import Trace
from slurmsched.sim.replay_stores import as_past
from slurmsched.sim.traces.trace_io import load_trace
from slurmsched.testing import jobs, snapshot

NAMES = ("history", "group-hash", "histogram", "trees")
DAY_S, LAST = 86_400.0, 0.5


def main() -> None:
    trace = load_trace(Path(sys.argv[1])).trace
    past = as_past(trace)
    past = past.take(np.argsort(past.end_s, kind="stable"))
    for name in NAMES:
        error = np.concatenate(list(_errors(registry.make_plugin("estimators", name), trace, past)))
        half = np.percentile(error, (25, 50, 75))
        print(f"{name}: {len(error)} jobs, relative error: quartiles {half.round(2).tolist()}", flush=True)


def _errors(estimator, trace: Trace, past: Past):  # type: ignore[no-untyped-def]
    """|estimate / run time - 1| of the jobs of each day in the last part of the trace."""
    day = trace.submit_s // DAY_S
    for each in np.unique(day[int(len(trace) * LAST) :]):
        came = trace.take(day == each)
        before = past.take(slice(0, int(np.searchsorted(past.end_s, each * DAY_S))))
        yield np.abs(_estimated(estimator, came, before, each * DAY_S) / came.duration_s - 1.0)


def _estimated(estimator, came: Trace, before: Past, now_s: float) -> Floats:  # type: ignore[no-untyped-def]
    given: Snapshot = snapshot(jobs([]), now_s=now_s, past=before)
    columns = {"job_id": np.arange(len(came)), "gpus": came.gpus.astype(np.int32), "submit_s": came.submit_s,
               "user": came.user, "account": came.account, "name": came.name}  # fmt: skip
    rows = type(given.jobs).build(len(came), columns)
    estimates: Estimates = estimator.estimate(snapshot(rows, now_s=now_s, past=given.past))
    return estimates.total_s


if __name__ == "__main__":
    main()
