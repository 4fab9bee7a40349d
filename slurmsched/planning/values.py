"""The value of its lever that each job needs for the order: changed where the order asks for it, else as it is."""

from __future__ import annotations

import numpy as np

from slurmsched.config import Lever
from slurmsched.errors import ConfigError
from slurmsched.model import Jobs, Ranking, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.planning import managed
from slurmsched.planning.groups import competing
from slurmsched.planning.levers import LIMIT, AnyLever
from slurmsched.planning.spacing import spaced
from slurmsched.words import some

_LEAST_GAP = 1000  # priority points: room for ten insertions by halving between two neighbours


def lever_values(snapshot: Snapshot, ranking: Ranking, ours: Bools, lever: AnyLever, limits: Lever) -> Int64s:
    """The lever value of every row: new where the order asks for it, else as it is. (N,) int64."""
    jobs, boost = snapshot.jobs, lever.boost(snapshot.jobs).copy()
    order = ranking.order[ours[ranking.order]]
    factors = np.rint(lever.factors(jobs)).astype(np.int64)
    tie = np.empty(len(jobs), np.int64)
    tie[np.lexsort((jobs.job_id, jobs.submit_s))] = np.arange(len(jobs))
    group, own = competing(snapshot)[order], lever.others(jobs)
    for number in np.unique(group):
        rows = order[group == number]
        height = np.maximum((factors + boost)[rows], 1)  # Slurm never goes below 1
        low = not (own[rows] > 0).any()  # Slurm's least priority is 1: down there nobody's own nice would count
        made, kept = spaced(height, tie[rows], low=low, **_band(snapshot, factors[rows], limits))
        boost[rows[~kept]] = (made - factors[rows])[~kept]
    return _with_followers(jobs, ours, lever.value(jobs, boost), lever.now(jobs))


def _band(snapshot: Snapshot, factors: Int64s, lever: Lever) -> dict[str, int]:
    """Distances and bounds for the jobs of these factors, wide enough that ageing and fair share seldom reorder.

    Raises ConfigError if the band is too narrow for the jobs.
    """
    weights = int(snapshot.site.priority_weights)
    if lever.ceiling - lever.floor < len(factors):
        raise ConfigError(
            f"{lever.ceiling} leaves no room for {some(len(factors), 'job')} above lever.floor = {lever.floor}",
            key="lever.ceiling",
        )
    room = (lever.ceiling - lever.floor) // (2 * len(factors))
    gap = max(1, min(lever.gap or max(_LEAST_GAP, weights // 5), room))
    bounds = {"floor": lever.floor, "ceiling": lever.ceiling, "start": int(factors.max())}
    return {"gap": gap, "margin": gap // 8 if weights else 0, **bounds}


def due(jobs: Jobs, wanted: Int64s, now: Int64s) -> Bools:
    """Rows to write: changed ones without the array tasks that the write of their array gives what they are to have.

    A task that is to have another value than its array is written behind it, whether or not it has it: the write of
    the array takes it away. wanted, now: (N,) lever values. (N,) bool.
    """
    rows, leader = _followers(jobs)
    first: Bools = wanted != now
    first[rows] = np.where(first[leader], wanted[rows] != wanted[leader], first[rows])
    return first


def behind_arrays(jobs: Jobs, order: Int64s, places: Int64s) -> Int64s:
    """These places of an order of rows, with each array task behind its array."""
    place = np.empty(len(jobs), np.int64)
    place[order] = np.arange(len(order))
    rows, leader = _followers(jobs)
    behind, follows = place.copy(), np.zeros(len(jobs), np.bool_)
    behind[rows], follows[rows] = np.maximum(place[rows], place[leader]), True
    written = order[places]
    made: Int64s = places[np.lexsort((follows[written], behind[written]))]
    return made


def _followers(jobs: Jobs) -> tuple[Int64s, Int64s]:
    """Rows of pending tasks that follow their array, and the row of the array of each."""
    rows = np.flatnonzero(managed.follows_array(jobs) & jobs.pending)
    return rows, np.searchsorted(jobs.job_id, jobs.array_job_id[rows])


def _with_followers(jobs: Jobs, ours: Bools, wanted: Int64s, now: Int64s) -> Int64s:
    """Array tasks follow their array: Slurm writes them together. One with a nice of its own is as much behind or
    ahead of the others as its user wants; one that was changed lately keeps what it has. (N,) int64."""
    rows, leader = _followers(jobs)
    rows, leader = rows[ours[leader]], leader[ours[leader]]
    own = np.clip(wanted[leader] + jobs.base_nice[rows] - jobs.base_nice[leader], -LIMIT, LIMIT)
    wanted[rows] = np.where(jobs.backoff[rows], now[rows], own)
    return wanted
