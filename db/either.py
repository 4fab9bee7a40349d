"""Lines in a file of this host or, where several hosts may lead, in the database that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slurmsched.db.lines import Lines, as_line
from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger

if TYPE_CHECKING:
    from slurmsched.db.shared import SharedLines

T = TypeVar("T")
log = get_logger()


class Either(Lines):
    """One such file. path, sound: as Lines. shared: the database in its place; None: this host is the only one.

    lenient: for undo, which needs what can be read and nothing more. Lines that cannot be read are skipped, what cannot
    be put down is not, each with a warning; the file of this host is read before the shared lines, since they may have
    been switched on when something was under way.
    """

    def __init__(
        self, path: Path, sound: Callable[[dict[str, Any]], bool], shared: SharedLines | None, *, lenient: bool = False
    ) -> None:
        super().__init__(path, sound)
        self._shared, self.lenient = shared, lenient
        self._newer: set[str] = set()

    @property
    def store(self) -> Lines | SharedLines:
        """What holds the lines."""
        return self._shared or self

    def objects(self, what: str) -> Iterator[dict[str, Any]]:
        """The object of each line, oldest first. what: they are lines of, for people.

        Raises LedgerError for a line that cannot be read.
        """
        bad = 0
        for where, number, line in self._numbered():
            if line is None and not self.lenient:
                raise LedgerError(f"{where}:{number}: not a line of the {what}; repair or remove that line")
            bad += line is None
            if line is not None:
                yield line
        if bad:
            log.warning("record.lines_skipped", of=what, path=str(self.path), lines=bad)

    def put(self, lines: Iterable[bytes]) -> None:
        """Add lines, synced. Raises LedgerError; then none was added."""
        try:
            if self._shared is None:
                self.append(lines, sync=True)
            else:
                self._shared.append(lines)
        except LedgerError as error:
            if not self.lenient:
                raise
            log.warning("record.not_written", error=str(error))

    def line(self, values: dict[str, Any]) -> bytes:
        """One object as a line, with the term it is written under where hosts share them."""
        return as_line(values | ({"term": self._shared.term} if self._shared else {}))

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Put these lines in place of all; not where some of them could not be read. Raises LedgerError."""
        if not self.lenient:
            self.store.replace(lines)

    def made(self, kind: type[T], values: Mapping[str, Any]) -> T:
        """One of this kind. Fields of a newer slurmsched are left out, with a warning once."""
        known = {spec.name for spec in fields(kind)}  # type: ignore[arg-type]
        if newer := values.keys() - known - self._newer:
            self._newer |= newer
            log.warning("record.newer_fields", path=str(self.path), left_out=sorted(newer))
        return kind(**{name: value for name, value in values.items() if name in known})

    def _numbered(self) -> Iterator[tuple[object, int, dict[str, Any] | None]]:
        if self._shared is None or self.lenient:
            yield from ((self.path, number, line) for number, _, line in self.read())
        if self._shared is None:
            return
        try:
            texts = list(self._shared.read())
        except LedgerError as error:
            if not self.lenient:
                raise
            log.warning("record.others_unknown", error=str(error))
            return
        yield from (("shared_lines", number, self._parsed(text)) for number, text in enumerate(texts, 1))
