"""docs/write-a-policy.md: what it shows works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "write-a-policy.md"


def test_tutorial__its_policy_passes_its_tests(tmp_path: Path) -> None:
    """The policy and the test of the page, saved under the names they give, pass under pytest."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, code in blocks:
        (tmp_path / name).write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ([name for name, _ in blocks], run.returncode) == (["fewest_gpus.py", "test_fewest_gpus.py"], 0), run.stdout
    assert "3 passed" in run.stdout


def test_tutorial__its_other_code_runs() -> None:
    """Code blocks without a file name stand on their own."""
    blocks = re.findall(r"```python\n(?!# \w+\.py)(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    made = [exec(compile(code, PAGE.name, "exec", dont_inherit=True), {"__name__": __name__}) for code in blocks]
    assert made == [None]
