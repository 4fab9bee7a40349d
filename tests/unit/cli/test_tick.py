from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmsched.config_file import load_config
from slurmsched.daemon.lock import exclusive_lock
from slurmsched.db.ledger_store import open_store
from slurmsched.errors import NotLeadingError, SlurmUnreachableError

ROOT = Path(__file__).parents[3]


def test_tick__is_dry_unless_told(run, fakes):
    """Dry-run by default: the cycle is remembered, nothing is sent, nothing is said."""
    cluster, store = fakes
    answer = run("tick")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert (cluster.sent, [receipt.dry_run for receipt in store.kept]) == ([], [True])


@pytest.mark.parametrize(
    ("mode", "options", "applies"),
    [("dry-run", [], False), ("dry-run", ["--apply"], True), ("apply", [], True), ("apply", ["--dry-run"], False),
     ("dry-run", ["--apply", "--dry-run"], False)],
)  # fmt: skip
def test_tick__writes_only_where_mode_or_option_say_so(run, fakes, site, mode, options, applies):
    """--dry-run wins over everything, --apply over the mode."""
    site.write_text(site.read_text().replace('mode = "dry-run"', f'mode = "{mode}"'))
    assert run("tick", *options).code == 0
    assert bool(fakes[0].sent) == applies


def test_tick__verbose_tells_what_was_done(run, fakes):
    """-v prints one line for people."""
    assert "1 of 1 changes would be written" in run("tick", "-v").out


def test_tick__json_is_the_receipt(run, fakes):
    """--json prints the receipt as numbers."""
    assert json.loads(run("tick", "--json", "--apply").out) == {
        "schema": "slurmsched/tick/1", "dry_run": False, "planned": 1, "written": 1, "refused": [], "stopped": "",
        "exit_code": 0,
    }  # fmt: skip


def test_tick__tells_refused_jobs_on_stderr(run, fakes):
    """One refused job is told and does not fail the cycle."""
    fakes[0].refuses = frozenset({11, 12})
    answer = run("tick", "--apply")
    assert answer.code == 0
    assert ": refused" in answer.err


def test_tick__is_silent_about_jobs_that_changed_meanwhile(run, fakes):
    """Jobs start between read and write all the time: cron need not mail it; -v tells."""
    fakes[0].refuses, fakes[0].words = frozenset({11, 12}), "changed since the snapshot: it is RUNNING"
    quiet, told = run("tick", "--apply"), run("tick", "--apply", "-v")
    assert quiet.err == ""
    assert "it is RUNNING" in told.err


@pytest.mark.parametrize(("age_s", "options", "told"), [(0, [], False), (0, ["-v"], True), (700, [], True)])
def test_tick__locked_is_exit_code_5(run, fakes, site, age_s, options, told):
    """A second slurmsched leaves at once. Cron hears of it when the lock is held for long: a slow cycle is nothing."""
    lock = site.parent / "lock"
    with exclusive_lock(lock):
        os.utime(lock, (time.time() - age_s,) * 2)
        answer = run("tick", *options)
    assert answer.code == 5
    assert ("held by pid" in answer.err) == told


@pytest.mark.parametrize("code", [3, 4, 6, 75])
def test_tick__that_ended_early_says_why_once_and_ends_with_its_code(run, fakes, code):
    """Slurm away, journal full, no rights, stop file: one line on stderr, and what was done is remembered."""
    cluster, store = fakes
    cluster.refuses, cluster.status = frozenset({12}), "unknown"
    cluster.stopped = ("no answer to the write of job 12", code)
    answer = run("tick", "--apply")
    assert (answer.code, answer.err) == (
        code, "slurmsched: writing ended early: no answer to the write of job 12\n"
    )  # fmt: skip
    assert [receipt.stopped for receipt in store.kept] == ["no answer to the write of job 12"]


def test_tick__tells_warnings_only_when_verbose(run, fakes):
    """What the daemon logs once would be mailed every minute."""
    fakes[0].snapshot = replace(fakes[0].snapshot, warnings=("gres text odd",))
    quiet, told = run("tick"), run("tick", "-v")
    assert (quiet.err, "gres text odd" in told.err) == ("", True)


