"""The numbers of the slurmctld model."""

from __future__ import annotations

import pytest

from slurmsched.errors import ConfigError
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings, ideal


def test_model__refuses_negative_times_and_unknown_backfill() -> None:
    """The parameter is named."""
    with pytest.raises(ConfigError, match=r"model\.kill_wait_s: must not be negative"):
        SlurmctldSettings(kill_wait_s=-1)
    with pytest.raises(ConfigError, match=r"model\.backfill: must be"):
        SlurmctldSettings(backfill="fast")  # type: ignore[arg-type]


def test_ideal__costs_nothing() -> None:
    """No delay, no restart cost, order by submit."""
    model = ideal()
    costs = ("batch_sched_delay_s", "bf_interval_s", "kill_wait_s", "requeue_delay_s", "restart_cost_s", "weight_age")
    assert [getattr(model, name) for name in costs] == [0] * len(costs)
