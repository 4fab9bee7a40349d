"""Dependencies: the core install is enough where no extra is needed, and a missing package is named with its extra."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from slurmsched import registry
from slurmsched.cli.main import main
from slurmsched.errors import ConfigError
from slurmsched.extras import EXTRA_OF
from slurmsched.testing.conformance import examples
from tests.unit.test_names import FILES, ROOT
from tests.unit.test_packaging import PROJECT

AT_THE_TOP = {
    ("slurmsched/observe/top_app.py", "textual"),  # imported by `slurmsched top` alone, which says what is missing
    ("slurmsched/testing/strategies.py", "hypothesis"),  # for tests of plug-ins
    ("slurmsched/observe/html_page.py", "markupsafe"),  # comes with jinja2
}
OTHERS = {"pyslurm", "threadpoolctl"}  # built for the site's Slurm; comes with scikit-learn
POLICIES = registry.plugin_names("policies")


def distributions(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


CORE = distributions(PROJECT["project"]["dependencies"])
EXTRAS = {name: distributions(lines) for name, lines in PROJECT["project"]["optional-dependencies"].items()}


@lru_cache(maxsize=1)
def imports() -> set[tuple[str, str, bool]]:
    """File, package from outside, and whether it is imported as soon as the file is."""
    found = set()
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, at_once in _statements(tree, True):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"slurmsched", "__future__"}
            found |= {(str(path.relative_to(ROOT)), top, at_once) for top in tops}
    return found


def _statements(node: ast.AST, at_once: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.Import | ast.ImportFrom):
            yield below, at_once
        elif isinstance(below, ast.If) and ast.unparse(below.test) == "TYPE_CHECKING":
            yield from ((found, False) for part in below.orelse for found, _ in _statements(part, at_once))
        else:
            yield from _statements(below, at_once and not isinstance(below, ast.FunctionDef))


def test_core_install__is_enough_for_every_import_at_the_top_of_a_file() -> None:
    """Else a command that needs no extra would end with ModuleNotFoundError. Extras are imported in functions."""
    of = packages_distributions()
    early = {(file, top) for file, top, at_once in imports() if at_once} - AT_THE_TOP
    assert len(early) > 50
    assert {each for each in early if not {canonicalize_name(one) for one in of.get(each[1], [])} & CORE} == set()


def test_core_install__has_no_package_that_nothing_imports() -> None:
    """An unused dependency costs every site its size and its updates."""
    of = packages_distributions()
    used = {canonicalize_name(one) for _, top, _ in imports() for one in of.get(top, [])}
    assert CORE - used == set()


def test_late_packages__are_known_with_the_extra_that_installs_them() -> None:
    """So that the error for a missing one names an extra that is there and helps."""
    of = {"dask_jobqueue": ["dask-jobqueue"], "dask": ["dask"], "distributed": ["dask"], **packages_distributions()}
    late = {top for _, top, at_once in imports() if not at_once} - OTHERS
    core = {top for top in late if {canonicalize_name(one) for one in of.get(top, [])} & CORE}
    assert late - core <= set(EXTRA_OF)
    for package, extra in EXTRA_OF.items():
        named = {canonicalize_name(one) for one in of.get(package, [package])}
        assert named & EXTRAS[extra], (package, extra)
    assert EXTRAS["replay"] == EXTRAS["solver"] | EXTRAS["traces"]


def blocked(monkeypatch: pytest.MonkeyPatch, package: str, *parts: str) -> None:
    """As if the package were not installed."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == package]
    for name in {package, *(f"{package}.{part}" for part in parts), *loaded}:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("name", POLICIES)
def test_policy__works_without_scipy_or_says_that_it_needs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is refused before a cycle begins, and a policy that is taken ranks any queue."""
    needs = registry.load_plugin("policies", name).about.packages
    every = [] if needs else examples()
    blocked(monkeypatch, "scipy", "sparse", "optimize")
    if needs:
        with pytest.raises(ConfigError, match=rf"policy {name} needs scipy.*slurmsched\[solver\]") as caught:
            registry.make_plugin("policies", name)
        assert caught.value.key == "policy"
        return
    policy = registry.make_plugin("policies", name)
    for given in every:
        assert len(policy.rank(given).order) == len(given.jobs)


def test_missing_package__that_a_plug_in_of_a_site_imports_is_one_line_too(monkeypatch, capsys):
    """ModuleNotFoundError of a package that an extra has, wherever it is raised."""

    def shown(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'polars.x'", name="polars.x")

    monkeypatch.setattr("slurmsched.registry.plugin_names", shown)
    assert main(["policy", "list"]) == 2
    assert capsys.readouterr().err == (
        "slurmsched: the package polars is not installed: pip install 'slurmsched[traces]'\n"
    )
