"""Which lab runs which files of live tests, so that labs side by side end at about the same time."""

from __future__ import annotations

from collections.abc import Mapping

TEST_S = 8.0  # of a test that is not told of here [s]
FILE_S = {  # of all tests of a file, as CI measured them, where that is far from TEST_S each [s]
    "test_docs.py": 80.0, "test_explain.py": 120.0, "test_fit.py": 220.0, "test_leader.py": 160.0,
    "test_ledger_backends.py": 130.0, "test_main_job.py": 110.0, "test_node_kinds.py": 150.0,
    "test_operation_faults.py": 290.0, "test_past.py": 25.0, "test_picker.py": 60.0, "test_placement.py": 150.0,
    "test_preemption.py": 295.0, "test_promise.py": 150.0, "test_purge.py": 130.0, "test_retype.py": 45.0,
    "test_shares.py": 80.0, "test_sizes.py": 60.0, "test_soak.py": 245.0, "test_sweep.py": 95.0, "test_tiers.py": 180.0,
    "test_twin.py": 90.0, "test_twin_limits.py": 275.0, "test_watch.py": 40.0,
}  # fmt: skip


def shared(tests: Mapping[str, int], parts: int) -> list[set[str]]:
    """The files of each part: the longest first, each to the part that has least to do so far. tests: of each file."""
    lasts_s = {file: FILE_S.get(file, TEST_S * count) for file, count in tests.items()}
    made: list[set[str]] = [set() for _ in range(parts)]
    for file in sorted(lasts_s, key=lambda file: (-lasts_s[file], file)):
        least = min(made, key=lambda part: sum(lasts_s[each] for each in part))
        least.add(file)
    return made
