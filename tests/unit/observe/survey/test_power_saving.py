"""Powering nodes down: demand, rises and what is saved by hand on small cases; nodes named on a small site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import InputError
from slurmsched.observe.survey.power_saving import (
    DAY_S,
    LEAST_DAYS,
    STEP_S,
    DemandIncrease,
    PowerRules,
    demand_until_now,
    gpu_demand,
    power_advice,
    power_saving,
    power_saving_of_runs,
    read_series,
)
from slurmsched.testing import snapshot
from tests.unit.observe.survey.survey_site import node, site

DAY = int(DAY_S / STEP_S)  # steps
PLAIN = PowerRules(buffer=0, forecast=False)


def daily(days: int, low: float = 1.0, high: float = 4.0) -> np.ndarray:
    """Demand by step: high from 8 to 18 h, else low."""
    hour = np.arange(days * DAY) * STEP_S % DAY_S / 3_600
    return np.where((hour >= 8) & (hour < 18), high, low)


def test_demand__is_the_most_in_use_in_each_step() -> None:
    """Two GPUs for 15 minutes, four beside them for five of these; who leaves makes room for who comes then."""
    start_s, end_s = np.array([0.0, 300.0, 900.0]), np.array([900.0, 600.0, 1_900.0])
    assert gpu_demand(start_s, end_s, np.array([2, 4, 1]), 0.0, 2_400.0).tolist() == [6.0, 2.0, 1.0, 1.0]
    assert gpu_demand(np.zeros(0), np.zeros(0), np.zeros(0), 0.0, 1_200.0).tolist() == [0.0, 0.0]


def test_demand__is_that_of_ended_and_running_jobs() -> None:
    """A job of four GPUs that ended half an hour ago, and one of eight that has run for twenty minutes."""
    now_s = 1_000_000.0
    here = snapshot([{"job_id": 5, "state": "R", "gpus": 8, "start_s": now_s - 1_200}], now_s=now_s)
    start_s, end_s, gpus = np.array([now_s - 3_600]), np.array([now_s - 1_800]), np.array([4])
    assert demand_until_now(here, start_s, end_s, gpus, 28.0).tolist() == [0.0, 8.0, 8.0]
    assert demand_until_now(here, start_s, end_s, gpus, 1_200 / DAY_S).tolist() == [8.0, 8.0]


def test_rises__are_those_at_the_same_time_of_the_day() -> None:
    """At 6 h the morning's rise is less than three hours away, at noon and at 20 h none is."""
    rises = DemandIncrease(daily(4), PowerRules())
    at = {hour: rises.at(3 * DAY + hour * 6) for hour in (6, 12, 20)}
    assert at == {6: 3.0, 12: 0.0, 20: 0.0}


