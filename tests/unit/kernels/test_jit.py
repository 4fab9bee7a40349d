"""Kernels run compiled or plain, alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from slurmsched.kernels import _jit
from slurmsched.kernels._jit import kernel


@kernel
def twice(values: np.ndarray) -> np.ndarray:
    return 2 * values


@kernel
def four_times(values: np.ndarray) -> np.ndarray:
    return twice(twice(values))


def test_kernel__may_call_kernels() -> None:
    """Those it calls are compiled into it; the plain function stays at hand."""
    values = np.arange(3.0)
    assert four_times(values).tolist() == four_times.plain(values).tolist() == [0.0, 4.0, 8.0]


def test_kernel__runs_plain_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMBA_DISABLE_JIT=1 gives the function itself: here one numba could not compile."""
    monkeypatch.setitem(os.environ, "NUMBA_DISABLE_JIT", "1")
    sizes = kernel(lambda values: {"rows": len(values)})
    assert sizes(np.arange(3)) == {"rows": 3}


def test_kernel__is_compiled_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cron job without a home must not fail for want of a folder; it compiles each time."""
    njit = numba.njit

    def without_cache(*, cache: bool = False, **settings: bool) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'thrice': no locator available")
        return njit(**settings)

    monkeypatch.setattr(numba, "njit", without_cache)
    monkeypatch.setitem(os.environ, "NUMBA_DISABLE_JIT", "0")
    thrice = kernel(lambda values: 3 * values)
    assert thrice(np.arange(3.0)).tolist() == [0.0, 3.0, 6.0]


def test_kernel__of_a_short_queue_does_not_load_numba() -> None:
    """Spacing a few jobs anew runs plain, down to the kernels that kernels call."""
    script = """
import sys
import numpy as np
from slurmsched.kernels.room import with_room
stays = with_room(np.array([9_000, 1, 5_000, 4_999]), np.array([True, False, True, True]), 10, 1, 10_000)
assert "numba" not in sys.modules
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_kernel__of_a_cold_process_orders_as_a_compiled_one() -> None:
    """2D-LAS without numba (memoryviews, and numpy's sort) gives the order and the memory it gives with it."""
    script = """
import sys
from slurmsched.kernels import _jit
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.testing.builders import mixed_snapshot
given, policy = mixed_snapshot(60, seed=1), DiscretizedLas()
cold = policy.rank(given)
assert "numba" not in sys.modules
_jit.load()
warm = policy.rank(given)
assert cold.order.tolist() == warm.order.tolist()
assert dict(cold.carry) == dict(warm.carry)
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_kernel__is_compiled_anew_when_one_that_it_calls_has_changed(tmp_path: Path) -> None:
    """After an upgrade in place, which leaves what was compiled: with an unchanged file it is taken from there."""
    shutil.copy(_jit.__file__, tmp_path / "_jit.py")
    helper, caller = tmp_path / "helper.py", tmp_path / "caller.py"
    caller.write_text("from _jit import kernel\nfrom helper import one\n\n\n@kernel\ndef two(values):\n"
                      "    return one(values) + 1\n")  # fmt: skip
    script = "import caller, numpy as np; print(caller.two(np.arange(2)).tolist(), end='')"
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python's own cache takes files of one second and size for the same
    said = list[str]()
    for by in (10, 10, 20):
        helper.write_text(f"from _jit import kernel\n\n\n@kernel\ndef one(values):\n    return values * {by}\n")
        made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                              cwd=tmp_path, env=environment | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")})  # fmt: skip
        said.append(made.stdout)
    assert said == ["[1, 11]", "[1, 11]", "[1, 21]"]


def test_kernel__finds_the_runtime_of_the_process_before(tmp_path: Path) -> None:
    """numba's own runtime is compiled once; from the cache it serves kernels that are compiled later as well."""
    script = """
import sys
import numpy as np
from slurmsched.kernels import _jit
from slurmsched.kernels.pile import fill_pile
_jit.load()
from numba.core.runtime import nrtdynmod
made = nrtdynmod.create_nrt_module
nrtdynmod.create_nrt_module = lambda context: print("compiled", end=" ") or made(context)
kernels = (_jit.kernel(lambda values: np.cumsum(values)[::-1].copy()), lambda order: fill_pile(order, order, 6))
print(*(kernel(np.arange(4)).tolist() for kernel in kernels))
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path)
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
            for _ in range(2)]  # fmt: skip
    assert [run.stdout.strip() for run in runs] == ["compiled [6, 3, 1, 0] [1, 2, 3]", "[6, 3, 1, 0] [1, 2, 3]"]


def test_kernel__compiles_the_runtime_where_no_cache_can_be_written() -> None:
    """A folder that is none: nothing is kept, and all is compiled."""
    script = """
import numpy as np
from slurmsched.kernels import _jit
_jit.load()
print(_jit.kernel(lambda values: np.cumsum(values))(np.arange(4)).tolist())
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment["NUMBA_CACHE_DIR"] = "/proc/none"
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert made.stdout.strip() == "[0, 1, 3, 6]"


def test_kernel__does_without_scipy() -> None:
    """A process that compiles kernels loads no scipy for that, and can load it later."""
    script = """
import sys
import numpy as np
from slurmsched.kernels.pile import fill_pile
fill_pile(np.zeros(1000, np.int64), np.ones(1, np.int64), 4)
print("numba" in sys.modules, "scipy" in sys.modules)
import scipy.optimize
print(scipy.optimize.linprog([1.0], bounds=(2.0, None)).x[0])
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert made.stdout.split() == ["True", "False", "2.0"]
