"""The screen, driven by textual's pilot."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, DataTable, Static

from slurmsched.errors import SlurmUnreachableError
from slurmsched.model import Operation, OperationStage, Purpose, Victim
from slurmsched.model.job_details import JobDetails
from slurmsched.observe.top_app import MOST, TextScreen, TopApp, cells, events, explained, gpu_lines, head, meter
from slurmsched.observe.web.frame import Frame
from slurmsched.testing import snapshot
from tests.unit.observe.top_picture import busy, drawn
from tests.unit.observe.web.frame_samples import EVIL, frame, look

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
Body = Callable[[TopApp, Pilot[None]], Awaitable[None]]


def driven(body: Body, see: Callable[[], Frame] = busy, width: int = 80, first: bool = True) -> None:
    """Run a body on the screen after its first look."""

    async def run() -> None:
        app = TopApp(see, 3_600.0)
        async with app.run_test(size=(width, 24)) as pilot:
            await until(pilot, lambda: not first or app.frame is not None)
            await body(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], true: Callable[[], Any]) -> None:
    for _ in range(500):
        await pilot.pause(0.01)
        if true():
            return
    pytest.fail("not within 500 pauses")


def table(app: TopApp) -> DataTable[Any]:
    return app.query_one("#queue", DataTable)


def column(app: TopApp, name: int) -> list[str]:
    return [str(table(app).get_row_at(row)[name]) for row in range(table(app).row_count)]


def test_queue__is_in_the_policys_order_and_sorts_as_htop_does():
    """F6 sorts by the next column, I inverts; the cursor stays on its job."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        assert column(app, 0) == [str(rank) for rank in range(1, 31)]
        await pilot.press("down", "down")
        under = app._under().job_id
        await pilot.press("f6", "I")
        assert column(app, 1) == sorted(column(app, 1), reverse=True)
        assert app._under().job_id == under
        await pilot.press("less_than_sign", "I")
        assert column(app, 0)[0] == "1"

    driven(body)


def test_queue__columns_are_as_wide_as_their_cells_at_once():
    """Not only once the table is idle: on a busy machine that can be long after."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        app._draw_queue()
        widths = [one.get_render_width(table(app)) - 2 for one in table(app).ordered_columns]  # a blank on each side
        longest = [max(map(len, column(app, name))) for name in range(len(widths))]
        assert all(width >= cell for width, cell in zip(widths, longest, strict=True))
        assert max(longest) > 20

    driven(body)


def test_filter_search_and_user__narrow_and_find():
    """F4 keeps matching jobs, F3 goes to the next one, u keeps the user's under the cursor and gives all back."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("f4", *"carol", "enter")
        assert set(column(app, 2)) == {"carol"}
        await pilot.press("f4", *["backspace"] * 5, "enter")
        assert table(app).row_count == 30
        await pilot.press("f3", *"4133", "enter")
        assert app._under().job_id == 4133
        await pilot.press("u")
        assert set(column(app, 2)) == {"bob"}
        await pilot.press("u")
        assert table(app).row_count == 30
        await pilot.press("slash", "escape")
        assert app._under().job_id == 4133

    driven(body)


def test_views__switch_with_their_keys():
    """F5 to the GPUs, F7 to what happens, and back by the same key."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        views = app.query_one("#views", ContentSwitcher)
        for key, view in (
            ("f5", "gpus"),
            ("t", "queue"),
            ("f7", "operations"),
            ("f5", "gpus"),
            ("a", "operations"),
            ("a", "queue"),
        ):
            await pilot.press(key)
            assert views.current == view
        assert "4101 4101 4101 4101" in str(app.query_one("#map", Static).render())

    driven(body)


def test_enter__explains_the_job_and_help_tells_the_keys():
    """Each over the screen, closed by Esc; q then ends."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        for key in ("enter", "f1"):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, TextScreen))
            await pilot.press("escape")
            assert not isinstance(app.screen, TextScreen)
        await pilot.press("q")
        assert app.return_code == 0

    driven(body)


def test_enter__leaves_the_screen_alive_while_records_come():
    """A database may be slow; other keys work meanwhile."""
    come = threading.Event()
    slow = replace(busy(), past=lambda job, gpus: JobDetails() if come.wait(60) else pytest.fail("a minute"))

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "f5")
        assert app.query_one("#views", ContentSwitcher).current == "gpus"
        assert not isinstance(app.screen, TextScreen)
        come.set()
        await until(pilot, lambda: isinstance(app.screen, TextScreen))

    driven(body, lambda: slow)


def test_look__tells_what_happened_since_the_last():
    """Space looks at once; a job that left is told of."""
    frames = [busy()]
    gone = frames[0].snapshot
    frames.append(replace_jobs(frames[0], gone.jobs.take(gone.jobs.job_id != 4107)))

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: not app._busy)
        await pilot.press("space")
        await until(pilot, lambda: app.happened)
        assert [text for _, text in app.happened] == ["job 4107 of dave (2 GPUs) ended"]
        assert "job 4107" in str(app.query_one("#log", Static).render())

    driven(body, lambda: frames.pop(0) if len(frames) > 1 else frames[0])


def replace_jobs(one: Frame, jobs: Any) -> Frame:
    return frame(replace(one.snapshot, jobs=jobs))


def test_look__that_fails_is_said_and_tried_again():
    """What was seen before stays."""
    answers: list[Any] = [SlurmUnreachableError("slurmctld is away"), busy()]

    def see() -> Frame:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.query_one("#fault").has_class("told"))
        assert "slurmctld is away" in str(app.query_one("#fault", Static).render())
        await until(pilot, lambda: not app._busy)
        await pilot.press("r")
        await until(pilot, lambda: app.frame is not None)
        assert not app.query_one("#fault").has_class("told")

    driven(body, see, first=False)


