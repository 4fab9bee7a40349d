"""What jobs keep of their speed in groups: by stages, by measured pairs, and by the fit to them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.estimators.group_speeds import (
    ALONE,
    TOGETHER,
    GroupSpeeds,
    StageTimes,
    fitted_pairs,
    group_period,
    measured_pairs,
    stage_table,
    stages_of,
)

LOADS, COMPUTES = StageTimes(10.0, 8.0, 1.0, 1.0), StageTimes(10.0, 1.0, 8.0, 1.0)


def test_group_period__what_differs_fits_into_each_other() -> None:
    """One loads while the other computes: 10 ms as alone. Two that load use storage and CPU in turns. Two that
    compute have one GPU: 16 ms, and 1 ms in which the first sends before it may compute again."""
    assert group_period((LOADS,)) == group_period((LOADS, COMPUTES)) == group_period((LOADS, LOADS)) == 10.0
    assert group_period((COMPUTES, COMPUTES)) == 17.0


def test_group_period__no_job_is_faster_than_its_own_stages() -> None:
    """Of the shipped table, in any pair on one GPU."""
    stages = [each for (_, gpus), each in stage_table("muri").items() if gpus == 1]
    for one in stages:
        for other in stages:
            assert group_period((one, other)) >= max(one.gpu + other.gpu, one.input / 2 + other.input / 2)


def test_group_speeds__by_stages() -> None:
    """Alone 1; together the own iteration over the common one, with what Muri measured that jobs lose."""
    bert, resnet = stages_of("muri", "bert (batch size 4)", 1), stages_of("muri", "resnet18", 1)
    assert bert is not None and resnet is not None
    time = group_period((bert, resnet)) * TOGETHER[2] / ALONE
    made = GroupSpeeds().kept(["bert (batch size 4)", "resnet18"], 1)
    assert (made.source, GroupSpeeds().kept(["bert"], 1)) == ("stages", ((1.0,), "alone"))
    assert made.kept == pytest.approx((178 / time, 779 / time))


def test_stages_of__another_size_has_those_of_the_nearest() -> None:
    """3 GPUs: of 2 rather than of 4."""
    assert stages_of("muri", "bert", 3) == stages_of("muri", "bert", 2) != stages_of("muri", "bert", 4)
    assert stages_of("muri", "unknown", 1) is None


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A keeps 0.9 beside B, B 0.6 beside A; A and A 0.5 each; B and B were not measured."""
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"v100": {
        "('A', 1)": {"null": 10.0, "('A', 1)": [5.0, 5.0], "('B', 1)": [9.0, 12.0]}, "('B', 1)": {"null": 20.0},
    }}))  # fmt: skip
    return str(path)


def test_group_speeds__by_pairs(table: str) -> None:
    """Measured as measured, of three the product; what was not measured is estimated."""
    speeds = GroupSpeeds("", table)
    assert measured_pairs(table, "v100", 1) == {("A", "A"): 0.5, ("A", "B"): 0.9, ("B", "A"): 0.6}
    assert speeds.kept(["B", "A"], 1) == ((0.6, 0.9), "measured")
    assert speeds.kept(["A", "B", "A"], 1).kept[0] == pytest.approx(0.9 * 0.5)
    found = speeds.kept(["B", "B"], 1)
    assert found.source == "estimated" and 0 < found.kept[0] == found.kept[1] < 1


def test_group_speeds__without_any_table_jobs_take_turns() -> None:
    """Half of the speed each, a third of three."""
    assert GroupSpeeds("", "").kept(["A", "B"], 1).kept == pytest.approx((0.5, 0.5))


def test_fitted_pairs__tells_gavels_pairs_better_than_their_mean() -> None:
    """Every fifth pair left out in turn. Of all pairs the mean error is 0.12, that of their mean 0.21."""
    known = measured_pairs("gavel", "v100", 1)
    errors = []
    for pair in sorted({(one, other) for one, other in known if one <= other})[::5]:
        fit = fitted_pairs({each: share for each, share in known.items() if {*each} != {*pair}})
        errors += [(abs(fit.kept(*each) - known[each]), abs(math.exp(fit.mean) - known[each]))
                   for each in {pair, pair[::-1]}]  # fmt: skip
    ours, mean = (sum(column) / len(errors) for column in zip(*errors, strict=True))
    assert ours < 0.8 * mean


@pytest.mark.parametrize(
    ("text", "fault"),
    [("model,gpus\n", "needs the columns"),
     ("model,gpus,iteration_ms,input_ms,gpu_ms,network_ms\nA,1,0,1,1,1\n", "of A on 1 GPUs")],
)  # fmt: skip
def test_stage_table__says_what_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    """Missing columns, and times that are none."""
    path = tmp_path / "stages.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        stage_table(str(path))
