"""How waiting gangs may lie on the fabric (--switches, --segment): only `scontrol show job` tells in every version."""

from __future__ import annotations

import numpy as np

from slurmsched.model.jobs import Jobs
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_records import Spread, ask_jobs


class Spreads:
    """Asks for each gang once, also for one that Slurm shows no record of, which counts as one without wishes. A later
    change of its Switches goes unseen; Slurm heeds it all the same."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: dict[tuple[int, float], Spread] = {}

    def __call__(self, jobs: Jobs) -> Jobs:
        """The jobs with both columns filled for those of several nodes that wait. Raises SlurmError."""
        rows = np.flatnonzero(jobs.pending & (jobs.nodes > 1) & (jobs.gpus > 0)).tolist()
        key = {row: (int(jobs.job_id[row]), float(jobs.submit_s[row])) for row in rows}
        if missing := {key[row]: jobs.name[row] for row in rows if key[row] not in self._known}:
            records = ask_jobs(self._commands, {job: name for (job, _), name in missing.items()}, len(jobs)).records
            self._known |= {each: records[each[0]].spread if each[0] in records else (0, 0) for each in missing}
        self._known = {each: self._known[each] for each in key.values()}
        made = {"switches": jobs.switches.copy(), "segment_nodes": jobs.segment_nodes.copy()}
        for row in rows:
            made["switches"][row], made["segment_nodes"][row] = self._known[key[row]]
        return jobs.with_columns(**made)
