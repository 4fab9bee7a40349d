"""Jobs whose batch size changes while they run: how long the rest takes, by a belief about the sizes still to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.estimators.throughput_table import job_kind, throughput, throughput_table
from slurmsched.model import Snapshot
from slurmsched.model.columns import Floats
from slurmsched.model.hints import Hints, parse_hints
from slurmsched.policies.order import arrival_s

KEY = "regimes"  # in a carry
Seen = dict[str, float]  # batch size, as text -> share of the job done with it


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """By row of jobs, (N,). done: share of the job, 0 to 1. left_s: expected run time still to come [s], at least 1.

    made_s: run time of what is done. pace_s: run time of the whole job at the mean pace so far. carry: what was seen.
    """

    done: Floats
    left_s: Floats
    made_s: Floats
    pace_s: Floats
    carry: Mapping[str, Any]


def rest(snapshot: Snapshot, whole_s: Floats, table: str, reference: str) -> Rest:
    """What is left of each job. whole_s: (N,) run time of the whole job at its present batch size [s].

    Of K batch sizes that a job may have (hint `batches`) each is believed to take 1 / K of it, with the weight of one
    whole job; the share done with each is observed beside that. table, reference: throughputs and their GPU type, ""
    = all batch sizes are equally fast. A job without the hint keeps its batch size; one without `progress` has done
    the share of its run time that it ran.
    Source: Zheng et al. (Shockwave), NSDI '23, for the Dirichlet posterior over regimes, as in its released code.
    """
    jobs, known = snapshot.jobs, _known(snapshot)
    columns = np.zeros((4, len(jobs)))
    kept: list[Seen] = []
    for row in range(len(jobs)):
        hints, gpus = parse_hints(jobs.comment[row]), int(jobs.gpus[row])
        done = hints.progress
        if done is None:
            done = min(float(jobs.executed_s[row] / whole_s[row]), 1.0) if whole_s[row] > 0 else 0.0
        seen = _observed(known.get(_key(snapshot, row), {}), str(hints.batch or 0), done)
        whole_by = _durations(hints, gpus, float(whole_s[row]), table, reference)
        columns[:, row] = done, *_expected(seen, whole_by, done)
        kept.append(seen)
    share, left_s, made_s, pace_s = columns
    return Rest(share, left_s, made_s, pace_s, _carry(snapshot, kept))


def _expected(seen: Seen, whole_by: dict[str, float], done: float) -> tuple[float, float, float]:
    """Run time still to come, run time made, and of the whole job at the pace so far [s].

    whole_by: batch size -> run time of the whole job with it.
    """
    share = np.array([seen.get(batch, 0.0) for batch in whole_by])
    whole_s = np.array(list(whole_by.values()))
    belief = (1.0 / len(whole_s) + share) / (1.0 + share.sum())
    to_come = np.maximum(belief - share, 0.0)
    to_come = to_come / to_come.sum() if to_come.sum() > 0 else np.full(len(share), 1.0 / len(share))
    made_s = float((share * whole_s).sum())
    pace_s = made_s / done if done > 0 and made_s > 0 else float(whole_s[0])
    return max((1.0 - done) * float((to_come * whole_s).sum()), 1.0), made_s, max(pace_s, 1.0)


def _observed(before: Seen, batch: str, done: float) -> Seen:
    """The shares done by batch size, what came since the last look being the present one's."""
    new = done - sum(before.values())
    return before if new <= 0 else {**before, batch: before.get(batch, 0.0) + new}


def _durations(hints: Hints, gpus: int, whole_s: float, table: str, reference: str) -> dict[str, float]:
    """Batch size -> run time of the whole job with it [s], the present one first."""
    now = hints.batch or 0
    sizes = [now, *(each for each in hints.batches or () if each != now)]
    rates = {each: _samples_per_s(hints.model or "", each, gpus, table, reference) for each in sizes}
    return {str(each): whole_s * rates[now] / rate for each, rate in rates.items() if rate > 0} or {str(now): whole_s}


def _samples_per_s(model: str, batch: int, gpus: int, table: str, reference: str) -> float:
    if not table:
        return 1.0
    found = throughput(throughput_table(table).get(reference, {}), job_kind(model, batch), gpus)
    return found * max(batch, 1)


def _key(snapshot: Snapshot, row: int) -> str:
    return f"{snapshot.jobs.job_id[row]} {arrival_s(snapshot.jobs)[row]!r}"


def _known(snapshot: Snapshot) -> Mapping[str, Seen]:
    found = snapshot.carry.get(KEY)
    return found if isinstance(found, Mapping) else {}


def _carry(snapshot: Snapshot, kept: list[Seen]) -> dict[str, Any]:
    here = np.flatnonzero(~snapshot.jobs.finished)
    return {KEY: {_key(snapshot, row): kept[row] for row in here.tolist() if kept[row]}}
