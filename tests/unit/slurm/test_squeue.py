"""What squeue and sprio print, as columns."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched.errors import UnreadableError
from slurmsched.slurm.job_tables import queue_columns
from slurmsched.slurm.squeue import (
    GROUPS,
    ID_FIELDS,
    KIND_FIELDS,
    RUN_FIELDS,
    fresh_mark,
    merge_rows,
    parse_priorities,
    parse_queue,
    queue_arguments,
    split_arrays,
    split_rows,
    unit_of,
)
from slurmsched.slurm.squeue import UNIT_SEPARATOR as PLAIN
from tests.recorded.playback import HERE

MARK = "\x1e0123456789abcdef\x1e"  # as fresh_mark() makes
UNIT = unit_of(MARK)
KIND_VALUES = ["alice", "physics", "gpu", "normal", "PENDING", "None", "(null)", "1:00:00", "1", "1", "1", "*"]
KIND_VALUES += ["N/A", "N/A", "N/A", "gres/gpu:1", "cpu=1", "0", "1", "1", "(null)", "", ""]


def row(job: int, array_id: str = "", name: str = "n", comment: str = "c", nice: int = 0) -> list[str]:
    """The groups of one printed row."""
    ids = UNIT.join(map(str, (job, nice, 1, 1_800_000_000, "N/A")))
    run = UNIT.join(["N/A", "N/A", "0:00", "", "(null)"])
    return [ids, UNIT.join(KIND_VALUES), run, array_id or str(job), name, comment]


def printed(rows: list[list[str]]) -> str:
    """The rows as squeue prints them."""
    return "".join(MARK.join(groups) + MARK + "\n" for groups in rows)


def test_rows__have_all_groups():
    """The builder above follows the format that is asked for."""
    groups = row(1)
    assert [len(group.split(UNIT)) for group in groups] == [len(ID_FIELDS), len(KIND_FIELDS), len(RUN_FIELDS), 1, 1, 1]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts), max_size=8))
def test_parse_queue__keeps_any_name_and_comment(pairs):
    """Free text with separators, newlines and control characters stays whole and in its row."""
    rows = [row(i + 1, name=name, comment=comment) for i, (name, comment) in enumerate(pairs)]
    queue = parse_queue(split_rows(printed(rows), MARK), UNIT, [])
    assert list(zip(queue.name, queue.comment, strict=True)) == pairs
    assert queue.ids["JobID"].tolist() == list(range(1, len(pairs) + 1))


def test_fresh_mark__differs_every_time():
    """Nobody can know the mark of the next read."""
    assert len({fresh_mark() for _ in range(50)}) == 50


def test_queue_arguments__ask_for_every_field_once():
    """One format string with all fields, each followed by its end."""
    asked = queue_arguments(MARK)[-1].removeprefix("--Format=").split(",")
    assert [field.partition(":")[0] for field in asked] == [name for group in GROUPS for name in group]


def test_split_rows__refuses_a_torn_answer():
    """An answer cut anywhere but at the end of a row is an error."""
    whole = printed([row(1), row(2)])
    with pytest.raises(UnreadableError):
        split_rows(whole[:-20], MARK)


@pytest.mark.parametrize("bad", ["2UNIT7UNIT1", "", "²", "-5", "1e3", "18446744073709551616", "4294967294", "0"])
def test_parse_queue__leaves_out_a_row_without_a_job_id_or_of_other_fields(bad):
    """It is named, and all others are read."""
    rows, warnings = [row(1), row(2), row(3)], list[str]()
    bad = bad.replace("UNIT", UNIT)
    rows[1][0] = UNIT.join([bad, *rows[1][0].split(UNIT)[1:]])
    queue = parse_queue(split_rows(printed(rows), MARK), UNIT, warnings)
    assert (queue.ids["JobID"].tolist(), len(queue), len(warnings)) == ([1, 3], 2, 1)
    assert repr(bad.partition(UNIT)[0]) in warnings[0]


@pytest.mark.parametrize(
    "place", [*range(1, len(ID_FIELDS)), "NumNodes", "NumCPUs", "TimeLimit", "RestartCnt", "StartTime"]
)
@pytest.mark.parametrize("text", ["²", "99999999999999999999999", "-9", "4294967294.5", "nan", "1_0", "x\ny"])
def test_queue_columns__leave_a_job_with_an_odd_number_alone(place, text):
    """Its job is fixed_priority and named, all others go on as they were."""
    rows = [row(1), row(2), row(3)]
    group, names = (
        (0, ID_FIELDS) if isinstance(place, int) else (1, KIND_FIELDS) if place in KIND_FIELDS else (2, RUN_FIELDS)
    )
    at = place if isinstance(place, int) else names.index(place)
    values = rows[1][group].split(UNIT)
    rows[1][group] = UNIT.join([*values[:at], text, *values[at + 1 :]])
    warnings: list[str] = []
    columns = queue_columns(parse_queue(split_rows(printed(rows), MARK), UNIT, warnings), 0.0, warnings)
    if (names[at], text) == ("Nice", "-9"):
        assert (columns["nice"].tolist(), columns["fixed_priority"].any(), warnings) == ([0, -9, 0], False, [])
        return
    assert columns["fixed_priority"].tolist() == [False, True, False]
    assert [warning[:6] for warning in warnings] == ["job 2:"]
    for name in ("nice", "priority", "nodes", "cpus", "gpus"):
        assert (
            columns[name][0]
            == columns[name][2]
            == queue_columns(parse_queue(split_rows(printed([row(1)]), MARK), UNIT, []), 0.0, [])[name][0]
        )


def test_queue_columns__read_counts_in_units():
    """squeue prints 1536 nodes as 1.50K."""
    one = row(1)
    at = KIND_FIELDS.index("NumNodes")
    one[1] = UNIT.join([*KIND_VALUES[:at], "1.50K", "2K", *KIND_VALUES[at + 2 :]])
    columns = queue_columns(parse_queue(split_rows(printed([one]), MARK), UNIT, []), 0.0, [])
    assert (columns["nodes"].tolist(), columns["cpus"].tolist(), columns["fixed_priority"].any()) == (
        [1536],
        [2048],
        False,
    )


def test_queue_columns__count_the_nodes_that_a_requeued_job_asks_for():
    """After a restart of slurmctld NumNodes stays that of the last run (seen on 26.05.5). The GPUs go by the nodes."""
    asked = {"NumNodes": "1", "tres-per-node": "gres/gpu:8", "tres-alloc": "cpu=3,mem=3G,node=3,billing=3"}
    rows = [row(1), row(2)]
    for one, restarts in zip(rows, ("0", "1"), strict=True):
        values = dict(zip(KIND_FIELDS, KIND_VALUES, strict=True)) | asked | {"RestartCnt": restarts}
        one[1] = UNIT.join(values.values())
    columns = queue_columns(parse_queue(split_rows(printed(rows), MARK), UNIT, []), 0.0, [])
    assert (columns["nodes"].tolist(), columns["gpus"].tolist()) == ([1, 3], [8, 24])


def test_parse_queue__an_account_may_hold_any_separator():
    """Without AccountingStorageEnforce users choose it: only the token of this read parts fields."""
    one, at = row(1), KIND_FIELDS.index("Account")
    one[1] = UNIT.join([*KIND_VALUES[:at], f"a{PLAIN}b|c\n\x1e", *KIND_VALUES[at + 1 :]])
    queue = parse_queue(split_rows(printed([one, row(2)]), MARK), UNIT, [])
    assert queue.kind.labels("Account")[0] == f"a{PLAIN}b|c\n\x1e"
    assert queue.ids["JobID"].tolist() == [1, 2]


def test_split_arrays__finds_hidden_records():
    """A pending record that squeue folded into its array's row is missed by its id."""
    rows = split_rows(printed([row(18, "18_[1-4]"), row(5), row(30, "30_[0-1]")]), MARK)
    assert split_arrays("18_18\n18_18\n18_22\n5_5\n30_30\n", rows) == [18]


