"""Published tables: what they may say, and the verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.errors import InputError
from slurmsched.observe.survey.power_saving import PowerRules, power_saving_of_runs
from slurmsched.sim.experiments import reproduction
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.experiments.reproduction import (
    PRECISION,
    FigureComparison,
    PublishedRow,
    PublishedTable,
    TableResult,
    published_table,
    published_tables,
    result_cells,
    row_result,
    table_heading,
    table_names,
    table_results,
)
from slurmsched.sim.traces.trace_io import shipped_trace


def row(**more: Any) -> PublishedRow:
    given = {"trace": "tiresias_60", "cluster": "2x4", "policy": "fifo", "figures": {"makespan_s": (5_747.0, 5_747.0)}}
    return PublishedRow("made-up", "here", **given | more)


def test_tables__hold_figures_sources_and_traces() -> None:
    """Each row names its source and figures that a replay gives; one that is replayed names a trace that is shipped."""
    for each in (row for found in published_tables() for row in found.rows):
        assert each.source and set(each.figures) <= set(PRECISION)
        assert each.absent or each.sharing or len(shipped_trace(each.trace)) > 0
        assert each.absent or each.figures


def test_tables__are_those_the_issue_of_exactness_asks_for() -> None:
    """By discipline and by simulator."""
    asked = {"fifo", "easy", "conservative", "fjf", "sjf", "srtf", "srsf", "1d-las", "2d-las", "gittins",
             "consolidated-fifo", "tiresias-rounds", "lucid-fifo", "lucid-sjf", "lucid-srtf", "lucid-tiresias", "muri",
             "gavel-fifo"}  # fmt: skip
    assert asked <= set(table_names())


def test_table__refuses_an_unknown_name() -> None:
    """Those there are are named."""
    with pytest.raises(InputError, match=r"no published table called 'las'; there are 1d-las, .*, srtf"):
        published_table("las")


def test_table__refuses_an_unknown_key() -> None:
    """A misspelt tolerance must not pass for none."""
    found = {"title": "t", "source": "s", "tolerance": 1.0, "rows": [{"trace": "x"}]}
    with pytest.raises(InputError, match="table t: row of x: unknown key 'tolerance'"):
        reproduction._parsed_table("t", found)


def test_row__takes_what_it_leaves_open_from_its_table() -> None:
    """And overrides the rest."""
    found = {"title": "t", "source": "s", "policy": "fifo", "rows": [{"policy": "easy", "avg_jct_s": [1, 2]}, {}]}
    first, second = reproduction._parsed_table("t", found).rows
    assert (first.policy, first.figures, second.policy) == ("easy", {"avg_jct_s": (1.0, 2.0)}, "fifo")


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict", "difference"),
    [
        ((100.0, 100.0), 100.004, "equal", 0.004), ((100.0, 100.0), 100.9, "within", 0.9),
        ((100.0, 100.0), 98.0, "differs", -2.0), ((100.0, 110.0), 105.0, "within", 0.0),
        ((100.0, 110.0), 112.2, "differs", 2.0),
    ],
)  # fmt: skip
def test_comparison__says_how_far(theirs: tuple[float, float], ours: float, verdict: str, difference: float) -> None:
    """Equal to the last printed digit; within the tolerance of 1 % of the nearest published value."""
    made = FigureComparison("avg_jct_s", theirs, ours, 1.0)
    assert (made.verdict, made.difference_pct) == (verdict, pytest.approx(difference))


def test_result__of_a_row_that_holds() -> None:
    """Ours beside theirs, with what is needed to get the same again."""
    made = row_result(row())
    record = made.record
    assert (made.verdict, made.holds, record["trace_digest"]) == ("equal", True, "ce9b95be7e22b092")
    assert record["figures"]["makespan_s"] == {
        "theirs": 5_747.0, "ours": 5_747.0, "difference_pct": 0.0, "tolerance_pct": 0.0, "verdict": "equal"
    }  # fmt: skip


def test_result__of_a_row_that_does_not_hold() -> None:
    """Without a reason it must hold; with one it tells it."""
    off = {"figures": {"makespan_s": (5_000.0, 5_000.0)}}
    plain, told = row_result(row(**off)), row_result(row(**off, differs="other rounding"))
    assert (plain.verdict, plain.holds) == ("differs", False)
    assert (told.verdict, told.holds) == ("differs: other rounding", True)


def test_result__of_a_row_that_is_not_replayed() -> None:
    """Only its reason and the published figure are shown."""
    made = row_result(row(absent="no public input", figures={"avg_jct_s": (1_000.0, 1_000.0)}))
    assert (made.verdict, made.holds, made.comparisons) == ("not reproduced: no public input", True, ())
    assert result_cells(made) == ("tiresias_60, here", "", "2x4", "1,000.00", "", "", "", made.verdict)


def test_results__end_with_the_mean_where_asked() -> None:
    """The mean over the rows is held to a tolerance of its own."""
    rows = tuple(row(figures={"avg_jct_s": (jct_s, jct_s)}, tolerance_pct=50.0) for jct_s in (1_400.0, 1_700.0))
    *_, mean = table_results(PublishedTable("made-up", "", "here", rows, mean_tolerance_pct=1.0))
    assert (mean.row.trace, mean.comparisons[0].theirs[0], mean.verdict) == ("mean of all", 1_550.0, "within")


def test_cells__name_the_figure_that_is_furthest_off() -> None:
    """The mean JCT has columns of its own."""
    compared = [
        FigureComparison("avg_jct_s", (10.0, 10.0), 10.0, 5.0),
        FigureComparison("p95_jct_s", (10.0, 10.0), 10.1, 5.0),
        FigureComparison("makespan_s", (10.0, 10.0), 9.0, 5.0),
    ]
    made = TableResult(row(beside="as released: 9 s"), "abc", tuple(compared))
    assert result_cells(made) == (
        "tiresias_60", "abc", "2x4", "10.00", "10.00", "+0.00 %", "makespan_s -10.00 %", "differs (as released: 9 s)",
    )  # fmt: skip


def test_heading__tells_source_and_settings() -> None:
    """Settings that are the default ones are left out."""
    rows = (row(settings={"round_s": 60}), row(settings={"round_s": 60}))
    lines = list(table_heading(PublishedTable("made-up", "What it is", "here", rows, note="By the way.")))
    assert lines == ["made-up: What it is", "Theirs: here.", "Settings: policy=fifo, round_s=60.", "By the way."]


def test_result__of_a_claim_is_a_ratio_over_the_other_policy() -> None:
    """FIFO's mean JCT and makespan over those of SRSF, on the first jobs of the trace only."""
    figures = dict.fromkeys(("jct_ratio", "makespan_ratio", "fairness_ratio"), (2.0, 2.0))
    made = row_result(row(policy="srsf", against="fifo", jobs=40, figures=figures, differs="another trace"))
    fifo, srsf = (
        ReplaySession(shipped_trace("tiresias_60").first(40), ReplayRequest(cluster="2x4", policy=policy)).run()
        for policy in ("fifo", "srsf")
    )
    ours = {each.figure: each.ours for each in made.comparisons}
    assert ours["jct_ratio"] == pytest.approx(fifo.figures["avg_jct_s"] / srsf.figures["avg_jct_s"])
    assert ours["makespan_ratio"] == pytest.approx(fifo.figures["makespan_s"] / srsf.figures["makespan_s"])
    slowdown = [max(run.outcomes.jct_s / shipped_trace("tiresias_60").first(40).duration_s) for run in (fifo, srsf)]
    assert ours["fairness_ratio"] == pytest.approx(slowdown[0] / slowdown[1])
    theirs, shown = result_cells(made)[3:5]
    assert theirs == "jct 2.00 x, makespan 2.00 x, fairness 2.00 x"
    assert shown.startswith(f"jct {ours['jct_ratio']:.2f} x, makespan")


