from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmsched.config_file import parse_config
from slurmsched.model import Operation, OperationStage, Outcome, Plan, Purpose, Receipt, Requeue, SetNice, Victim
from slurmsched.model.gpu_selection import PlacedJob
from slurmsched.observe.metric_catalog import METRICS, SIZES, MetricCounters, all_samples, size_class_of
from slurmsched.observe.prometheus import CycleMetrics, ProcessState, read_textfile, scraped, write_textfile
from slurmsched.planning.planner import Planner
from slurmsched.testing import mixed_snapshot, snapshot

CONFIG = parse_config({"scope": {"partitions": ["*"]}, "policy": {"name": "discretized-las"}})  # a policy with queues
HOUR = 3_600.0
APPLY = ProcessState(apply=True)


def values(meters: CycleMetrics, standing: ProcessState = APPLY) -> dict[tuple[str, ...], float]:
    """Every sample: name and label values in the order of the label names -> value."""
    text = scraped(meters.families(standing), "")[0].decode()
    return {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(text) for one in family.samples
    }  # fmt: skip


@pytest.fixture
def meters() -> CycleMetrics:
    return CycleMetrics(CONFIG, clock=lambda: 5_000.0)


def test_families__export_what_the_catalogue_lists_after_a_cycle(meters):
    """Every metric, and no name beside them; every series of a closed set is there from the start."""
    look = mixed_snapshot(60, seed=3)
    meters.done(look, Planner.from_config(CONFIG).plan(look), Receipt(dry_run=True))
    found = values(meters)
    created = {name for name, *_ in found}
    assert created == set(all_samples())
    series = {metric.full_name: math.prod(map(len, metric.labels.values())) for metric in METRICS}
    assert sum(name == "slurmsched_writes_total" for name, *_ in found) == series["slurmsched_writes_total"]


def test_families__before_a_cycle_tell_of_no_snapshot(meters):
    """Nothing is made up: gauges of a snapshot are absent, sums are 0."""
    found = values(meters)
    assert ("slurmsched_snapshot_timestamp_seconds",) not in found
    assert found["slurmsched_cycles_total", "done"] == 0
    assert found["slurmsched_build_info", "nice", "discretized-las", "0.1.0"] == 1


def test_done__counts_writes_by_kind_and_what_became_of_them(meters):
    """A job that changed meanwhile is no refusal of Slurm's."""
    nice = SetNice(1, 0.0, "")
    said = [("written", ""), ("refused", "changed since the snapshot: it is RUNNING"), ("refused", "Access denied"),
            ("unknown", "timeout")]  # fmt: skip
    outcomes = tuple(Outcome(nice, status, text) for status, text in said)
    meters.done(snapshot(), Plan(), Receipt(outcomes, 4, stopped="no answer", exit_code=3))
    found = values(meters)
    assert [
        found["slurmsched_writes_total", "nice", name] for name in ("written", "changed", "refused", "unknown")
    ] == [1] * 4
    assert found["slurmsched_early_ends_total", "slurm"] == 1


def test_done__counts_the_wait_of_each_first_start_once(meters):
    """Not jobs that ran before the first look, nor requeued ones, nor those cancelled in the queue; by size."""
    old = {"job_id": 1, "state": "RUNNING", "start_s": 50.0, "gpus": 1}
    fresh = {"job_id": 2, "state": "RUNNING", "submit_s": 100.0, "start_s": 100 + 2 * HOUR, "gpus": 4}
    over = {"job_id": 3, "state": "COMPLETED", "submit_s": 0.0, "start_s": 30.0, "run_s": 5.0, "gpus": 16}
    again = {"job_id": 4, "state": "RUNNING", "start_s": 9_000.0, "restarts": 1}
    cancelled = {"job_id": 5, "state": "CANCELLED", "start_s": 9_000.0}
    meters.done(snapshot([old], now_s=100.0), Plan(), Receipt())
    for _ in range(2):
        meters.done(snapshot([old, fresh, over, again, cancelled], now_s=10_000.0), Plan(), Receipt())
    found = values(meters)
    assert [found["slurmsched_first_wait_seconds_count", size] for size in SIZES] == [0, 1, 0, 1]
    assert found["slurmsched_first_wait_seconds_sum", "2-4"] == 2 * HOUR
    below = {key[2]: value for key, value in found.items() if key[:1] == ("slurmsched_first_wait_seconds_bucket",)
             and key[1] == "2-4"}  # fmt: skip
    assert (below["3600.0"], below["14400.0"], below["+Inf"]) == (0, 1, 1)


