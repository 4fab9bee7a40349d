"""From a wanted order to priorities with the fewest writes.

A job's *height* is the priority slurmsched steers: site factors plus our lever, the user's own nice left out. A higher
job starts first; among equals Slurm takes the earlier submitted, then the lower id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from slurmsched.config import LeverConfig
from slurmsched.errors import ConfigError
from slurmsched.kernels.nice_spacing import keep_with_margin, longest_non_increasing
from slurmsched.model import Jobs, Override, Ranking, Refusal, SetNice, SetSiteFactor, Snapshot
from slurmsched.model.columns import Bools, Int64s
from slurmsched.model.plan import Action
from slurmsched.model.policy_info import criteria
from slurmsched.plain_text import pluralize
from slurmsched.planning import job_scope
from slurmsched.planning.priorities.order import competing_jobs
from slurmsched.planning.priorities.priority_fields import MOST_PRIORITY, PRIORITY_FIELDS, PriorityField
from slurmsched.planning.priorities.priority_weights import slurm_weights
from slurmsched.planning.proposals import Budget, Lever, Proposal

if TYPE_CHECKING:
    from slurmsched.planning.planner import Planner


# Over 30 lines: half is signature and docstring.
def spaced(
    priority: Int64s, tie: Int64s, *, gap: int, margin: int, floor: int, ceiling: int, start: int, low: bool = True
) -> tuple[Int64s, Bools]:
    """New heights that put the jobs into the given order, and which jobs keep theirs.

    priority: (N,) int64, now, in the wanted order (most urgent first).
    tie: (N,) int64, place of each in Slurm's own order among equal priorities.
    gap: distance left to neighbours where there is room.
    margin: least distance of a written job to its neighbours; where kept ones leave less, the nearest of them are
        written too, so that factors which drift do not undo the order at once. 0: the number kept is the largest
        possible.
    floor, ceiling: bounds of what is written; where `low` allows it, a kept job may lie under the floor if all after it
        are kept.
    start: height of the lowest job when none is kept.
    Returns (N,) int64 and (N,) bool.
    Source: ours.
    Raises ValueError if ceiling - floor has no room for the jobs.
    """
    n = len(priority)
    if n == 0:
        return priority.copy(), np.zeros(0, np.bool_)
    if ceiling - floor < n:
        raise ValueError(f"no room for {pluralize(n, 'job')} between priority {floor} and {ceiling}")
    steps = descents(tie)
    level = priority + steps
    tail = low_tail(priority, level, floor) if low else n
    kept = np.zeros(n, np.bool_)
    kept[tail:] = True
    if tail:
        allowed = (level >= floor + steps[tail - 1]) & (level <= ceiling) & (priority >= floor)
        kept[:tail] = longest_non_increasing(level[:tail], allowed[:tail])
    if margin:
        kept = keep_with_margin(priority, kept, margin, floor, ceiling)
    fill = _PriorityFill(priority, steps, kept, gap, floor, ceiling, start)
    return fill.all(), kept


def descents(tie: Int64s) -> Int64s:
    """Least drop in height from the first job to each: 1 wherever Slurm's own tie order disagrees. (N,) int64."""
    steps = np.zeros(len(tie), np.int64)
    np.cumsum(tie[1:] < tie[:-1], out=steps[1:])
    return steps


def low_tail(priority: Int64s, level: Int64s, floor: int) -> int:
    """First row of the longest tail that lies under the floor and is in order already."""
    ends = np.flatnonzero((priority[:-1] >= floor) | (level[:-1] < level[1:]))
    if priority[-1] >= floor:
        return len(priority)
    return int(ends[-1]) + 1 if len(ends) else 0


class _PriorityFill:
    """Heights for the runs of rows between kept neighbours."""

    def __init__(
        self, priority: Int64s, steps: Int64s, kept: Bools, gap: int, floor: int, ceiling: int, start: int
    ) -> None:
        self.priority, self.steps, self.kept = priority, steps, kept
        self.gap, self.floor, self.ceiling, self.start = gap, floor, ceiling, start

    def all(self) -> Int64s:
        made = self.priority.copy()
        keepers = np.flatnonzero(self.kept)
        edges = np.concatenate(([-1], keepers, [len(self.priority)]))
        for edge in np.flatnonzero(np.diff(edges) > 1):
            first, last = int(edges[edge]), int(edges[edge + 1])
            made[first + 1 : last] = self._run(first, last)
        return made

    def _run(self, above: int, below: int) -> Int64s:
        """Heights of the rows between the kept rows `above` and `below` (-1 and N: open ends)."""
        count = below - above - 1
        up = np.arange(count, 0, -1, dtype=np.int64)
        low = self.floor - 1 if below == len(self.priority) else max(int(self.priority[below]), self.floor - 1)
        if above < 0:
            high = self.ceiling + 1
            wished = max(self.start, low + self.gap) + (up - 1) * self.gap
            tight = low + self.steps[min(below, len(self.steps) - 1)] - self.steps[:below]
        else:
            high = int(self.priority[above])
            wished = high - (count + 1 - up) * self.gap
            tight = high - (self.steps[above + 1 : below] - self.steps[above])
        open_end = above < 0 or below == len(self.priority)
        if open_end and wished[-1] > low and wished[0] < high:
            return wished
        return low + up * (high - low) // (count + 1) if high - low > count else tight


