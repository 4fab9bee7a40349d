"""Asks Slurm about the jobs that somebody looks at on a page: in bounds, and no further once Slurm gave no answer."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, replace

from slurmsched.config import Slurm
from slurmsched.errors import SlurmUnreachableError
from slurmsched.explain.facts import Facts
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_facts import read_facts
from slurmsched.words import some

PATIENCE_S = 2.0  # for one answer
LOOK_S = 5.0  # for all of one look; the ledger is asked besides, before the server cuts the connection
SHARED = ("partition", "licenses")  # what `scontrol show` tells of these is the same for every job
HIDDEN = "PrivateData hides them from users here; `slurmsched explain JOB` shows what you may see"
LATE = "not asked: Slurm gave no answer to a question before, since this cycle"
SLOW = "not asked: the answers before took too long"
NAMES = ("AllowAccounts", "AllowQos", "DenyAccounts", "DenyQos")  # of a partition: accounts and QOS that are hidden


@dataclass(frozen=True, slots=True)
class Impatient(Commands):
    """Commands of which none is run after one that Slurm did not answer. late: set by then. kept: answers that count
    for every job. until_s: when no other one is begun [s of the monotonic clock]."""

    late: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    kept: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    keeping: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    until_s: float = math.inf

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """As Commands.run; raises SlurmUnreachableError at once when it is late."""
        if arguments[-1] not in SHARED:
            return self._run(program, *arguments, stdin=stdin)
        with self.keeping:
            if arguments[-1] not in self.kept:
                self.kept[arguments[-1]] = self._run(program, *arguments, stdin=stdin)
            return self.kept[arguments[-1]]

    def _run(self, program: str, *arguments: str, stdin: str) -> str:
        if self.late.is_set():
            raise SlurmUnreachableError(LATE)
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise SlurmUnreachableError(SLOW)
        try:
            asking = replace(self, timeout_s=min(self.timeout_s, left_s))
            return Commands.run(asking, program, *arguments, stdin=stdin)
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
            most = some(self._most, "job")
            told = f"Slurm was asked about {most} for pages since this cycle, which is all it is asked about"
            return Facts(reservations=kept, unread=(f"{told}: `slurmsched explain JOB` asks itself",))
        no_limits = HIDDEN if self._hides("accounts", "usage", "users") else ""
        asking = replace(self._commands, until_s=time.monotonic() + LOOK_S)
        return self._seen(read_facts(asking, self._snapshot, row, no_limits=no_limits, reservations=kept))

    def _seen(self, facts: Facts) -> Facts:
        """Without what Slurm hides of partitions."""
        if self._hides("partitions"):
            return replace(facts, partitions={}, unread=(*facts.unread, f"its partition: {HIDDEN}"))
        if not self._hides("accounts", "usage", "users"):
            return facts
        seen = {name: {key: told for key, told in fields.items() if key not in NAMES}
                for name, fields in facts.partitions.items()}  # fmt: skip
        return replace(facts, partitions=seen)

    def _hides(self, *kinds: str) -> bool:
        """Whether Slurm shows users none of these but their own: who looks at a page is not known."""
        names = self._snapshot.site.settings.get("PrivateData", "").lower().split(",")
        return any(name.strip() in (*kinds, "all") for name in names)

    def _taken(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0
