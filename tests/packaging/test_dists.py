"""Wheel and sdist are whole: built as for PyPI, installed alone in a fresh environment, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".*_cache", ".venv", "build", "*.egg-info", "__pycache__", ".hypothesis", "tests"
)


def test_dists__are_whole_and_run(tmp_path: Path) -> None:
    """One build, which takes a while, and three looks at it."""
    built = dists(tmp_path)
    sdist_has_what_a_package_is_made_from(built)
    wheel_has_every_package_and_plugin(built)
    wheel_installs_and_runs(built, tmp_path)


def dists(folder: Path) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)  # builds leave files in the source
    argv = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(folder / "source")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return folder / "dist"


def plugin_files() -> set[str]:
    found = [path for path in (ROOT / "plugin").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(ROOT / "plugin").as_posix() for path in found if path.suffix != ".so"}


def sdist_has_what_a_package_is_made_from(dists: Path) -> None:
    """Pages, plug-ins, units and packaging besides the code."""
    (file,) = dists.glob("*.tar.gz")
    with tarfile.open(file) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = ["CHANGELOG.md", "LICENSE", "docs/plugins.md", "site-configs/slurmsched.service", "packaging/deb.py"]
    assert set(wanted) <= names
    assert {f"plugin/{name}" for name in plugin_files()} <= names


def wheel_has_every_package_and_plugin(dists: Path) -> None:
    """And nothing at its top besides slurmsched."""
    (file,) = dists.glob("*.whl")
    names = zipfile.ZipFile(file).namelist()
    folders = {Path(name).parent.as_posix().replace("/", ".") for name in names if name.endswith("__init__.py")}
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])
    assert {name.split("/")[0].split("-")[0] for name in names} == {"slurmsched"}
    share = {name.partition(".data/data/share/slurmsched/plugin/")[2] for name in names if ".data/data/share" in name}
    assert share - {""} == plugin_files()


def wheel_installs_and_runs(dists: Path, tmp_path: Path) -> None:
    """In an environment of its own; what it depends on is lent by this one. Scripts of plug-ins can be run."""
    (file,) = dists.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(file)]
    subprocess.run(pip, check=True, capture_output=True)
    site = next((tmp_path / "env" / "lib").glob("python3*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    command = tmp_path / "env" / "bin" / "slurmsched"
    bare = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SLURMSCHED"))}
    told = [subprocess.run([command, *words], env=bare, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
            for words in (["--version"], ["policy", "list"])]  # fmt: skip
    assert told[0].startswith("slurmsched ")
    assert "discretized-las" in told[1]
    hook = tmp_path / "env" / "share" / "slurmsched" / "plugin" / "event_hook" / "slurmsched-event"
    assert os.access(hook, os.X_OK)
