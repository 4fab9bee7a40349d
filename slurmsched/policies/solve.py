"""Solvers that policies share: linear and mixed-integer programmes by HiGHS, bisection, water-filling.

scipy is imported when a programme is solved, not before: most policies need none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from slurmsched.model.columns import Bools, Floats

Status = Literal["optimal", "limit", "infeasible", "unbounded", "failed"]
_STATUS: dict[int, Status] = {0: "optimal", 1: "limit", 2: "infeasible", 3: "unbounded"}  # of scipy


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """x: (V,) the best point found, None if there is none. objective: its value. gap: of a mixed-integer programme,
    how far it may be from the best, as a share of the objective; 0 if it is proven best.

    status: "limit" = stopped by nodes or time; x is then the best so far, if any. price: (R,) of a linear programme, by
    how much the least cost falls for each unit that a row of at_most_x is given more; at least 0.
    """

    status: Status
    x: Floats | None
    objective: float = float("nan")
    gap: float = 0.0
    price: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """Minimise cost . x where at_most_x . x <= at_most, equal_x . x = equal, low <= x <= high.

    cost, low, high: (V,). at_most_x, equal_x: (R, V) dense or scipy.sparse, None for no such row. whole: (V,) bool,
    variables that are whole numbers; None: none.
    """

    cost: Floats
    low: Floats
    high: Floats
    at_most_x: Any = None
    at_most: Floats | None = None
    equal_x: Any = None
    equal: Floats | None = None
    whole: Bools | None = None


def solve(programme: Programme, *, gap: float = 1e-6, nodes: int = 100_000, limit_s: float = 30.0) -> Solution:
    """The best point of a programme.

    gap: relative gap at which a mixed-integer search may stop. nodes: of its tree; a limit that gives the same result
    on any machine. limit_s: a safety net [s]; where it strikes the result depends on the machine.
    """
    if programme.whole is None or not programme.whole.any():
        return _linear(programme, limit_s)
    return _mixed(programme, {"mip_rel_gap": gap, "node_limit": nodes, "time_limit": limit_s})


def _linear(programme: Programme, limit_s: float) -> Solution:
    from scipy.optimize import linprog

    found = linprog(
        programme.cost, programme.at_most_x, programme.at_most, programme.equal_x, programme.equal,
        np.column_stack([programme.low, programme.high]), method="highs", options={"time_limit": limit_s},
    )  # fmt: skip
    return _solution(found)


def _mixed(programme: Programme, options: dict[str, float]) -> Solution:
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = []
    if programme.at_most_x is not None:
        rows.append(LinearConstraint(programme.at_most_x, ub=programme.at_most))
    if programme.equal_x is not None:
        rows.append(LinearConstraint(programme.equal_x, programme.equal, programme.equal))
    bounds, whole = Bounds(programme.low, programme.high), np.asarray(programme.whole, np.int64)
    with _silent():
        found = milp(programme.cost, integrality=whole, bounds=bounds, constraints=rows, options=options)
    return _solution(found)


@contextmanager
def _silent() -> Iterator[None]:
    """What the body writes to standard output goes to standard error, lest it stand in what --json prints; so does what
    other threads write there meanwhile. In another thread than the main one, or where something else has that
    descriptor now, it is left alone.

    HiGHS prints a line there when it repairs a whole-numbered point, whatever it is told (jump-dev/HiGHS.jl, issue
    312).
    """
    try:
        ours = sys.stdout.fileno() == 1 and threading.current_thread() is threading.main_thread()
        kept = os.dup(1) if ours else -1
    except (AttributeError, OSError, ValueError):  # none, closed, or no file
        kept = -1
    if kept < 0:
        yield
        return
    try:
        with suppress(OSError):  # standard error is closed
            os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _solution(found: Any) -> Solution:
    x = None if found.x is None else np.asarray(found.x, np.float64)
    objective = float("nan") if found.fun is None else float(found.fun)
    gap, rows = float(getattr(found, "mip_gap", None) or 0.0), found.get("ineqlin", {}).get("marginals")
    return Solution(_STATUS.get(found.status, "failed"), x, objective, gap, None if rows is None else -rows)


def least(feasible: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-3) -> float:
    """The least value in [low, high] at which `feasible` holds, to this relative precision; it holds above as well.

    high must be feasible: it is not tried.
    """
    while high - low > relative * max(abs(high), 1e-12):
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def water_fill(demand: Floats, weight: Floats, capacity: float) -> Floats:
    """Weighted max-min shares of a capacity: nobody gets more than it demands, the others share alike by weight. (N,).

    demand, weight: (N,), at least 0. What is left when all demands are met stays unused. Source: Bertsekas and
    Gallager, Data Networks, section 6.5.2.
    """
    given, left = np.zeros(len(demand)), float(capacity)
    open_ = (demand > 0) & (weight > 0)
    while open_.any() and left > 0:
        level = left / weight[open_].sum()
        full = open_ & (demand <= level * weight)
        if not full.any():
            given[open_] = level * weight[open_]
            break
        given[full] = demand[full]
        left -= float(demand[full].sum())
        open_ &= ~full
    return given
