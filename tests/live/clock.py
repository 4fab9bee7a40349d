"""The wall clock of a whole lab: Slurm's daemons and commands, jobs, slurmsched. Set while all of them run."""

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
    """A function that sets the clock so many seconds off the kernel's, for all processes at once, as `date -s` would.

    What runs of Slurm is started anew, before and after.
    """
    run("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", f'-DOFF_FILE="{OFF}"', "-o", str(LIBRARY), str(SOURCE))
    OFF.write_bytes(bytes(8))
    OFF.chmod(0o644)
    run("labctl", "stop", *SERVICES)
    PRELOAD.write_text(f"{LIBRARY}\n")
    try:
        run("labctl", "start", *SERVICES)
        run("labctl", "wait-ready")
        yield _set
    finally:
        run("labctl", "stop", *SERVICES)
        PRELOAD.unlink()
        run("labctl", "start", *SERVICES)


def _set(off_s: int) -> None:
    """In one write to the page that all have mapped: nobody sees half of it."""
    file = os.open(OFF, os.O_WRONLY)
    try:
        os.write(file, struct.pack("q", off_s))
    finally:
        os.close(file)
