"""The store of a replay without levers: what the policy carries, and what completed jobs needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slurmsched.model.columns import Floats, frozen
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot


class CarryStore:
    """A Store (see protocols) of carry and history.

    history_gpu_s: attained service [GPU s] of jobs that completed before the replay.
    """

    def __init__(self, history_gpu_s: Floats | None = None) -> None:
        self._history = frozen(np.sort(np.asarray([] if history_gpu_s is None else history_gpu_s)), np.float64)
        self._carry: Mapping[str, Any] = {}

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with history and carry."""
        return snapshot.remembering(self._history, self._carry)

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember what the policy carries."""
        if plan.ranking is not None:
            self._carry = plan.ranking.carry
