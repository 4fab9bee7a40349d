"""Use of the cluster over time, as the pages saw it: samples in memory, and the lines of a chart."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slurmsched.model.snapshot import Snapshot

MOST_SAMPLES = 1_500  # a day of cycles a minute apart
LEAST_APART_S = 55.0  # cycles may be a second apart
WIDTH, HEIGHT = 1000, 200  # of a chart, in its own units


@dataclass(frozen=True, slots=True)
class UseSample:
    """One look. GPUs that are there, and in use; jobs that wait, and the GPUs that they ask for."""

    at_s: float
    gpus: int
    allocated: int
    waiting_jobs: int
    waiting_gpus: int


@dataclass(slots=True)
class UseHistory:
    """The last samples, oldest first."""

    _kept: deque[UseSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))

    def add(self, snapshot: Snapshot) -> None:
        """Keep this look. It replaces the last one if that came less than LEAST_APART_S after the one before it."""
        kept = self._kept
        if len(kept) > 1 and kept[-1].at_s - kept[-2].at_s < LEAST_APART_S:
            kept.pop()
        kept.append(use_sample(snapshot))

    @property
    def samples(self) -> tuple[UseSample, ...]:
        return tuple(self._kept)


def use_sample(snapshot: Snapshot) -> UseSample:
    """The use in a snapshot."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    asked = jobs.gpus * np.maximum(jobs.array_tasks, 1)
    return UseSample(snapshot.now_s, int(nodes.gpus.sum()), int(nodes.gpu_use()["allocated"].sum()),
                     int(jobs.pending.sum()), int(asked[jobs.pending].sum()))  # fmt: skip


@dataclass(frozen=True, slots=True)
class UseChart:
    """Lines of an SVG of WIDTH by HEIGHT. line, area: paths; the area is closed below. top: value of its upper edge.
    begin_s, end_s: of its sides."""

    line: str
    area: str
    top: float
    begin_s: float
    end_s: float


def use_chart(samples: Sequence[dict[str, float]], name: str, top: float = 0.0) -> UseChart | None:
    """The values of this name over time, as steps; None for fewer than two samples. top: at least so high."""
    if len(samples) < 2:
        return None
    at_s, values = np.array([one["at_s"] for one in samples]), np.array([one[name] for one in samples], np.float64)
    high = max(top, float(values.max()), 1.0)
    x = (at_s - at_s[0]) / max(float(at_s[-1] - at_s[0]), 1.0) * WIDTH
    y = HEIGHT - values / high * HEIGHT
    steps = " ".join(f"H{across:.1f}V{down:.1f}" for across, down in zip(x[1:], y[1:], strict=True))
    line = f"M0 {y[0]:.1f}{steps}"
    return UseChart(line, f"{line}V{HEIGHT}H0Z", high, float(at_s[0]), float(at_s[-1]))
