"""Paths of the daemon's pages: what each answers, as HTML or as JSON beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from math import isfinite, isnan
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import orjson
from jinja2 import Environment, PackageLoader

from slurmsched import __version__
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.html_page import STATIC as SHARED_STATIC
from slurmsched.observe.html_page import colour_css, safe_text
from slurmsched.observe.web.frame import JOB_FILTERS, Frame
from slurmsched.observe.web.web_server import HttpRequest, HttpResponse
from slurmsched.plain_text import replace_surrogates

HTML, JSON = "text/html; charset=utf-8", "application/json"
STATIC = {"/style.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}
TITLES = {"queue": "Queue", "running": "Running jobs", "gpus": "GPUs", "use": "Use", "job": "Job"}
NAMELESS = ("gpus", "use")  # shown, without names, also where Slurm hides jobs of others
NOW = "now"  # as JSON only: by it a page sees that there is a newer state
LONGEST_ID = 12  # digits
LONGEST_NAME = 32  # characters of a job's name or Slurm's reason in a table
MOST_FIELDS = 20  # of a query
PRIVATE = (
    "Slurm's PrivateData hides jobs of others from users here, and so does this page. `slurmsched queue` shows yours."
)
NOTHING = "No cycle has been run yet."


@dataclass(frozen=True, slots=True)
class _Shown:
    """A frame, and the answers that were made of it.

    samples: of the use until now.
    responses: whole views of the frame, by name and whether as JSON; a large site's takes long to make.
    """

    frame: Frame
    samples: tuple[UseSample, ...]
    responses: dict[tuple[str, bool], HttpResponse] = field(default_factory=dict)


class WebPages:
    """Answers from the frame that it was shown last. Safe to ask from several threads."""

    def __init__(self) -> None:
        self._shown: _Shown | None = None
        self._past = UseHistory()

    def show(self, frame: Frame) -> None:
        """From now on answers are of this one."""
        self._past.add(frame.snapshot)
        self._shown = _Shown(frame, self._past.samples)

    def fail(self, note: str) -> None:
        """The last cycle did not work: answers stay as they are, and say so."""
        if self._shown is not None:
            self._shown.frame.note = note
            self._shown = _Shown(self._shown.frame, self._shown.samples)

    def answer(self, asked: HttpRequest) -> HttpResponse | None:
        """The answer to this request; None: there is no such page."""
        if asked.path in STATIC:
            return _static(asked.path)
        name, as_json = asked.path.strip("/") or "queue", False
        if name.endswith(".json"):
            name, as_json = name.removesuffix(".json"), True
        if (name not in TITLES and (name, as_json) != (NOW, True)) or asked.path.endswith(".json/"):
            return None
        shown = self._shown
        if shown is None:
            return _response(name, as_json, None, NOTHING, 503)
        frame = shown.frame
        if name == NOW:
            return HttpResponse(dumped(frame.head), JSON)
        if frame.private and name not in NAMELESS:
            return _response(name, as_json, frame, PRIVATE, 403)
        query, responses = _single(asked.query), shown.responses
        if query is None:
            return _response(name, as_json, frame, f"More than {MOST_FIELDS} fields in a query.", 400)
        if query or name == "job":
            return _page_or_none(name, as_json, shown, query)
        if (name, as_json) not in responses:
            answer = _page_or_none(name, as_json, shown, query)
            assert answer is not None
            responses[name, as_json] = answer
        return responses[name, as_json]


def _page_or_none(name: str, as_json: bool, shown: _Shown, query: dict[str, str]) -> HttpResponse | None:
    frame = shown.frame
    made = _MAKERS[name](shown, query)
    if made is None:
        wanted = query.get("id", "")
        text = f"Slurm has no job {wanted} in its queue." if wanted else "Which job? Give its id."
        return _response(name, as_json, frame, text, 404 if wanted else 200)
    if as_json:
        return HttpResponse(dumped(made), JSON)
    return HttpResponse(_rendered(name, frame, made, query).encode("utf-8", "replace"), HTML)


def _job(shown: _Shown, query: dict[str, str]) -> dict[str, Any] | None:
    text = query.get("id", "").strip()
    return shown.frame.job(int(text)) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_ID else None


_MAKERS: dict[str, Callable[[_Shown, dict[str, str]], dict[str, Any] | None]] = {
    "queue": lambda shown, query: shown.frame.queue(query),
    "running": lambda shown, query: shown.frame.held(query),
    "gpus": lambda shown, query: shown.frame.gpus(),
    "use": lambda shown, query: shown.frame.use() | {"samples": [asdict(one) for one in shown.samples]},
    "job": _job,
}


def dumped(value: Any) -> bytes:
    """The value as JSON; half characters become question marks, NaN null."""
    return orjson.dumps(
        replace_surrogates(value), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=str
    )


def _response(name: str, as_json: bool, frame: Frame | None, text: str, status: int) -> HttpResponse:
    if as_json:
        return HttpResponse(dumped({"message": text}), JSON, status)
    page = _rendered(name, frame, None, {}, message=text)
    return HttpResponse(page.encode("utf-8", "replace"), HTML, status)


def _rendered(name: str, frame: Frame | None, made: Any, query: dict[str, str], message: str = "") -> str:
    json_path = f"/{name}.json" + (f"?{urlencode(query)}" if query else "")
    return _environment().get_template(f"{name}.html.j2").render(
        name=name, title=TITLES[name], titles=TITLES, frame=frame, made=made, query=query, message=message,
        filters=JOB_FILTERS, chart=use_chart,
        json_path=json_path, version=__version__,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Markup in values is escaped, and so is what would turn the reading direction."""
    made = Environment(loader=PackageLoader("slurmsched.observe.web", "templates"), autoescape=True, trim_blocks=True,
                       lstrip_blocks=True, finalize=safe_text)  # fmt: skip
    made.filters |= {"clock": _clock, "minute": _minute, "span": slurm_duration, "bounded": bounded,
                     "hours": lambda gpu_s: f"{gpu_s / 3600:,.1f}"}  # fmt: skip
    return made


