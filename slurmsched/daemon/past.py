"""What ended on this site, for plug-ins that learn: asked of accounting a little at a time, and kept in a file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slurmsched.config import Config
from slurmsched.config import Past as Settings
from slurmsched.daemon.past_runs import FIELDS, NO_RUNS, Kept, Runs, load, past_of, read_runs, save
from slurmsched.errors import SlurmError
from slurmsched.logs import get_logger
from slurmsched.model import Snapshot
from slurmsched.model.past import NO_PAST
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.history import ended_runs
from slurmsched.slurm.reader import open_commands
from slurmsched.words import some

log = get_logger()

DAY_S = 86_400.0
LATE_S = 3_600.0  # slurmdbd may hear of an end this much later: so much is asked for again
PAUSE_S = 600.0  # accounting that did not answer is left in peace this long
LEAST_SPAN_S = 3_600.0


class LivePast:
    """Gives snapshots the jobs that ended, from sacct, which only reads.

    What ended since the last call is asked for every settings.interval_s; earlier days, the latest first, while a cycle
    has spent less than settings.per_cycle_s on it. A span for which there was no answer is halved. Without slurmdbd
    nobody is asked.
    file: where it is kept. keep: whether it is written; who may not write reads it, and asks only where there is none.
    """

    def __init__(
        self, commands: Commands, settings: Settings, file: Path, *, keep: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._commands, self._settings, self._file, self._keep = commands, settings, file, keep
        self._clock = clock
        self._kept: Kept | None = None
        self._asks = True
        self._past = NO_PAST

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the past as far as it is known."""
        now_s, warnings = float(math.floor(snapshot.now_s)), tuple[str, ...]()
        before = self._kept
        kept = (before or self._opened(now_s)).as_of(now_s)
        if self._asks and snapshot.site.settings.get("AccountingStorageType", "").endswith("slurmdbd"):
            kept, warnings = self._read(kept, now_s)
        if before is None or kept.runs is not before.runs:
            self._past = past_of(kept.runs)
        self._kept = kept
        return replace(snapshot, past=self._past, warnings=(*snapshot.warnings, *warnings))

    @property
    def runs(self) -> Runs:
        """The runs behind the past that was given last."""
        return self._kept.runs if self._kept else NO_RUNS

    def _opened(self, now_s: float) -> Kept:
        found = load(self._file)
        self._asks = self._keep or found is None
        oldest_s = now_s - self._settings.days * DAY_S
        if found is None or not oldest_s <= found.until_s <= now_s + DAY_S:
            return Kept(now_s, now_s, DAY_S)
        return found

    def _read(self, kept: Kept, now_s: float) -> tuple[Kept, tuple[str, ...]]:
        """With what is due now, and what went wrong."""
        began_s, known, unread, warnings = self._clock(), kept, 0, list[str]()
        try:
            while (span := due(kept, self._settings, now_s)) and self._clock() - began_s < self._settings.per_cycle_s:
                runs, lines = read_runs(ended_runs(self._commands, FIELDS, *span))
                kept, unread = kept.with_span(runs, *span), unread + lines
                kept = replace(kept, span_s=min(2 * kept.span_s, DAY_S))
        except SlurmError as error:
            kept = replace(kept, refused_s=now_s, span_s=max(kept.span_s / 2, LEAST_SPAN_S))
            warnings.append(f"jobs that ended: {error}")
        if unread:
            warnings.append(f"jobs that ended: {some(unread, 'row')} of sacct cannot be read")
        if kept is not known:
            kept = kept.bounded(now_s - self._settings.days * DAY_S, self._settings.rows)
            warnings += self._saved(kept)
            log.info("past.read", runs=len(kept.runs), since_s=kept.since_s, until_s=kept.until_s)
        return kept, tuple(warnings)

    def _saved(self, kept: Kept) -> list[str]:
        try:
            if self._keep:
                save(self._file, kept)
        except OSError as error:
            return [f"jobs that ended cannot be kept: {error}"]
        return []


def due(kept: Kept, settings: Settings, now_s: float) -> tuple[float, float] | None:
    """The span to ask for next [Unix s], None if there is nothing to ask for now. Whole seconds."""
    if 0 <= now_s - kept.refused_s < PAUSE_S:
        return None
    if now_s - kept.until_s >= settings.interval_s:
        return max(kept.until_s - LATE_S, kept.since_s), min(kept.until_s + kept.span_s, now_s)
    oldest_s = now_s - settings.days * DAY_S
    if kept.since_s > oldest_s and len(kept.runs) < settings.rows:
        return max(kept.since_s - kept.span_s, oldest_s), kept.since_s
    return None


def open_past(config: Config, *, keep: bool) -> LivePast:
    """The past of the configured Slurm, kept beside the journal."""
    file = config.ledger.journal.with_name("past.npz")
    return LivePast(open_commands(config.slurm), config.past, file, keep=keep)
