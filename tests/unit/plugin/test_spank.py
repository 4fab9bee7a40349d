"""The options of the SPANK plug-in are the keys of the grammar. It is built and run in tests/live."""

from __future__ import annotations

import re

from slurmsched.model.hints import KEYS
from tests.unit.plugin.lua import PLUGIN


def test_options__are_one_a_key() -> None:
    """--sched-min-gpus for min_gpus, in the order of the page."""
    text = (PLUGIN / "spank" / "slurmsched_spank.c").read_text(encoding="utf-8")
    expected = [(key.name, f"sched-{key.name.replace('_', '-')}") for key in KEYS]
    assert re.findall(r'X\("([a-z_]+)", "([a-z-]+)"', text) == expected
