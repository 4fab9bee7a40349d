"""Linear and mixed-integer programmes (HiGHS), the analytic center, bisection, and water filling.

scipy is imported when a programme is solved: most policies need none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s

Status = Literal["optimal", "limit", "infeasible", "unbounded", "failed"]
_STATUS: dict[int, Status] = {0: "optimal", 1: "limit", 2: "infeasible", 3: "unbounded"}  # of scipy


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The answer to a linear or mixed-integer programme.

    x: (V,) the best point found, None if there is none.
    objective: its value.
    gap: of a mixed-integer programme, how far it may be from the best, as a share of the objective; 0 if it is proven
        best.
    status: "limit" = stopped by nodes or time; x is then the best so far, if any.
    price: (R,) of a linear programme, by how much the least cost falls for each unit that a row of at_most_x is given
        more; at least 0.
    """

    status: Status
    x: Floats | None
    objective: float = float("nan")
    gap: float = 0.0
    price: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """Minimise cost . x where at_most_x . x <= at_most, equal_x . x = equal, low <= x <= high.

    cost, low, high: (V,).
    at_most_x, equal_x: (R, V) dense or scipy.sparse, None for no such row.
    whole: (V,) bool, variables that are whole numbers; None: none.
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
    found = milp(programme.cost, integrality=whole, bounds=bounds, constraints=rows, options=options)
    return _solution(found)


def _solution(found: Any) -> Solution:
    x = None if found.x is None else np.asarray(found.x, np.float64)
    objective = float("nan") if found.fun is None else float(found.fun)
    gap, rows = float(getattr(found, "mip_gap", None) or 0.0), found.get("ineqlin", {}).get("marginals")
    return Solution(_STATUS.get(found.status, "failed"), x, objective, gap, None if rows is None else -rows)


# One choice for each job.

MATCH_GAP, MATCH_NODES = 1e-3, 500
UNMATCHED = "the solver found no solution: each job keeps what it had in the last round"


def matched(bids: Floats, gpus: Floats, capacity: Floats) -> Int64s | None:
    """Choice of each job when the sum of bids is highest and no type gives more GPUs than it has, -1 for none. (N,).

    None if the solver found no solution, as when its time ran out first.

    bids: (N, C), 0 = it cannot have this. gpus: (N, C, T) of each type. capacity: (T,).
    """
    from scipy import sparse

    job, choice = np.nonzero(bids > 0)
    cell, need = np.arange(len(job)), gpus[job, choice]
    if not len(job):
        return np.full(len(bids), -1, np.int64)
    by_type = sparse.csc_array(need.T)
    by_job = sparse.csr_array((np.ones(len(cell)), (job, cell)), shape=(len(bids), len(cell)))
    earlier = 1.0 + 1e-6 * (len(bids) - job)  # of equal bids the one that comes first
    found = solve(
        Programme(-bids[job, choice] * earlier, np.zeros(len(cell)), np.ones(len(cell)),
                  sparse.vstack([by_type, by_job]).tocsc(), np.append(capacity, np.ones(len(bids))),
                  whole=np.ones(len(cell), np.bool_)), gap=MATCH_GAP, nodes=MATCH_NODES,
    )  # fmt: skip
    if found.x is None:
        return None
    chosen, taken = np.full(len(bids), -1, np.int64), found.x > 0.5
    chosen[job[taken]] = choice[taken]
    return chosen


def bisect_least(feasible: Callable[[float], bool], low: float, high: float, *, relative: float = 1e-3) -> float:
    """The least value in [low, high] at which `feasible` holds, to this relative precision; it holds above as well.

    high must be feasible: it is not tried.
    """
    while high - low > relative * max(abs(high), 1e-12):
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def water_fill(demand: Floats, weight: Floats, capacity: float) -> Floats:
    """Weighted max-min shares of a capacity: no job gets more than it demands, the others share by weight. (N,).

    demand, weight: (N,), at least 0. What is left when all demands are met stays unused. Source: Bertsekas and
    Gallager, Data Networks, section 6.5.2.
    """
    given, remaining = np.zeros(len(demand)), float(capacity)
    open_ = (demand > 0) & (weight > 0)
    while open_.any() and remaining > 0:
        level = remaining / weight[open_].sum()
        full = open_ & (demand <= level * weight)
        if not full.any():
            given[open_] = level * weight[open_]
            break
        given[full] = demand[full]
        remaining -= float(demand[full].sum())
        open_ &= ~full
    return given


# The analytic center of a polytope.

NEWTON_STEPS = 100  # of Newton's method, which takes some twenty
WHOLE_STEP_DECREMENT = 0.25  # Newton decrement from which on whole steps are safe
BISECTIONS = 40
DIGITS = 7  # after the point: what is behind them hangs on the order in which a machine adds


def analytic_center(rows: Any, bound: Floats) -> Floats | None:
    """The analytic centre of rows . x <= bound: the product of all slacks is largest. (V,), None if it has no inside.

    rows: (R, V) dense or scipy.sparse. The polytope must be bounded, its bounds among the rows. Rounded, so that it is
    the same on any machine.
    Source: Boyd and Vandenberghe, Convex Optimization, section 8.5.3, by Newton steps with an exact line search.
    """
    dense = np.asarray(rows.todense()) if hasattr(rows, "todense") else np.asarray(rows, np.float64)
    point = _interior_point(dense, bound)
    if point is None:
        return None
    for _ in range(NEWTON_STEPS):
        inverse = 1.0 / (bound - dense @ point)
        gradient = dense.T @ inverse
        step = -np.linalg.solve(dense.T @ (inverse[:, None] ** 2 * dense), gradient)
        decrement = float(-gradient @ step)
        point = point + step * (_step_length((dense @ step) * inverse) if decrement > WHOLE_STEP_DECREMENT else 1.0)
        if decrement < 1e-12:  # this step has made the error far smaller still
            break
    return np.round(point, DIGITS)


def _step_length(used: Floats) -> float:
    """How far to go along a step so that the product of slacks is largest. used: (R,) share of each slack it takes.

    A fixed damping takes thousands of steps out of a corner of a thin polytope.
    """
    low, high = 0.0, 1.0 / max(float(used.max()), 1e-12)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float((used / (1.0 - middle * used)).sum()) < 0 else (low, middle)
    return low


def _interior_point(dense: Floats, bound: Floats) -> Floats | None:
    """A point whose least slack, of the length of its row, is as large as can be."""
    length = np.linalg.norm(dense, axis=1)
    variables = dense.shape[1]
    aim = np.append(np.zeros(variables), -1.0)
    high = np.append(np.full(variables, np.inf), 1.0)
    low = np.append(np.full(variables, -np.inf), 0.0)
    found = solve(Programme(aim, low, high, np.column_stack([dense, length]), bound))
    return found.x[:-1] if found.x is not None and found.x[-1] > 1e-12 else None
