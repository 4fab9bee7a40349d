"""Twin fidelity of arrays: how many of their tasks a backfill pass tests, and how many run at once.

    python3 tests/lab/lab.py exec --name NAME -- python -m pytest -m live tests/live/test_twin_arrays.py -s

prints the row of docs/fidelity.md. It takes a minute and a half; what ran is kept in /var/tmp/twin of the lab.
"""

from __future__ import annotations

import pytest

from tests.live.lab import run
from tests.live.test_twin import KEPT
from tests.twin.arrays import AT_ONCE, CONF, workload
from tests.twin.fidelity import compare
from tests.twin.recorder import Recorder
from tests.twin.recording import Recording, replayed

pytestmark = [pytest.mark.live, pytest.mark.newest, pytest.mark.timeout(600)]


@pytest.fixture
def narrow(fresh: None) -> None:
    """A backfill that tests few jobs, and a log with a line for each start."""
    for key, value in (("Epilog", "/bin/true"), ("SlurmctldDebug", "debug2"), *CONF.items()):
        run("labctl", "conf", key, value)
    run("labctl", "restart", "slurmctld", "slurmd")
    run("labctl", "wait-ready")


def test_twin__arrays_count_as_slurm_counts_them(narrow: None) -> None:
    """Ten small jobs pass twelve tasks that wait, though a pass tests six jobs; two tasks of an array run at once."""
    recorder = Recorder(workload())
    recorder.play()
    recording = recorder.recording()
    KEPT.mkdir(exist_ok=True)
    recording.write(KEPT / f"{recording.version}-arrays.json.gz")
    seen = compare(recording, replayed(recording))
    print(f"\n| {recording.version} | arrays | {seen.row}")
    assert most_at_once(recording) == AT_ONCE
    blocker = min(recording.ran, key=lambda each: each.submit_s)
    small = [each for each in recording.ran if each.user == "carol"]
    assert blocker.end_s and all(each.start_s and each.start_s < blocker.end_s for each in small)
    assert seen.jobs == sum(one.tasks for one in workload()) and seen.same_second == 1.0, seen


def most_at_once(recording: Recording) -> int:
    """The most tasks that ran at once of the array of one GPU."""
    tasks = [each for each in recording.ran if each.array_limit and each.gpus == 1 and each.start_s]
    return max(sum(one.start_s <= each.start_s < (one.end_s or 0.0) for one in tasks) for each in tasks)  # type: ignore[operator]
