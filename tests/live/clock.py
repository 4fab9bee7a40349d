"""The wall clock of slurmctld, slurmd, Slurm's commands, jobs and slurmsched; set while all of them run.

slurmdbd, munge and the databases keep the kernel's.
"""

from __future__ import annotations

import os
import struct
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
    OFF.write_bytes(bytes(8))
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


def _set(off_s: int) -> None:
    """In one write to the page that all have mapped: nobody sees half of it."""
    file = os.open(OFF, os.O_WRONLY)
    try:
        os.write(file, struct.pack("q", off_s))
    finally:
        os.close(file)
