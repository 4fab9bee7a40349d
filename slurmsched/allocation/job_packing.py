"""Jobs on the same GPUs: sharing scores, and the host of each guest."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from slurmsched.allocation.job_times import cluster_gpus
from slurmsched.model import Jobs, JobState, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.hints import hint_column, parse_hints
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable

TINY, MEDIUM, JUMBO, NEVER = 0.0, 1.0, 2.0, np.inf
MOST_SCORE = 2.0  # of a pair, both added
LONGER = 2.0  # that many times the expected service of its host a guest may have
ALONE = -1


def sharing_scores(jobs: Jobs, tiny: Sequence[str], medium: Sequence[str]) -> Floats:
    """How much a job slows another on its GPUs: 0 with `share=yes`, or of a model of `tiny`; 1 of one of `medium`; 2 of
    any other; infinity with `share=no`. (N,).

    tiny, medium: words in names of models, in letters of any case.
    """
    share = hint_column(jobs, "share")

    def tier(comment: str) -> float:
        model = (parse_hints(comment).model or "").lower()
        lists = ((TINY, tiny), (MEDIUM, medium))
        return next((score for score, words in lists if any(word.lower() in model for word in words)), JUMBO)

    of_model = jobs.comment.map(tier, np.float64)
    return np.where(share == 0.0, NEVER, np.where(share == 1.0, TINY, of_model))


# Over 30 lines: more than half is the docstring with the rules.
def choose_hosts(snapshot: Snapshot, order: Int64s, score: Floats, gpu_s: Floats, most_gpus: int) -> Int64s:
    """Job on whose GPUs each is to run, ALONE for none. (N,) ids.

    A guest that runs stays where it is. While all who wait find free GPUs, nobody shares. Else the jobs that wait and
    find too few free GPUs are taken in order. Each goes to a host that meets all of these:

    - It runs, or is about to start before the guest.
    - It has no guest.
    - It asks for as many GPUs, at most most_gpus.
    - Its score is at most MOST_SCORE together with that of the guest.
    - It has at least 1/LONGER of the expected service of the guest.

    Of several hosts it is the one with the least score, then one that runs, then the first of the order. Nodes are not
    looked at: the placement finds out whether free GPUs lie together.

    order: rows of the jobs.
    score: of each job, (N,).
    gpu_s: expected service of each job, (N,) [GPU s].
    Source: Hu et al. (Lucid), ASPLOS '23, and its public simulator for the factor of 2; the choice is ours.
    """
    jobs, found = snapshot.jobs, np.full(len(snapshot.jobs), ALONE, np.int64)
    for guest, host in _pairs(snapshot).items():
        found[guest] = jobs.job_id[host]
    taken, runs = set(found.tolist()), holding(jobs) & ~jobs.is_state(JobState.SUSPENDED)
    hosts, gpus, free = _Hosts(score), jobs.gpus.tolist(), _free(snapshot)
    for row in order[(runs & (found == ALONE))[order]].tolist():
        if int(jobs.job_id[row]) not in taken:
            hosts.add(row, gpus[row])
    for row in order[(startable(snapshot) & (jobs.gpus > 0))[order]].tolist():
        if gpus[row] <= free:
            free -= gpus[row]
            hosts.add(row, gpus[row])
        elif gpus[row] <= most_gpus and (host := hosts.take(gpus[row], score[row], gpu_s[row], gpu_s)) >= 0:
            found[row] = jobs.job_id[host]
    return found


# Groups by predicted slow-down.

MOST_WAITING = 100  # jobs for which a group is looked for: the first of the order that may share at all
Lost = Callable[[Sequence[int]], float]  # speed that jobs of these rows lose in all on the same GPUs; inf = may not


# Over 30 lines: almost half is the docstring with the rules.
def least_interference(snapshot: Snapshot, order: Int64s, lost: Lost, most: int) -> Int64s:
    """Job on whose GPUs each is to run, ALONE for none. (N,) ids.

    A guest that runs stays where it is. The jobs that wait and find too few free GPUs are taken in order. Each goes to
    the group of its size, of less than `most` jobs, that loses the least speed by it; a job that runs, or is about to
    start, is a group too. It goes to none if all groups lose more by it than it makes there. Nobody shares with a job
    that loses infinity alone.

    order: rows of the jobs. Source: Kim and Kim (Co-scheML), ACSOS 2020, for the least predicted interference; more
    than two jobs, and what is too much, are ours.
    """
    jobs, found = snapshot.jobs, np.full(len(snapshot.jobs), ALONE, np.int64)
    guests, runs = _pairs(snapshot), holding(snapshot.jobs) & ~snapshot.jobs.is_state(JobState.SUSPENDED)
    groups = {row: [row] for row in order[runs[order]].tolist() if row not in guests}
    for guest, host in guests.items():
        found[guest] = jobs.job_id[host]
        groups.setdefault(host, [host]).append(guest)
    loses = {host: loss for host, group in groups.items() if (loss := lost(group)) < np.inf}  # others may not grow
    gpus, free, looked = jobs.gpus.tolist(), _free(snapshot), 0
    for row in order[(startable(snapshot) & (jobs.gpus > 0))[order]].tolist():
        if gpus[row] <= free:
            free -= gpus[row]
            groups[row] = [row]
            loses |= {row: loss} if (loss := lost([row])) < np.inf else {}
        elif looked < MOST_WAITING and lost([row]) < np.inf:
            looked += 1
            able = [host for host in loses if gpus[host] == gpus[row] and len(groups[host]) < most]
            more = {host: lost([*groups[host], row]) - loses[host] for host in able}
            host = min(more, key=more.__getitem__, default=-1)
            if host >= 0 and more[host] < 1.0:
                found[row] = jobs.job_id[host]
                groups[host].append(row)
                loses[host] += more[host]
    return found


# Guests of which a host has one, where its GPUs are used least.


class MeasuredCosts(NamedTuple):
    """What the daemon measured of jobs beside each other.

    kinds: of each job; "" = nothing was measured of it.
    costs: GPUs -> kind of the guest and of the host -> speed that the guest loses; infinity = the host loses too much.
    """

    kinds: Sequence[str]
    costs: Mapping[int, Mapping[tuple[str, str], float]]


# Over 30 lines: a third is the docstring with the rules.
def idlest_hosts(
    snapshot: Snapshot, order: Int64s, able: Bools, guest: Bools, use: Floats, seen: MeasuredCosts | None = None
) -> Int64s:
    """Job on whose GPUs each is to run, ALONE for none. (N,) ids.

    Jobs that are no guests get GPUs of their own as far as these go, in order. Guests get what is free after that. Each
    other guest goes beside a job that meets all of these:

    - It has its own GPUs.
    - It has the guest's size.
    - It has no guest.
    - It uses its GPUs less than all the time, or the daemon measured it beside such a guest.

    Of several it is the one where the guest is already, else the one whose GPUs are used least, then the first of the
    order. Where a pair was measured, what the guest loses counts as the use.

    order: rows of the jobs, those that are no guests first.
    able: (N,) jobs that hold GPUs or may start.
    use: (N,) part of the time that each job uses its GPUs.
    seen: what was measured, if anything.
    Source: Xiao et al. (AntMan), OSDI '20, section 4.
    """
    jobs, found, free = snapshot.jobs, np.full(len(snapshot.jobs), ALONE, np.int64), cluster_gpus(snapshot)
    gpus, before, own = jobs.gpus.tolist(), _pairs(snapshot), set[int]()
    before |= {first: row for row, first in before.items() if guest[first] and not guest[row]}  # it came later
    hosts, guests, kinds = list[int](), list[int](), [""] * len(found) if seen is None else seen.kinds
    for row in order[able[order]].tolist():
        if gpus[row] <= free and not (guest[row] and before.get(row, ALONE) in own):
            free -= gpus[row]
            if not guest[row] and (use[row] < 1.0 or kinds[row]):
                hosts.append(row)
                own.add(row)
        elif guest[row]:
            guests.append(row)
    taken = set[int]()
    for row in [row for row in guests if before.get(row, ALONE) in own]:
        found[row] = jobs.job_id[before[row]]
        taken.add(before[row])
    idle: dict[int, dict[str, deque[tuple[int, int]]]] = {}
    for place, host in enumerate(sorted((host for host in hosts if host not in taken), key=lambda host: use[host])):
        idle.setdefault(gpus[host], {}).setdefault(kinds[host], deque()).append((place, host))
    for row in [row for row in guests if found[row] == ALONE]:
        heads = [(use[queue[0][1]], queue[0][0], kind) for kind, queue in idle.get(gpus[row], {}).items() if queue]
        if seen is not None:
            costs = seen.costs[gpus[row]]
            heads = [(costs.get((kinds[row], kind), use_), place, kind) for use_, place, kind in heads]
        if heads and (least := min(heads))[0] < 1.0:
            found[row] = jobs.job_id[idle[gpus[row]][least[2]].popleft()[1]]
    return found


class _Hosts:
    """Rows of jobs that may have a guest, by GPUs: the least score first, then the one added first."""

    def __init__(self, score: Floats) -> None:
        self._score, self._added = score.tolist(), 0
        self._of_size: dict[int, list[tuple[float, int, int]]] = {}

    def add(self, row: int, gpus: int) -> None:
        insort(self._of_size.setdefault(gpus, []), (self._score[row], self._added, row))
        self._added += 1

    def take(self, gpus: int, score: float, guest_gpu_s: float, gpu_s: Floats) -> int:
        """Take the first host that a guest of this size, score and service may share with; -1 if there is none."""
        hosts = self._of_size.get(gpus, [])
        for place, (own, _, row) in enumerate(hosts):
            if own + score > MOST_SCORE:
                return -1
            if guest_gpu_s <= LONGER * gpu_s[row]:
                del hosts[place]
                return row
        return -1


def _pairs(snapshot: Snapshot) -> dict[int, int]:
    """Row of a running job that is on the GPUs of another one -> row of that one, which started first."""
    jobs, allocations = snapshot.jobs, snapshot.allocations
    row_of = {job: row for row, job in enumerate(jobs.job_id.tolist())}
    first: dict[tuple[int, int], int] = {}
    pairs: dict[int, int] = {}
    rows = [row_of.get(job, -1) for job in allocations.job_id.tolist()]
    entries = zip(rows, allocations.node.codes.tolist(), allocations.gpu_mask.tolist(), strict=True)
    known = [entry for entry in entries if entry[0] >= 0 and entry[2]]
    known.sort(key=lambda entry: (jobs.start_s[entry[0]], jobs.job_id[entry[0]]))
    for row, node, mask in known:
        host = first.setdefault((node, mask), row)
        if host != row:
            pairs[row] = host
    return pairs


def _free(snapshot: Snapshot) -> int:
    """Free GPUs on open nodes."""
    nodes = snapshot.nodes
    return int(np.maximum(nodes.gpus - nodes.gpus_used, 0)[~nodes.closed].sum())
