"""Asks Slurm about the jobs that somebody looks at on a page: in bounds, and no further once Slurm gave no answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from slurmsched.config import Slurm
from slurmsched.errors import SlurmUnreachableError
from slurmsched.explain.facts import Facts
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_facts import read_facts

PATIENCE_S = 2.0  # for one answer
HIDDEN = "PrivateData hides them from users here; `slurmsched explain JOB` shows what you may see"
LATE = "not asked: Slurm gave no answer to a question before, since this cycle"


@dataclass(frozen=True, slots=True)
class Impatient(Commands):
    """Commands of which none is run after one that Slurm did not answer. late: set by then."""

    late: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """As Commands.run; raises SlurmUnreachableError at once when it is late."""
        if self.late.is_set():
            raise SlurmUnreachableError(LATE)
        try:
            return Commands.run(self, program, *arguments, stdin=stdin)
        except SlurmUnreachableError:
            self.late.set()
            raise


class PageFacts:
    """Answers about jobs of one snapshot, from several threads. most: jobs that are asked about."""

    def __init__(self, settings: Slurm, snapshot: Snapshot, most: int) -> None:
        patience_s = min(settings.timeout_s, PATIENCE_S)
        self._commands = Impatient(settings.bin_dir, settings.conf, patience_s)
        self._snapshot, self._most, self._left = snapshot, most, most
        self._lock = threading.Lock()

    def __call__(self, row: int) -> Facts:
        """What Slurm tells of the job in this row, with the reservations of the snapshot; what it does not is told."""
        kept = self._snapshot.reservations
        if not self._taken():
            told = f"Slurm was asked about {self._most} jobs for pages since this cycle, which is all it is asked about"
            return Facts(reservations=kept, unread=(f"{told}: `slurmsched explain JOB` asks itself",))
        no_limits = HIDDEN if self._hidden else ""
        return read_facts(self._commands, self._snapshot, row, no_limits=no_limits, reservations=kept)

    @property
    def _hidden(self) -> bool:
        """Whether Slurm shows users no limits but their own: who looks at a page is not known."""
        names = self._snapshot.site.settings.get("PrivateData", "").lower().split(",")
        return any(name.strip() in ("accounts", "usage", "users", "all") for name in names)

    def _taken(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0
