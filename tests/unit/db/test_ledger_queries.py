from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from slurmsched.config_file import parse_config
from slurmsched.db import schema
from slurmsched.db.ledger_queries import (
    CycleFacts,
    CycleSums,
    OperationFacts,
    OperationTotals,
    PlacementFacts,
    PlacementQuality,
    cycle_sums,
    first_apply_s,
    last_cycles,
    operation_totals,
    placement_quality,
    runs_since,
)
from slurmsched.db.ledger_store import open_store
from slurmsched.errors import LedgerError
from slurmsched.model import Plan, Receipt
from slurmsched.observe.report.report_input import reported_of_ledger
from slurmsched.testing import snapshot

HOUR_S = 3_600.0


@pytest.fixture
def url(tmp_path):
    """Job 1 runs from 1 h to 3 h on 4 GPUs, is requeued, and runs again from 4 h on; job 2 starts at 1 h and ends at
    2 h; job 3 asks for no GPU; job 4 waits. Cycles at each hour; the first two could not write."""
    config = parse_config({"ledger": {"url": f"sqlite:///{tmp_path}/l.db", "journal": f"{tmp_path}/j.jsonl"},
                           "scope": {"partitions": ["*"]}})  # fmt: skip
    store = open_store(config)
    runs = {"state": "RUNNING", "gpus": 4}
    one, two = {"job_id": 1, "gpus": 4}, {"job_id": 2, "gpus": 2}
    cpu, waits = {"job_id": 3, "gpus": 0, "state": "RUNNING", "start_s": HOUR_S}, {"job_id": 4}
    first = one | runs | {"start_s": HOUR_S}
    second = one | runs | {"start_s": 4 * HOUR_S, "submit_s": 3 * HOUR_S, "restarts": 1}
    ended = two | {"state": "COMPLETED", "start_s": HOUR_S, "end_s": 2 * HOUR_S, "run_s": HOUR_S}
    looks = (
        [one, two, cpu, waits],
        [first, two | {"state": "RUNNING", "start_s": HOUR_S}, cpu, waits],
        [first | {"run_s": HOUR_S}, ended, cpu, waits],
        [one | {"submit_s": 3 * HOUR_S, "restarts": 1, "first_submit_s": 0.0}, cpu, waits],
        [second | {"first_submit_s": 0.0}, cpu, waits],
    )
    for hour, rows in enumerate(looks):
        look = store.recall(snapshot(rows, now_s=hour * HOUR_S + 1))
        store.append(look, Plan(), Receipt(dry_run=hour < 2))
    store.close()
    return config.ledger.url


def test_lived__is_one_row_a_job_that_held_gpus(url):
    """Requeued runs add up; who still runs has no end; who asks for no GPU or waits is left out."""
    rows = {row.job_id: row for row in runs_since(url, 0.0)}
    assert sorted(rows) == [1, 2]
    assert (rows[1].start_s, rows[1].held_s, rows[1].gpus) == (HOUR_S, HOUR_S, 4)
    assert math.isnan(rows[1].end_s)
    assert rows[1].executed_s == pytest.approx(2 * HOUR_S, abs=5)
    assert (rows[2].end_s, rows[2].executed_s, rows[2].gpus) == (2 * HOUR_S, HOUR_S, 2)