# Values that give the order.

_LEAST_GAP = 1000  # priority points: room for ten insertions by halving between two neighbours


@dataclass(frozen=True, slots=True)
class PriorityLever(Lever):
    """Writes the nice or site factor that puts jobs in the order of the ranking. policy: its name, for reasons."""

    policy: str
    kind: str

    @classmethod
    def of(cls, planner: Planner) -> PriorityLever:
        return cls(planner.name, planner.lever.kind)

    def propose(self, snapshot: Snapshot, ranking: Ranking, budget: Budget) -> Proposal:
        jobs, field = snapshot.jobs, PRIORITY_FIELDS[self.kind]
        writes = values_to_write(jobs, budget.values, field.now(jobs))
        places = behind_arrays(jobs, ranking.order, np.flatnonzero(writes[ranking.order]))  # most urgent first
        sent = places[: max(0, budget.writes)]
        actions = tuple(self._actions(snapshot, ranking, sent, budget.values))
        return Proposal(actions, postponed=tuple(jobs.job_id[ranking.order[places[len(sent) :]]].tolist()))

    def _actions(
        self, snapshot: Snapshot, ranking: Ranking, places: Int64s, values: Int64s
    ) -> Iterator[SetNice | SetSiteFactor]:
        """The writes at these places of the ranking, each with its reason. Ranks count waiting jobs only."""
        field, waits = PRIORITY_FIELDS[self.kind], np.cumsum(snapshot.jobs.pending[ranking.order])
        for place in places.tolist():
            row = int(ranking.order[place])
            why = criteria({name: column[row].item() for name, column in ranking.why.items()}, ranking.words)
            reason = f"{self.policy}: rank {waits[place]} of {waits[-1]}" + (f", {why}" if why else "")
            yield field.action(snapshot.jobs, row, int(values[row]), reason)

    @staticmethod
    def restore(snapshot: Snapshot) -> Proposal:
        return base_values(snapshot)


def wanted_values(
    snapshot: Snapshot, ranking: Ranking, ours: Bools, lever: PriorityField, config: LeverConfig
) -> Int64s:
    """The lever value of every row: new where the order asks for it, else as it is. (N,) int64."""
    jobs, boost = snapshot.jobs, lever.boost(snapshot.jobs).copy()
    order = ranking.order[ours[ranking.order]]
    factors = np.rint(lever.factors(jobs)).astype(np.int64)
    tie = np.empty(len(jobs), np.int64)
    tie[np.lexsort((jobs.job_id, jobs.submit_s))] = np.arange(len(jobs))
    group, own = competing_jobs(snapshot)[order], lever.others(jobs)
    for number in np.unique(group):
        rows = order[group == number]
        priority = np.maximum((factors + boost)[rows], 1)  # Slurm never goes below 1
        low = not (own[rows] > 0).any()  # Slurm's lowest priority is 1, where a user's own nice has no effect
        made, kept = spaced(priority, tie[rows], low=low, **_band(snapshot, factors[rows], config))
        boost[rows[~kept]] = (made - factors[rows])[~kept]
    return _with_followers(jobs, ours, lever.value(jobs, boost), lever.now(jobs))