def test_done__counts_operations_what_they_cost_and_how_they_stand(meters):
    """Begun, moved on, given up; GPU seconds held idle since the operation as the snapshot had it."""
    operation = Operation(
        "7-1", Purpose.PREEMPT, 7, 0.0, "ann", "n1", 60.0, 0.0, (Victim(8, 0.0, 0, 8, lost_gpu_s=500.0),)
    )
    rows = [{"job_id": job} for job in (7, 8)]
    requeued = Receipt((Outcome(Requeue(8, 0.0, "", "7-1"), "written"),), 1)
    meters.done(snapshot(rows), Plan(operations=(_at(operation, OperationStage.REQUEUED, 0.0),)), requeued)
    meters.done(
        snapshot(rows, operations=(_at(operation, OperationStage.REQUEUED, 40.0),)),
        Plan(operations=(_at(operation, OperationStage.REVERSING, 100.0),)),
        Receipt(),
    )
    found = values(meters)
    assert found["slurmsched_operations_begun_total", "preempt"] == 1
    assert found["slurmsched_operations_given_up_total", "preempt"] == 1
    assert found["slurmsched_lost_gpu_seconds_total",] == 500
    assert found["slurmsched_idle_gpu_seconds_total", "preempt"] == 60
    assert found["slurmsched_open_operations", "preempt", "reversing"] == 1


def test_done__a_dry_run_begins_nothing(meters):
    """Every cycle of it would begin the same operation anew."""
    operation = Operation("7-1", Purpose.RESERVE, 7, 0.0, "ann", "n1", 60.0, 0.0)
    meters.done(snapshot(), Plan(operations=(operation,)), Receipt(dry_run=True))
    assert values(meters)["slurmsched_operations_begun_total", "reserve"] == 0


def test_done__counts_placements(meters):
    """The ratio into its bucket, what was missed besides."""
    got = [
        PlacedJob(1, 0.0, 0.0, "n1", 2, 50.0, 100.0, 0.5, False, "n2 had 2 linked"),
        PlacedJob(2, 0.0, 0.0, "n1", 2, 9, 9, 1.0, True),
    ]
    meters.done(snapshot(placed=tuple(got)), Plan(), Receipt())
    found = values(meters)
    assert found["slurmsched_placement_quality_ratio_sum",] == 1.5
    assert found["slurmsched_placement_quality_ratio_bucket", "0.5"] == 1
    assert found["slurmsched_missed_placements_total",] == 1


def test_gauges__are_of_the_last_snapshot(meters):
    """Queues of the policy, longest waits, stranded GPUs with the cause."""
    rows = [{"job_id": 1, "gpus": 8, "waiting_s": 60.0},
            {"job_id": 2, "gpus": 8, "waiting_s": 90.0, "attained_gpu_s": 1e9},
            {"job_id": 3, "state": "RUNNING", "gpus": 2, "node_list": "n1", "cpus": 64}]  # fmt: skip
    nodes = [{"name": "n1", "gpus": 8, "gpus_used": 2, "cpus": 64, "cpus_used": 64, "gpu_types": "gpu:a100:8"}]
    look = snapshot(rows, nodes, now_s=1_000.0)
    meters.done(look, Planner.from_config(CONFIG).plan(look), Receipt())
    found = values(meters)
    assert [found["slurmsched_managed_jobs", queue] for queue in ("0", "1", "2", "none")] == [1, 0, 1, 0]
    assert found["slurmsched_longest_wait_seconds", "5-8"] == 90
    assert found["slurmsched_stranded_gpus", "cpus"] == 6
    assert found["slurmsched_snapshot_timestamp_seconds",] == 1_000
    assert found["slurmsched_cycle_timestamp_seconds",] == 5_000


