"""Which pending jobs ask for whole nodes (--exclusive): from 26.05 on squeue has a field of its own for that.

Before, OverSubscribe is NO for such a job and OK for others; from 26.05 on it is NO for both (24.11.5, 26.05.5).
"""

from __future__ import annotations

import re

from slurmsched.errors import UnreadableError
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.text import whole

OWN_FIELD = (26, 5)  # the first release whose squeue knows Exclusive


class Exclusive:
    """Asks squeue. It is squeue's own release that decides which field there is; that is asked once."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._field: tuple[str, str] | None = None

    def __call__(self) -> frozenset[int]:
        """Ids of pending job records that ask for whole nodes. Raises SlurmError."""
        field, means = self._field = self._field or field_of(self._commands.run("squeue", "--version"))
        wanted = f"--Format=JobID:0|,{field}:0"
        return parse_exclusive(self._commands.run("squeue", "-h", "-a", "--local", "-t", "PENDING", wanted), means)


def field_of(version: str) -> tuple[str, str]:
    """squeue's field, and what it says of such a job, by what `squeue --version` prints. Raises UnreadableError."""
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UnreadableError("squeue tells no version", text=version)
    return ("Exclusive", "NODE") if (int(found[1]), int(found[2])) >= OWN_FIELD else ("OverSubscribe", "NO")


def parse_exclusive(text: str, means: str) -> frozenset[int]:
    """Ids of the rows "7|NODE" that say so, or have another form. Raises UnreadableError for a row without id."""
    rows = [(whole(job), said) for job, *said in (line.strip().split("|") for line in text.splitlines())]
    if not all(job for job, _ in rows):
        raise UnreadableError("squeue printed something else than was asked for", text=text[:200])
    return frozenset(job for job, said in rows if said == [means] or len(said) != 1 or not said[0])