def test_result__of_a_claim_about_tenants_is_their_worst_rho() -> None:
    """The trace that tells virtual clusters: least attained service treats the one who fares worst far better."""
    claim = row(trace="philly_vcs_2k", cluster="20x8", policy="discretized-las", against="fifo", jobs=500,
                figures={"fairness_ratio": (1.0, 1.0)})  # fmt: skip
    (compared,) = row_result(claim).comparisons
    assert compared.ours > 1.0


def test_result__of_a_claim_about_power_is_the_gain_in_node_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the replay's runs on its nodes, in points; here every idle node goes, since an hour tells no forecast."""
    at_once = PowerRules(buffer=0, forecast=False)
    monkeypatch.setattr(reproduction, "PowerRules", lambda: at_once)
    made = row_result(row(cluster="8x4", power=True, figures={"use_gain_pct": (13.0, 13.0)}, differs="another trace"))
    runs = ReplaySession(shipped_trace("tiresias_60"), ReplayRequest(cluster="8x4", policy="fifo")).run().runs
    expected = power_saving_of_runs(runs.start_s, runs.end_s, runs.gpus, 8, 4.0, at_once).use_gain_pct
    (gain,) = made.comparisons
    assert (gain.figure, gain.ours) == ("use_gain_pct", expected)
    assert result_cells(made)[3:5] == ("use gain 13.0 points", f"use gain {expected:.1f} points")
    assert 0 < expected < 100


def test_row__tells_the_parameters_of_its_policy() -> None:
    """A plug-in among them in words; they reach the replay as they are."""
    speeds = {"name": "throughputs", "table": "shockwave", "unit": "steps"}
    row = PublishedRow("t", "s", policy="max-sum-throughput", parameters={"speeds": speeds})
    assert row.words["speeds"] == "name=throughputs table=shockwave unit=steps"
    assert row.request.parameters == {"speeds": speeds}


def test_row__tells_the_physics_that_it_hangs_on() -> None:
    """As `slurmsched replay` takes it; recorded speeds are the default."""
    words = [
        PublishedRow("t", "s", policy="fifo", physics=physics).words.get("physics")
        for physics in ("recorded", "spread")
    ]
    assert words == [None, "spread"]
