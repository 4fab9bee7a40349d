"""Figures that papers and their data's own pages give of public traces, to set ours beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmsched.errors import InputError
from slurmsched.replay.describe import Section


@dataclass(frozen=True, slots=True)
class Published:
    """One figure: its name in describe.figures, the value as printed, and half of its last digit."""

    figure: str
    value: float
    precision: float


_HELIOS = "S-Lab-System-Group/HeliosArtifact bdaae109c21f, cluster summary of Hu et al., SC '21; GPU jobs only"
_PHILLY = "Jeon et al., USENIX ATC '19, table of job outcomes"
SOURCES = {
    "helios-venus": _HELIOS, "helios-earth": _HELIOS, "helios-saturn": _HELIOS, "helios-uranus": _HELIOS,
    "philly": _PHILLY,
    "pollux": "Qiao et al., OSDI '21, section 5: 160 jobs in 8 hours",
}  # fmt: skip
# jobs, mean GPUs, mean run time, median run time, mean wait, completed, cancelled and failed per cent
_CLUSTERS = {
    "helios-venus": (125_303, 6.736, 13_040.598, 204.0, 1_253.288, 52.6, 27.2, 20.2),
    "helios-earth": (427_148, 2.101, 5_130.609, 234.0, 319.483, 73.5, 13.6, 12.9),
    "helios-saturn": (698_896, 4.01, 5_252.927, 124.0, 611.561, 58.2, 27.2, 14.5),
    "helios-uranus": (329_117, 4.038, 9_163.725, 280.0, 1_949.182, 60.7, 20.1, 19.2),
}
_NAMES = ("jobs", "mean_gpus", "mean_duration_s", "median_duration_s", "mean_wait_s", "completed_pct",
          "cancelled_pct", "failed_pct")  # fmt: skip
_PRECISION = (0.0, 0.0005, 0.0005, 0.5, 0.0005, 0.05, 0.05, 0.05)
FIGURES: Mapping[str, tuple[Published, ...]] = {
    **{name: tuple(map(Published, _NAMES, values, _PRECISION)) for name, values in _CLUSTERS.items()},
    "philly": (
        Published("jobs", 96_260, 0.0), Published("completed_pct", 69.3, 0.05), Published("cancelled_pct", 13.5, 0.05),
        Published("failed_pct", 17.2, 0.05), Published("completed_gpu_pct", 44.53, 0.005),
        Published("cancelled_gpu_pct", 37.69, 0.005), Published("failed_gpu_pct", 17.76, 0.005),
    ),
    "pollux": (Published("jobs", 160, 0.0), Published("span_days", 8 / 24, 0.5 / 24)),
}  # fmt: skip


def beside(name: str, ours: Mapping[str, float]) -> Section:
    """Published figures with ours beside them. ours: describe.figures. Raises InputError for an unknown name."""
    if name not in FIGURES:
        raise InputError(f"no published figures called {name!r}; there are {', '.join(FIGURES)}")
    rows = []
    for each in FIGURES[name]:
        value = ours.get(each.figure, float("nan"))
        rows.append((each.figure, each.value, value, 100 * (value / each.value - 1), _verdict(each, value)))
    columns = ("figure", "published", "ours", "difference %", "verdict")
    return Section("published", f"Beside the published figures of {name}", columns, tuple(rows), SOURCES[name])


def _verdict(published: Published, value: float) -> str:
    if value != value:
        return "not reproduced: the trace does not tell"
    return (
        "reproduced" if abs(value - published.value) <= published.precision * (1 + 1e-9) else "not reproduced: differs"
    )
