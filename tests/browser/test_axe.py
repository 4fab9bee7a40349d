"""The measure itself: axe sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.axe import findings

pytestmark = pytest.mark.browser


def test_findings__are_seen(tmp_path: Path) -> None:
    """A page without a language, grey on grey, an image without words."""
    page = tmp_path / "bad.html"
    body = '<main><h1>Title</h1><p style="color:#bbb;background:#ccc">hard to read</p><img src="a.png"></main>'
    page.write_text(f"<!doctype html><title>x</title>{body}", encoding="utf-8")
    assert {"html-has-lang", "color-contrast", "image-alt"} <= {str(rule) for _, rule, _ in findings(page, tmp_path)}
