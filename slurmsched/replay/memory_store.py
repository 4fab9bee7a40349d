"""The store of a replay: levers, base, history and carry as plain objects; nothing is kept when it ends.

The embedded cluster knows what its jobs attained and fills those columns itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from slurmsched.config import Lever as LeverConfig
from slurmsched.db import levers
from slurmsched.db.levers import Levers
from slurmsched.db.memory import HISTORY_JOBS
from slurmsched.model.columns import Floats, frozen
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import JobState


class MemoryStore:
    """A Store (see protocols) without a database."""

    def __init__(self, lever: LeverConfig | None = None) -> None:
        self._config = lever or LeverConfig()
        self._levers = Levers.build(0, {})
        self._completed: set[int] = set()
        self._latest: deque[float] = deque(maxlen=HISTORY_JOBS)  # attained service [GPU s] in order of completion
        self._history: Floats = frozen([], np.float64)
        self._carry: Mapping[str, Any] = {}

    def recall(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the lever columns, history and carry."""
        jobs = snapshot.jobs
        self._learn(snapshot)
        checked = levers.check(self._levers, jobs, snapshot.now_s, self._config)
        self._levers = checked.levers
        return replace(
            snapshot, jobs=jobs.with_columns(**checked.columns), history_gpu_s=self._history, carry=self._carry
        )

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Remember what was written and what the policy carries."""
        written = levers.remember(self._levers, snapshot.jobs, receipt.outcomes, self._config.kind)
        self._levers = self._levers.merged(written, levers.gone(self._levers, snapshot.jobs))
        if plan.ranking is not None:
            self._carry = plan.ranking.carry

    def _learn(self, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.is_state(JobState.COMPLETED))
        fresh = [row for row in rows if int(jobs.job_id[row]) not in self._completed]
        if not fresh:
            return
        self._completed.update(jobs.job_id[fresh].tolist())
        self._latest.extend(jobs.attained_gpu_s[fresh].tolist())
        self._history = frozen(np.sort(self._latest), np.float64)