def test_queue_columns__keep_published_reasons_whole():
    """Reasons with commas, brackets and nested parentheses (21 to 23); broken lines of the source are skipped."""
    lines = (HERE / "public" / "squeue-custom-format-reasons.txt").read_text().splitlines()
    reasons = [match[1] for line in lines if (match := re.search(r'"r":  "\((.*)\)"\}', line))]
    rows = [row(i + 1) for i in range(len(reasons))]
    for groups, reason in zip(rows, reasons, strict=True):
        groups[1] = UNIT.join([*KIND_VALUES[:5], reason, *KIND_VALUES[6:]])
    warnings: list[str] = []
    columns = queue_columns(parse_queue(split_rows(printed(rows), MARK), UNIT, warnings), 0.0, warnings)
    assert (len(lines), len(reasons), list(columns["reason"]), warnings) == (9, 4, reasons, [])


def test_merge_rows__puts_records_in_place_of_folded_rows():
    """The array's own record keeps the tasks that are left; the split task has its nice; other rows stay."""
    rows = split_rows(printed([row(18, "18_[1-4]"), row(5, "5_1"), row(19, "18_7", nice=9)]), MARK)
    unfolded = [row(18, "18_1"), row(18, "18_2"), row(22, "18_3", nice=33), row(18, "18_4"), row(19, "18_7", nice=9)]
    queue = parse_queue(merge_rows(rows, split_rows(printed(unfolded), MARK), [18]), UNIT, [])
    assert dict(zip(queue.ids["JobID"].tolist(), queue.array_id, strict=True)) == {
        5: "5_1", 18: "18_[1,2,4]", 22: "18_3", 19: "18_7",
    }  # fmt: skip
    assert sorted(queue.ids["Nice"].tolist()) == [0, 0, 9, 33]


