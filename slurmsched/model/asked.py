"""How jobs ask: the options behind a request, which its normal form no longer tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Int32s, Int64s, Labels
from slurmsched.model.table import Table, column, text


@dataclass(frozen=True, slots=True, eq=False)
class Asked(Table):
    """One row a job, in ascending job id. Texts are Slurm's TRES texts, "" where an option was not used. All (N,)."""

    job_id: Int64s = column(np.int64, 0)
    per_job: Labels = text()  # --gpus
    per_node: Labels = text()  # --gpus-per-node, --gres
    per_task: Labels = text()  # --gpus-per-task
    per_socket: Labels = text()  # --gpus-per-socket
    tasks: Int32s = column(np.int32, 1)
    whole_memory: Bools = column(np.bool_, False)  # gets all memory of its nodes
    exclusive: Bools = column(np.bool_, False)  # asked for, as far as Slurm tells it
