"""Lines in a file of this host or, where several hosts may lead, in the database that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.db.lines import Lines, as_line
from slurmsched.errors import LedgerError

if TYPE_CHECKING:
    from slurmsched.db.shared import SharedLines


class Either(Lines):
    """One such file. path, sound: as Lines. shared: the database in its place; None: this host is the only one."""

    def __init__(self, path: Path, sound: Callable[[dict[str, Any]], bool], shared: SharedLines | None) -> None:
        super().__init__(path, sound)
        self._shared = shared

    @property
    def store(self) -> Lines | SharedLines:
        """What holds the lines."""
        return self._shared or self

    def objects(self, what: str) -> Iterator[dict[str, Any]]:
        """The object of each line, oldest first. what: they are lines of, for people.

        Raises LedgerError for a line that cannot be read.
        """
        for number, line in self._numbered():
            if line is None:
                where = "shared_lines" if self._shared else self.path
                raise LedgerError(f"{where}:{number}: not a line of the {what}; repair or remove that line")
            yield line

    def put(self, lines: Iterable[bytes]) -> None:
        """Add lines, synced. Raises LedgerError; then none was added."""
        if self._shared is None:
            self.append(lines, sync=True)
        else:
            self._shared.append(lines)

    def line(self, values: dict[str, Any]) -> bytes:
        """One object as a line, with the term it is written under where hosts share them."""
        return as_line(values | ({"term": self._shared.term} if self._shared else {}))

    def _numbered(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        if self._shared is None:
            return ((number, line) for number, _, line in self.read())
        return enumerate(map(self._parsed, self._shared.read()), 1)
