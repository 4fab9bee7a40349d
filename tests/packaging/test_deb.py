"""The Debian package in a clean root of each suite: install, run, upgrade, remove, purge (make test-packages)."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "lab"
sys.path.insert(0, str(LAB))
import image  # noqa: E402 - the lab's scripts are no package

from tests.packaging import stepwise  # noqa: E402

SCRATCH, A_DAY_S = "packages-", 86_400
BUILD_S, IMAGE_S = 600, 1800  # the lab's system of a suite is built once, which takes minutes
LIMITS_S = {"": 120, "update": 300, "install": 1200, "run": 1200, "upgrade": 600, "remove": 300, "purge": 300,
            "end": 60}  # fmt: skip
pytestmark = [pytest.mark.packages, pytest.mark.timeout(7200)]  # a net only: each step has its own limit
STEPS = """
set -eu
export DEBIAN_FRONTEND=noninteractive
step() { echo "== $1"; }
quietly() { "$@" >&2; }
install() { quietly apt-get -q install -y --no-install-recommends "$@"; }
userdel -r slurmsched 2>/dev/null || true
rm -rf /opt/venv /opt/slurmsched
step update
quietly apt-get -q -o Acquire::Retries=3 update
step install
install /debs/first.deb
slurmsched --version
stat -c '%U %a' /var/lib/slurmsched
ls /usr/share/slurmsched/plugin /usr/share/man/man1/slurmsched-init.1 /usr/share/man/man5/slurmsched.toml.5
step run
cd /tmp
runuser -u slurmsched -- sh -c 'HOME=/var/lib/slurmsched slurmsched demo' | tail -n 3
ls demo.html
echo 'mode = "dry-run"' >/etc/slurmsched/slurmsched.toml
echo '# mine' >>/etc/default/slurmsched
step upgrade
install /debs/second.deb
tail -n 1 /etc/default/slurmsched
cat /etc/slurmsched/slurmsched.toml
stat -c '%U' /var/lib/slurmsched/ledger.db
dpkg-query --show --showformat='${Version}\\n' slurmsched
step remove
quietly apt-get -q remove -y slurmsched
ls /etc/slurmsched /etc/default/slurmsched
test -e /usr/bin/slurmsched || echo gone
step purge
quietly apt-get -q purge -y slurmsched
find / -xdev -path '*slurmsched*' ! -path '/var/cache/slurmsched-numba*' ! -path '/var/lib/m*/slurmsched*'
step end
"""


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """first.deb, and second.deb, which is the same of a later version."""
    folder = tmp_path_factory.mktemp("debs")
    run("deb.py", sys.executable, str(ROOT / "packaging" / "deb.py"), str(folder))
    (made,) = folder.glob("slurmsched_*_all.deb")
    made.rename(folder / "first.deb")
    run("dpkg-deb", "dpkg-deb", "-R", str(folder / "first.deb"), str(folder / "tree"))
    control = folder / "tree" / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text("".join(f"{f'{line}.1' if line.startswith('Version:') else line}\n" for line in lines))
    run("dpkg-deb", "dpkg-deb", "--root-owner-group", "--build", str(folder / "tree"), str(folder / "second.deb"))
    return folder


def run(name: str, *argv: str) -> str:
    return stepwise.run(name, *argv, limit_s=BUILD_S)


@pytest.fixture(params=image.SUITES)
def steps(request: pytest.FixtureRequest, debs: Path) -> Iterator[dict[str, list[str]]]:
    """What each step printed, in a throw-away copy of the lab's system of a suite."""
    suite = request.param
    stepwise.run(f"{suite}: image", sys.executable, str(LAB / "lab.py"), "image", suite, limit_s=IMAGE_S)
    layers = [image.image(suite).layers[-1]]
    drop_leftovers(image.cache())
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=image.cache()) as scratch:
        merged, work = Path(scratch, "merged"), Path(scratch, "work")
        merged.mkdir(), work.mkdir()
        binds = [f"{debs}:/debs:ro", f"{image.folder('debs', suite)}:/var/cache/apt/archives:rw"]
        argv = image.enter(merged, layers=layers, work=work, binds=binds, command=["sh", "-c", STEPS])
        yield stepwise.steps(suite, ("env", "-i", *image.TIDY, *argv), LIMITS_S)


def drop_leftovers(cache: Path) -> None:
    """Copies of runs that were killed: nobody else looks for them, and each has a gigabyte."""
    for folder in cache.glob(f"{SCRATCH}*"):
        if time.time() - folder.stat().st_mtime > A_DAY_S:
            shutil.rmtree(folder, ignore_errors=True)


def test_deb__installs_runs_upgrades_and_leaves_nothing(steps: dict[str, list[str]]) -> None:
    """Debian's own Python packages serve; what the admin wrote stays until the purge."""
    version, folder, *listed = steps["install"]
    assert version.startswith("slurmsched ")
    assert folder == "slurmsched 750"
    assert {"job_submit", "spank", "requeue", "event_hook"} <= set(listed)
    assert "Plots: /tmp/demo.html" in steps["run"]
    assert steps["run"][-1] == "demo.html"
    number = version.split()[1]
    assert steps["upgrade"] == ["# mine", 'mode = "dry-run"', "slurmsched", f"{number}.1"]
    assert steps["remove"] == ["/etc/default/slurmsched", "", "/etc/slurmsched:", "slurmsched.toml", "gone"]
    assert steps["purge"] == []
