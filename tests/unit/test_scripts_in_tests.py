"""Live tests run scripts in another Python, kept as texts that neither ruff nor mypy reads."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

LIVE = Path(__file__).parents[1] / "live"
_IMPORT = re.compile(r"""(?:^|["';])\s*from (slurmsched[\w.]*) import (\([^)]*\)|[\w ,]+)""", re.MULTILINE)


def missing(text: str) -> list[str]:
    """Names that are imported from slurmsched in this text and do not exist."""
    found = [(module, name.split(" as ")[0].strip()) for module, names in _IMPORT.findall(text)
             for name in names.strip("()").split(",") if name.strip()]  # fmt: skip
    return [f"{module}.{name}" for module, name in found
            if not (hasattr(import_module(module), name) or is_module(module, name))]  # fmt: skip


def is_module(package: str, name: str) -> bool:
    return hasattr(import_module(package), "__path__") and find_spec(f"{package}.{name}") is not None


@pytest.mark.parametrize("file", sorted(LIVE.glob("*.py")), ids=lambda file: file.stem)
def test_live_test__imports_what_exists(file):
    """Every name that a live test or one of its scripts imports from slurmsched is there."""
    assert missing(file.read_text()) == []


def test_missing__sees_a_name_in_a_script():
    """A script on one line and one on several are read; one name of two is not there."""
    text = 'run("from slurmsched.errors import SlurmError, No; x")\nX = """\nfrom slurmsched.config import no"""'
    assert missing(text) == ["slurmsched.errors.No", "slurmsched.config.no"]