@pytest.mark.parametrize("width", [80, 132])
def test_screen__neither_wraps_nor_scrolls(width):
    """Nothing wraps and nothing scrolls but the views."""

    async def body(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.screen.max_scroll_y == 0
        assert all(len(line) <= width - 2 for line in head(app.frame, width - 2).plain.splitlines())
        assert len(head(app.frame, width - 2).plain.splitlines()) == 3

    driven(body, width=width)


def test_drawing__is_harmless():
    """No markup and no control of a user's reaches the terminal."""
    made = frame(look())
    rows = [cells(row) for row in made.rows]
    assert "\u202e" not in "".join(cell.plain for row in rows for cell in row)
    assert EVIL[:8] in {row[2].plain[:8] for row in rows}
    assert [span for row in rows for cell in row for span in cell.spans] == []


def test_map__brackets_linked_sets_and_wraps_long_nodes():
    """One line of a node in 80 columns, more in fewer; what is stranded or closed has a sign."""
    made = frame(look()).gpus()
    wide = [line.plain for line in gpu_lines(made, 80)]
    assert wide[0].endswith("[  21   21   21   21 idle idle idle idle]")
    assert wide[1].count("!") == 6
    assert wide[2].count("[") == 4
    assert len(list(gpu_lines(made, 45))) > 3
    assert [line.plain[:2] for line in gpu_lines(made, 80, "n2")] == ["n2"]


def test_meter__is_as_wide_as_told():
    """Empty, full, and of nothing."""
    assert meter("GPUs", 0, 8, 20).plain == "GPUs[           0/8]"
    assert meter("GPUs", 8, 8, 20).plain == "GPUs[|||||||||||8/8]"
    assert len(meter("GPUs", 0, 0, 20)) == 20


def test_pictures__of_the_page_show_what_the_screen_shows():
    """docs/top.svg is made by python -m tests.unit.observe.top_picture docs/top.svg docs/top-gpus.svg"""
    for path, keys in (("top.svg", ()), ("top-gpus.svg", ("f5",))):
        shown = (ROOT / "docs" / path).read_text(encoding="utf-8")
        assert "@font-face" not in shown
        wanted = lines(shown)[:20]  # without textual's own footer
        drawing = drawn(keys, whole=lambda one, wanted=wanted: lines(one)[:20] == wanted)
        assert lines(asyncio.run(drawing))[:20] == wanted


def lines(svg: str) -> list[str]:
    """The words of a picture, line by line; without the clock, which is of a time zone."""
    found: dict[str, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        found.setdefault(y, []).append((float(x), text.replace("&#160;", "")))
    joined = (
        "".join(text for _, text in sorted(parts)) for _, parts in sorted(found.items(), key=lambda one: float(one[0]))
    )
    return [re.sub(r"\d\d:\d\d:\d\d", "", line) for line in joined if line]


def test_explained__tells_of_moving_and_of_what_a_time_is_made_of() -> None:
    """As the pages do; text of others is escaped, and a job of which neither is known has no such line."""
    told = frame(look(), move=lambda row: "it \x1b stays" * (row == 0), expected=lambda row: ("x 2.00 for GPUs",))
    lines = explained(told.job(21)).plain.splitlines()
    assert any(line.startswith("move") and "stays" in line and "\x1b" not in line for line in lines)
    assert any(line.startswith("expected") and line.endswith("x 2.00 for GPUs") for line in lines)
    assert not [
        line for line in explained(frame(look()).job(33)).plain.splitlines() if line.startswith(("move", "exp"))
    ]


OPERATION = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "ann", "n1", 60.0, 0.0, (Victim(8, 0.0, 0, 8),))


def test_events__of_operations():
    """One that begins, one that moves on with its reason, one that is over; the same again says nothing."""
    moved, gone = replace(OPERATION, id="7-2"), replace(OPERATION, id="7-3")
    before = snapshot(operations=(moved, gone))
    after = snapshot(operations=(OPERATION, replace(moved, stage=OperationStage.REVERSING, note="it ended")))
    assert events(before, after) == [
        "preempt 7-1 for job 7 of ann on n1 began, takes from 8",
        "preempt 7-2 for job 7 of ann on n1 is reversing: it ended",
        "preempt 7-3 for job 7 of ann on n1 is over",
    ]
    assert events(after, after) == []


def test_events__of_jobs():
    """Started where, ended, or requeued."""
    runs = {"state": "RUNNING", "user": "bob", "node_list": "n1", "gpus": 2}
    before = snapshot([{"job_id": 1}, {"job_id": 2, **runs}, {"job_id": 3, **runs}])
    after = snapshot([{"job_id": 1, **runs}, {"job_id": 2, "state": "COMPLETED", "gpus": 2}, {"job_id": 3, "gpus": 2}])
    assert events(before, after) == [
        "job 1 of bob (2 GPUs) started on n1", "job 2 of bob (2 GPUs) ended", "job 3 of bob (2 GPUs) waits again",
    ]  # fmt: skip


def test_events__are_harmless_and_bounded():
    """Names of users steer no terminal; a thousand starts do not flood it."""
    evil = snapshot([{"job_id": job, "state": "RUNNING", "user": "\x1b[2Jx"} for job in range(1, 300)])
    told = events(snapshot(), evil)
    assert len(told) == MOST
    assert "\x1b" not in "".join(told)
