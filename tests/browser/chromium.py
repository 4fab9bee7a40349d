"""A page as headless Chromium makes it: the document after its scripts ran, and what they told the console."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr"),
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """html: the document without scripts and styles. console: one line a message."""

    html: str
    console: tuple[str, ...]


DARK = "--blink-settings=preferredColorScheme=0"  # for a reader who prefers dark pages


def rendered(page: Path | str, profile: Path, width: int = 1280, wait_ms: int = 0, *flags: str) -> Rendered:
    """The page in a Chromium of its own. profile: folder for what it writes. width: of the window [px], 500 at least.
    page: a file, or an address. wait_ms: of the page's own clock, for scripts that take their time. flags: as DARK.

    Fails the test if there is no Chromium.
    """
    own = [f"--window-size={width},1900", *([f"--virtual-time-budget={wait_ms}"] if wait_ms else []), "--dump-dom"]
    done = _run(page, profile, *own, *flags)
    html = re.sub(r"<(script|style)\b.*?</\1>", "", done.stdout, flags=re.DOTALL)
    return Rendered(html, tuple(re.findall(r":CONSOLE[:(].*", done.stderr)))


def pictured(page: Path | str, picture: Path, profile: Path, width: int, height: int, *flags: str) -> None:
    """Save what a window of this size [px] shows of the page, in the form that the picture's name ends in."""
    own = (f"--window-size={width},{height}", "--hide-scrollbars", "--virtual-time-budget=8000")
    _run(page, profile, *own, f"--screenshot={picture}", *flags)


def _run(page: Path | str, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("the browser tests need Chromium: apt-get install chromium", pytrace=False)
    command = [program, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri() if isinstance(page, Path) else page]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=180,
                          env={**os.environ, "HOME": str(profile)})  # fmt: skip