def test_rises__nothing_is_forecast_without_whole_days() -> None:
    """On the second day only the first is known."""
    rises = DemandIncrease(daily(4), PowerRules())
    assert [np.isnan(rises.at(day * DAY + DAY // 2)) for day in (0, 1, LEAST_DAYS, 3)] == [True, True, False, False]


def test_saved__without_a_forecast_by_hand() -> None:
    """Two nodes, needed 2, 1, 0, 2: one is off in the third step, both in the last, whose job wakes them."""
    made = power_saving(
        np.array([2.0, 1.0, 0.0, 2.0]), np.full(4, 2.0), PLAIN, (np.array([0, 3]), np.array([2.0, 2.0]))
    )
    assert (made.node_h, made.off_node_h) == (pytest.approx(8 / 6), pytest.approx(1 / 6))
    assert (made.wake_ups, made.short_steps, made.delayed, made.delay_s) == (2, 1, 1, 300.0)
    assert made.busy_node_h == pytest.approx(5 / 6)
    assert made.use_gain_pct == pytest.approx(100 * (5 / 7 - 5 / 8))


def test_saved__no_node_is_used_better_where_none_is_off_or_there() -> None:
    """A full cluster, and none at all."""
    full, none = power_saving(np.full(9, 2.0), np.full(9, 2.0), PLAIN), power_saving(np.zeros(0), np.zeros(0), PLAIN)
    assert (full.use_gain_pct, none.use_gain_pct) == (0.0, 0.0)
    idle = power_saving(np.zeros(9), np.full(9, 2.0), PLAIN)
    assert (idle.busy_node_h, idle.use_gain_pct) == (0.0, 0.0)


def test_saved__the_forecast_keeps_nodes_for_the_morning() -> None:
    """From the third day on no morning finds too few nodes, and nodes are off for most of the night."""
    nodes = np.full(6 * DAY, 10.0)
    told, plain = (power_saving(daily(6), nodes, PowerRules(buffer=0, forecast=forecast)) for forecast in (True, False))
    assert (told.short_steps, plain.short_steps) == (0, 6)
    assert 0.5 * plain.off_node_h < told.off_node_h < plain.off_node_h


def test_saved__a_buffer_stays_up_and_wakes_with_the_others() -> None:
    """One node more is up at all times, which the next job finds."""
    need, nodes = np.array([1.0, 0.0, 0.0, 1.0]), np.full(4, 3.0)
    made = power_saving(need, nodes, replace(PLAIN, buffer=1))
    assert (made.wake_ups, made.off_node_h * 6, made.short_steps) == (0, pytest.approx(1 + 2 + 2), 0)


def test_of_runs__packs_jobs_onto_the_fewest_nodes() -> None:
    """Two jobs of four GPUs share a node of eight; the third begins when its node is off."""
    start_s, end_s = np.array([0.0, 0.0, 1_800.0]), np.array([3_600.0, 3_600.0, 3_600.0])
    made = power_saving_of_runs(start_s, end_s, np.array([4, 4, 8]), 2, 8.0, PLAIN)
    assert (made.wake_ups, made.delayed) == (1, 1)
    assert power_saving_of_runs(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), 2, 8.0, PLAIN).node_h == 0.0


def test_power_advice__names_idle_nodes_that_are_not_needed() -> None:
    """Three idle nodes of eight GPUs: eight may be needed by waiting jobs, one node stays as buffer."""
    nodes = [node("n1"), node("n2"), node("n3")]
    quiet = np.zeros(4 * DAY)
    power = PowerRules(buffer=1)
    assert power_advice(site(nodes), quiet, power).nodes == ("n2", "n3")
    waits = [{"job_id": 1, "gpus": 2, "state": "PD"}]
    told = power_advice(site(nodes, waits), quiet, power)
    assert (told.nodes, told.waiting, told.idle) == (("n3",), 2, 3)
    busy = np.tile(np.where(np.arange(DAY) % 2, 24.0, 0.0), 4)  # rises by all there is, again and again
    assert power_advice(site(nodes), busy, power).why == "every idle node may be needed"


@pytest.mark.parametrize("row", [
    {"mask": 1}, {"cpus_used": 1}, {"state": "DRAIN"}, {"state": "DOWN"}, {"state": "IDLE+PLANNED"},
    {"state": "IDLE+POWERED_DOWN"}, {"state": "IDLE+RESERVED"}, {"gpus": 0},
])  # fmt: skip
def test_power_advice__leaves_all_other_nodes_alone(row) -> None:
    """Whoever runs something, is promised, is off or has no GPUs is not idle."""
    told = power_advice(site([node("n1", **row)]), np.zeros(4 * DAY), PowerRules(buffer=0))
    assert (told.nodes, told.why) == ((), "no GPU node is idle")


def test_power_advice__says_what_it_lacks() -> None:
    """Without a past nothing is named."""
    told = power_advice(site([node("n1")]), np.zeros(DAY), PowerRules())
    assert (told.nodes, told.why[:17]) == ((), "fewer than 2 days")


@pytest.mark.parametrize(
    "wrong", [{"horizon_s": 60.0}, {"horizon_s": DAY_S}, {"quantile": 1.5}, {"buffer": -1}, {"boot_s": -1.0}]
)
def test_power__refuses_bad_settings(wrong) -> None:
    """The text names the setting."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        PowerRules(**wrong)


ROWS = """time,active,total
2017-10-03 00:00:00,3,9
2017-10-03 00:09:00,5,9
2017-10-03 00:31:00,1,8
"""


def test_read_series__most_of_each_step(tmp_path: Path) -> None:
    """Ten minutes a step; steps without a row are as the one before. Unix seconds say the same."""
    (tmp_path / "a.csv").write_text(ROWS)
    active, total = read_series(tmp_path / "a.csv")
    assert (active.tolist(), total.tolist()) == ([5.0, 5.0, 5.0, 1.0], [9.0, 9.0, 9.0, 8.0])
    (tmp_path / "b.csv").write_text("time,active,total\n600,3,9\n1140,5,9\n2460,1,8\n")
    assert read_series(tmp_path / "b.csv")[0].tolist() == active.tolist()


@pytest.mark.parametrize(
    ("text", "said"), [("time,active\n1,2\n", "no column total"), ("time,active,total\nnoon,1,2\n", "noon"),
                       ("time,active,total\n", "no row"), ("time,active,total\n1,x,2\n", "active")],
)  # fmt: skip
def test_read_series__says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """File and line of what cannot be read."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_series(tmp_path / "a.csv")
