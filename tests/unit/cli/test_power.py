"""`power` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.survey.site import node, site


def test_power_advise__names_nodes_and_reads_only(run, monkeypatch) -> None:
    """Idle nodes beyond the buffer, with the line by which an administrator acts; what is not known is said."""
    from slurmsched.cli import power
    from slurmsched.slurm import look

    found = site([node("n1"), node("n2"), node("n3")])
    monkeypatch.setattr(look, "look", lambda *_, **__: found)
    monkeypatch.setattr(power, "_used", lambda _: (np.zeros(600), ()))
    said = run("power", "advise", "--buffer", "1")
    assert (said.code, "2 of 3 idle nodes could be powered down: n[2-3]" in said.out) == (0, True)
    assert "nodename=n[2-3] state=power_down" in said.out
    told = json.loads(run("power", "advise", "--json").out)
    assert (told["hostlist"], told["idle"], told["why"]) == ("n3", 3, "")
    monkeypatch.setattr(power, "_used", lambda _: (np.zeros(3), ("slurmdbd is away",)))
    said = run("power", "advise")
    assert "no node should be powered down: fewer than 2 days" in said.out and "slurmdbd is away" in said.out


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
