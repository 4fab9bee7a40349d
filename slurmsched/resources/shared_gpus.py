"""Which jobs have parts of the same GPU."""

from __future__ import annotations

import numpy as np

from slurmsched.model.gres import device_shards
from slurmsched.model.snapshot import Snapshot


def jobs_beside(snapshot: Snapshot, row: int) -> tuple[int, ...]:
    """Rows of the other running jobs with a part of this job's GPU, as far as Slurm shows it; () for a job that does
    not run or has no shards."""
    gpu = snapshot.jobs.shared_gpu[row]
    return tuple(other for other in _running_on(snapshot, gpu) if other != row) if gpu else ()


def jobs_to_join(snapshot: Snapshot, row: int) -> tuple[int, ...]:
    """Rows of the running jobs on the GPU that a waiting job with shards and one node will have a part of: the fullest
    that has room, as Slurm fills them. () where no GPU of that node has shards in use, or Slurm does not show whose."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    name = jobs.nodes_asked[row]
    at = np.flatnonzero(nodes.name.isin([name]))
    if not len(at) or not jobs.pending[row] or not jobs.shards[row]:
        return ()
    devices = device_shards(nodes.shards[int(at[0])])
    room = {gpu: size - used - int(jobs.shards[row]) for gpu, (used, size) in enumerate(devices) if used}
    fits = {gpu: spare for gpu, spare in room.items() if spare >= 0}
    return _running_on(snapshot, f"{name} {min(fits, key=fits.__getitem__)}") if fits else ()


def _running_on(snapshot: Snapshot, gpu: str) -> tuple[int, ...]:
    return tuple(np.flatnonzero(snapshot.jobs.shared_gpu.isin([gpu]) & snapshot.jobs.running).tolist())
