"""Slurm's hostlists, "n[1-3,7]", to names and back. What ClusterShell raises, whatever it is, is a ValueError here."""

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
    """The names as one hostlist: ("n1", "n2", "n3") -> "n[1-3]". Raises ValueError for what are no names of hosts."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    try:
        return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))
    except Exception as error:
        raise ValueError(f"not names of hosts ({error})") from error


def same_hosts(a: str, b: str) -> bool:
    """Whether two hostlists name the same nodes, however they are written. One that is broken is like no other."""
    try:
        return a == b or set(expand(a)) == set(expand(b))
    except ValueError:
        return False
