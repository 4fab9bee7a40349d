"""Slurm's hostlists, "n[1-3,7]", to names and back."""

from __future__ import annotations

from collections.abc import Iterable


def expand(text: str) -> tuple[str, ...]:
    """Node names of a hostlist, in its order. Raises ValueError."""
    if "[" not in text:
        return tuple(text.split(",")) if text else ()
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # late: most clusters' texts need it rarely

    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except Exception as error:
        raise ValueError(f"not a hostlist ({error})") from error


def fold(names: Iterable[str]) -> str:
    """The hostlist of these names."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))
