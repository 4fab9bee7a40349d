"""The screen of `slurmsched top`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import ContentSwitcher, DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from slurmsched.errors import SlurmschedError
from slurmsched.observe.queue_rows import QueueRow
from slurmsched.observe.top.top_drawing import COLUMNS, cells, events, explained, gpu_lines, head, matches, sorted_rows
from slurmsched.observe.web.frame import Frame
from slurmsched.plain_text import escape_terminal

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
