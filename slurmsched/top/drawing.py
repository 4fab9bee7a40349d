"""A frame drawn as text of a terminal: meters, cells of the queue, the map of GPUs, a job explained. Pure.

Everything is rich Text, never markup: names are data of users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from math import isfinite
from typing import Any

from rich.text import Text

from slurmsched.explain.text import against
from slurmsched.planning.reasons import criteria
from slurmsched.survey.gpu_map import AFTER_BOOT, CLOSED, FREE, HELD, NOT_KNOWN, STUCK
from slurmsched.terminal import harmless
from slurmsched.words import some

COLUMNS = ("rank", "job", "user", "part", "GPUs", "GPU h", "queue", "now", "wanted", "why")
_KEYS = dict(zip(COLUMNS, ("rank", "job_id", "user", "partition", "gpus", "attained_gpu_s", "queue", "lever_now",
                           "lever_wanted", "reason"), strict=True))  # fmt: skip
NUMBERS = frozenset(("rank", "job", "GPUs", "GPU h", "queue", "now", "wanted"))
WIDTHS = {"user": 9, "part": 6, "why": 60}
LOOKS = {FREE: "green", HELD: "bold blue", STUCK: "yellow", CLOSED: "bright_black", AFTER_BOOT: "cyan",
         NOT_KNOWN: "magenta"}  # fmt: skip
ID_DIGITS = 4  # of a job in the map; the last ones tell neighbours apart
_SIGN = {FREE: "free", STUCK: "!", CLOSED: "-", AFTER_BOOT: "boot", NOT_KNOWN: "?"}


def head(frame: Any, width: int) -> Text:
    """Two meters and two lines: GPUs, pending jobs by queue, what is at work, and since when that is known."""
    totals = frame.snapshot.nodes.gpu_totals()
    rows = frame.rows
    levels = Counter("-" if row["queue"] is None else str(row["queue"]) for row in rows)
    queues = ", ".join(f"{level}: {count}" for level, count in sorted(levels.items())) or "none"
    clock = f"{datetime.fromtimestamp(frame.snapshot.now_s):%H:%M:%S}"
    site = frame.snapshot.site
    seldom = f"{totals['boot']} after a boot, " * (totals["boot"] > 0) + f"{totals['unknown']} unknown, " * (
        totals["unknown"] > 0)  # fmt: skip
    counts = f"{totals['idle']} free, {seldom}{totals['draining']} drained, {totals['down']} down"
    waiting = f"{some(len(rows), 'job')} {'waits' if len(rows) == 1 else 'wait'}"
    lines = [
        meter("GPUs", totals["allocated"], totals["all"], width),
        Text(f"{counts}; {waiting} (queue {queues}); {some(len(frame.acts), 'act')}"),
        Text(
            f"{harmless(site.cluster) or 'Slurm'} {harmless(site.version)}, {frame.policy}, {frame.mode}, {clock}",
            "bold",
        ),
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def meter(name: str, used: int, of: int, width: int) -> Text:
    """ "GPUs[||||||      6/32]", so wide."""
    told = f"{used}/{of}"
    room = max(width - len(name) - 2 - len(told), 0)
    bars = round(room * used / of) if of else 0
    return Text.assemble((name, "cyan"), ("[", "bold"), ("|" * bars, "green"), " " * (room - bars), told, ("]", "bold"))


def cells(row: Mapping[str, Any]) -> tuple[Text, ...]:
    """One job, in the order of COLUMNS."""
    left = row["left_alone"]
    why = (
        f"left alone: {row['reason']}"
        if left
        else criteria({k: v for k, v in row["why"].items() if k != "queue"}) or "-"
    )
    attained, queue = f"{row['attained_gpu_s'] / 3600:.1f}", "-" if row["queue"] is None else row["queue"]
    values = (row["rank"], row["job_id"], row["user"], row["partition"], row["gpus"], attained, queue,
              row["lever_now"], row["lever_wanted"], why)  # fmt: skip
    style = "dim" if left else ""
    return tuple(_cell(name, value, style) for name, value in zip(COLUMNS, values, strict=True))


def _cell(name: str, value: Any, style: str) -> Text:
    text, room = harmless(str(value)), WIDTHS.get(name)
    shown = text if room is None or len(text) <= room else text[: room - 1] + "…"
    return Text(shown, style, justify="right" if name in NUMBERS else "left", no_wrap=True)


def ordered(rows: Sequence[Mapping[str, Any]], column: str, *, inverted: bool) -> list[Mapping[str, Any]]:
    """The rows by a column of COLUMNS; equal ones stay as they were."""
    key = _KEYS[column]
    return sorted(rows, key=lambda row: (row[key] is None, 0 if row[key] is None else row[key]), reverse=inverted)


def matches(row: Mapping[str, Any], wanted: str) -> bool:
    """Whether id, user, account or partition has the text in it."""
    return any(wanted.lower() in str(row[name]).lower() for name in ("job_id", "user", "account", "partition"))


def gpu_lines(made: Mapping[str, Any], width: int, wanted: str = "") -> Iterator[Text]:
    """A line or more a node: linked sets in brackets, each GPU with the end of its job's id."""
    nodes = [node for node in made["nodes"] if wanted.lower() in node["name"].lower()]
    names = max((len(node["name"]) for node in nodes), default=0)
    for node in nodes:
        yield from _node(node, min(names, 16), width)


