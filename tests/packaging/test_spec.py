"""The rpm spec builds, with and without the Python packages inside, and holds what the Debian package holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = str(ROOT / "packaging" / "slurmsched.spec")
PLUGIN = "/usr/share/slurmsched/plugin/job_submit/job_submit.lua"
WANTED = {"/usr/bin/slurmsched", "/usr/lib/systemd/system/slurmsched.service", PLUGIN}
pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]  # 450 MB from PyPI; numba compiles


def built(folder: Path, *options: str) -> Path:
    """The one package of the spec. rpmbuild refuses files that it does not name. Needs Debian's package rpm."""
    assert shutil.which("rpmbuild"), "apt-get install rpm"
    defined = {"source": ROOT, "_topdir": folder, "python": sys.executable}
    words = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    done = subprocess.run(["rpmbuild", "-bb", *options, *words, SPEC], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (made,) = folder.glob("RPMS/*/slurmsched-*.rpm")
    return made


def told(made: Path, *query: str) -> list[str]:
    argv = ["rpm", "-qp", *query, str(made)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder that is gone after the test: pytest would keep some of 1 GB."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_spec__builds_and_lists_every_file(tmp_path: Path) -> None:
    """For every architecture, named after the version; any Python that is new enough will do."""
    made = built(tmp_path, "--without", "vendored")
    number = re.search(r'__version__ = "(.+)"', (ROOT / "slurmsched" / "__init__.py").read_text(encoding="utf-8"))[1]
    assert made.name == f"slurmsched-{number}-1.noarch.rpm"
    assert set(told(made, "-l")) >= WANTED
    assert "python3 >= 3.11" in told(made, "--requires")


def test_spec__with_all_python_packages_inside(room: Path) -> None:
    """What it installs runs on the Python that it asks for alone, and puts nothing of others into the system."""
    made = built(room / "top")
    listed, version = told(made, "-l"), sysconfig.get_python_version()
    assert set(listed) >= WANTED
    assert [name for name in listed if "/man1/" in name and "/slurmsched" not in name] == []
    assert f"/usr/bin/python{version}" in told(made, "--requires")
    root = room / "root"
    subprocess.run(["rpm", "--root", str(root), "-i", "--nodeps", "--noscripts", str(made)], check=True)
    assert (root / "usr/bin/slurmsched").read_text().startswith(f"#!/usr/bin/python{version}\n")
    library = root / "usr/lib/slurmsched"
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from slurmsched.cli.main import main; sys.exit(main())"
    argv = [sys.executable, "-I", "-S", "-c", code, "demo", "--jobs", "20", "--out", str(room / "demo.html")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, "2D-LAS" in done.stdout) == (0, True), done.stderr[-2000:]
