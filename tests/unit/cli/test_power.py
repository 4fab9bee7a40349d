"""`power` as it is typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.observe.survey.survey_site import node
from tests.unit.observe.survey.survey_site import site as small_site


class Known:
    """A past of these runs."""

    def __init__(self, runs) -> None:
        self.runs = runs

    def __call__(self, snapshot):
        return replace(snapshot, warnings=("slurmdbd is slow",))


def test_power_advise__names_nodes_and_reads_only(run, monkeypatch) -> None:
    """Idle nodes beyond the buffer, with the line by which an administrator operations; what is not known is said."""
    from slurmsched.cli import power
    from slurmsched.daemon.ended_jobs import NO_RUNS, EndedRuns
    from slurmsched.slurm import reader

    found = small_site([node("n1"), node("n2"), node("n3")])
    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: found)
    long_ago_s = [found.now_s - 5 * 86_400]
    runs = EndedRuns.build(1, {"gpus": [0], "start_s": long_ago_s, "end_s": long_ago_s})
    monkeypatch.setattr(power, "_ended_runs", lambda *_: (runs, ()))
    said = run("power", "advise", "--buffer", "1")
    assert (said.code, "2 of 3 idle nodes could be powered down: n[2-3]" in said.out) == (0, True)
    assert "nodename=n[2-3] state=power_down" in said.out
    told = json.loads(run("power", "advise", "--json").out)
    assert (told["hostlist"], told["idle"], told["why"]) == ("n3", 3, "")
    monkeypatch.setattr(power, "_ended_runs", lambda *_: (NO_RUNS, ("slurmdbd is away",)))
    said = run("power", "advise")
    assert "no node should be powered down: fewer than 2 days" in said.out and "slurmdbd is away" in said.out


def test_power_advise__warns_of_accounting_only(site, monkeypatch) -> None:
    """The ended runs come with the warnings of accounting, without those of the snapshot."""
    from slurmsched.cli import power
    from slurmsched.config_file import load_config
    from slurmsched.daemon import ended_jobs
    from slurmsched.testing import snapshot

    monkeypatch.setattr(ended_jobs, "open_past", lambda *_, **__: Known(ended_jobs.NO_RUNS))
    here = replace(snapshot([]), warnings=("not of accounting",))
    assert power._ended_runs(load_config(None), here) == (ended_jobs.NO_RUNS, ("slurmdbd is slow",))


def test_power_replay__forecast_beside_all_that_are_idle(run, tmp_path: Path) -> None:
    """Three jobs on two nodes, the last after an hour without any."""
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,num_gpus,submit_s,duration_s\n1,8,0,1200\n2,8,0,600\n3,16,7200,600\n")
    told = json.loads(run("power", "replay", str(trace), "--cluster", "2x8", "--buffer", "0", "--json").out)
    assert [told[name]["wake_ups"] for name in ("forecast", "all_that_are_idle")] == [0, 2]
    assert told["all_that_are_idle"]["delayed"] == 1
    assert "late starts" in run("power", "replay", str(trace), "--cluster", "2x8").out


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--quantile", "2"), 2)])
def test_power_series__reads_a_file_of_nodes(run, tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    """A row a step; a setting out of range ends with 2."""
    (tmp_path / "n.csv").write_text("time,active,total\n" + "".join(f"{600 * i},{i % 2},4\n" for i in range(6)))
    said = run("power", "series", str(tmp_path / "n.csv"), *options)
    assert (said.code, "all that are idle" in said.out) == (code, not code)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--policy", "srsf:foo=1"], "--policy: policy: srsf has no parameter 'foo'"),
     (["--placement", "nosuch"], "--placement: placement: "), (["--setting", "foo=1"], "command line: ")],
)  # fmt: skip
def test_power_replay__names_the_words_that_are_wrong(run, tmp_path, words, said) -> None:
    """Not the configuration, which it does not read."""
    trace = tmp_path / "t.csv"
    trace.write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,60\n")
    done = run("power", "replay", str(trace), "--cluster", "1x4", *words)
    assert (done.code, done.err.startswith(f"slurmsched: {said}")) == (2, True), done.err
