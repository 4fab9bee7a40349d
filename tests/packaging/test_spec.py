"""The rpm spec builds, with and without the Python packages inside, and holds what the Debian package holds."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging import stepwise

ROOT = Path(__file__).parents[2]
SPEC = str(ROOT / "packaging" / "slurmsched.spec")
PLUGIN = "/usr/share/slurmsched/plugin/job_submit/job_submit.lua"
WANTED = {"/usr/bin/slurmsched", "/usr/lib/systemd/system/slurmsched.service", PLUGIN}
BUILD_S, DEMO_S, ASK_S = 1800, 1200, 300  # 450 MB from PyPI; numba compiles
pytestmark = [pytest.mark.packages, pytest.mark.timeout(7200)]  # a net only: each command has its own limit


def built(folder: Path, *options: str) -> Path:
    """The one package of the spec. rpmbuild refuses files that it does not name. Needs Debian's package rpm."""
    assert shutil.which("rpmbuild"), "apt-get install rpm"
    defined = {"source": ROOT, "_topdir": folder, "python": sys.executable}
    words = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    stepwise.run(" ".join(("rpmbuild", *options)), "rpmbuild", "-bb", *options, *words, SPEC, limit_s=BUILD_S)
    (made,) = folder.glob("RPMS/*/slurmsched-*.rpm")
    return made


def told(made: Path, *query: str) -> list[str]:
    return stepwise.run("rpm -qp", "rpm", "-qp", *query, str(made), limit_s=ASK_S).splitlines()


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
    laid = ("rpm", "--root", str(root), "-i", "--nodeps", "--noscripts", str(made))
    stepwise.run("rpm -i", *laid, limit_s=ASK_S)
    assert (root / "usr/bin/slurmsched").read_text().startswith(f"#!/usr/bin/python{version}\n")
    library = root / "usr/lib/slurmsched"
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from slurmsched.cli.main import main; sys.exit(main())"
    argv = (sys.executable, "-I", "-S", "-c", code, "demo", "--first", "20", "--page", str(room / "demo.html"))
    assert "2D-LAS" in stepwise.run("demo of the rpm", *argv, limit_s=DEMO_S)
