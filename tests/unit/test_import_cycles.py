"""Imports form no cycle, those within functions included; only annotations may look back."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def cycle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one cycle, [] without any."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports__have_no_cycle():
    """Of any module of the product with any other."""
    graph = grimp.build_graph("slurmsched", exclude_type_checking_imports=True, cache_dir=None)
    assert len(graph.modules) > 200
    assert cycle({module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}) == []


@pytest.mark.parametrize(
    ("imports", "expected"),
    [({"a": {"b"}, "b": {"c"}, "c": set()}, False), ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, True)],
    ids=["a chain", "a ring"],
)
def test_cycle__is_found(imports, expected):
    """A chain of imports is none; one that comes back to its beginning is."""
    assert bool(cycle(imports)) == expected
