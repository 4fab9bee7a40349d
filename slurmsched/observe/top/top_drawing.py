"""`top` as text of a terminal: meters, queue, map of GPUs, a job explained, and events between two updates. Pure.

Everything is rich Text, never markup: names are written by users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import Any

import numpy as np
from rich.text import Text

from slurmsched.model import Jobs, Operation, OperationStage, Snapshot
from slurmsched.model.states import HOLDS_NODES
from slurmsched.observe.queue_rows import QueueRow
from slurmsched.observe.survey.gpu_overview import AFTER_BOOT, CLOSED, FREE, HELD, NOT_KNOWN, STUCK
from slurmsched.plain_text import escape_terminal, pluralize

MOST = 100  # of jobs, between two looks


def events(before: Snapshot, after: Snapshot) -> list[str]:
    """Operations that began, moved on or are over, then jobs that started and that left their GPUs."""
    return [*_operations(before.operations, after.operations), *_jobs(before.jobs, after.jobs)]


def _operations(before: tuple[Operation, ...], after: tuple[Operation, ...]) -> Iterator[str]:
    old, new = ({operation.id: operation for operation in operations} for operations in (before, after))
    for operation in new.values():
        was = old.get(operation.id)
        if was is None:
            yield f"{_operation_text(operation)} began{_victims(operation)}"
        elif was.stage != operation.stage:
            why = f": {escape_terminal(operation.note)}" if operation.note else ""
            yield f"{_operation_text(operation)} is {operation.stage}{why}"
    for operation in old.values():
        if operation.id not in new and operation.stage != OperationStage.CLOSED:
            yield f"{_operation_text(operation)} is over"


def _operation_text(operation: Operation) -> str:
    user, nodes = escape_terminal(operation.user), escape_terminal(operation.nodes)
    return f"{operation.purpose} {operation.id} for job {operation.job_id} of {user} on {nodes}"


def _victims(operation: Operation) -> str:
    ids = ", ".join(str(victim.job_id) for victim in operation.victims)
    return f", takes from {ids}" if ids else ""


def _jobs(before: Jobs, after: Jobs) -> Iterator[str]:
    held, holds = (_holding(jobs) for jobs in (before, after))
    for row in np.flatnonzero(holds & ~np.isin(after.job_id, before.job_id[held]))[:MOST].tolist():
        yield f"{_job(after, row)} started on {escape_terminal(after.node_list[row]) or 'its nodes'}"
    waiting = after.job_id[after.pending]
    for row in np.flatnonzero(held & ~np.isin(before.job_id, after.job_id[holds]))[:MOST].tolist():
        yield f"{_job(before, row)} {'waits again' if before.job_id[row] in waiting else 'ended'}"


def _holding(jobs: Jobs) -> np.ndarray:
    return np.asarray(jobs.is_state(HOLDS_NODES) & (jobs.gpus > 0))


def _job(jobs: Jobs, row: int) -> str:
    gpus = int(jobs.gpus[row])
    return f"job {jobs.job_id[row]} of {escape_terminal(jobs.user[row])} ({pluralize(gpus, 'GPU')})"


# Meters, queue, map and explanation

COLUMNS = ("rank", "job", "user", "part", "GPUs", "GPU h", "queue", "now", "wanted", "why")
_KEYS = dict(zip(COLUMNS, ("rank", "job_id", "user", "partition", "gpus", "attained_gpu_s", "queue", "lever_now",
                           "lever_wanted", "reason"), strict=True))  # fmt: skip
NUMBERS = frozenset(("rank", "job", "GPUs", "GPU h", "queue", "now", "wanted"))
WIDTHS = {"user": 9, "part": 6, "why": 60}
LOOKS = {FREE: "green", HELD: "bold blue", STUCK: "yellow", CLOSED: "bright_black", AFTER_BOOT: "cyan",
         NOT_KNOWN: "magenta"}  # fmt: skip
ID_DIGITS = 4  # of a job in the map; the last ones tell neighbours apart
_SIGN = {FREE: "idle", STUCK: "!", CLOSED: "-", AFTER_BOOT: "boot", NOT_KNOWN: "?"}


def head(frame: Any, width: int) -> Text:
    """Two meters and two lines: GPUs, pending jobs by queue, what is at work, and since when that is known."""
    totals = frame.snapshot.nodes.gpu_totals()
    rows = frame.rows
    levels = Counter("-" if row.queue is None else str(row.queue) for row in rows)
    queues = ", ".join(f"{level}: {count}" for level, count in sorted(levels.items())) or "none"
    clock = f"{datetime.fromtimestamp(frame.snapshot.now_s):%H:%M:%S}"
    site = frame.snapshot.site
    seldom = f"{totals['boot']} after a boot, " * (totals["boot"] > 0) + f"{totals['unknown']} unknown, " * (
        totals["unknown"] > 0)  # fmt: skip
    counts = f"{totals['idle']} idle, {seldom}{totals['draining']} draining, {totals['down']} down"
    waiting = f"{pluralize(len(rows), 'job')} {'waits' if len(rows) == 1 else 'wait'}"
    lines = [
        meter("GPUs", totals["allocated"], totals["all"], width),
        Text(f"{counts}; {waiting} (queue {queues}); {pluralize(len(frame.operations), 'operation')}"),
        Text(
            f"{escape_terminal(site.cluster) or 'Slurm'} {escape_terminal(site.version)}, "
            f"{frame.policy}, {frame.mode}, {clock}",
            "bold",
        ),
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def meter(name: str, used: int, of: int, width: int) -> Text:
    """ "GPUs[||||||      6/32]", so wide."""
    counts = f"{used}/{of}"
    room = max(width - len(name) - 2 - len(counts), 0)
    bars = round(room * used / of) if of else 0
    return Text.assemble(
        (name, "cyan"), ("[", "bold"), ("|" * bars, "green"), " " * (room - bars), counts, ("]", "bold")
    )


def cells(row: QueueRow) -> tuple[Text, ...]:
    """One job, in the order of COLUMNS."""
    attained, queue = f"{row.attained_gpu_s / 3600:.1f}", "-" if row.queue is None else row.queue
    values = (row.rank, row.job_id, row.user, row.partition, row.gpus, attained, queue, row.lever_now,
              row.lever_wanted, row.why_shown)  # fmt: skip
    style = "dim" if row.left_alone else ""
    return tuple(_cell(name, value, style) for name, value in zip(COLUMNS, values, strict=True))


def _cell(name: str, value: Any, style: str) -> Text:
    text, room = escape_terminal(str(value)), WIDTHS.get(name)
    shown = text if room is None or len(text) <= room else text[: room - 1] + "…"
    return Text(shown, style, justify="right" if name in NUMBERS else "left", no_wrap=True)


def sorted_rows(rows: Sequence[QueueRow], column: str, *, inverted: bool) -> list[QueueRow]:
    """The rows by a column of COLUMNS; equal ones stay as they were."""
    value = attrgetter(_KEYS[column])
    return sorted(rows, key=lambda row: (value(row) is None, 0 if value(row) is None else value(row)), reverse=inverted)


def matches(row: QueueRow, wanted: str) -> bool:
    """Whether id, user, account or partition has the text in it."""
    texts = str(row.job_id), row.user, row.account, row.partition
    return any(wanted.lower() in text.lower() for text in texts)


def gpu_lines(made: Mapping[str, Any], width: int, wanted: str = "") -> Iterator[Text]:
    """A line or more a node: linked sets in brackets, each GPU with the end of its job's id."""
    nodes = [node for node in made["nodes"] if wanted.lower() in node["name"].lower()]
    names = max((len(node["name"]) for node in nodes), default=0)
    for node in nodes:
        yield from _node(node, min(names, 16), width)


