"""Nodes in use over time, from a CSV file, in equal steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slurmsched.input_files import InputFile, csv_records
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.trace_rows import parse_number, parse_time_s
from slurmsched.observe.survey.power_saving import STEP_S

COLUMNS = ("time", "active", "total")


def read_series(path: Path) -> tuple[Floats, Floats]:
    """Most nodes in use, and most nodes there were, in each step of STEP_S. (S,), (S,).

    time: Unix seconds, or as 2017-10-09 07:01:55. A step without a row is as the one before.
    Raises InputError for a file that cannot be read, naming the line.
    """
    source, rows = InputFile(path), list[tuple[float, float, float]]()
    for line, row in csv_records(source, COLUMNS):
        try:
            text = row["time"]
            time_s = float(text) if text.replace(".", "", 1).isdecimal() else parse_time_s(text)
            rows.append((time_s, parse_number(row, "active"), parse_number(row, "total")))
        except (ValueError, AttributeError) as error:
            raise source.fail(str(error), line) from None
    if not rows:
        raise source.fail("holds no row")
    table = np.array(rows)
    step = np.floor((table[:, 0] - table[:, 0].min()) / STEP_S).astype(np.int64)
    return _by_step(step, table[:, 1]), _by_step(step, table[:, 2])


def _by_step(step: Int64s, values: Floats) -> Floats:
    most = np.full(int(step.max()) + 1, -np.inf)
    np.maximum.at(most, step, values)
    known = np.maximum.accumulate(np.where(np.isinf(most), 0, np.arange(len(most))))
    return np.asarray(most[known])
