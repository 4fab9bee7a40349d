"""The rpm spec builds, without the vendored Python packages, and holds what the Debian package holds."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.packages


def test_spec__builds_and_lists_every_file(tmp_path: Path) -> None:
    """rpmbuild refuses files that the spec does not name. Needs Debian's package rpm."""
    assert shutil.which("rpmbuild"), "apt-get install rpm"
    spec = str(ROOT / "packaging" / "slurmsched.spec")
    argv = [
        "rpmbuild",
        "-bb",
        "--without",
        "vendored",
        "--define",
        f"source {ROOT}",
        "--define",
        f"_topdir {tmp_path}",
        spec,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (made,) = tmp_path.glob("RPMS/noarch/slurmsched-*.noarch.rpm")
    listed = subprocess.run(["rpm", "-qpl", str(made)], capture_output=True, text=True, check=True).stdout.splitlines()
    number = re.search(r'__version__ = "(.+)"', (ROOT / "slurmsched" / "__init__.py").read_text(encoding="utf-8"))[1]
    assert made.name == f"slurmsched-{number}-1.noarch.rpm"
    plugin = "/usr/share/slurmsched/plugin/job_submit/job_submit.lua"
    wanted = ["/usr/bin/slurmsched", "/usr/lib/systemd/system/slurmsched.service", plugin]
    assert set(wanted) <= set(listed)
