"""Logging: structlog, loaded only when something is logged, so that a quiet `tick` does not pay for it."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_chosen: dict[str, Any] = {"least": LEVELS["info"], "format": "auto", "asked": False, "ready": False}


def get_logger() -> Log:
    """What a module logs through; takes the place of structlog.get_logger."""
    return Log()


class Log:
    """Events `noun.past` with values as keys: log.info("cycle.done", jobs=5)."""

    def hears(self, level: str) -> bool:
        """Whether events of this level go anywhere: for values that cost something to find."""
        return LEVELS[level] >= _chosen["least"]

    def debug(self, event: str, **values: Any) -> None:
        _emit("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        _emit("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        _emit("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        _emit("error", event, values)


def configure(level: str, format: str = "auto") -> None:
    """Least level to log, and how: "json", "text", or "auto" = text on a terminal, else JSON lines on stderr."""
    _chosen.update(least=LEVELS[level], format=format, asked=True, ready=False)


def _emit(level: str, event: str, values: dict[str, Any]) -> None:
    if LEVELS[level] < _chosen["least"]:
        return
    import structlog

    if not _chosen["ready"] and (_chosen["asked"] or not structlog.is_configured()):
        _start(sys.stderr)
    getattr(structlog.get_logger(), level)(event, **values)


def _guarded(_: Any, __: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """No password in any value, tracebacks included."""
    from slurmsched.passwords import without_passwords

    def guarded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: guarded(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [guarded(part) for part in value]
        return without_passwords(value) if isinstance(value, str) else value

    return {key: guarded(value) for key, value in values.items()}


def _harmless(_: Any, __: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For a terminal: no value, whoever it came from, steers it. JSON lines are escaped by JSON."""
    from slurmsched.plain_text import escape_terminal, escape_terminal_lines

    lines = {key: escape_terminal_lines(value) for key, value in values.items() if key == "exception"}
    return {key: escape_terminal(value) if isinstance(value, str) else value for key, value in values.items()} | lines


def _start(stream: TextIO) -> None:
    import structlog

    text = _chosen["format"] == "text" or (_chosen["format"] == "auto" and stream.isatty())
    render: Any = structlog.processors.JSONRenderer()
    if text:  # a traceback as Python prints it: structlog's own shows the values of variables
        plain = structlog.dev.plain_traceback
        render = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _guarded,
            *([_harmless] if text else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_chosen["least"]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    _chosen["ready"] = True
