"""Jobs that wait for something else than GPUs, as Slurm says: nobody leaves for them, since they would not start."""

from __future__ import annotations

import re

import numpy as np

from slurmsched.model.columns import Bools
from slurmsched.model.jobs import Jobs

# Of job_state_reason.c, 21.08 to 26.05: limits of QOS, association and partition (QOSMaxJobsPerUserLimit, AssocGrpGRES,
# MaxGRESPerAccount, PartitionTimeLimit), licences, an account or QOS that may not, burst buffers, power.
_NOT_GPUS = re.compile(
    r"QOS|Assoc|Accounting|Max|Partition|Licenses|Invalid(Account|QOS)|AccountNotAllowed|Job's |BurstBuffer|Power"
)


def limited(jobs: Jobs) -> Bools:
    """Pending jobs that would not start on free GPUs either, by the reason of Slurm's last look. (N,) bool."""
    found: Bools = jobs.pending & jobs.reason.map(is_limit, np.bool_)
    return found


def is_limit(reason: str) -> bool:
    """Whether free GPUs would not help a job that waits for this reason."""
    return _NOT_GPUS.match(reason) is not None
