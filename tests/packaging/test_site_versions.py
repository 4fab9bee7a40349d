"""The list of versions of the documentation site."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITE = runpy.run_path(str(ROOT / "packaging" / "site_versions.py"))["write_versions"]


def test_site_versions__newest_first_and_only_versions(tmp_path):
    """Ordered as versions, not as text; other folders are none. The start page leads to the newest."""
    for name in ("0.9.0", "0.10.0", "0.10.0rc1", "assets"):
        (tmp_path / name).mkdir()
    WRITE(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["0.10.0", "0.10.0rc1", "0.9.0"]
    assert [each["aliases"] for each in listed] == [["latest"], [], []]
    assert re.findall(r"url=([^\"]+)", (tmp_path / "index.html").read_text()) == ["0.10.0/index.html"]


def test_site_versions__without_a_version_says_what_to_run(tmp_path):
    """An empty site is a mistake."""
    with pytest.raises(FileNotFoundError, match="run make docs"):
        WRITE(tmp_path)