def test_lived__a_part_of_a_gpu_counts_as_that_part(tmp_path):
    """A job with one of four shards attains a fourth of a GPU, also when a new daemon goes on with it, and when it has
    ended. A job with shards of which the part is not known counts none."""
    config = parse_config({"ledger": {"url": f"sqlite:///{tmp_path}/l.db", "journal": f"{tmp_path}/j.jsonl"},
                           "scope": {"partitions": ["*"]}})  # fmt: skip
    runs = {"job_id": 1, "state": "RUNNING", "gpus": 0, "shards": 1, "shared_milli": 250, "start_s": 1_000.0}
    over = runs | {"state": "COMPLETED", "shared_milli": 0, "end_s": 1_800.0, "run_s": 800.0}
    for now_s, row in ((1_400.0, runs), (1_800.0, over)):
        store = open_store(config)
        unknown = {"job_id": 2, "state": "RUNNING", "gpus": 0, "shards": 1, "start_s": 1_000.0}
        at = store.recall(snapshot([row | {"run_s": now_s - 1_000.0}, unknown], now_s=now_s))
        store.append(at, Plan(()), Receipt())
        store.close()
        assert at.jobs.attained_gpu_s.tolist() == [(now_s - 1_000.0) / 4, 0.0]
    (run,) = runs_since(config.ledger.address, 0.0)
    assert (run.gpus, run.executed_s) == (0.25, 800.0)
    row = reported_of_ledger([run])
    assert (row.gpus.tolist(), row.gpu_s_in(0.0, 2_000.0).tolist()) == ([1], [200.0])


def test_lived__of_a_later_span_has_no_first_start_but_the_runs(url):
    """Job 1 began before: what it held since counts, its wait does not."""
    (row,) = runs_since(url, 2.5 * HOUR_S)
    assert (row.job_id, math.isnan(row.start_s), row.held_s) == (1, True, HOUR_S)


def test_cycles__are_summed_and_the_first_that_could_write_is_known(url):
    """Of the span alone; the switch is of the whole ledger."""
    assert first_apply_s(url) == 2 * HOUR_S + 1
    sums = cycle_sums(url, 0.5 * HOUR_S)
    assert (sums.cycles, sums.dry_run, sums.written, sums.ended_early) == (4, 1, 0, 0)
    assert cycle_sums(url, 99 * HOUR_S) == CycleSums()
    assert [row.id for row in last_cycles(url, 2)] == [5, 4]


@pytest.mark.parametrize(
    ("table", "facts", "more"),
    [("cycles", CycleFacts, []), ("placements", PlacementFacts, []), ("operations", OperationFacts, ["begun_s"])],
)
def test_facts__are_the_columns_of_their_table(table, facts, more):
    """A column that is added to the table is added to what queries return."""
    columns = list(getattr(schema, table).c.keys())
    assert [field.name for field in fields(facts)] == columns + more


def test_lived__without_a_ledger_raises(tmp_path):
    """Nothing is made."""
    with pytest.raises(LedgerError):
        runs_since(f"sqlite:///{tmp_path}/nosuch.db", 0.0)
    assert list(tmp_path.iterdir()) == []


def test_placement_quality__is_by_gpus_and_whether_pinned():
    """A placement with a note missed the best; groups ascend by GPUs, those that were not pinned first."""
    row = PlacementFacts(1, 1, 0.0, 0.0, "n1", 8, None, None, 1.0, True, "")
    two = replace(row, gpus=2, pinned=False)
    rows = [row, replace(two, ratio=0.5, note="n2"), two]
    assert placement_quality(rows) == [
        PlacementQuality(2, False, jobs=2, best_share=0.5, mean_ratio=0.75, worst_ratio=0.5),
        PlacementQuality(8, True, jobs=1, best_share=1.0, mean_ratio=1.0, worst_ratio=1.0),
    ]


def test_operation_totals__keep_dry_runs_apart():
    """Only the operations of dry-runs count, or only the others."""
    row = OperationFacts(1, 0.0, "1-1", "preempt", 1, 0.0, "ann", 4, "n1", "closed", "", 1, 3.0, 1.0, False, 0.0)
    rows = [row, replace(row, purpose="reserve", lost_gpu_s=0.0), replace(row, dry_run=True)]
    assert operation_totals(rows, False) == OperationTotals(1, 1, lost_gpu_s=3.0, idle_gpu_s=2.0)
    assert operation_totals(rows, True) == OperationTotals(1, 0, lost_gpu_s=3.0, idle_gpu_s=1.0)
