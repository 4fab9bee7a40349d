from __future__ import annotations

import pytest

from slurmsched.config_file import parse_config
from slurmsched.daemon.cycle_parts import open_cycle_parts, paused
from slurmsched.db import ledger_store as stores
from slurmsched.errors import ConfigError, LedgerError
from slurmsched.slurm import open_cluster as opening


class _Part:
    def __init__(self, told, name):
        self.told, self.name = told, name
        told.append(f"open {name}")

    def earlier_runs(self, _):
        return ()

    def learn(self, _):
        self.told.append("learns")

    def close(self):
        self.told.append(f"close {self.name}")


@pytest.fixture
def told(monkeypatch):
    """What was opened and closed, in order."""
    told: list[str] = []

    def open_store(config, earlier_runs, *, read_only, lead):
        told.append(f"read_only {read_only}, sacct {earlier_runs is not None}")
        return _Part(told, "store")

    monkeypatch.setattr(
        opening,
        "open_live",
        lambda config, *, apply, indices, lead: _Part(told, f"cluster, apply {apply}, indices {indices}"),
    )
    monkeypatch.setattr(stores, "open_store", open_store)
    return told


def test_assembled__opens_the_cluster_first_and_closes_it_last(told):
    """Slurm's commands run while the rest is imported and opened."""
    with open_cycle_parts(parse_config({}), apply=True, indices=True) as parts:
        assert parts.planner.name == "response-ratio"
    assert told == [
        "open cluster, apply True, indices True", "read_only False, sacct True", "open store", "close store",
        "close cluster, apply True, indices True",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "learnt"),
    [({}, 0), ({"policy": {"name": "qssf"}}, 1), ({"estimator": {"name": "history"}}, 1),
     ({"policy": {"name": "qssf"}, "past": {"days": 0}}, 0),
     ({"policy": {"name": "qssf"}, "ledger": {"sacct": False}}, 0)],
)  # fmt: skip
def test_assembled__reads_the_past_only_for_who_learns(told, settings, learnt):
    """A policy or an estimator that learns; not where accounting is not to be asked."""
    with open_cycle_parts(parse_config(settings), apply=False):
        assert told.count("learns") == learnt


@pytest.mark.parametrize("share", [True, False])
def test_assembled__reads_measured_parts_only_where_they_count(told, share, tmp_path):
    """With lever.share and a file of profiles."""
    profiles = {"measured_use": {"profiles": str(tmp_path / "p.csv")}}
    for settings, learnt in ((profiles, int(share)), ({}, 0)):
        told.clear()
        with open_cycle_parts(parse_config({"lever": {"share": share}, **settings}), apply=False):
            assert told.count("learns") == learnt


def test_assembled__asks_sacct_only_where_configured(told):
    """ledger.sacct = false: nobody to ask."""
    with open_cycle_parts(parse_config({"ledger": {"sacct": False}}), apply=False, read_only=True):
        assert "read_only True, sacct False" in told


@pytest.mark.parametrize(
    ("settings", "error"), [({"policy": {"name": "none"}}, ConfigError), ({"ledger": {"keep_days": 7}}, LedgerError)]
)
def test_assembled__closes_what_was_open_when_a_part_fails(told, monkeypatch, settings, error):
    """A bad policy or ledger leaves no command of Slurm running."""
    if error is LedgerError:

        def broken(config, earlier_runs, *, read_only, lead):
            raise LedgerError("disk full")

        monkeypatch.setattr(stores, "open_store", broken)
    with pytest.raises(error), open_cycle_parts(parse_config(settings), apply=False):
        pass
    assert told[-1] == "close cluster, apply False, indices False"


def test_paused__looks_for_the_stop_file(tmp_path):
    """The file's presence is all that counts."""
    config = parse_config({"cycle": {"stop_file": str(tmp_path / "stop")}})
    before = paused(config)
    (tmp_path / "stop").touch()
    assert (before, paused(config)) == (False, True)
