"""What the policy's estimate of a job's run time is made of, in words."""

from __future__ import annotations

from math import isfinite

from slurmsched.explain.text import minutes
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import Telling

DAYS = ("Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday")


def expected(planner: object, snapshot: Snapshot, row: int) -> tuple[str, ...]:
    """One line for the whole, then one for each factor, the greatest first; () where the planner cannot tell,
    or its policy's estimator has learnt nothing yet."""
    terms = planner.terms(snapshot) if isinstance(planner, Telling) else None
    if terms is None:
        return ()
    total_s = float(terms.usual_s * terms.factor[row].prod())
    pairs = list(zip(terms.names, terms.value[row].tolist(), terms.factor[row].tolist(), strict=True))
    pairs.sort(key=lambda each: -max(each[2], 1.0 / each[2]))
    first = f"run time {_time(total_s)}: the usual {_time(terms.usual_s)}, times the factors below"
    return (first, *(f"x {factor:.2f} for {_named(name, value)}" for name, value, factor in pairs))


def _named(name: str, value: float) -> str:
    """A factor's name with what the job has there."""
    if not isfinite(value):
        return f"{name}: none is known"
    if name.startswith("mean"):
        return f"{name}: {_time(value)}"
    if name == "weekday":
        return f"{name}: {DAYS[int(value) % 7]}, UTC"
    return f"{name}: {value:g}" + (" h, UTC" if name == "hour" else "")


def _time(time_s: float) -> str:
    """A duration; below a minute in seconds."""
    return f"{time_s:.0f} s" if time_s < 60 else minutes(time_s)
