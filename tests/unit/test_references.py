"""What docstrings and comments refer to: modules, their classes and constants exist."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from slurmsched.config import Config

ROOT = Path(__file__).parents[2]
LINKS = (ROOT / "slurmsched" / "cli", ROOT / "slurmsched" / "db")
FOREIGN = {"simulator/run_sim.py"}  # of another program
NOT_MODULES = {"policy.PARAMETER", "slurmsched.traces"}  # any parameter of the policy; a group of entry points
OTHER_FILES = {"1", "conf", "csv", "h", "md", "toml", "yaml"}
FILE = re.compile(r"(?<![\w/.])(?:\w+/)*\w+\.py\b")
DOTTED = re.compile(r"(?<![\w./-])[a-z]\w*(?:\.\w+)+")
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _files(*folders: str) -> list[Path]:
    """Python files below the folders, each once."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if not any(path.is_relative_to(link) for link in LINKS)]


PRODUCT = _files("cli", "db", "plugin", "slurmsched")
PATHS = ["/" + path.relative_to(ROOT).as_posix() for path in (*PRODUCT, *_files("tests", "bench", "packaging"))]


@cache
def _names() -> dict[str, set[str]]:
    """What each module defines at its top, and what each package holds, by the last part of its name."""
    names = defaultdict(set)
    for path in PRODUCT:
        names[path.parent.name].add(path.stem)
        names[path.parent.parent.name].add(path.parent.name)
        module = path.parent.name if path.stem == "__init__" else path.stem
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names[module].update(_defined(node))
    return names | {"slurmsched": names["slurmsched"] | {"cli", "db"}}


def _defined(node: ast.stmt) -> set[str]:
    """The names that a statement gives its module; of an import, what a package passes on."""
    if isinstance(node, ast.ImportFrom):
        return {each.asname or each.name for each in node.names}
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return {target.id if isinstance(target, ast.Name) else getattr(node, "name", "")}


PACKAGES = {path.parent.name for path in PRODUCT if path.name == "__init__.py"}


def _texts(source: str) -> Iterator[str]:
    """Docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRING):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _is_setting(head: str, name: str) -> bool:
    """Whether `head.name` is a key of the configuration."""
    section = Config.model_fields.get(head)
    return section is not None and name in getattr(section.annotation, "model_fields", {})


def _stale(text: str) -> Iterator[str]:
    """References in the text to what is not there.

    FILE.py, module.Class and module.CONSTANT, and package.module with a package of ours. Names of objects (job.nodes)
    have the same form as module.function: these are not looked at.
    """
    for found in FILE.findall(text):
        if found not in FOREIGN and not any(path.endswith("/" + found) for path in PATHS):
            yield found
    for found in DOTTED.findall(text):
        parts = found.split(".")
        if found in NOT_MODULES or OTHER_FILES.intersection(parts):
            continue
        for head, name in itertools.pairwise(parts):
            if name in _names().get(head, ()):
                continue
            lacking = name[0].isupper() and (head in _names() or (head == parts[0] and find_spec(head) is None))
            if lacking or (head in PACKAGES and not _is_setting(head, name)):
                yield found
            break


def test_references__stale_ones_are_found():
    """Names of modules and their parts, not those of other things with a dot."""
    text = "See job_demands.JobDemands, job_demands.Gone, gone.Part, planning.gate, planning.gone, gate.py and gone.py."
    assert list(_stale(text)) == ["gone.py", "job_demands.Gone", "gone.Part", "planning.gone"]
    assert list(_stale("snapshot.jobs, click.BadParameter, operations.per_cycle, slurm.conf, e.g. this")) == []


def test_references__name_what_is_there():
    """Every name of a module in the product's texts."""
    assert len(PRODUCT) > 200
    files = (*PRODUCT, *_files("tests/reference"))
    assert {f"{path.relative_to(ROOT)}: {found}" for path in files
            for text in _texts(path.read_text(encoding="utf-8")) for found in _stale(text)} == set()  # fmt: skip