def test_tick__stop_file_pauses_writing(run, fakes, site: Path):
    """With the stop file it reads but sends nothing: exit code 75, silent for cron, told with -v. So does dry-run."""
    (site.parent / "stop").touch()
    quiet, told = run("tick", "--apply"), run("tick", "--apply", "-v")
    assert (quiet.code, quiet.err, told.code) == (75, "", 75)
    assert "paused by" in told.err
    assert (fakes[0].sent, len(fakes[1].kept)) == ([], 2)
    assert (run("tick", "--dry-run").code, fakes[0].sent) == (0, [])


def test_tick__bad_config_is_exit_code_2(run, fakes, tmp_path):
    """The nearest known key is named; the lock is not even taken."""
    path = tmp_path / "bad.toml"
    path.write_text("[scope]\npartition = []\n")
    answer = run("tick", config=path)
    assert answer.code == 2
    assert "did you mean 'partitions'?" in answer.err


COLD = """if True:
    import sys
    from slurmsched.slurm import open_cluster as opening
    from tests.unit.cli.conftest import FakeCluster, make_snapshot
    opening.open_live = lambda config, *, apply, indices, lead: FakeCluster(make_snapshot())
    from slurmsched.cli.main import main
    assert main(["--config", sys.argv[1], "tick", "--dry-run"]) == 0
    print(*sys.modules)"""


def test_tick__cold_loads_only_what_it_needs(site):
    """No numba, plots, tables, logs, migrations or settings sources in a quiet process from cron."""
    open_store(load_config(site)).close()
    done = subprocess.run([sys.executable, "-c", COLD, str(site)], capture_output=True, text=True, check=True, cwd=ROOT)
    unwanted = {"numba", "plotly", "jinja2", "rich", "structlog", "alembic", "pydantic_settings", "sqlalchemy.orm"}
    assert (unwanted & set(done.stdout.split()), done.stderr) == (set(), "")


def test_tick__stands_by_while_another_host_leads(run, fakes):
    """Nothing is read for it, nothing written, and cron has nothing to mail; -v says who leads."""
    error = NotLeadingError("b may not write: a leads, term 3", holder="a")

    fakes[0].lead = SimpleNamespace(lease=SimpleNamespace(take=lambda: False, lost=lambda: error))
    quiet, told = run("tick", "--apply"), run("tick", "--apply", "-v")
    assert (quiet.code, quiet.err, told.code) == (5, "", 5)
    assert "a leads, term 3" in told.err
    assert (fakes[0].sent, fakes[1].kept) == ([], [])


def test_tick__counts_its_cycle_in_a_textfile(run, fakes, site, tmp_path, monkeypatch):
    """One that works and one that fails, each in a process of its own; nothing is served, whatever listen says."""
    path = tmp_path / "out.prom"
    own = f'[measured_use]\nprofiles = "{tmp_path}/profiles.csv"\n'  # the daemon's
    site.write_text(f'{site.read_text()}{own}[metrics]\ntextfile = "{path}"\nlisten = "192.0.2.1:1"\n')
    assert run("tick").code == 0
    assert 'slurmsched_cycles_total{outcome="done"} 1.0' in path.read_text()
    monkeypatch.setattr(fakes[0], "read", _away, raising=False)
    assert run("tick").code == 3
    told = path.read_text()
    assert 'slurmsched_cycles_total{outcome="done"} 1.0' in told
    assert 'slurmsched_cycles_total{outcome="failed"} 1.0' in told
    assert "slurmsched_snapshot_timestamp_seconds 1e+06" in told  # still the one that worked
    assert not (tmp_path / "profiles.csv").exists()


def test_tick__runs_its_cycle_though_the_textfile_cannot_be_written(run, fakes, site, tmp_path):
    """Nor unlinked, as on a read-only mount: it is told, and what was asked for is done."""
    (tmp_path / "file").touch()
    site.write_text(f'{site.read_text()}[metrics]\ntextfile = "{tmp_path}/file/out.prom"\n')
    answer = run("tick", "--apply")
    assert (answer.code, bool(fakes[0].sent)) == (0, True)
    assert "metrics.textfile" in answer.err


def _away():
    raise SlurmUnreachableError("away")
