"""Requests of gangs that may be on several GPU types at once, read where no job is pinned for the links of its GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slurmsched.model.columns import frozen
from slurmsched.model.hints import hint_column
from slurmsched.model.pins import Picking
from slurmsched.model.snapshot import Snapshot
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.pick_records import PickRecords
from slurmsched.slurm.picking import read_wish
from slurmsched.slurm.picks import known_version


class GangRequests:
    """Gives snapshots a picking that knows no node: only how such gangs ask, as far as a node list might break it."""

    def __init__(self, commands: Commands) -> None:
        self._records = PickRecords(commands, read_wish)

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as it is where no such gang waits. Raises SlurmError."""
        jobs, nodes = snapshot.jobs, len(snapshot.nodes)
        gangs = jobs.pending & (jobs.nodes > 1) & (hint_column(jobs, "mixed") == 1)
        if not gangs.any():
            return snapshot
        _, wishes = self._records.read(jobs, cores=False, among=gangs)
        unknown = frozen(np.full(nodes, -1), np.int64)
        return replace(snapshot, picking=Picking((), unknown, ((),) * nodes, known_version(snapshot.site)[0], wishes))
