"""Reads how jobs ask, from squeue."""

from __future__ import annotations

import re

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.asked import Asked
from slurmsched.model.columns import Labels
from slurmsched.model.snapshot import Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.queue_text import fresh_mark, unit_of
from slurmsched.slurm.text import plain, whole

_TEXTS = {"per_job": "tres-per-job", "per_node": "tres-per-node", "per_task": "tres-per-task",
          "per_socket": "tres-per-socket"}  # fmt: skip
_FIELDS = ("JobID", *_TEXTS.values(), "NumTasks", "MinMemory")
EXCLUSIVE_SINCE = (26, 5)  # squeue has a field of that name; before 25.11 OverSubscribe=NO told it
OVERSUBSCRIBE_UNTIL = (25, 5)
NOT_SET = 0xFFFF_FFFE  # slurm.h NO_VAL, which squeue prints as a number where -n was not given


def read_asked(commands: Commands, site: Site) -> Asked:
    """Every record of the queue. Raises SlurmError."""
    mark, extra = fresh_mark(), _exclusive_field(site)
    names = (*_FIELDS, *((extra,) if extra else ()))
    wanted = [f"{name}:0{unit_of(mark)}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    answer = commands.run(
        "squeue", "-h", "--all", "--local", "--sort=i", "--states=all", f"--Format={','.join(wanted)}"
    )
    return parse_asked(answer, mark, extra)


def _exclusive_field(site: Site) -> str:
    """The field that tells --exclusive; "" where none is sure to."""
    found = re.match(r"(\d+)\.(\d+)", site.version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if release >= EXCLUSIVE_SINCE:
        return "Exclusive"
    return "OverSubscribe" if (0, 0) < release <= OVERSUBSCRIBE_UNTIL else ""


def parse_asked(text: str, mark: str, extra: str) -> Asked:
    """The table. extra: the field after those of every release. Raises UnreadableError."""
    flat = text.split(mark)
    if flat.pop().strip():
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    width = len(_FIELDS) + bool(extra)
    split = (line.lstrip("\n").split(unit_of(mark)) for line in flat)
    rows = {whole(row[0]): row for row in split if len(row) == width and whole(row[0])}
    order = sorted(rows)
    at = {name: place for place, name in enumerate(_FIELDS)}
    columns = {name: Labels.of([plain(rows[job][at[field]]) for job in order]) for name, field in _TEXTS.items()}
    tasks = [_tasks(rows[job][at["NumTasks"]]) for job in order]
    alone = {"Exclusive": "NODE", "OverSubscribe": "NO"}.get(extra)
    return Asked.build(len(order), {
        **columns, "job_id": order, "tasks": tasks,
        "whole_memory": np.array([rows[job][at["MinMemory"]] == "0" for job in order], np.bool_),
        "exclusive": np.array([bool(extra) and rows[job][-1] == alone for job in order], np.bool_),
    })  # fmt: skip


def _tasks(told: str) -> int:
    """-n; 1 where it was not given."""
    return whole(told, 1, NOT_SET - 1)
