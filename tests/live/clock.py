"""The wall clock of slurmctld, slurmd, Slurm's commands, jobs and slurmsched; set, or made to run faster, while all of
them run.

slurmdbd, munge and the databases keep the kernel's.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.lab import run

SOURCE = Path(__file__).with_name("clock.c")
LIBRARY = Path("/usr/local/lib/slurmsched-clock.so")
PRELOAD = Path("/etc/ld.so.preload")
OFF = Path("/run/slurmsched-clock")
SERVICES = ("slurmctld", "slurmd")


@contextmanager
def settable() -> Iterator[Callable[[int], None]]:
    """A function that sets the clock so many seconds off the kernel's, for all of these at once, as `date -s` would.

    slurmctld and slurmd are started anew, before and after. Whatever fails, no later process is off.
    """
    run("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", f'-DOFF_FILE="{OFF}"', "-o", str(LIBRARY), str(SOURCE))
    OFF.write_bytes(_page())
    OFF.chmod(0o644)
    run("labctl", "stop", *SERVICES)
    try:
        PRELOAD.write_text(f"{LIBRARY}\n")
        run("labctl", "start", *SERVICES)
        run("labctl", "wait-ready")
        yield _set
    finally:
        PRELOAD.unlink(missing_ok=True)
        run("labctl", "stop", *SERVICES)  # by their own clock: one that is set back by minutes may keep them waiting
        _set(0)
        run("labctl", "start", *SERVICES)


def run_at(rate: int) -> None:
    """Within `settable`: the clock runs so many times as fast as the kernel's from now on, and sleeps are so much
    shorter: three hours of a site in ten minutes. What the machine itself takes, such as a pass or the start of
    a job, counts so many times.

    A wait that has begun lasts as long as it would have. The clocks that nobody can set, such as the one that Python's
    own sleeps go by, run as they are.
    """
    OFF.write_bytes(_page(rate=rate, since_s=int(time.time())))


def _page(off_s: int = 0, rate: int = 1, since_s: int = 0) -> bytes:
    """What clock.c reads."""
    return struct.pack("3q", off_s, rate, since_s)


def _set(off_s: int) -> None:
    """In one write to the page that all have mapped: nobody sees half of it."""
    file = os.open(OFF, os.O_WRONLY)
    try:
        os.write(file, _page(off_s))
    finally:
        os.close(file)
