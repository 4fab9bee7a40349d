"""What a comparison says, in sentences: the best policies, who loses by them, equal policies, how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from slurmsched.plain_text import pluralize
from slurmsched.sim.experiments.comparison import (
    FAIRNESS_MEASURES,
    TIME_MEASURES,
    WAIT_MEASURES,
    ComparisonMeasure,
    PolicyComparison,
    same_schedule,
    unit_of_runs,
)

# What is said of each policy, and by which figure it is best.
_JUDGED = (
    ("Shortest mean wait", TIME_MEASURES[4]),
    ("Shortest p95 of the completion time", TIME_MEASURES[2]),
    ("Most even slowdowns (Jain's index)", FAIRNESS_MEASURES[0]),
)
WORSE = 1.05  # a size class waits longer if its mean wait is over this many times the first policy's; so for p99


def conclusions(each: PolicyComparison) -> list[str]:
    """Sentences, the most important first. None where no job ended or only one policy was replayed."""
    if len(each.runs) < 2 or not all(run["jobs"] for run in each.runs):
        return []
    return [*_best_lines(each), *_losers(each), *_equals(each), *_trust(each)]


def _best_lines(each: PolicyComparison) -> Iterator[str]:
    unit = unit_of_runs(each.runs)
    for what, measure in _JUDGED:
        names, known = measure.best(each.runs, unit), [run for run in each.runs if measure.value(run) is not None]
        if names:
            best = [run for run in known if run["policy"] in names]
            beside = "; ".join(_compared_lines(measure, each, names))
            winners = " and ".join(run["policy"] for run in best)
            yield f"{what}: {winners} with {_measured_text(measure, best[0], each)} ({beside})."
        elif known:
            yield f"{what}: all policies alike, {_measured_text(measure, known[0], each)}."


def _compared_lines(measure: ComparisonMeasure, each: PolicyComparison, best: frozenset[str]) -> Iterator[str]:
    """The runner-up, and the first policy unless it is one of the best."""
    rest = [run for run in each.runs if run["policy"] not in best and measure.value(run) is not None]
    ranked = sorted(rest, key=lambda run: -measure.better * (measure.value(run) or 0.0))
    for run in ranked[:1]:
        yield f"next {run['policy']} {_measured_text(measure, run, each)}"
    if each.runs[0] in ranked[1:]:
        yield f"{each.runs[0]['policy']} {_measured_text(measure, each.runs[0], each)}"


def _measured_text(measure: ComparisonMeasure, run: Mapping[str, Any], each: PolicyComparison) -> str:
    unit = unit_of_runs(each.runs)
    return measure.text(run, unit) + ("" if measure.form else f" {unit.name}")


def _losers(each: PolicyComparison) -> Iterator[str]:
    """Who waits longer than under the first policy, by the policies with the shortest mean wait."""
    first, wait = each.runs[0], TIME_MEASURES[4]
    names = wait.best(each.runs, unit_of_runs(each.runs))
    if first["policy"] in names:
        yield f"No policy has a shorter mean wait than {first['policy']}, the first one."
        return
    for run in (run for run in each.runs if run["policy"] in names):
        if each.tenants.names:
            yield _tenants_that_lose(each, run)
        yield from _sizes_that_lose(each, run)
        yield from _slowest_jobs(each, run)
        if run["preemptions"]:
            yield f"{run['policy']} makes {pluralize(run['preemptions'], 'preemption')}."


def _sizes_that_lose(each: PolicyComparison, run: Mapping[str, Any]) -> Iterator[str]:
    first = each.runs[0]
    for measure in WAIT_MEASURES:
        ours, theirs = measure.value(run), measure.value(first)
        if ours is not None and theirs is not None and ours > max(theirs, 1.0) * WORSE:
            yield (f"Jobs of {measure.path[1]} GPU{'' if measure.path[1] == '1' else 's'} wait longer under "
                   f"{run['policy']} than under {first['policy']}: {_measured_text(measure, run, each)}, not "
                   f"{_measured_text(measure, first, each)}.")  # fmt: skip


def _slowest_jobs(each: PolicyComparison, run: Mapping[str, Any]) -> Iterator[str]:
    measure, first = TIME_MEASURES[3], each.runs[0]
    if (measure.value(run) or 0.0) > (measure.value(first) or 0.0) * WORSE:
        ours, theirs = (_measured_text(measure, one, each) for one in (run, first))
        yield (f"The slowest 1 % of the jobs take longer under {run['policy']} than under {first['policy']}: p99 of "
               f"the completion time {ours}, not {theirs}.")  # fmt: skip


def _tenants_that_lose(each: PolicyComparison, run: Mapping[str, Any]) -> str:
    unit, first, of = unit_of_runs(each.runs), each.runs[0]["policy"], each.tenants.of
    all_of_them = pluralize(len(each.tenants.names), of)
    if not run["losing"]:
        return f"Under {run['policy']} none of {all_of_them} waits longer than under {first}."
    worst = run["lose"][0]
    longer = "waits" if run["losing"] == 1 else "wait"
    return (f"Under {run['policy']} {run['losing']} of {all_of_them} {longer} longer than under {first}; most "
            f"{worst['tenant']}, by {unit.text(worst['change_s'])} {unit.name}.")  # fmt: skip


def _equals(each: PolicyComparison) -> Iterator[str]:
    """Policies under which every job starts and ends alike."""
    for run in each.runs[1:]:
        if run["as_first"]:
            yield f"{run['policy']} equals {each.runs[0]['policy']}: {run['as_first']}."
    for a, b in combinations(
        [played for played, run in zip(each.played, each.runs, strict=True) if not run["as_first"]][1:], 2
    ):
        if same_schedule(a, b):
            yield f"{b.title} equals {a.title}: every job starts and ends alike."


def _trust(each: PolicyComparison) -> Iterator[str]:
    if each.back_test is not None:
        yield f"How far to trust this: {each.back_test.verdict}"
    if not all(played.complete for played in each.played):
        yield "The comparison was interrupted, so these are no final figures."
