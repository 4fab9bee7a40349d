from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import orjson
import pytest

from slurmsched.model.gpu_use import GpuJob, JobGpuUse, MeasuredUse
from slurmsched.observe.report.report_figures import periods, report_figures, utilisation
from slurmsched.observe.report.report_input import ReportInput, combined_jobs, reported_jobs, reported_of_snapshot
from slurmsched.observe.report.report_page import text_sheets
from slurmsched.testing import snapshot
from tests.unit.observe.report.report_samples import DAY_S, SINCE_S, material

HOUR_S = 3_600.0


def small(rows, **more) -> ReportInput:
    return ReportInput(0.0, 10 * HOUR_S, reported_jobs(rows), snapshot=snapshot((), "1x8"), **more)


def row(job_id, start_h, end_h, gpus=1, submit_h=0.0, **more):
    return {"job_id": job_id, "gpus": gpus, "submit_s": submit_h * HOUR_S, "start_s": start_h * HOUR_S,
            "held_s": start_h * HOUR_S, "end_s": end_h * HOUR_S,
            "executed_s": (end_h - start_h) * HOUR_S, **more}  # fmt: skip


def test_figures__are_plain_values():
    """JSON takes them as they are."""
    assert orjson.loads(orjson.dumps(report_figures(material())))["cluster"] == "lab"


def test_waits__by_size_and_of_all():
    """Of jobs whose first start is in the span: 2 h and 4 h of one GPU, none of others but one of 8."""
    rows = [row(1, 2, 3), row(2, 4, 5), row(3, 6, 7, gpus=8), row(4, -1, 5, submit_h=-2)]
    waits = report_figures(small(rows))["waits"]
    assert waits["1"] == {"jobs": 2, "mean_s": 3 * HOUR_S, "p50_s": 3 * HOUR_S, "p90_s": pytest.approx(3.8 * HOUR_S),
                          "longest_s": 4 * HOUR_S}  # fmt: skip
    assert (waits["2-4"], waits["5-8"]["jobs"], waits["all"]["jobs"]) == (None, 1, 3)


def test_waiting__so_far_of_those_that_wait_for_gpus():
    """From the first submission, or from the requeue of a job that ran; each task of an array; none that is held,
    depends on others, is to begin later, or that Slurm keeps for a limit."""
    late = {"job_id": 1, "gpus": 8, "submit_s": 9 * HOUR_S, "first_submit_s": HOUR_S}
    tasks = {"job_id": 2, "gpus": 1, "submit_s": 8 * HOUR_S, "array_tasks": 3}
    others = [{"priority": 0}, {"dependency": "afterok:1"}, {"eligible_s": 11 * HOUR_S}, {"state": "R"}, {"gpus": 0},
              {"reason": "QOSMaxJobsPerUserLimit", "array_tasks": 100_000}]  # fmt: skip
    again = {"job_id": 99, "gpus": 2, "submit_s": 9.5 * HOUR_S, "first_submit_s": HOUR_S, "restarts": 1}
    rows = [
        late,
        tasks,
        again,
        *({"job_id": 3 + at, "gpus": 1, "submit_s": 0.0, **one} for at, one in enumerate(others)),
    ]
    found = report_figures(replace(small([]), snapshot=snapshot(rows, "1x8", now_s=10 * HOUR_S)))["waiting"]
    assert (found["5-8"]["longest_s"], found["1"]["jobs"], found["1"]["mean_s"]) == (9 * HOUR_S, 3, 2 * HOUR_S)
    assert (found["all"]["jobs"], found["all"]["p50_s"], found["2-4"]["longest_s"]) == (5, 2 * HOUR_S, HOUR_S / 2)
    assert report_figures(replace(small([]), snapshot=None))["waiting"] is None


def test_utilisation__counts_what_is_within_the_span():
    """8 GPUs for 10 h; one job of 4 from before the span to its middle, one of 8 that still runs, begun 1 h ago."""
    rows = [row(1, -5, 5, gpus=4), row(2, 9, np.nan, gpus=8)]
    assert utilisation(small(rows), 0.0, 10 * HOUR_S) == pytest.approx((4 * 5 + 8 * 1) / 80)
    assert utilisation(replace(small(rows), snapshot=None), 0.0, 1.0) is None


def test_tenants__have_shares_and_waits_before_and_after():
    """Most GPU time first; the two spans are told apart by the first start."""
    rows = [
        row(1, 1, 2, account="a", gpus=2),
        row(2, 8, 9, account="a", submit_h=7),
        row(3, 8, 9, account="b", submit_h=2),
    ]
    found = report_figures(small(rows, switched_s=5 * HOUR_S))["accounts"]
    assert [(one["name"], one["jobs"], one["gpu_hours"], one["share"]) for one in found] == [
        ("a", 2, 3.0, 0.75),
        ("b", 1, 1.0, 0.25),
    ]
    assert [(one["before_s"], one["after_s"]) for one in found] == [(HOUR_S, HOUR_S), (None, 6 * HOUR_S)]


def test_periods__are_before_and_with_it_days_or_weeks():
    """They cover the span without a gap."""
    split = periods(material())
    assert [name for name, *_ in split] == ["before", "with slurmsched"]
    days = periods(material(switched_s=np.nan))
    weeks = periods(replace(material(switched_s=np.nan), since_s=SINCE_S - 20 * DAY_S))
    assert (len(days), len(weeks)) == (10, 5)
    for made in (split, days, weeks):
        assert all(a[2] == b[1] for a, b in pairwise(made))
        assert made[-1][2] == material().until_s
    assert (days[0][1], weeks[0][1]) == (SINCE_S, SINCE_S - 20 * DAY_S)


