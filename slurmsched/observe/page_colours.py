"""Colours of every page: one set for light and one for dark, by the same names in plots, maps and text."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from slurmsched.model.job_outcomes import SIZE_CLASSES

# Names of CSS variables. Seven lines of one plot differ also for colour-blind readers and stand out from the paper by
# 3:1; texts by 4.5:1 (tests/unit/observe/test_page_colours.py).
LIGHT = {
    "--ink": "#1a1a1a", "--soft": "#555555", "--line": "#d9d9d9", "--paper": "#ffffff", "--link": "#005a94",
    "--warn": "#b93407", "--held": "#0072b2", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#d9d9d9",
    "--series-0": "#1a1a1a", "--series-1": "#3399e1", "--series-2": "#b93407", "--series-3": "#0a747b",
    "--series-4": "#861ed0", "--series-5": "#113d6a", "--series-6": "#dc7b02",
}  # fmt: skip
DARK = {
    "--ink": "#e8e8e8", "--soft": "#b4b4b4", "--line": "#44484d", "--paper": "#16181b", "--link": "#7cc4f5",
    "--warn": "#ff8f66", "--held": "#1f6fa8", "--held-ink": "#ffffff", "--stranded": "#f0c24b", "--closed": "#4a4a4a",
    "--series-0": "#e8e8e8", "--series-1": "#9cbaff", "--series-2": "#ff4c13", "--series-3": "#479e8e",
    "--series-4": "#c443fc", "--series-5": "#675d99", "--series-6": "#ffba28",
}  # fmt: skip
SERIES = tuple(name for name in LIGHT if name.startswith("--series-"))
DASHES = ("solid", "dot", "longdashdot", "dash", "dashdot", "longdash")  # they differ in grey print
SIZE_COLOURS = dict(
    zip((name for name, _, _ in SIZE_CLASSES), (SERIES[1], SERIES[3], SERIES[6], SERIES[2]), strict=True)
)
USED, FREE, LIMIT = SERIES[1], SERIES[3], SERIES[2]  # used, remaining, and total amounts

# Places in SERIES of the policies that most comparisons have; others have one by their name.
_USUAL = {"slurm": 0, "fifo": 0, "easy": 5, "discretized-las": 1, "srsf": 2, "srtf": 4, "sjf": 3, "gittins": 6}


def colour_css() -> str:
    """The variables, as CSS. Print is light; class "paper" on the root makes a dark screen light too."""
    light, dark = (" ".join(f"{name}: {colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
    at_night = f":root:not(.paper) {{ color-scheme: dark; {dark} }}"
    return f"""\
:root {{ color-scheme: light; {light} }}
@media screen and (prefers-color-scheme: dark) {{ {at_night} }}
"""


def policy_styles(policies: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dash of each line, by the names of the policies without parameters.

    A policy has the same colour on every page, unless another one of the page has it already. Up to seven lines have
    colours of their own. The first 42 differ in colour or dash.
    """
    used, made = list[int](), list[tuple[str, str]]()
    for name in policies:
        wanted = _USUAL.get(name, 1 + zlib.crc32(name.encode()) % (len(SERIES) - 1))
        order = [(wanted + step) % len(SERIES) for step in range(len(SERIES))]
        place = min(order, key=lambda each: (used.count(each), order.index(each)))
        made.append((SERIES[place], DASHES[(place + used.count(place)) % len(DASHES)]))
        used.append(place)
    return made
