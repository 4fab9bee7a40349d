"""A site's `scontrol show config` as the numbers of the model."""

from __future__ import annotations

import pytest

from slurmsched.errors import ConfigError
from slurmsched.sim.slurmctld.slurmctld_settings import SlurmctldSettings
from slurmsched.slurm.site import parse_settings

CONFIG = """
AuthInfo                = cred_expire=60
Epilog[0]               = /etc/slurm/epilog.sh
EpilogMsgTime           = 2000 usec
KillWait                = 45 sec
MinJobAge               = 600 sec
PriorityCalcPeriod      = 00:02:00
PriorityFavorSmall      = Yes
PriorityMaxAge          = 14-00:00:00
MessageTimeout          = 100 sec
PriorityWeightAge       = 2000
PriorityWeightQOS       = 300
PriorityWeightTRES      = CPU=10,GRES/gpu=5000
SchedulerParameters     = bf_continue,bf_interval=45,bf_window=2880,bf_resolution=300,batch_sched_delay=5,defer
SchedulerType           = sched/backfill
"""


def test_from_settings__takes_the_sites_values() -> None:
    """bf_window is in minutes; an Epilog is told from its other settings; what is not named stays Slurm's default."""
    model = SlurmctldSettings.from_settings(parse_settings(CONFIG), epilog_s=2.0)
    expected = SlurmctldSettings(
        batch_sched_delay_s=5, defer=True, has_epilog=True, bf_interval_s=45, bf_clock=True, bf_window_s=172_800,
        bf_resolution_s=300, weight_age=2000, weight_qos=300, weight_tres=(5000.0, 10.0, 0.0), max_age_s=14 * 86_400,
        favor_small=True, calc_period_s=120, base_priority=0, epilog_s=2.0, kill_wait_s=45, requeue_delay_s=60,
        min_job_age_s=600, submit_late_s=0.5, message_timeout_s=100,
    )  # fmt: skip
    assert model == expected


@pytest.mark.parametrize(
    ("version", "old"), [("24.11.5", True), ("22.05.8", True), ("25.11.0", True), ("26.05.5", False), ("", False)]
)
def test_from_settings__version_tells_the_rules_of_24_11_from_those_of_26_05(version: str, old: bool) -> None:
    """How a single node is chosen and a start guessed; a version that is not told counts as new."""
    model = SlurmctldSettings.from_settings({"SLURM_VERSION": version})
    assert (model.shortest_run, model.last_of_all) == (old, old)


@pytest.mark.parametrize(
    ("enforced", "safe"), [("associations,limits,SAFE", True), ("limits,qos", False), ("all", True), ("", False)]
)
def test_from_settings__safe_limits(enforced: str, safe: bool) -> None:
    """AccountingStorageEnforce."""
    assert SlurmctldSettings.from_settings({"AccountingStorageEnforce": enforced}).safe_limits is safe


def test_from_settings__defaults_are_slurms_own() -> None:
    """A slurm.conf that says nothing. A node is back a second after the end of its job, and a job comes within the
    second of its Submit."""
    quiet = {"Epilog": "(null)", "SchedulerParameters": "(null)", "PriorityWeightTRES": "(null)"}
    own = SlurmctldSettings(bf_clock=True, weight_age=0, base_priority=0, epilog_s=1.0, submit_late_s=0.5)
    assert SlurmctldSettings.from_settings(quiet) == own
    assert SlurmctldSettings.from_settings({"SchedulerType": "sched/builtin"}).backfill == "none"


def test_from_settings__requeue_delay_comes_before_cred_expire() -> None:
    """From 25.11 on it has a parameter of its own."""
    settings = {"AuthInfo": "cred_expire=60", "SchedulerParameters": "requeue_delay=7"}
    assert SlurmctldSettings.from_settings(settings).requeue_delay_s == 7


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"SchedulerParameters": "bf_interval=soon"}, "SchedulerParameters.bf_interval"),
        ({"KillWait": "ages"}, "KillWait"),
    ],
)
def test_from_settings__names_a_value_it_cannot_read(settings: dict[str, str], key: str) -> None:
    """Key and value."""
    with pytest.raises(ConfigError, match=key):
        SlurmctldSettings.from_settings(settings)
