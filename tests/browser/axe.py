"""What axe-core, Deque's rules of accessibility, finds wrong with a page."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from pathlib import Path

from tests.browser.chromium import rendered

SERIOUS = ("serious", "critical")
_RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => {
  const told = found.violations.map((one) => [one.impact, one.id, one.nodes.map((node) => node.html).slice(0, 3)]);
  const box = document.createElement("pre");
  box.id = "axe-told";
  box.textContent = JSON.stringify(told);
  document.body.append(box);
});
"""


def findings(page: Path, folder: Path, width: int = 1280, *flags: str) -> list[list[object]]:
    """Serious and critical ones: impact, rule, elements. folder: for a copy of the page and what Chromium writes.
    flags: of Chromium, as DARK."""
    copy = folder / "with-axe.html"
    rules = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    copy.write_text(f"{text}<script>{rules}</script><script>{_RUN}</script>", encoding="utf-8")
    done = rendered(copy, folder / "axe-profile", width, 30_000, *flags)
    told = re.search(r'<pre id="axe-told">(.*?)</pre>', done.html, re.DOTALL)
    assert told is not None, f"axe told nothing: {done.console}"
    return [one for one in json.loads(html.unescape(told[1])) if one[0] in SERIOUS]
