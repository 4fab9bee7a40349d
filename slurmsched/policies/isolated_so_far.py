"""Isolated time of the work that a job has done, added up from one allocation to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.memory import recall, remembered

KEY = "isolated"  # in a carry
_COLUMNS = ("isolated_s", "left_s", "rate")


def isolated_so_far(snapshot: Snapshot, left_s: Floats, rate: Floats) -> tuple[Floats, dict[str, Any]]:
    """Isolated time of what is done (N,) [s], and what to remember until the next allocation.

    left_s: (N,) run time still to come. rate: (N,) share of it that a job makes in a second on its own part of the
    cluster as things are now, in seconds of run time. What was done since the last allocation counts at the rate then.
    Source: `finish_time_fairness` of Gavel's released code (c4fa400).
    """
    kept: Any = snapshot.carry.get(KEY)
    known = recall(snapshot.jobs, kept if isinstance(kept, Mapping) else {}, _COLUMNS)
    new = np.isnan(known["rate"])
    made_s = np.where(new, 0.0, known["left_s"] - left_s)
    isolated_s = np.where(new, 0.0, known["isolated_s"] + made_s / np.where(new, 1.0, np.maximum(known["rate"], 1e-12)))
    columns = dict(zip(_COLUMNS, (isolated_s, left_s, rate), strict=True))
    return isolated_s, dict(remembered(snapshot.jobs, columns))
