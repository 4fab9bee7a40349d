"""Ctrl-C while a kernel is compiled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from slurmsched.kernels._jit import kernel
from slurmsched.kernels._whole import whole


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_whole__interrupts_at_the_end() -> None:
    """The body is not cut short, whatever it catches; then Ctrl-C works as before."""
    done = list[str]()
    with pytest.raises(KeyboardInterrupt), whole():
        try:
            interrupt()
        except BaseException:
            done.append("cut short")
        with whole():
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whole__leaves_the_signal_to_who_listens() -> None:
    """The daemon has a handler of its own."""
    heard = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with whole():
            interrupt()
            assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_whole__other_threads_hold_nothing_back() -> None:
    """Python hears signals in the main thread alone."""
    done = list[str]()

    def body() -> None:
        with whole():
            done.append("done")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert done == ["done"]


def test_whole__a_second_one_ends_the_process() -> None:
    """At once, by the signal: for who cannot wait."""
    script = "import os, signal\nfrom slurmsched.kernels._whole import whole\n" \
             "with whole():\n    for _ in range(2):\n        os.kill(os.getpid(), signal.SIGINT)\n"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGINT


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_kernel__is_compiled_to_its_end_before_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that compiles it is interrupted, the next one finds it whole. Nothing comes from numba's cache."""
    from numba.core import caching, compiler

    begun, compiled, compile_extra = list[object](), list[object](), compiler.compile_extra

    def interrupted(*arguments: object, **settings: object) -> object:
        if not begun:
            interrupt()
        begun.append(arguments)
        compiled.append(compile_extra(*arguments, **settings))
        return compiled[-1]

    monkeypatch.setattr(caching.FunctionCache, "load_overload", lambda *_: None)
    monkeypatch.setattr(compiler, "compile_extra", interrupted)
    fourfold = kernel(lambda values: 4 * values)
    with pytest.raises(KeyboardInterrupt):
        fourfold(np.arange(3.0))
    parts = len(compiled)
    assert fourfold(np.arange(3.0)).tolist() == [0.0, 4.0, 8.0]
    assert len(begun) == len(compiled) == parts > 0
