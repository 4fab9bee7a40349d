"""Families as text: for a scrape, and for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurmsched.errors import InputError
from slurmsched.paths import draft_of, dropped

MODE = 0o644  # node_exporter is another user


class Families:
    """What prometheus_client takes for a registry."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Sequence[Any]:
        return self._families


def scraped(families: Sequence[Any], accept: str) -> tuple[bytes, str]:
    """The text and its content type. accept: the scraper's Accept header, which chooses between two formats."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(Families(families)), content_type  # type: ignore[arg-type]


def write_textfile(path: Path, families: Sequence[Any]) -> None:
    """Write the file whole or not at all. Raises InputError if it cannot be written."""
    from prometheus_client.exposition import generate_latest

    draft = draft_of(path)  # the collector reads *.prom only
    try:
        draft.write_bytes(generate_latest(Families(families)))  # type: ignore[arg-type]
        draft.chmod(MODE)
        draft.replace(path)
    except OSError as error:
        dropped(draft)
        raise InputError(f"cannot be written: {error.strerror}; see metrics.textfile", source=str(path)) from error


def read_textfile(path: Path) -> list[Any]:
    """The families of a file that write_textfile wrote; none where there is none that can be read."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []
