"""Speeds from tables of throughputs, and the completion of what they lack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.throughput_table import (
    complete_rates,
    job_kind,
    model_and_batch,
    non_decreasing_rates,
    pair_throughput,
)
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.testing import snapshot
from slurmsched.testing.builders import Row

CSV = """model,batch,gpus,gpu_type,steps_per_s
A,64,1,v100,10
A,64,1,k80,5
A,64,2,v100,20
A,64,2,k80,0
B,,1,v100,8
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "site.csv").write_text(CSV)
    return str(tmp_path / "site.csv")


def test_speeds__over_the_reference_type_by_hints_and_size(table: str) -> None:
    """A with batch 64: half as fast on a K80, and not at all on two; B's missing entry is completed from A's."""
    hints = ["model=A batch=64", "model=A batch=64", "model=B"]
    rows: list[Row] = [
        {"comment": f"slurmsched: {hint}", "gpus": gpus} for hint, gpus in zip(hints, (1, 2, 1), strict=True)
    ]
    speeds = Throughputs(table).speeds(snapshot(rows), ["k80", "v100"])
    assert speeds == pytest.approx(np.array([[0.5, 1.0], [0.0, 1.0], [0.5, 1.0]]), rel=0.05)


def test_speeds__unknown_size_and_model(table: str) -> None:
    """Eight GPUs take the speed of the nearest size, two; no model the mean of all on each type."""
    rows: list[Row] = [{"comment": "slurmsched: model=A batch=64", "gpus": 8}, {"comment": ""}]
    speeds = Throughputs(table).speeds(snapshot(rows), ["k80", "v100"])
    assert (speeds[0].tolist(), speeds[1].round(2).tolist()) == ([0.0, 1.0], [0.5, 1.0])


CURVE = """model,batch,gpus,gpu_type,steps_per_s
m,,1,v100,10
m,,2,v100,18
m,,4,v100,24
m,,8,v100,24
big,,1,v100,0
big,,4,v100,5
big,,16,v100,10
one,,2,v100,7
"""


@pytest.fixture
def curves(tmp_path: Path) -> Throughputs:
    (tmp_path / "curves.csv").write_text(CURVE)
    return Throughputs(str(tmp_path / "curves.csv"))


def test_curve__over_the_size_asked_for_between_and_beyond_what_was_measured(curves: Throughputs) -> None:
    """m: as measured, 3 GPUs between 2 and 4, 16 no faster than 8. big: not on 1; on 2 half as fast as on 4."""
    rows: list[Row] = [
        {"comment": f"slurmsched: model={model}", "gpus": gpus} for model, gpus in (("m", 2), ("big", 4))
    ]
    given = snapshot(rows)
    made = curves.curve(given, 0, np.array([1, 2, 3, 4, 8, 16]))
    assert made == pytest.approx(np.array([10, 18, 18 * (24 / 18) ** np.log2(1.5), 24, 24, 24]) / 18)
    assert curves.curve(given, 1, np.array([1, 2, 4, 8, 16])) == pytest.approx([0.0, 0.5, 1.0, 2**0.5, 2.0])


def test_curve__none_where_nothing_is_known(curves: Throughputs) -> None:
    """One size only, another model, a size asked for that cannot run, and the tables that are shipped."""
    told = (("one", 2), ("other", 2), ("big", 1))
    given = snapshot([{"comment": f"slurmsched: model={model}", "gpus": gpus} for model, gpus in told])
    assert [curves.curve(given, row, np.ones(1, np.int64)) for row in range(3)] == [None] * 3
    lm = snapshot([{"comment": "slurmsched: model=LM batch=5"}])
    assert Throughputs("gavel").curve(lm, 0, np.ones(1, np.int64)) is None
    assert Throughputs("gavel").curve_on(lm, 0, "k80", np.ones(1, np.int64), np.zeros(1, np.bool_)) is None


