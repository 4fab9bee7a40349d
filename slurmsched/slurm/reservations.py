"""The reservations of a cluster, as `scontrol show reservation` prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.logs import get_logger
from slurmsched.model.acts import RESERVATION_PREFIX, Act, Reservations
from slurmsched.model.gres import index_mask
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.text import fields, plain, records, time_s

NEVER_S = float(2**32 - 2)  # in 2106: the last time that 32 bits hold
log = get_logger()
_OF_ACT = re.compile(rf"{RESERVATION_PREFIX}(?:(?P<tag>[0-9a-f]{{6}})-)?\d{{1,10}}-\d+")
_TEXTS = {"name": "ReservationName", "node_list": "Nodes", "users": "Users", "flags": "Flags", "accounts": "Accounts",
          "groups": "Groups", "qos": "QOS", "tres": "TRES"}  # fmt: skip
_CORES = re.compile(r"\bNodeName=(\S+) CoreIDs=([\d,-]+)")
_TIMES = {"start_s": "StartTime", "end_s": "EndTime"}


def read_reservations(commands: Commands) -> Reservations:
    """All of them. Raises SlurmError."""
    return parse_reservations(commands.run("scontrol", "-o", "show", "reservation"))


def orphan_names(reservations: Reservations, acts: Sequence[Act], tag: str) -> list[str]:
    """Reservations with a name of our form and tag that belong to none of these acts."""
    known = {act.reservation for act in acts}
    return [name for name in reservations.name if _tag(name) == tag and name not in known]


def foreign_names(reservations: Reservations, acts: Sequence[Act], tag: str) -> list[str]:
    """Those with a name of our form that another slurmsched gave them, or one of before names had a tag."""
    known = {act.reservation for act in acts}
    return [name for name in reservations.name if _tag(name) not in (None, tag) and name not in known]


def _tag(name: str) -> str | None:
    """Whose reservation it is, "" = from before names had a tag; None for a name that is not of our form."""
    found = _OF_ACT.fullmatch(name)
    return (found["tag"] or "") if found else None


def ending(name: str) -> str:
    """The commands that end a reservation of ours by hand: names off first, since Slurm deletes none that is named."""
    off = "scontrol update jobid=$j ReservationName="
    return f"for j in $(squeue -h -a -R {name} -o %A); do {off}; done; scontrol delete ReservationName={name}"


def parse_reservations(text: str) -> Reservations:
    """The table, ascending name; "No reservations in the system" is an empty one.

    What cannot be read of one keeps more, not less: it has begun, never ends, and its nodes are whole. The log tells.
    """
    rows = sorted((_row(record) for record in records(text, "ReservationName")), key=lambda row: row[_TEXTS["name"]])
    columns: dict[str, Any] = {name: [plain(row.get(key, "")) for row in rows] for name, key in _TEXTS.items()}
    columns |= {name: [_time_s(row, key) for row in rows] for name, key in _TIMES.items()}
    columns["to_come"] = [row.get("State", "") == "INACTIVE" for row in rows]
    columns["cores"] = [row["cores"] for row in rows]
    return Reservations.build(len(rows), columns)


def _row(record: str) -> dict[str, str]:
    """Its fields, and as "cores" how many it keeps of each node where it does not keep whole nodes."""
    row = fields(record)
    try:
        cores = [f"{node}={index_mask(ids).bit_count()}" for node, ids in _CORES.findall(record)]
    except UnreadableError as error:
        log.warning("reservation.unreadable", name=row["ReservationName"], reason=str(error))
        cores = []
    return row | {"cores": ",".join(cores)}


def _time_s(row: Mapping[str, str], key: str) -> float:
    """A time [Unix s]; of one that cannot be read the one that keeps most."""
    try:
        return time_s(row.get(key, ""))
    except UnreadableError as error:
        log.warning("reservation.unreadable", name=row["ReservationName"], reason=str(error))
        return 0.0 if key == "StartTime" else NEVER_S
