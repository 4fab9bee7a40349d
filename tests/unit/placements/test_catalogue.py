"""All placements we ship: found by name, with a page in docs/placements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from slurmsched import registry

SHARES = ("dot-product", "fgd", "gpu-clustering", "gpu-packing", "share-best-fit", "share-random")
LINKS = ("linked", "mapa", "topology-aware")
OURS = ("best-fit", "cells", "coda", "ffdl", "harmony", "random", "sched2", "spread", "synergy", *LINKS, *SHARES)
PAGES = Path(__file__).parents[3] / "docs" / "placements"


def test_registry__knows_our_placements() -> None:
    """Every placement of ours is an entry point, and the list of docs/placements names it."""
    assert set(OURS) | {"consolidated", "count"} <= set(registry.plugin_names("placements"))
    listed = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [name for name in OURS if f"[{name}]({name}.md)" not in listed] == []


@pytest.mark.parametrize("name", OURS)
def test_placement_page__names_every_parameter_and_its_default(name: str) -> None:
    """A page of docs/placements has a table row for each parameter, with the default the code has."""
    placement = registry.make_plugin("placements", name, key="placement")
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    rows = dict(line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `"))
    documented = {key.strip(" `"): default.strip(" `") for key, default in rows.items()}
    assert documented == {spec.name: _written(getattr(placement, spec.name)) for spec in fields(placement)}


def _written(value: object) -> str:
    """A default as the configuration file has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(f'{number:g}' for number in value)}]"
    if isinstance(value, Mapping):
        return "{}"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"
