from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from slurmsched import registry

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _packages_on_disk() -> set[str]:
    found = set()
    for top, package in (("slurmsched", "slurmsched"), ("cli", "slurmsched.cli"), ("db", "slurmsched.db")):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / top).parts
            found.add(".".join((package, *parts)))
    return found


def test_packages__of_pyproject_are_those_on_disk():
    """A folder that is forgotten in the list would be missing from the wheel."""
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == _packages_on_disk()


def test_package_data__names_every_file_that_is_no_module():
    """A template or trace that no pattern of pyproject.toml matches would be missing from the wheel."""
    setup = PROJECT["tool"]["setuptools"]
    named = set()
    for package, patterns in setup["package-data"].items():
        folder = ROOT / package.replace(".", "/")  # through the links of cli and db
        named |= {path.resolve() for pattern in patterns for path in folder.glob(pattern)}
    tops = (ROOT / "slurmsched", *(ROOT / folder for folder in setup["package-dir"].values()))
    files = [path for top in tops for path in top.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    assert named == {path for path in files if path.suffix != ".py"}


@pytest.mark.parametrize("name", ["cli", "db"])
def test_links__lead_editors_to_cli_and_db(name):
    """slurmsched/cli and slurmsched/db are links for mypy and editors."""
    link = ROOT / "slurmsched" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name


def test_lock__has_a_fitting_version_of_every_dependency():
    """A dependency that the lock does not name, or not in a version that pyproject.toml allows, moves by itself."""
    lines = (ROOT / "packaging" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith("#"):
            one = Requirement(line)
            locked.setdefault(canonicalize_name(one.name), []).append(str(one.specifier).removeprefix("=="))
    extras = PROJECT["project"]["optional-dependencies"]
    named = {*PROJECT["project"]["dependencies"], *(line for name, group in extras.items() if name != "pyslurm"
                                                    for line in group)}  # fmt: skip
    for asked in map(Requirement, sorted(named)):
        versions = locked.get(canonicalize_name(asked.name), [])
        assert versions, f"{asked.name}: run `make lock`"
        assert [version for version in versions if version not in asked.specifier] == [], asked.name


def test_scripts_and_plugins__can_be_imported():
    """Every entry point names something that exists."""
    from importlib.metadata import entry_points

    groups = ["console_scripts", *(f"slurmsched.{kind}" for kind in registry.KINDS)]
    points = [p for group in groups for p in entry_points(group=group) if p.value.startswith("slurmsched.")]
    named = [value for table in PROJECT["project"]["entry-points"].values() for value in table.values()]
    assert len(points) >= len(named) + 1
    for point in points:
        assert callable(point.load())


def test_imports__keep_their_contracts():
    """Deciding code is pure; numba and pyslurm are imported in one place (import-linter, see pyproject.toml)."""
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[-2000:] if done.returncode else "") == (0, "")


def test_makefile__help_lists_its_targets():
    """Every target for people has a line in `make help`."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    listed = re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE)
    assert sorted(listed) == sorted(phony)


def test_repository__has_nothing_that_is_built() -> None:
    """Sites, caches and build folders are made anew; a checkout from an archive has no git to ask."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    assert [path for path in tracked if "build" in path.split("/") or path.endswith(".dmypy.json")] == []
