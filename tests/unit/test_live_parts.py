"""Labs that share the live tests: each file in one of them, and none has much more to do than another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.live.parts import FILE_S, TEST_S, shared

LIVE = Path(__file__).parents[1] / "live"
FILES = Counter({path.name: path.read_text().count("\ndef test_") for path in LIVE.glob("test_*.py")})


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_shared__each_file_once_and_the_load_alike(parts):
    """No part lasts longer than a fair share and half of the longest file."""
    made = shared(FILES, parts)
    assert sorted(file for part in made for file in part) == sorted(FILES)
    lasts_s = [sum(FILE_S.get(file, TEST_S * FILES[file]) for file in part) for part in made]
    assert max(lasts_s) <= sum(lasts_s) / parts + max(FILE_S.values()) / 2


def test_file_s__names_files_that_are_there():
    """A file that was renamed would be weighed by its tests alone."""
    assert set(FILE_S) <= set(FILES)


def test_shared__by_what_they_last_not_by_how_many():
    """Two labs, one long file of one test and many short ones: the long one is alone until the others catch up."""
    one, two = shared({"test_soak.py": 1, "test_a.py": 9, "test_b.py": 9}, 2)
    assert (one, two) == ({"test_soak.py"}, {"test_a.py", "test_b.py"})
