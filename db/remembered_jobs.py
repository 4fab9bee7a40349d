"""Memory as columns, of the jobs in the queue mostly: found by job id, cut and merged without a loop over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from slurmsched.model.columns import Bools, Int64s, Table

HISTORY_JOBS = 10_000  # completed jobs that policies learn from, the latest ones
T = TypeVar("T", bound="JobRows")


class JobRows(Table):
    """A table with a job_id column, one row a job, in ascending job id."""

    __slots__ = ()
    job_id: Int64s

    @classmethod
    def of(cls: type[T], rows: Sequence[Any]) -> T:
        """The table of objects that have the columns as attributes, in any order."""
        ordered = sorted(rows, key=lambda row: row.job_id)
        names = [spec.name for spec in fields(cls)]  # type: ignore[arg-type]
        return cls.build(len(ordered), {name: [getattr(row, name) for row in ordered] for name in names})

    def find(self, job_ids: Int64s) -> tuple[Int64s, Bools]:
        """For each of job_ids the row that holds it, and whether there is one (else the row means nothing)."""
        if not len(self):
            return np.zeros(len(job_ids), np.int64), np.zeros(len(job_ids), np.bool_)
        rows = np.minimum(np.searchsorted(self.job_id, job_ids), len(self) - 1)
        return rows, self.job_id[rows] == job_ids

    def values(self, row: int) -> dict[str, Any]:
        """One row as plain Python values by column."""
        names: tuple[str, ...] = type(self).__slots__
        return {name: getattr(self, name).item(row) for name in names}

    def merged(self: T, rows: Sequence[Any], gone: Iterable[int] = ()) -> T:
        """This table with the given rows in place of older ones of their jobs, and without the jobs in gone."""
        gone = list(gone)
        if not rows and not gone:
            return self
        fresh = type(self).of(rows)
        out = np.isin(self.job_id, np.concatenate([fresh.job_id, np.asarray(gone, np.int64)]))
        joined = {
            spec.name: np.concatenate([getattr(self, spec.name)[~out], getattr(fresh, spec.name)])
            for spec in fields(self)  # type: ignore[arg-type]
        }
        order = np.argsort(joined["job_id"], kind="stable")
        return type(self).build(len(order), {name: values[order] for name, values in joined.items()})
