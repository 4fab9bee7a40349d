"""docs/write-a-policy.md: what it shows works as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "jobs.csv", "--cluster", "1x8", "--policy", "fewest-gpus"],
        ["compare", "jobs.csv", "--cluster", "1x8", "--policy", "fifo", "--policy", "fewest-gpus", "--policy",
         "fewest-gpus:patience_s=600"],
    ],
    ids=["replay", "compare"],
)  # fmt: skip
def test_tutorial__its_package_is_replayed(words: list[str], tmp_path: Path) -> None:
    """The policy, as its pyproject.toml makes it known, on the page's trace: job 3 of one GPU goes before job 2."""
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# fewest_gpus\.py\n(.*?)```", page, re.DOTALL)
    (text,) = (text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[project]" in text)
    project = tomllib.loads(text)
    assert f"slurmsched {' '.join(words)}\n" in page
    (tmp_path / f"{project['tool']['setuptools']['py-modules'][0]}.py").write_text(code, encoding="utf-8")
    (made := tmp_path / "my_policies-0.1.dist-info").mkdir()
    named = project["project"]
    (made / "METADATA").write_text(f"Name: {named['name']}\nVersion: {named['version']}\n")
    ((group, points),) = named["entry-points"].items()
    (made / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()))
    (trace,) = re.findall(r"^printf '%s\\n' (.*) > jobs.csv$", page, re.MULTILINE)
    (tmp_path / "jobs.csv").write_text("".join(f"{row}\n" for row in trace.split()))
    command = [sys.executable, "-m", "slurmsched.cli.main", *words, "--json"]
    path = os.pathsep.join([str(tmp_path), str(PAGE.parents[1])])
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False,
                         env={**os.environ, "PYTHONPATH": path, "SLURMSCHED_CONFIG": os.devnull})  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "fewest-gpus" in run.stdout
    if words[0] == "replay":
        assert json.loads(run.stdout)["avg_wait_s"] == (3_600 - 120 + 3_660 - 60) / 3


def test_tutorial__its_other_code_runs() -> None:
    """Code blocks without a file name stand on their own."""
    blocks = re.findall(r"```python\n(?!# \w+\.py)(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    made = [exec(compile(code, PAGE.name, "exec", dont_inherit=True), {"__name__": __name__}) for code in blocks]
    assert made == [None]
