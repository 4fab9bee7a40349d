"""The only file that imports numba.

A kernel runs compiled (cached on disk) in the daemon and in replays. A cold process with a short
queue runs the same function as plain Python, since importing numba costs more than it would save.
Both give the same result: CI runs the tests both ways.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurmsched.kernels._whole import whole

F = TypeVar("F", bound=Callable[..., Any])
# numba imports them where they are installed: for matrix products (17 MiB), a file of settings, tests (5 MiB)
_SPARED = {"scipy", "yaml", "coverage"}


def kernel(
    function: F | None = None,
    *,
    plain_below: int = 0,
    views: bool = False,
    cold: Callable[..., Any] | None = None,
) -> Any:
    """Compile `function` at its first call. plain_below: rows of the first argument under which a process
    that has not loaded numba yet runs it as plain Python. views: it does so on memoryviews, whose numbers Python reads
    several times faster than those of arrays: for a function that indexes its arrays, takes their len and shape and
    does nothing else with them. cold: what such a process runs instead, numpy that does the same."""
    if function is None:
        return functools.partial(kernel, plain_below=plain_below, views=views, cold=cold)
    compiled: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if not compiled:
            if os.environ.get("NUMBA_DISABLE_JIT") == "1":
                compiled.append(_plain(function))
            elif plain_below and "numba" not in sys.modules and len(arguments[0]) < plain_below:
                return (cold or _plain(function))(*(map(_viewed, arguments) if views else arguments))
            else:
                compiled.append(_compile(function))
        return compiled[0](*arguments)

    call.plain = function  # type: ignore[attr-defined]
    return call


def load() -> None:
    """Load numba now, so that kernels run compiled whatever their size: for a process with thousands of calls ahead."""
    if os.environ.get("NUMBA_DISABLE_JIT") != "1":
        with whole():
            _numba()


def _numba() -> Any:
    """numba, its runtime as it was compiled once, without what it imports though no kernel needs it (_SPARED).

    Who imported one of those before has it anyway.
    """
    if "numba" in sys.modules:
        return importlib.import_module("numba")
    absent = _SPARED - sys.modules.keys()
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: as if it were not there
    try:
        importlib.import_module("numba.np.arraymath")  # the last that asks for any
        _keep_runtime()
        return importlib.import_module("numba")
    finally:
        for name in absent:
            del sys.modules[name]


def _keep_runtime() -> None:
    """Let numba load the runtime that it links into kernels from its own cache: it would compile it in each process,
    which takes half a second and 27 MiB of LLVM that kernels from the cache have no use for."""
    dynamic: Any = importlib.import_module("numba.core.runtime.nrtdynmod")
    compiled = dynamic.compile_nrt_functions

    def kept(context: Any) -> Any:
        try:
            return _runtime(dynamic, context)
        except Exception:  # no cache can be written, or another numba: as it does by itself
            return compiled(context)

    dynamic.compile_nrt_functions = kept


def _runtime(dynamic: Any, context: Any) -> Any:
    """numba's runtime from the cache, put there if it was not; dynamic: the module that makes it."""
    caching = importlib.import_module("numba.core.caching")
    path, codegen = caching.FunctionCache(_calling).cache_path, context.codegen()
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    file = caching.IndexDataCacheFile(path, f"numba-runtime.{python}", importlib.import_module("llvmlite").__version__)
    if (state := file.load(codegen.magic_tuple())) is not None:
        return codegen.unserialize_library(state)
    module, library = dynamic.create_nrt_module(context)
    library.enable_object_caching()
    library.add_ir_module(module)
    library.finalize()
    file.save(codegen.magic_tuple(), library.serialize_using_object_code())
    return library


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled for each kind of arguments when it is first called with them; kernels that it calls are
    compiled with it."""
    with whole():
        made = _dispatcher(function)
    if hasattr(made, "compile"):  # else numba's own settings have it compile nothing
        made.compile = whole()(made.compile)
    return made


def _dispatcher(function: Callable[..., Any]) -> Any:
    numba, function = _numba(), _calling(function, _compile)
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither NUMBA_CACHE_DIR nor the package nor the home can be written: compiled each time
        return numba.njit(nogil=True)(function)
    file = getattr(made._cache, "_cache_file", None)
    if file is not None:  # numba takes what was compiled of the same file, whatever has become of kernels that it calls
        file._source_stamp = (file._source_stamp, _sources())
    return made


@functools.cache
def _sources() -> str:
    """Digest of all kernels' files."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


@functools.cache
def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Python, and so are the kernels that it calls."""
    return _calling(function, _plain)


def _calling(function: Callable[..., Any], made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """The function with what `made` makes of them in place of the kernels that it calls."""
    names, known = function.__code__.co_names, function.__globals__
    called = {name: made(known[name].plain) for name in names if hasattr(known.get(name), "plain")}
    if not called:
        return function
    bound = types.FunctionType(function.__code__, known | called, function.__name__, function.__defaults__)
    return functools.update_wrapper(bound, function)


def _viewed(argument: Any) -> Any:
    """Memoryviews of the arrays in it."""
    if isinstance(argument, tuple):
        return tuple(map(_viewed, argument))
    return memoryview(argument) if hasattr(argument, "dtype") and argument.ndim else argument
