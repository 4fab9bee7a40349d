"""A snapshot that can be shown to others: names as keyed hashes, as in an anonymised trace, and the same plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurmsched.model import Act, Jobs, Labels, Nodes, Past, Reservations, Site
from slurmsched.model.acts import RESERVATION_PREFIX
from slurmsched.model.hints import hints_alone
from slurmsched.replay.anonymise import HIDDEN, Anonymiser
from slurmsched.replay.snapshot_file import Saved
from slurmsched.words import some

# columns of jobs -> first letter of their new names
LETTERS = {name: HIDDEN[name] for name in ("user", "account", "name")} | {"reservation": "r"}


def hidden(held: Saved, anonymiser: Anonymiser) -> Saved:
    """The same without names of users, accounts, jobs, reservations and the cluster.

    Of comments the hints stay, of reasons of nodes nothing. Job ids, times, sizes, and names of partitions, QOS and
    nodes stay.
    """
    snapshot = held.snapshot
    names = {name: anonymiser.name(name, LETTERS[column])
             for column in ("account", "user") for name in getattr(snapshot.jobs, column).names if name}  # fmt: skip
    left_out = some(len(snapshot.warnings), "warning was", "warnings were")
    warnings = (f"{left_out} left out",) if snapshot.warnings else ()
    made = replace(
        snapshot, jobs=_jobs(snapshot.jobs, anonymiser), nodes=_nodes(snapshot.nodes), warnings=warnings,
        site=_site(snapshot.site, anonymiser), carry=_renamed(snapshot.carry, names),
        acts=_acts(snapshot.acts, anonymiser), past_acts=_acts(snapshot.past_acts, anonymiser),
        reservations=_reservations(snapshot.reservations, anonymiser), past=_past(snapshot.past, anonymiser),
    )  # fmt: skip
    return replace(held, snapshot=made, settings=_settings(held.settings, anonymiser), anonymised=True)


def _jobs(jobs: Jobs, anonymiser: Anonymiser) -> Jobs:
    columns = {name: anonymiser.hide(getattr(jobs, name), letter) for name, letter in LETTERS.items()}
    return jobs.with_columns(**columns, comment=Labels.of([hints_alone(text) for text in jobs.comment]))


def _past(past: Past, anonymiser: Anonymiser) -> Past:
    columns = {name: anonymiser.hide(getattr(past, name), LETTERS[name]) for name in ("user", "account", "name")}
    return past.with_columns(**columns)


def _acts(acts: tuple[Act, ...], anonymiser: Anonymiser) -> tuple[Act, ...]:
    return tuple(replace(act, user=anonymiser.name(act.user, LETTERS["user"])) for act in acts)


def _nodes(nodes: Nodes) -> Nodes:
    return nodes.with_columns(reason=Labels.constant("", len(nodes)))


def _reservations(reservations: Reservations, anonymiser: Anonymiser) -> Reservations:
    """Ours are named after a job's id, which stays."""
    ours = [name.startswith(RESERVATION_PREFIX) for name in reservations.name]
    hidden_names = anonymiser.hide(reservations.name, LETTERS["reservation"])
    names = [old if own else new for old, new, own in zip(reservations.name, hidden_names, ours, strict=True)]
    return reservations.with_columns(name=names, users=anonymiser.hide(reservations.users, LETTERS["user"]))


def _site(site: Site, anonymiser: Anonymiser) -> Site:
    settings = {name: value for name, value in site.settings.items() if name != "ClusterName"}
    user, cluster = anonymiser.name(site.user, LETTERS["user"]), anonymiser.name(site.cluster, "c")
    return replace(site, user=user, cluster=cluster, settings=settings)


def _settings(settings: Mapping[str, Any], anonymiser: Anonymiser) -> dict[str, Any]:
    made = dict(settings)
    for section in ("scope", "preemption"):
        part = dict(settings.get(section, {}))
        part["accounts"] = [anonymiser.name(name, LETTERS["account"]) for name in part.get("accounts", ())]
        made[section] = part
    return made


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A policy's memory with each text that is a name replaced, keys of mappings too."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {_renamed(key, names): _renamed(part, names) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(part, names) for part in value)
    return value