def test_ended__failures_in_a_row_end_with_a_success(meters):
    """And each way has its counter."""
    for outcome in ("failed", "failed", "standby", "failed"):
        meters.ended(outcome)
    assert values(meters)["slurmsched_failed_cycles_in_a_row",] == 1
    meters.done(snapshot(), Plan(), Receipt())
    found = values(meters)
    assert found["slurmsched_failed_cycles_in_a_row",] == 0
    assert [found["slurmsched_cycles_total", name] for name in ("done", "failed", "standby")] == [1, 3, 1]


def test_metrics__show_mode_lease_and_stop_file(meters):
    """Mode, lease and stop file."""
    found = values(meters, ProcessState(apply=True, leads=False, paused=True))
    assert [found[f"slurmsched_{name}",] for name in ("apply", "leader", "paused")] == [1, 0, 1]


def test_textfile__is_taken_up_again(tmp_path, meters):
    """Sums go on, and starts are counted from the snapshot of the file on: a tick is a process of its own."""
    path = tmp_path / "slurmsched.prom"
    meters.stage("read", 0.3)
    meters.done(snapshot(now_s=1_000.0), Plan(), Receipt())
    write_textfile(path, meters.families(ProcessState(apply=True)))
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["slurmsched.prom"]
    later = CycleMetrics(CONFIG)
    later.restore(read_textfile(path))
    rows = [{"job_id": 1, "state": "RUNNING", "start_s": 900.0}, {"job_id": 2, "state": "RUNNING", "start_s": 1_030.0}]
    later.stage("read", 0.3)
    later.done(snapshot(rows, now_s=1_060.0), Plan(), Receipt())
    found = values(later)
    assert found["slurmsched_cycles_total", "done"] == 2
    assert found["slurmsched_first_wait_seconds_count", "1"] == 1
    assert found["slurmsched_cycle_stage_seconds_sum", "read"] == pytest.approx(0.6)
    assert found["slurmsched_cycle_stage_seconds_count", "read"] == 2


@pytest.mark.parametrize("text", [None, "", "no metrics here {", 'slurmsched_cycles_total{outcome="done"} x\n'])
def test_textfile__that_cannot_be_read_begins_anew(tmp_path, text):
    """Not there, empty or broken: the sums are 0."""
    path = tmp_path / "old.prom"
    if text is not None:
        path.write_text(text)
    meters = CycleMetrics(CONFIG)
    meters.restore(read_textfile(path))
    assert values(meters)["slurmsched_cycles_total", "done"] == 0


def test_scraped__speaks_both_formats(meters):
    """OpenMetrics where it is asked for; else the text that every scraper knows."""
    plain, plain_type = scraped(meters.families(ProcessState(apply=False)), "*/*")
    opened, open_type = scraped(
        meters.families(ProcessState(apply=False)), "application/openmetrics-text; version=1.0.0"
    )
    assert plain_type.startswith("text/plain")
    assert open_type.startswith("application/openmetrics-text")
    assert opened.endswith(b"# EOF\n")
    assert not plain.endswith(b"# EOF\n")


def test_tally__refuses_what_the_catalogue_does_not_have():
    """A label value that nobody foresaw is a fault of ours, not a new series."""
    with pytest.raises(KeyError):
        MetricCounters().add("cycles_total", "strange")


def test_size_of__has_the_classes_of_every_table():
    """1, 2-4, 5-8, more."""
    assert [size_class_of(gpus) for gpus in (1, 2, 4, 5, 8, 9, 512)] == ["1", "2-4", "2-4", "5-8", "5-8", ">8", ">8"]


def _at(operation: Operation, stage: OperationStage, idle_gpu_s: float) -> Operation:
    from dataclasses import replace

    return replace(operation, stage=stage, idle_gpu_s=idle_gpu_s)
