"""Which jobs care where their GPUs are."""

from __future__ import annotations

from collections.abc import Sequence

from slurmsched.model import Snapshot
from slurmsched.model.hints import parse_hints


def sensitive(snapshot: Snapshot, row: int, insensitive: Sequence[str] = ()) -> bool:
    """Whether the job of this row gains from near GPUs: not with the hint `topo=any`, with another `topo` hint always,
    and without one unless its partitions are among the insensitive ones."""
    hint = parse_hints(snapshot.jobs.comment[row]).topo
    if hint is not None:
        return hint != "any"
    return set(snapshot.jobs.partition[row].split(",")).isdisjoint(insensitive)
