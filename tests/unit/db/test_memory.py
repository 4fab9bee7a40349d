"""Memory by job id behaves as a dict."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from slurmsched.db.levers import Lever, Levers

rows = st.lists(st.builds(Lever, st.integers(1, 30), st.just(1000.0), st.just(0), st.integers(-9, 9), st.just(0),
                          st.integers(-9, 9)), unique_by=lambda row: row.job_id, max_size=12)  # fmt: skip


@given(before=rows, after=rows, gone=st.sets(st.integers(1, 30), max_size=5), asked=st.lists(st.integers(1, 30)))
@settings(deadline=None)
def test_merged__behaves_as_a_dict(before: list[Lever], after: list[Lever], gone: set[int], asked: list[int]) -> None:
    """New rows win over old ones and over gone; ids ascend; find tells what is there."""
    fresh = {row.job_id: row for row in after}
    kept = {row.job_id: row for row in before if row.job_id not in gone} | fresh
    table = Levers.of(before).merged(after, gone)
    at, known = table.find(np.array(asked, np.int64))
    assert table.job_id.tolist() == sorted(kept)
    assert [Lever(**table.values(row)) if there else None for row, there in zip(at, known, strict=True)] == [
        kept.get(job_id) for job_id in asked
    ]