def _band(snapshot: Snapshot, factors: Int64s, lever: LeverConfig) -> dict[str, int]:
    """Distances and bounds for the jobs of these factors, wide enough that ageing and fair share seldom reorder.

    Raises ConfigError if the band is too narrow for the jobs.
    """
    weights = int(sum(weight.points for weight in slurm_weights(snapshot.site.settings)))
    if lever.ceiling - lever.floor < len(factors):
        raise ConfigError(
            f"{lever.ceiling} leaves no room for {pluralize(len(factors), 'job')} above lever.floor = {lever.floor}",
            key="lever.ceiling",
        )
    room = (lever.ceiling - lever.floor) // (2 * len(factors))
    gap = max(1, min(lever.gap or max(_LEAST_GAP, weights // 5), room))
    bounds = {"floor": lever.floor, "ceiling": lever.ceiling, "start": int(factors.max())}
    return {"gap": gap, "margin": gap // 8 if weights else 0, **bounds}


def values_to_write(jobs: Jobs, wanted: Int64s, now: Int64s) -> Bools:
    """Rows to write: changed ones without the array tasks that the write of their array gives what they are to have.

    A task that is to have another value than its array is written behind it, whether or not it has it: the write of the
    array takes it away. wanted, now: (N,) lever values. (N,) bool.
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
    rows = np.flatnonzero(job_scope.follows_array(jobs) & jobs.pending)
    return rows, np.searchsorted(jobs.job_id, jobs.array_job_id[rows])


def _with_followers(jobs: Jobs, ours: Bools, wanted: Int64s, now: Int64s) -> Int64s:
    """Array tasks follow their array: Slurm writes them together. One with a nice of its own is as much behind or ahead
    of the others as its user wants; one that was changed lately keeps what it has. (N,) int64."""
    rows, leader = _followers(jobs)
    rows, leader = rows[ours[leader]], leader[ours[leader]]
    own = np.clip(wanted[leader] + jobs.base_nice[rows] - jobs.base_nice[leader], -MOST_PRIORITY, MOST_PRIORITY)
    wanted[rows] = np.where(jobs.backoff[rows], now[rows], own)
    return wanted


def base_values(snapshot: Snapshot) -> Proposal:
    """What gives each unfinished job its own nice and site factor back. The overrides of the snapshot are the records,
    those of a job in the order of its submissions: the last base counts.

    If a job has a value that slurmsched never sent, somebody else has changed it. It is refused. A job whose value
    Slurm does not show gets its base if that was not the last one sent. Tasks are written with their array; one that
    has another value of its own than that gets it again right behind.
    """
    actions: list[Action] = []
    refused: list[Refusal] = []
    jobs, written = snapshot.jobs, dict[tuple[int, str], int]()
    hidden = {kind: lever.hidden(jobs) for kind, lever in PRIORITY_FIELDS.items()}
    for row, kind, base, values, last in _known_values(jobs, snapshot.overrides):
        lever = PRIORITY_FIELDS[kind]
        now = int(lever.now(jobs)[row])
        ours = (last if hidden[kind][row] else now) in values - {base}
        leader = (int(jobs.leader[row]), kind)
        if leader in written:  # Slurm gives the task what its array gets
            own = base if ours or hidden[kind][row] else now
            if jobs.array_job_id[row] and own != written[leader]:
                action = lever.action(jobs, row, own, "undo: its own value, other than that of its array")
                actions.append(replace(action, base=own))
        elif ours:
            action = lever.action(jobs, row, base, "undo: back to the base value")
            actions.append(replace(action, base=base))
            written[action.job_id, kind] = base
        elif now != base:
            reason = f"its {kind} is {now}, which slurmsched never wrote: somebody changed it since"
            refused.append(Refusal(int(snapshot.jobs.job_id[row]), "foreign", reason))
    return Proposal(tuple(actions), refusals=tuple(refused))


class KnownValue(NamedTuple):
    """What the records tell of one lever of the job in a row."""

    row: int
    kind: str
    base: int
    values: frozenset[int]
    last: int


def _known_values(jobs: Jobs, records: Iterable[Override]) -> list[KnownValue]:
    """Levers on record of the jobs in the queue; arrays and het leaders before their tasks.

    A job without a record of its own goes by its leader's. A requeue moves the submit time; an id used again has no
    restarts.
    """
    of_id: dict[tuple[int, str], list[Override]] = {}
    for record in sorted(records, key=lambda each: each.submit_s):
        of_id.setdefault(record.key, []).append(record)
    job_ids = [job_id for job_id, _ in of_id]
    live = ~jobs.finished & (np.isin(jobs.job_id, job_ids) | np.isin(jobs.leader, job_ids))
    found: list[KnownValue] = []
    for row in np.flatnonzero(live).tolist():
        for kind in PRIORITY_FIELDS:
            own = of_id.get((int(jobs.job_id[row]), kind)) or of_id.get((int(jobs.leader[row]), kind), [])
            same = [each for each in own if jobs.restarts[row] > 0 or jobs.submit_s[row] == each.submit_s]
            if same:
                values = frozenset(int(value) for each in same for value in (*each.values, each.sent))
                found.append(KnownValue(row, kind, int(same[-1].base), values, int(same[-1].sent)))
    follows = (jobs.leader > 0) & (jobs.leader != jobs.job_id)
    return sorted(found, key=lambda each: (bool(follows[each.row]), each.row, each.kind))
