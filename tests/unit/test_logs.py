from __future__ import annotations

import json
import subprocess
import sys

import pytest


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_quiet_process__does_not_load_structlog():
    """A line below the level costs nothing, so that `tick` starts fast."""
    code = """if True:
        import sys
        from slurmsched.logs import configure, get_logger
        configure("warning")
        get_logger().info("cycle.done", jobs=3)
        print("structlog" in sys.modules)"""
    assert _run(code).stdout == "False\n"


@pytest.mark.parametrize("format", ["json", "auto"])
def test_log__is_json_lines_on_stderr(format):
    """Off a terminal each line is one object with level, time and the values."""
    code = f"""if True:
        from slurmsched.logs import configure, get_logger
        configure("info", {format!r})
        get_logger().warning("cycle.paused", stop_file="/x")"""
    done = _run(code)
    line = json.loads(done.stderr)
    assert done.stdout == ""
    assert (line["event"], line["level"], line["stop_file"]) == ("cycle.paused", "warning", "/x")
    assert "timestamp" in line


def test_log__tells_the_traceback_of_a_bug():
    """exc_info becomes text in the JSON line."""
    code = """if True:
        from slurmsched.logs import configure, get_logger
        configure("info", "json")
        try:
            1 / 0
        except ZeroDivisionError:
            get_logger().error("cycle.failed", exc_info=True)"""
    assert "ZeroDivisionError" in json.loads(_run(code).stderr)["exception"]


def test_log__as_text_is_for_people():
    """log.format = "text" prints no JSON, and no colour codes off a terminal."""
    code = """if True:
        from slurmsched.logs import configure, get_logger
        configure("info", "text")
        get_logger().info("cycle.done", jobs=3)"""
    told = _run(code).stderr
    assert "cycle.done" in told
    assert "jobs=3" in told
    assert "\x1b" not in told


def test_log__says_whether_a_level_is_heard():
    """Values that cost something to find are found only for those who listen."""
    code = """if True:
        from slurmsched.logs import configure, get_logger
        configure("warning")
        print(get_logger().hears("info"), get_logger().hears("warning"))"""
    assert _run(code).stdout == "False True\n"
