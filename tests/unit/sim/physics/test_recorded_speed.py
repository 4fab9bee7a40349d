"""No physics at all."""

from __future__ import annotations

from slurmsched.sim.physics.change_costs import RecordedSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import holding


def test_recorded__conforms() -> None:
    """The rules of all physics."""
    check_physics(RecordedSpeed(restart_cost_s=3.0))


def test_recorded__everybody_at_full_speed() -> None:
    """Wherever, beside whomever."""
    assert RecordedSpeed().speed(*holding([{0: 0b100001}, {0: 2, 1: 2}])).tolist() == [1.0, 1.0]
