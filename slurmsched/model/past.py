"""Jobs that ended: what policies and estimators learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int32s, Int64s, Labels
from slurmsched.model.jobs import NAN
from slurmsched.model.table import Table, column, text


@dataclass(frozen=True, slots=True, eq=False)
class Past(Table):
    """One row a job that ended, in ascending end, then in no promised order. All columns are (P,).

    submit_s: first submission. executed_s, attained_gpu_s: over all runs. completed: it ended by itself and well.
    gpu_type: the type it last ran on, "" if that is not known. model: as hinted.
    """

    job_id: Int64s = column(np.int64, 0)
    user: Labels = text()
    account: Labels = text()
    partition: Labels = text()
    name: Labels = text()
    model: Labels = text()
    gpu_type: Labels = text()
    gpus: Int32s = column(np.int32, 0)
    submit_s: Floats = column(np.float64, NAN)
    end_s: Floats = column(np.float64, NAN)
    executed_s: Floats = column(np.float64, 0.0)
    attained_gpu_s: Floats = column(np.float64, 0.0)
    completed: Bools = column(np.bool_, True)


NO_PAST = Past.build(0, {})
