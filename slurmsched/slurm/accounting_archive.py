"""Pulls accounting day by day into a folder. A later pull goes on from there."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from slurmsched.errors import InputError
from slurmsched.input_files import InputFile
from slurmsched.model.durations import DAY_S
from slurmsched.model.trace import RecordedTrace
from slurmsched.model.trace_rows import recorded_trace
from slurmsched.paths import create, draft_of, dropped
from slurmsched.slurm.accounting import DELIMITER, ended_runs, known_fields
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.sacct_jobs import SacctTrace

FIELDS_FILE, SUFFIX = "fields", ".rows.gz"


@dataclass(frozen=True, slots=True)
class AccountingArchive:
    """One pull.

    folder: where each day's rows are kept, a file a day, so that nothing is asked twice.
    since, until: days in UTC, until left out.
    pause_s: shortest wait between two calls; it is never shorter than the last call took, so that accounting is idle at
        least half of the time.
    """

    commands: Commands
    folder: Path
    since: date
    until: date
    pause_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.since >= self.until:
            raise InputError(f"no whole day from {self.since} to {self.until}; --since must be earlier")

    @property
    def days(self) -> list[date]:
        """All days of the pull."""
        return [self.since + timedelta(days=n) for n in range((self.until - self.since).days)]

    def run(self) -> Iterator[date]:
        """Pull what is not there yet, and yield each day when its rows are kept. A day that was not over when it was
        pulled is pulled again.

        Raises SlurmUnreachableError and SlurmError of sacct, InputError where the folder cannot be written; the days
        yielded before stay.
        """
        names, waited_s = self._names(), 0.0
        for day in self.days:
            path = self._path(day)
            start_s = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
            if not _is_complete(path, start_s + DAY_S):
                self.sleep(waited_s)
                began = time.monotonic()
                rows = ended_runs(self.commands, names, start_s, start_s + DAY_S)
                waited_s = max(self.pause_s, time.monotonic() - began)
                self._keep(path, gzip.compress("".join(f"{row}\n" for row in rows).encode(), mtime=0))
            yield day

    def trace(self, *, strict: bool = False) -> RecordedTrace:
        """The trace of the days pulled. Raises InputError."""
        whole = draft_of(self.folder / "all").with_suffix(".sacct.gz")
        header = DELIMITER.join(self._names()) + "\n"
        try:
            with create(whole) as file:
                file.write(gzip.compress(header.encode(), mtime=0))
                for day in self.days:
                    file.write(self._rows(day))
            source = InputFile(whole, strict=strict)
            return recorded_trace(SacctTrace().read(source), source, "sacct")
        except InputError as error:
            if error.source != str(whole) or error.line:
                raise
            last = self.until - timedelta(days=1)
            raise InputError(error.message, source=f"accounting, {self.since} to {last} (UTC)") from error
        except OSError as error:
            raise InputError(f"cannot be read or written: {error.strerror}", source=str(self.folder)) from error
        finally:
            whole.unlink(missing_ok=True)

    def _rows(self, day: date) -> bytes:
        """What is kept of a day. Raises InputError if it is damaged."""
        packed = self._path(day).read_bytes()
        try:
            if not packed:
                raise EOFError("empty")
            gzip.decompress(packed)
        except (OSError, EOFError, zlib.error) as error:
            source = str(self._path(day))
            raise InputError(f"is damaged ({error}); remove it, and the next pull asks again", source=source) from error
        return packed

    def _names(self) -> tuple[str, ...]:
        """The fields of all days of this folder: those of its first pull."""
        path = self.folder / FIELDS_FILE
        if not path.exists():
            self._keep(path, ",".join(known_fields(self.commands)).encode())
        return tuple(path.read_text(encoding="utf-8").strip().split(","))

    def _path(self, day: date) -> Path:
        return self.folder / f"{day.isoformat()}{SUFFIX}"

    def _keep(self, path: Path, content: bytes) -> None:
        draft = draft_of(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with create(draft) as file:
                file.write(content)
            draft.replace(path)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error
        finally:
            dropped(draft)


def _is_complete(path: Path, day_end_s: float) -> bool:
    """Whether the rows were asked for when their day was over."""
    return path.exists() and path.stat().st_mtime >= day_end_s