def test_curve_on__of_another_type_and_on_several_nodes() -> None:
    """Gavel's own rates over that of one V100; ResNet-50 of batch 64 was not measured on several K80 nodes."""
    table = Throughputs("gavel", any_batch=True)
    given = snapshot([{"comment": f"slurmsched: model={model}"} for model in ("LM batch=5", "ResNet-50 batch=64")])
    sizes, apart = np.array([1, 2, 2]), np.array([False, False, True])
    lm = table.curve_on(given, 0, "k80", sizes, apart)
    assert lm == pytest.approx(np.array([25.4855013, 32.3855118, 22.1282571]) / 109.1666177)
    resnet = table.curve_on(given, 1, "k80", sizes, apart)
    assert resnet is not None
    assert resnet.tolist() == pytest.approx([0.61902822 / 4.39477482, 1.26363707 / 4.39477482, 0.0])
    assert table.curve_on(given, 0, "h100", sizes, apart) is None


def test_completed__recovers_a_table_of_rank_one() -> None:
    """Rates that are a product of row and type are found again where some are missing; what is known stays."""
    rates = np.outer([1.0, 2.0, 4.0, 8.0], [1.0, 3.0, 6.0])
    holes = rates.copy()
    holes[0, 1] = holes[2, 0] = holes[3, 2] = np.nan
    assert complete_rates(holes) == pytest.approx(rates, rel=0.05)


def test_completed__refuses_a_row_without_entries() -> None:
    """Nothing is known of such a row."""
    with pytest.raises(ValueError, match="without any rate"):
        complete_rates(np.array([[1.0, 2.0], [np.nan, np.nan]]))


def test_rising__only_estimates_are_raised() -> None:
    """An estimate below that of fewer GPUs is raised to it; a measured one stays."""
    rates = np.array([[4.0, 4.0], [3.0, 3.0]])
    assert non_decreasing_rates(rates, np.array([[False, False], [True, False]])).tolist() == [[4.0, 4.0], [4.0, 3.0]]


@pytest.mark.parametrize(("model", "batch"), [("ResNet-50", 64), ("A3C", None)])
def test_job_kind__and_its_reverse(model: str, batch: int | None) -> None:
    """A model and batch size come back out of the name that tables give them."""
    assert model_and_batch(job_kind(model, batch)) == (model, batch)


def test_registry__speeds_by_name_or_table(table: str) -> None:
    """A policy's `speeds` may be a table: a file or one that is shipped."""
    made = [registry.make_plugin("policies", "gavel", {"speeds": each}).speeds for each in (table, "gavel")]
    assert made == [Throughputs(table), Throughputs("gavel")]


def test_pair_throughput__in_either_order_and_only_numbers() -> None:
    """A pair told once is found from both sides; one that was not measured is none."""
    table = {"('a', 1)": {"null": 4.0, "('b', 1)": [3.0, 2.0], "('c', 1)": [None, None], "('d', 1)": 5.0}}
    asked = (("a", "b"), ("b", "a"), ("a", "c"), ("d", "a"), ("x", "y"))
    assert [pair_throughput(table, one, two, 1) for one, two in asked] == [(3, 2), (2, 3), (0, 0), (0, 0), (0, 0)]


def test_throughputs__says_what_is_wrong(table: str, tmp_path: Path) -> None:
    """No table, an unknown reference type, a file that is none."""
    with pytest.raises(ConfigError, match="needs a table"):
        Throughputs()
    with pytest.raises(ConfigError, match="no type 'h100'; it has k80, v100"):
        Throughputs(table, "h100")
    (tmp_path / "bad.csv").write_text("model,gpus\n")
    with pytest.raises(InputError, match="needs the columns model, batch"):
        Throughputs(str(tmp_path / "bad.csv"))


@pytest.mark.parametrize(("row", "what"), [
    ("m,,0,v100,1", "line 3: gpus must be at least 1, got 0"), ("m,,1,v100,nan", "line 3: steps_per_s must be"),
    ("m,,1,v100,inf", "got inf"), ("m,,1,v100,-2", "at least 0, got -2"),
])  # fmt: skip
def test_throughputs__numbers_of_a_csv_are_rates(row: str, what: str, tmp_path: Path) -> None:
    """No GPUs and no such rate: the line is named."""
    (tmp_path / "bad.csv").write_text(f"model,batch,gpus,gpu_type,steps_per_s\nm,,2,v100,1\n{row}\n")
    with pytest.raises(InputError, match=what):
        Throughputs(str(tmp_path / "bad.csv"))