def _node(node: Mapping[str, Any], name_width: int, width: int) -> Iterator[Text]:
    sets = [list(group) for _, group in groupby(sorted(node["gpus"], key=lambda g: (g["group"], g["index"])),
                                                key=lambda g: g["group"])]  # fmt: skip
    state, counts = escape_terminal(node["state"])[:10], f"{node['free']}/{len(node['gpus'])}"
    line = Text(f"{escape_terminal(node['name'])[:name_width]:{name_width}} {state:10} {counts:>5}  ", no_wrap=True)
    indent = len(line)
    for one in sets:
        linked = one[0]["group"] >= 0 and len(one) > 1
        drawn = _set(one, linked)
        if len(line) > indent and len(line) + len(drawn) > width:
            yield line
            line = Text(" " * indent, no_wrap=True)
        line.append_text(drawn)
    yield line if node["exact"] else Text.assemble(line, (" which?", "dim"))


def _set(gpus: Sequence[Mapping[str, Any]], linked: bool) -> Text:
    marks = Text("[" if linked else " ", "bold green")
    for place, gpu in enumerate(gpus):
        sign = str(gpu["job_id"])[-ID_DIGITS:] if gpu.get("job_id") else _SIGN.get(gpu["what"], "?")
        marks.append(" " * bool(place))
        marks.append(f"{sign:>{ID_DIGITS}}", LOOKS[gpu["what"]])
    return marks.append("]" if linked else " ", "bold green")


def explained(explanation: Mapping[str, Any]) -> Text:
    """The text of `explain` for a job."""
    user, state = escape_terminal(explanation["user"]), explanation["state"]
    text = Text()
    text.append(f"job {explanation['job_id']} of {user}: {state}, {explanation['blocker'].value}\n", "bold")
    lines = [
        ("why", explanation["because"]),
        ("Slurm says", explanation["slurm_reason"]),
        *(("move", text) for text in (explanation["move"],) if text),
        *(("change", text) for text in explanation["changes"]),
    ]
    if (ahead := explanation["ahead"]) is not None:
        lines.append(("ahead", ahead["told"]))
        lines += [("before it", _competitor_line(one)) for one in ahead["first"]]
    if (start := explanation["estimate"]) is not None:
        lines.append(("start", _start_line(start)))
    lines += [("slurmsched", one) for one in explanation["ours"]]
    lines += [("hint", hint) for hint in explanation["hints"]] + [("expected", one) for one in explanation["expected"]]
    lines += [("not read", one) for one in explanation["unread"]]
    for name, line in lines:
        text.append(f"\n{name:10} ", "cyan")
        text.append(escape_terminal(str(line)))
    return text


def _competitor_line(one: Mapping[str, Any]) -> str:
    return f"job {one['job_id']} of {one['user']}, {pluralize(one['gpus'], 'GPU')}: {one['differs']}"


def _start_line(one: Mapping[str, Any]) -> str:
    if one["source"] == "none" or not isfinite(one["earliest_s"]):
        return f"no estimate: {one['why']}"
    early, late = (f"{datetime.fromtimestamp(one[name]):%Y-%m-%d %H:%M}" for name in ("earliest_s", "latest_s"))
    return f"{early if early == late else f'{early} to {late}'}, by {one['source']}: {one['why']}"
