"""Recorded: every job runs as long as the trace says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.replay.physics.costs import Costs


@dataclass(frozen=True, slots=True)
class Recorded(Costs):
    """Wherever a job is and whoever is beside it, it runs at its recorded speed."""

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        return np.ones(len(held.rows))
