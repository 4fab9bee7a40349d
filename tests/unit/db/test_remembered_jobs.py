"""Memory by job id behaves as a dict."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from slurmsched.db.priority_overrides import PriorityOverride, PriorityOverrides
from slurmsched.model.overrides import OverrideState

rows = st.lists(st.builds(PriorityOverride, st.integers(1, 30), st.just(1000.0), st.just("nice"), st.integers(-9, 9),
                          st.integers(-9, 9), st.sampled_from([*OverrideState]), st.sampled_from([(), (7,)])),
                unique_by=lambda row: row.job_id, max_size=12)  # fmt: skip


@given(before=rows, after=rows, gone=st.sets(st.integers(1, 30), max_size=5), asked=st.lists(st.integers(1, 30)))
@settings(deadline=None)
def test_merged__behaves_as_a_dict(
    before: list[PriorityOverride], after: list[PriorityOverride], gone: set[int], asked: list[int]
) -> None:
    """New rows win over old ones and over gone; ids ascend; find tells what is there."""
    fresh = {row.job_id: row for row in after}
    kept = {row.job_id: row for row in before if row.job_id not in gone} | fresh
    table = PriorityOverrides.of(before).merged(after, gone)
    at, known = table.find(np.array(asked, np.int64))
    assert table.job_id.tolist() == sorted(kept)
    assert [table.row(row, "nice") if there else None for row, there in zip(at, known, strict=True)] == [
        kept.get(job_id) for job_id in asked
    ]
