"""Builders of small snapshots and conformance checks, for our tests and for authors of plug-ins.

`slurmsched.testing.strategies` (hypothesis) is imported by name, since only tests need it.
"""

from slurmsched.testing.builders import fleet, jobs, mixed_snapshot, shifted, snapshot
from slurmsched.testing.conformance import NonconformingError, check_estimator, check_policy
from slurmsched.testing.placement_conformance import check_physics, check_placement

__all__ = [
    "NonconformingError", "check_estimator", "check_physics", "check_placement", "check_policy", "fleet", "jobs",
    "mixed_snapshot", "shifted", "snapshot",
]  # fmt: skip
