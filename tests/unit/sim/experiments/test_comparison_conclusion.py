"""What a comparison concludes."""

from __future__ import annotations

from dataclasses import replace

from slurmsched.observe.html_page import SECONDS
from slurmsched.sim.experiments.comparison import TIME_MEASURES, PolicyComparison
from slurmsched.sim.experiments.comparison_conclusion import conclusions
from tests.unit.sim.experiments.test_comparison import six


def test_conclusion__names_the_best_and_who_loses() -> None:
    """Beside the best the next one, and the first policy unless it is that."""
    told = conclusions(six("fifo", "srtf", "sjf"))
    assert told[0].startswith("Shortest mean wait: srtf with ")
    assert "(next sjf " in told[0]
    assert "; fifo " in told[0]
    assert any(text.startswith("Under srtf 1 of 3 users waits longer than under fifo; most ") for text in told)


def test_conclusion__says_which_policies_are_equal() -> None:
    """To the first, with the reason; and to each other."""
    made = six("fifo", "smallest", "srtf", "sjf")
    fifo, smallest, srtf, sjf = made.played
    alike = [fifo, replace(fifo, case=smallest.case), srtf, replace(srtf, case=sjf.case)]
    told = conclusions(PolicyComparison("six.csv", made.recorded, alike))
    equal = [text for text in told if " equals " in text]
    assert equal[0].startswith("smallest equals fifo: every job that counts starts and ends as under fifo: ")
    assert equal[1:] == ["sjf equals srtf: every job starts and ends alike."]
    assert told[0].startswith("Shortest mean wait: srtf and sjf with ")


def test_conclusion__of_one_policy_is_none() -> None:
    """There is nothing to compare it with; if the first is the best, that is said."""
    assert conclusions(six("fifo")) == []
    assert "No policy has a shorter mean wait than srtf, the first one." in conclusions(six("srtf", "fifo"))


def test_best__goes_by_the_digits_that_are_shown() -> None:
    """A difference that nobody can see is none; nothing is the best where all are alike."""
    runs = [
        dict(run, avg_wait_s=wait) for run, wait in zip(six("fifo", "srtf", "sjf").runs, (2.0, 1.001, 1.0), strict=True)
    ]
    assert TIME_MEASURES[4].best(runs, SECONDS) == {"srtf", "sjf"}
    assert TIME_MEASURES[4].best(runs[1:], SECONDS) == frozenset()
    assert replace(TIME_MEASURES[4], better=1).best(runs, SECONDS) == {"fifo"}
    assert replace(TIME_MEASURES[4], better=0).best(runs, SECONDS) == frozenset()


def test_conclusion__says_that_the_slowest_jobs_pay() -> None:
    """If the best policy's p99 is over 5 % longer than the first one's; and sizes that wait longer."""
    each = six("fifo", "srtf")
    fifo, srtf = each.runs
    waits = {**srtf["wait_by_gpus_s"], "1": {"mean": 99.0}}
    for p99_s, said in ((20.0, True), (10.4, False)):
        each.__dict__["runs"] = [{**fifo, "p99_jct_s": 10.0}, {**srtf, "p99_jct_s": p99_s, "wait_by_gpus_s": waits}]
        told = conclusions(each)
        assert any(text.startswith("The slowest 1 % of the jobs take longer under srtf than") for text in told) is said
        assert any(
            text.startswith("Jobs of 1 GPU wait longer under srtf than under fifo: 99.00 s, not") for text in told
        )