def _node(node: Mapping[str, Any], name_width: int, width: int) -> Iterator[Text]:
    sets = [list(group) for _, group in groupby(sorted(node["gpus"], key=lambda g: (g["group"], g["index"])),
                                                key=lambda g: g["group"])]  # fmt: skip
    state, told = harmless(node["state"])[:10], f"{node['free']}/{len(node['gpus'])}"
    line = Text(f"{harmless(node['name'])[:name_width]:{name_width}} {state:10} {told:>5}  ", no_wrap=True)
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
        told = str(gpu["job_id"])[-ID_DIGITS:] if gpu.get("job_id") else _SIGN.get(gpu["what"], "?")
        marks.append(" " * bool(place))
        marks.append(f"{told:>{ID_DIGITS}}", LOOKS[gpu["what"]])
    return marks.append("]" if linked else " ", "bold green")


def explained(told: Mapping[str, Any]) -> Text:
    """A job as `explain` tells it."""
    text = Text()
    text.append(f"job {told['job_id']} of {harmless(told['user'])}: {told['state']}, {told['blocker'].value}\n", "bold")
    lines = [
        ("why", told["because"]),
        ("Slurm says", told["slurm_reason"]),
        *(("move", text) for text in (told["move"],) if text),
        *(("change", text) for text in told["changes"]),
    ]
    if (ahead := told["ahead"]) is not None:
        lines.append(("ahead", ahead["told"]))
        lines += [("before it", _other(one, ahead["why"])) for one in ahead["first"]]
    if (start := told["estimate"]) is not None:
        lines.append(("start", _start(start)))
    lines += [("slurmsched", one) for one in told["ours"]]
    lines += [("hint", hint) for hint in told["hints"]] + [("expected", one) for one in told["expected"]]
    lines += [("not read", one) for one in told["unread"]]
    for name, line in lines:
        text.append(f"\n{name:10} ", "cyan")
        text.append(harmless(str(line)))
    return text


def _other(one: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    return f"job {one['job_id']} of {one['user']}, {some(one['gpus'], 'GPU')}: {against(one['why'], own)}"


def _start(one: Mapping[str, Any]) -> str:
    if one["source"] == "none" or not isfinite(one["earliest_s"]):
        return f"no estimate: {one['why']}"
    early, late = (f"{datetime.fromtimestamp(one[name]):%Y-%m-%d %H:%M}" for name in ("earliest_s", "latest_s"))
    return f"{early if early == late else f'{early} to {late}'}, by {one['source']}: {one['why']}"
