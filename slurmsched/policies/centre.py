"""The middle of a polytope: where interior-point solvers end when many points are equally good."""

from __future__ import annotations

from typing import Any

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.policies.solve import Programme, solve

STEPS = 100  # of Newton's method, which takes some twenty
NEARBY = 0.25  # Newton decrement from which on whole steps are safe
BISECTIONS = 40
DIGITS = 7  # after the point: what is behind them hangs on the order in which a machine adds


def centre(rows: Any, bound: Floats) -> Floats | None:
    """The analytic centre of rows . x <= bound: the product of all slacks is largest. (V,), None if it has no inside.

    rows: (R, V) dense or scipy.sparse. The polytope must be bounded, its bounds among the rows. Rounded, so that it is
    the same on any machine.
    Source: Boyd and Vandenberghe, Convex Optimization, section 8.5.3, by Newton steps with an exact line search.
    """
    dense = np.asarray(rows.todense()) if hasattr(rows, "todense") else np.asarray(rows, np.float64)
    point = _inside(dense, bound)
    if point is None:
        return None
    for _ in range(STEPS):
        inverse = 1.0 / (bound - dense @ point)
        gradient = dense.T @ inverse
        step = -np.linalg.solve(dense.T @ (inverse[:, None] ** 2 * dense), gradient)
        decrement = float(-gradient @ step)
        point = point + step * (_length((dense @ step) * inverse) if decrement > NEARBY else 1.0)
        if decrement < 1e-12:  # this step has made the error far smaller still
            break
    return np.round(point, DIGITS)


def _length(used: Floats) -> float:
    """How far to go along a step so that the product of slacks is largest. used: (R,) share of each slack it takes.

    A fixed damping takes thousands of steps out of a corner of a thin polytope.
    """
    low, high = 0.0, 1.0 / max(float(used.max()), 1e-12)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float((used / (1.0 - middle * used)).sum()) < 0 else (low, middle)
    return low


def _inside(dense: Floats, bound: Floats) -> Floats | None:
    """A point whose least slack, of the length of its row, is as large as can be."""
    length = np.linalg.norm(dense, axis=1)
    variables = dense.shape[1]
    aim = np.append(np.zeros(variables), -1.0)
    high = np.append(np.full(variables, np.inf), 1.0)
    low = np.append(np.full(variables, -np.inf), 0.0)
    found = solve(Programme(aim, low, high, np.column_stack([dense, length]), bound))
    return found.x[:-1] if found.x is not None and found.x[-1] > 1e-12 else None
