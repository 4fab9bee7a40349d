"""The screen of `slurmsched top`: what it shows as text of a terminal, then the app with its keys.

All text is rich Text, never markup: names are written by users.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from math import isfinite
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from slurmsched.errors import SlurmschedError
from slurmsched.model import Jobs, Operation, OperationStage, Snapshot
from slurmsched.model.states import HOLDS_NODES
from slurmsched.observe.queue_rows import QueueRow
from slurmsched.observe.survey.gpu_overview import AFTER_BOOT, CLOSED, FREE, HELD, NOT_KNOWN, STUCK
from slurmsched.observe.web.frame import Frame
from slurmsched.plain_text import escape_terminal, pluralize

# Events between two updates

MOST = 100  # of jobs


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


QUEUE, GPUS, OPERATIONS = "queue", "gpus", "operations"
REMEMBERED = 500  # events
HELP = """slurmsched top shows the queue in the order the policy wants. It reads only.

F1 h ?      this help
F3 /        search: to the next job with the text in its id, user, account or partition
F4 \\        filter: only such jobs, and nodes by name; empty = all
F5 t        GPUs: node by node; [ ] are what NVLink or XGMI joins, numbers the ends of job ids,
            ! is a free GPU that no job can get, - one of a node that takes no job
F6 > <      sort by the next column, or the one before; I inverts
F7 a        operations, starts and ends as they happen
Enter       why the job under the cursor waits
u           only jobs of the user under the cursor, or of all again
Space r     look now
Home End PgUp PgDn arrows    move
F10 q       quit; Esc closes what is open
"""


class TextScreen(ModalScreen[None]):
    """A text over the screen."""

    BINDINGS: ClassVar[list[Any]] = [Binding("escape,q,enter,f10", "app.pop_screen", "Close")]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="told"):
            yield Static(self._text)
        yield Footer()


class TopApp(App[None]):
    """The pages of `slurmsched top` and their keys.

    look: the cluster and its plan now; slow, asked in a thread of its own.
    interval_s: from one look to the next.
    """

    TITLE = "slurmsched top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    #head { height: 3; padding: 0 1; }
    #fault { display: none; height: auto; max-height: 2; padding: 0 1; color: $text-error; }
    #fault.told { display: block; }
    #ask { display: none; height: 3; }
    #ask.open { display: block; }
    #views, DataTable, #gpus, #operations { height: 1fr; }
    #gpus, #operations { padding: 0 1; }
    #gpus Static, #operations Static { width: auto; }
    TextScreen { align: center middle; }
    #told { width: 90%; height: 80%; border: round $primary; padding: 0 1; background: $surface; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("f1,h,question_mark", "help", "Help"),
        Binding("f3,slash", "ask('search')", "Search"),
        Binding("f4,backslash", "ask('filter')", "Filter"),
        Binding("f5,t", "show('gpus')", "GPUs"),
        Binding("f6,greater_than_sign", "sort(1)", "Sort"),
        Binding("less_than_sign", "sort(-1)", "", show=False),
        Binding("I", "invert", "", show=False),
        Binding("f7,a", "show('operations')", "Operations"),
        Binding("u", "user", "User"),
        Binding("space,r", "look", "", show=False),
        Binding("escape", "close", "", show=False),
        Binding("f10,q", "quit", "Quit"),
    ]

    def __init__(self, look: Callable[[], Frame], interval_s: float) -> None:
        super().__init__()
        self._look, self._interval_s = look, interval_s
        self.frame: Frame | None = None
        self.happened: deque[tuple[float, str]] = deque(maxlen=REMEMBERED)
        self.column, self.inverted = COLUMNS[0], False
        self.wanted, self.user, self._asked = "", "", ""
        self._busy = False

    def compose(self) -> ComposeResult:
        yield Static("the first look ...", id="head")
        yield Static("", id="fault")
        yield Input(id="ask", disabled=True)
        with ContentSwitcher(initial=QUEUE, id="views"):
            yield DataTable(id=QUEUE, cursor_type="row", zebra_stripes=True, cell_padding=1)
            with VerticalScroll(id=GPUS):
                yield Static(id="map")
            with VerticalScroll(id=OPERATIONS):
                yield Static(id="log")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(f"#{QUEUE}").focus()
        self.action_look()

    def action_look(self) -> None:
        """Look now, unless a look is under way."""
        if not self._busy:
            self._busy = True
            self.run_worker(self._looked, thread=True)

    def _looked(self) -> None:
        begun_s = time.monotonic()
        try:
            frame = self._look()
        except SlurmschedError as error:
            self.call_from_thread(self._fault, f"not read: {error}")
        else:
            self.call_from_thread(self.show, frame)
        took_s = time.monotonic() - begun_s
        self.call_from_thread(self._rest, max(self._interval_s - took_s, took_s))

    def _rest(self, wait_s: float) -> None:
        """Until the next look: never shorter than a look takes, so that Slurm rests at least half of the time."""
        self._busy = False
        self.set_timer(wait_s, self.action_look)

    def _fault(self, why: str) -> None:
        """Say what is wrong, over what was seen before; "" = nothing is."""
        box = self.query_one("#fault", Static)
        box.update(Text(escape_terminal(why)))
        box.set_class(bool(why), "told")

    def show(self, frame: Frame) -> None:
        """Draw another look."""
        if self.frame is not None:
            self.happened.extend((frame.snapshot.now_s, text) for text in events(self.frame.snapshot, frame.snapshot))
        self.frame = frame
        self._fault("; ".join(frame.snapshot.warnings[:2]))
        self._draw()

    def on_resize(self) -> None:
        if self.frame is not None:
            self._draw()

    def rows(self) -> list[QueueRow]:
        """The jobs of the table, in its order."""
        every = self.frame.rows if self.frame is not None else []
        mine = [row for row in every if self.user in ("", row.user) and matches(row, self.wanted)]
        return sorted_rows(mine, self.column, inverted=self.inverted)

    def _draw(self) -> None:
        frame = self.frame
        if frame is None:
            return
        self.query_one("#head", Static).update(head(frame, self.size.width - 2))
        self._draw_queue()
        lines = gpu_lines(frame.gpus(), self.size.width - 2, self.wanted)
        self.query_one("#map", Static).update(Text("\n").join(lines))
        log = (f"{time.strftime('%H:%M:%S', time.localtime(at_s))} {text}" for at_s, text in reversed(self.happened))
        self.query_one("#log", Static).update(Text("\n".join(log) or "nothing has happened since top began"))

    def _draw_queue(self) -> None:
        """Anew, the cursor on the same job where it is still there."""
        table = self.query_one(f"#{QUEUE}", DataTable)
        rows, at = self.rows(), self._under()
        drawn = [cells(row) for row in rows]
        table.clear(columns=True)
        for number, name in enumerate(COLUMNS):
            mark = ("▲" if not self.inverted else "▼") if name == self.column else ""
            head = Text(f"{name}{mark}")
            # Widths are told: those that the table finds by itself, once it is idle, are at times those of the heads.
            table.add_column(head, key=name, width=max(one.cell_len for one in (head, *(row[number] for row in drawn))))
        for row, line in zip(rows, drawn, strict=True):
            table.add_row(*line, key=str(row.job_id))
        place = next((place for place, row in enumerate(rows) if at and row.job_id == at.job_id), 0)
        table.move_cursor(row=place, animate=False)

    def _under(self) -> QueueRow | None:
        """The job under the cursor."""
        table = self.query_one(f"#{QUEUE}", DataTable)
        if self.frame is None or not table.row_count or table.cursor_row >= table.row_count:
            return None
        key = table.coordinate_to_cell_key((table.cursor_row, 0)).row_key.value  # type: ignore[arg-type]
        return next((row for row in self.frame.rows if str(row.job_id) == key), None)

    def action_show(self, view: str) -> None:
        """This view, or the queue again."""
        views = self.query_one("#views", ContentSwitcher)
        views.current = QUEUE if views.current == view else view
        self.query_one(f"#{views.current}").focus()

    def action_sort(self, step: int) -> None:
        self.column = COLUMNS[(COLUMNS.index(self.column) + step) % len(COLUMNS)]
        self._draw()

    def action_invert(self) -> None:
        self.inverted = not self.inverted
        self._draw()

    def action_user(self) -> None:
        job = self._under()
        self.user = "" if self.user or job is None else job.user
        self._draw()

    def action_help(self) -> None:
        self.push_screen(TextScreen(Text(HELP)))

    def action_ask(self, what: str) -> None:
        """Ask for a text to search for, or to filter by."""
        self._asked = what
        box = self.query_one("#ask", Input)
        box.value, box.placeholder = (
            (self.wanted if what == "filter" else ""),
            f"{what}: id, user, account or partition",
        )
        box.add_class("open")
        box.disabled = False
        box.focus()

    def action_close(self) -> None:
        box = self.query_one("#ask", Input)
        box.remove_class("open")
        box.disabled = True
        self.query_one(f"#{self.query_one('#views', ContentSwitcher).current}").focus()

    @on(Input.Submitted)
    def _filter_entered(self, event: Input.Submitted) -> None:
        self.action_close()
        if self._asked == "filter":
            self.wanted = event.value.strip()
            self._draw()
        else:
            self._search(event.value.strip())

    def _search(self, text: str) -> None:
        table, rows = self.query_one(f"#{QUEUE}", DataTable), self.rows()
        places = [*range(table.cursor_row + 1, len(rows)), *range(table.cursor_row + 1)]
        found = next((place for place in places if place < len(rows) and matches(rows[place], text)), None)
        if found is None:
            self.bell()
        else:
            table.move_cursor(row=found, animate=False)

    @on(DataTable.RowSelected)
    def _explain(self, event: DataTable.RowSelected) -> None:
        if (frame := self.frame) is not None:
            job_id = int(event.row_key.value or 0)
            self.run_worker(lambda: self._why(frame, job_id), thread=True, group="why", exclusive=True)

    def _why(self, frame: Frame, job_id: int) -> None:
        """Show why a job waits, unless another was asked for meanwhile. Its records may be long in coming."""
        explanation = frame.job(job_id)
        if explanation is not None and not get_current_worker().is_cancelled:
            self.call_from_thread(self.push_screen, TextScreen(explained(explanation)))