def _clock(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _minute(unix_s: float) -> str:
    """A time for a column of a table, without the year; "-" when unknown."""
    return "-" if unix_s != unix_s else f"{datetime.fromtimestamp(unix_s, UTC):%m-%d %H:%M}"


def slurm_duration(value_s: float) -> str:
    """A duration as Slurm writes it: "1-02:00:00", "30:00"; "UNLIMITED" where it has no end, "-" when unknown."""
    if not isfinite(value_s):
        return "-" if isnan(value_s) else "UNLIMITED"
    minutes, second = divmod(round(max(value_s, 0.0)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}" if days else f"{hour}:{minute:02}:{second:02}"


def bounded(text: str, most: int = LONGEST_NAME) -> str:
    """A text of a user, cut where it is too long for a column."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


@lru_cache(maxsize=len(STATIC))
def _static(path: str) -> HttpResponse:
    """Colours and sorting are those of the other pages."""
    own = files("slurmsched.observe.web").joinpath("static", path.strip("/")).read_bytes()
    shared = colour_css().encode() if path == "/style.css" else (SHARED_STATIC / "sorting.js").read_bytes()
    return HttpResponse(shared + own, STATIC[path])


def _single(query: str) -> dict[str, str] | None:
    """The last value of each key, cut to a bounded length. None if there are too many."""
    try:
        found = parse_qs(query[:2_000], max_num_fields=MOST_FIELDS)
    except ValueError:
        return None
    return {key: values[-1][:200] for key, values in found.items() if key in ("id", *JOB_FILTERS)}


# Use of GPUs over time.

MOST_SAMPLES = 1_500  # a day of cycles a minute apart
LEAST_APART_S = 55.0  # cycles may be a second apart
WIDTH, HEIGHT = 1000, 200  # of a chart, in its own units


@dataclass(frozen=True, slots=True)
class UseSample:
    """One look. GPUs that are there, and in use; jobs that wait, and the GPUs that they ask for."""

    at_s: float
    gpus: int
    allocated: int
    waiting_jobs: int
    waiting_gpus: int


@dataclass(slots=True)
class UseHistory:
    """The last samples, oldest first."""

    _kept: deque[UseSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))

    def add(self, snapshot: Snapshot) -> None:
        """Keep this look. It replaces the last one if that came less than LEAST_APART_S after the one before it."""
        kept = self._kept
        if len(kept) > 1 and kept[-1].at_s - kept[-2].at_s < LEAST_APART_S:
            kept.pop()
        kept.append(use_sample(snapshot))

    @property
    def samples(self) -> tuple[UseSample, ...]:
        return tuple(self._kept)


def use_sample(snapshot: Snapshot) -> UseSample:
    """The use in a snapshot."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    asked = jobs.gpus * np.maximum(jobs.array_tasks, 1)
    return UseSample(snapshot.now_s, int(nodes.gpus.sum()), int(nodes.gpu_use()["allocated"].sum()),
                     int(jobs.pending.sum()), int(asked[jobs.pending].sum()))  # fmt: skip


@dataclass(frozen=True, slots=True)
class UseChart:
    """Lines of an SVG of WIDTH by HEIGHT.

    line, area: paths; the area is closed below.
    top: value of its upper edge.
    begin_s, end_s: of its sides.
    """

    line: str
    area: str
    top: float
    begin_s: float
    end_s: float


def use_chart(samples: Sequence[dict[str, float]], name: str, top: float = 0.0) -> UseChart | None:
    """The values of this name over time, as steps; None for fewer than two samples. top: at least so high."""
    if len(samples) < 2:
        return None
    at_s, values = np.array([one["at_s"] for one in samples]), np.array([one[name] for one in samples], np.float64)
    high = max(top, float(values.max()), 1.0)
    x = (at_s - at_s[0]) / max(float(at_s[-1] - at_s[0]), 1.0) * WIDTH
    y = HEIGHT - values / high * HEIGHT
    steps = " ".join(f"H{across:.1f}V{down:.1f}" for across, down in zip(x[1:], y[1:], strict=True))
    line = f"M0 {y[0]:.1f}{steps}"
    return UseChart(line, f"{line}V{HEIGHT}H0Z", high, float(at_s[0]), float(at_s[-1]))
