"""Jobs that wait for something else than GPUs, as Slurm says: nobody leaves for them, since they would not start."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Bools
from slurmsched.model.jobs import Jobs
from slurmsched.model.reasons import Blocker, read_reason

# Of a job in several partitions Slurm tells the reason of the one that it tried last.
OF_PARTITION = frozenset({Blocker.PARTITION_LIMIT, Blocker.PARTITION_CLOSED, Blocker.CONSTRAINTS})
NOT_GPUS = OF_PARTITION | {
    Blocker.LIMIT, Blocker.ARRAY_LIMIT, Blocker.LICENSES, Blocker.NOT_ALLOWED, Blocker.DATA, Blocker.POWER,
    Blocker.FEDERATION,
}  # fmt: skip


def limited(jobs: Jobs) -> Bools:
    """Pending jobs that would not start on free GPUs either, by the reason of Slurm's last look. (N,) bool."""
    several = jobs.partition.map(lambda listed: "," in listed, np.bool_)
    of_partition = jobs.reason.map(lambda reason: read_reason(reason).blocker in OF_PARTITION, np.bool_)
    found: Bools = jobs.pending & jobs.reason.map(is_limit, np.bool_) & ~(several & of_partition)
    return found


def is_limit(reason: str) -> bool:
    """Whether free GPUs would not help a job that waits for this reason. Holds, dependencies and begin times are no
    matter of the reason: other columns tell them."""
    return read_reason(reason).blocker in NOT_GPUS