def test_periods__sum_up_to_the_whole():
    """Jobs and GPU time of the periods are those of the report."""
    made = report_figures(material(switched_s=np.nan))
    assert sum(one["jobs"] for one in made["periods"]) == made["started"]
    held = sum(one["utilisation"] for one in made["periods"]) / len(made["periods"])
    assert held == pytest.approx(made["utilisation"])


def test_fairness__is_one_where_all_are_slowed_alike():
    """Two users, each with the same job and wait; None where there is one user only."""
    rows = [row(job, 1, 2, gpus=4, user=user, account="x") for job, user in ((1, "a"), (2, "b"))]
    fair = report_figures(small(rows))["fairness"]
    assert (fair["of"], fair["jobs"], fair["jain_slowdown"]) == ("user", 2, pytest.approx(1.0))
    assert fair["mean_rho"] == pytest.approx(2.0)  # 2 h in place of 1 h on half of the GPUs
    assert report_figures(small(rows[:1]))["fairness"] is None


def test_cluster__tells_stranded_gpus_with_cause_and_owner():
    """Six free GPUs beside a job that holds all CPUs."""
    made = report_figures(material())
    assert [(one["node"], one["gpus"], one["cause"]) for one in made["stranded"]] == [("n2", 6, "CPUs")]
    assert made["stranded"][0]["holders"][0]["user"] == "<i>mallory"
    assert (made["types"][0]["free"], made["types"][0]["stranded"]) == (126, 6)


def test_operations__are_summed_dry_runs_apart():
    """GPU seconds lost and idle."""
    operations = report_figures(material())["operations"]
    assert operations["done"] == {
        "preemptions": 1,
        "gang_reservations": 1,
        "lost_gpu_s": 9_000.0,
        "idle_gpu_s": 12_600.0,
    }
    assert operations["would_have"] == {
        "preemptions": 1,
        "gang_reservations": 0,
        "lost_gpu_s": 25_200.0,
        "idle_gpu_s": 0.0,
    }
    assert [one["operation"] for one in operations["rows"]] == ["9-1", "7-1"]


def test_placement__is_by_size_and_names_what_missed_most():
    """Every fourth got half of the best."""
    placed = report_figures(material())["placement"]
    assert [(one["gpus"], one["jobs"], one["missed"]) for one in placed["sizes"]] == [("2-4", 13, 3), ("5-8", 7, 2)]
    assert len(placed["missed"]) == 5


def test_nothing_on_record__gives_no_figures_and_no_error():
    """An empty ledger and no Slurm."""
    made = report_figures(ReportInput(0.0, 1.0, reported_jobs(()), unread=("x",)))
    assert (made["started"], made["utilisation"], made["fairness"], made["unread"]) == (0, None, None, ["x"])


def test_lived__of_a_snapshot_are_those_that_hold_gpus():
    """A requeued one has no first start on record; a job that history has is not counted twice; a part of a GPU counts
    as that part."""
    rows = [{"job_id": 1, "state": "RUNNING", "start_s": 50.0},
            {"job_id": 2, "state": "RUNNING", "start_s": 60.0, "restarts": 1},
            {"job_id": 3}, {"job_id": 4, "state": "COMPLETED", "start_s": 1.0},
            {"job_id": 5, "state": "RUNNING", "start_s": 50.0, "gpus": 0, "shared_milli": 250}]  # fmt: skip
    here = reported_of_snapshot(snapshot(rows))
    assert (here.job_id.tolist(), here.held_s.tolist(), np.isnan(here.start_s).tolist()) == (
        [1, 2, 5],
        [50.0, 60.0, 50.0],
        [False, True, False],
    )
    assert here.gpu_s_in(0.0, 70.0).tolist() == [20.0, 10.0, 5.0]
    joined = combined_jobs(reported_jobs([row(1, 1, 2, user="zoe")]), here)
    assert (joined.job_id.tolist(), list(joined.user)) == ([1, 2, 5], ["zoe", "", ""])


def test_gpu_use__is_shown_by_account_user_and_type():
    """Most unused GPU hours first, in figures and in the tables of a terminal; nothing where it is not measured."""
    jobs = [
        GpuJob(1, "ann", "physics", "gpu", "", "a", 4, "a100", HOUR_S),
        GpuJob(2, "bob", "physics", "gpu", "", "b", 1, "h100", HOUR_S),
        GpuJob(3, "bob", "x", "gpu", "", "c", 1, "", 9.0),
    ]
    use = MeasuredUse({1: JobGpuUse(1, 4, 3, 0.25), 2: JobGpuUse(2, 1, 0, 1.0)}, "a file")
    made = report_figures(small([row(1, 0, 1)], gpu_jobs=jobs, gpu_use=use))
    found = made["gpu_use"]
    assert (found["source"], found["jobs"], found["measured"]) == ("a file", 3, 2)
    assert [(one["user"], one["gpu_h"], one["unused_gpu_h"]) for one in found["users"]] == [
        ("ann", 4, 3),
        ("bob", 1, 0),
    ]
    assert found["accounts"][0] | {"use": 0.4} == {"account": "physics", "jobs": 2, "gpus": 5, "gpu_h": 5.0, "use": 0.4,
                                                   "unused_gpu_h": 3.0}  # fmt: skip
    sheet = text_sheets(made)[-1]
    assert (sheet.caption, [cell.text for cell in sheet.rows[0].cells]) == ("Use of GPUs by type, measured",
                                                                            ["1", "4.0", "25.0", "3.0"])  # fmt: skip
    assert report_figures(small([row(1, 0, 1)]))["gpu_use"] is None
