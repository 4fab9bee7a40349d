"""Paths of the daemon's pages: what each answers, as HTML or as JSON beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlencode

import orjson
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from slurmsched import __version__
from slurmsched.explain.text import against
from slurmsched.planning.reasons import criteria
from slurmsched.terminal import harmless, paired
from slurmsched.web.frame import Frame
from slurmsched.web.server import Answer, Asked

HTML, JSON = "text/html; charset=utf-8", "application/json"
STATIC = {
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
TITLES = {"queue": "Queue", "gpus": "GPUs", "job": "Job"}
NOW = "now"  # as JSON only: what tells a page that there is a newer one
LONGEST_ID = 12  # digits
MOST_FIELDS = 20  # of a query
PRIVATE = (
    "Slurm's PrivateData hides jobs of others from users here, and so does this page. `slurmsched queue` shows yours."
)
NOTHING = "No cycle has been run yet."


@dataclass(frozen=True, slots=True)
class _Shown:
    """kept: whole views of the frame, by name and whether as JSON; a large site's takes long to make."""

    frame: Frame
    kept: dict[tuple[str, bool], Answer] = field(default_factory=dict)


class Pages:
    """Answers from the frame that it was shown last. Safe to ask from several threads."""

    def __init__(self) -> None:
        self._shown: _Shown | None = None

    def show(self, frame: Frame) -> None:
        """From now on answers are of this one."""
        self._shown = _Shown(frame)

    def fail(self, note: str) -> None:
        """The last cycle did not work: answers stay as they are, and say so."""
        if self._shown is not None:
            self._shown.frame.note = note
            self._shown = _Shown(self._shown.frame)

    def answer(self, asked: Asked) -> Answer | None:
        """As web.server wants it."""
        if asked.path in STATIC:
            return _static(asked.path)
        name, as_json = asked.path.strip("/") or "queue", False
        if name.endswith(".json"):
            name, as_json = name.removesuffix(".json"), True
        if (name not in TITLES and (name, as_json) != (NOW, True)) or asked.path.endswith(".json/"):
            return None
        shown = self._shown
        if shown is None:
            return _told(name, as_json, None, NOTHING, 503)
        frame = shown.frame
        if name == NOW:
            return Answer(dumped(frame.head), JSON)
        if frame.private and name != "gpus":
            return _told(name, as_json, frame, PRIVATE, 403)
        query, kept = _single(asked.query), shown.kept
        if query is None:
            return _told(name, as_json, frame, f"More than {MOST_FIELDS} fields in a query.", 400)
        if query or name == "job":
            return _found(name, as_json, frame, query)
        if (name, as_json) not in kept:
            answer = _found(name, as_json, frame, query)
            assert answer is not None
            kept[name, as_json] = answer
        return kept[name, as_json]


def _found(name: str, as_json: bool, frame: Frame, query: dict[str, str]) -> Answer | None:
    made = _MAKERS[name](frame, query)
    if made is None:
        wanted = query.get("id", "")
        text = f"Slurm has no job {wanted} in its queue." if wanted else "Which job? Give its id."
        return _told(name, as_json, frame, text, 404 if wanted else 200)
    if as_json:
        return Answer(dumped(made), JSON)
    return Answer(_rendered(name, frame, made, query).encode("utf-8", "replace"), HTML)


def _job(frame: Frame, query: dict[str, str]) -> dict[str, Any] | None:
    text = query.get("id", "").strip()
    return frame.job(int(text)) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_ID else None


_MAKERS: dict[str, Callable[[Frame, dict[str, str]], dict[str, Any] | None]] = {
    "queue": lambda frame, query: frame.queue(query.get("user", ""), query.get("partition", "")),
    "gpus": lambda frame, query: frame.gpus(),
    "job": _job,
}


def dumped(value: Any) -> bytes:
    """The value as JSON; half characters become question marks, NaN null."""
    return orjson.dumps(paired(value), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=str)


def _told(name: str, as_json: bool, frame: Frame | None, text: str, status: int) -> Answer:
    if as_json:
        return Answer(dumped({"message": text}), JSON, status)
    page = _rendered(name, frame, None, {}, message=text)
    return Answer(page.encode("utf-8", "replace"), HTML, status)


def _rendered(name: str, frame: Frame | None, made: Any, query: dict[str, str], message: str = "") -> str:
    json_path = f"/{name}.json" + (f"?{urlencode(query)}" if query else "")
    return _environment().get_template(f"{name}.html.j2").render(
        name=name, title=TITLES[name], titles=TITLES, frame=frame, made=made, query=query, message=message,
        json_path=json_path, version=__version__,
    )  # fmt: skip


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Markup in values is escaped, and so is what would turn the reading direction."""
    made = Environment(loader=PackageLoader("slurmsched.web", "templates"), autoescape=True, trim_blocks=True,
                       lstrip_blocks=True, finalize=_safe)  # fmt: skip
    made.filters |= {"clock": _clock, "hours": lambda gpu_s: f"{gpu_s / 3600:,.1f}", "criteria": _criteria,
                     "every": criteria, "against": against}  # fmt: skip
    return made


def _safe(value: Any) -> Any:
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _criteria(values: Mapping[str, Any]) -> str:
    """Without the queue, which has a column of its own."""
    return criteria({name: value for name, value in values.items() if name != "queue"})


def _clock(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache(maxsize=len(STATIC))
def _static(path: str) -> Answer:
    name, content_type = STATIC[path]
    return Answer(files("slurmsched.web").joinpath("static", name).read_bytes(), content_type)


def _single(query: str) -> dict[str, str] | None:
    """The last value of each key; cut, so that nobody makes us carry much. None where there are too many."""
    try:
        found = parse_qs(query[:2_000], max_num_fields=MOST_FIELDS)
    except ValueError:
        return None
    return {key: values[-1][:200] for key, values in found.items() if key in ("id", "user", "partition")}
