"""Kernels: functions over arrays that numba compiles. The only file that imports numba.

Importing numba costs a second of CPU time, more than a short queue takes in plain Python. So a kernel that has
`plain_below` runs as Python in a process that has not loaded numba, while its first argument has fewer rows. A process
that calls it again and again, as a daemon does, loads numba once its calls have cost about as much. Both ways give the
same result: CI runs the tests compiled, and again with NUMBA_DISABLE_JIT=1.

numba keeps what it compiled on disk, and compiles anew when the file of a kernel has changed. It does not see a change
of a kernel in another file that this one calls: after such a change delete `slurmsched/kernels/__pycache__`.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

MANY_ROWS, FEW_ROWS = 100_000, 2_000  # in all plain calls of a kernel, about a second; a call of few counts for none
_DECLARED: list[tuple[Any, Callable[..., Any]]] = []  # what kernels may call, and its code; unknown to numba


def kernel(
    function: Callable[..., Any] | None = None, *, plain_below: int = 0, plain: Callable[..., Any] | None = None
) -> Any:
    """Compile a function when it is first called. Kernels may call kernels.

    plain_below: rows of the first argument under which a process that has not loaded numba runs plain Python.
    plain: what such a process runs then, with the same result; default: the function itself.
    """
    if function is None:
        return functools.partial(kernel, plain_below=plain_below, plain=plain)
    compiled: list[Callable[..., Any]] = []
    plain_rows = 0

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal plain_rows
        if not compiled:
            if _disabled():
                return (plain or function)(*arguments)
            rows = len(arguments[0]) if plain_below else 0
            if "numba" not in sys.modules and rows < plain_below and plain_rows < MANY_ROWS:
                plain_rows += rows if rows >= FEW_ROWS else 0
                return (plain or function)(*arguments)
            compiled.append(_compiled(function))
        return compiled[0](*arguments)

    call.plain = function  # type: ignore[attr-defined]
    _DECLARED.append((call, function))
    return call


def kernel_part(function: Callable[..., Any]) -> Any:
    """A function that kernels call. It is compiled into them; called from Python it runs as Python."""
    _DECLARED.append((function, function))
    return function


def load() -> None:
    """Load numba now, for a process with thousands of calls ahead: kernels then run compiled, whatever their size."""
    if not _disabled():
        import numba  # noqa: F401


def _disabled() -> bool:
    return os.environ.get("NUMBA_DISABLE_JIT") == "1"


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """numba's dispatcher of a function. Without a folder for its cache numba compiles in each process."""
    import numba

    _declare()
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


def _declare() -> None:
    """Tell numba what kernels call."""
    from numba.extending import overload

    while _DECLARED:
        called, function = _DECLARED.pop()
        overload(called, strict=False)(_always(function))


def _always(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_, **__: function
