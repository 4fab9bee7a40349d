"""Names that a person gives of nodes, partitions and GPU types, against those that the cluster has."""

from __future__ import annotations

from collections.abc import Iterable

from slurmsched.errors import InputError
from slurmsched.model.hostlist import expand
from slurmsched.topology.plain import fold


def hosts(option: str, text: str) -> tuple[str, ...]:
    """The node names of a hostlist, in its order, each once. Raises InputError for what is none."""
    try:
        found = tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise InputError(f"{option} {text!r}: {error}; write one such as n[1-4]") from error
    if text and not any(found):
        raise InputError(f"{option} {text!r}: names no node; write one such as n[1-4]")
    return found


def check_nodes(option: str, asked: Iterable[str], there: Iterable[str]) -> None:
    """Raises InputError for nodes that the cluster does not have; sbatch refuses them too."""
    if unknown := set(asked) - set(there):
        raise InputError(f"{option}: the cluster has no {fold(sorted(unknown))}")


def check_name(option: str, asked: str, there: Iterable[str]) -> None:
    """Raises InputError for a name that is none of these; "" stands for none."""
    known = sorted({name for name in there if name})
    if asked and asked not in known:
        raise InputError(f"{option} {asked}: there is {', '.join(known) or 'none'}")
