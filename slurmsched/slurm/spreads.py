"""How waiting gangs may lie on the fabric (--switches, --segment): only `scontrol show job` tells in every version."""

from __future__ import annotations

import numpy as np

from slurmsched.model.jobs import Jobs
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_records import NOT_KNOWN, Retries, Spread, ask_jobs


class Spreads:
    """Asks for each gang once, and again where the answer is in doubt: what it wishes is not known then. A later change
    of its Switches goes unseen; Slurm heeds it all the same."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: dict[tuple[int, float], Spread] = {}
        self._retries = Retries()

    def __call__(self, jobs: Jobs) -> Jobs:
        """The jobs with both columns filled for those of several nodes that wait. Raises SlurmError."""
        rows = np.flatnonzero(jobs.pending & (jobs.nodes > 1) & (jobs.gpus > 0)).tolist()
        key = {row: (int(jobs.job_id[row]), float(jobs.submit_s[row])) for row in rows}
        name = {key[row]: jobs.name[row] for row in rows}
        self._known = {each: self._known[each] for each in name if each in self._known}
        if missing := self._retries.due(each for each in name if each not in self._known):
            records = ask_jobs(self._commands, {each[0]: name[each] for each in missing}, len(jobs)).records
            found = {each: records[each[0]].spread for each in missing if each[0] in records}
            self._known |= {each: spread for each, spread in found.items() if min(spread) >= 0}
            self._retries.failed(each for each in missing if each not in self._known)
        made = {"switches": jobs.switches.copy(), "segment_nodes": jobs.segment_nodes.copy()}
        for row in rows:
            made["switches"][row], made["segment_nodes"][row] = self._known.get(key[row], NOT_KNOWN)
        return jobs.with_columns(**made)