def priorities(*rows: tuple[int, int, int, int, str]) -> str:
    return "".join(PLAIN.join(map(str, each)) + "\n" for each in rows)


def test_parse_priorities__sums_factors():
    """Base priority is the weighted factors, TRES ones too, without site factor and nice."""
    table = parse_priorities(
        priorities((7, 1110, 100, 5, "1000 0 5 0 0 0 cpu=4,mem=1,gres/gpu=5"), (9, 1, 0, 0, "0 0 0 0 0 0 ")), []
    )
    assert (table.job_id.tolist(), table.site.tolist(), table.factors.tolist()) == ([7, 9], [100, 0], [1015.0, 0.0])
    assert table.fixed_priority.tolist() == [False, False]


def test_parse_priorities__adds_typed_and_untyped_tres_weights():
    """Both count for the priority, other than in a request, where the typed one is part of the untyped."""
    table = parse_priorities(priorities((7, 900, 0, 0, "100 0 0 gres/gpu=500,gres/gpu:a100=300")), [])
    assert table.factors.tolist() == [900.0]


@pytest.mark.parametrize(
    "bad",
    [(8, 900, 0, 0, "100 0 0 cpu=many"), (8, "²", 0, 0, "1"), (8, 1, "9" * 30, 0, "1"), (8, 1, 0, "", "1"),
     (8, 1, 0, 0, "1e99"), (8, -1, 0, 0, "1"), (8, 1, 0, 0, "nan")],
)  # fmt: skip
def test_parse_priorities__pin_the_job_of_a_row_they_cannot_read(bad):
    """Nothing is planned on a priority that cannot be read; other jobs are."""
    warnings: list[str] = []
    good = (7, 900, 3, 0, "100 0 0")
    table = parse_priorities(priorities(good, bad, (9, 900, 3, 0, "100 0 0")), warnings)
    assert (table.job_id.tolist(), table.fixed_priority.tolist()) == ([7, 8, 9], [False, True, False])
    assert table.site[[0, 2]].tolist() == [3, 3]
    assert ["8" in warning for warning in warnings] == [True]


@pytest.mark.parametrize("bad", ["", "x", "0", "²", "99999999999999999999"])
def test_parse_priorities__leave_out_a_row_without_a_job(bad):
    """It is said how many there were."""
    warnings: list[str] = []
    table = parse_priorities(priorities((bad, 1, 0, 0, "0"), (7, 1, 0, 0, "0")) + "torn\n", warnings)  # type: ignore[arg-type]
    assert (table.job_id.tolist(), len(warnings), "2 rows" in warnings[0]) == ([7], 1, True)


@pytest.mark.parametrize(
    ("priority", "site", "nice", "fixed"),
    [(1, 0, 0, False), (123, 123, 0, False), (500, 0, -500, False), (1, 0, 500, False), (54_321, 0, 0, True)],
)
def test_parse_priorities__knows_a_priority_set_by_hand(priority, site, nice, fixed):
    """All factors 0 and a priority that site factor and nice do not explain."""
    assert parse_priorities(priorities((1, priority, site, nice, "0 0 0 0 0 0 ")), []).fixed_priority.tolist() == [
        fixed
    ]


def test_parse_priorities__takes_the_highest_of_several_partitions():
    """A job in two partitions has two rows; Slurm starts it by the better one."""
    table = parse_priorities(priorities((3, 10, 0, 0, "10 0 0 0 0 0 "), (3, 40, 0, 0, "10 0 0 0 30 0 ")), [])
    assert (table.job_id.tolist(), table.factors.tolist()) == ([3], [40.0])


def test_parse_priorities__of_an_empty_queue():
    """No pending job at all."""
    assert len(parse_priorities("", []).job_id) == 0
    assert parse_priorities("", []).factors.dtype == np.float64
