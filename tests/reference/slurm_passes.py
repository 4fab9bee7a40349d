"""Naive twins of kernels/slurmctld_nodes.py and kernels/slurmctld_passes.py: sets of nodes, jobs as dicts.

A job has pool (a set of nodes), nodes, need and last (GPUs, CPUs, MiB), limit_s, array, limits ({name: amount}), counts
(the same; in those it only counts), for the main pass part and bound, and for backfill throttle (the limit that is
the tasks of its array which may run at once, or ""), group (of its user, its partition, both) and reserves.
free is a list of [GPUs, CPUs, MiB], one a node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

Job = dict[str, Any]
Free = list[list[int]]
Chosen = dict[int, int]  # node -> 1: gives need, 2: gives last


Order = tuple[bool, list[int]]


class Slot(NamedTuple):
    """nodes: open from begin to end."""

    begin: float
    end: float
    nodes: set[int]


def pick(
    free: Free, usable: Iterable[int], job: Job, order: Order, spared: frozenset[int] | set[int] = frozenset()
) -> Chosen | None:
    """The job's nodes, None if it does not fit. order: whether a single node comes from the shortest run of neighbours,
    and the weight of each node.

    spared: nodes that come only where others of their weight are not enough.
    """
    chosen: Chosen = {}
    differs, (shortest, weight) = job["need"] != job["last"], order
    whole = job["nodes"] - differs
    rank = {n: (weight[n], n in spared) for n in usable}
    while len(chosen) < whole:
        able = _lightest(_able(free, usable, job["need"], chosen), rank)
        if not able:
            return None
        if job["least_loaded"]:
            run = [max(able, key=lambda n: (free[n][1], -n))]
        elif whole == 1:
            run = min(_runs(able), key=len) if shortest else able
        else:
            run = _best_run(free, able, whole - len(chosen))
        chosen |= dict.fromkeys(run[: whole - len(chosen)], 1)
    if differs:
        able = _lightest(_able(free, usable, job["last"], chosen), rank)
        if not able:
            return None
        chosen[max(able, key=lambda n: (free[n][1], -n)) if job["least_loaded"] else able[0]] = 2
    return chosen


def _lightest(able: list[int], rank: dict[int, tuple[int, bool]]) -> list[int]:
    """Those of the least weight."""
    least = min((rank[n] for n in able), default=None)
    return [n for n in able if rank[n] == least]


def _able(free: Free, usable: Iterable[int], what: Sequence[int], chosen: Chosen) -> list[int]:
    fits = (n for n in sorted(usable) if n not in chosen)
    return [n for n in fits if all(have >= wanted for have, wanted in zip(free[n], what, strict=True))]


def _runs(able: list[int]) -> list[list[int]]:
    """Neighbouring nodes together."""
    return [[n for _, n in run] for _, run in groupby(enumerate(able), key=lambda pair: pair[1] - pair[0])]


def _best_run(free: Free, able: list[int], left: int) -> list[int]:
    best, *others = _runs(able)
    for run in others:
        cpus, best_cpus = (sum(free[n][1] for n in each) for each in (run, best))
        enough, best_enough = len(run) >= left, len(best) >= left
        if (enough and (not best_enough or cpus < best_cpus)) or (not enough and cpus > best_cpus):
            best = run
    return best


def _give(free: Free, job: Job, chosen: Chosen, sign: int) -> None:
    for n, kind in chosen.items():
        free[n] = [have + sign * part for have, part in zip(free[n], job["need" if kind == 1 else "last"], strict=True)]


def _within(room: dict[str, float], job: Job) -> bool:
    return all(room[name] >= amount for name, amount in job["limits"].items())


def _use(room: dict[str, float], job: Job) -> None:
    for name, amount in (job["limits"] | job["counts"]).items():
        room[name] -= amount


def main_pass(
    free: Free, jobs: Sequence[Job], members: Sequence[set[int]], room: dict[str, float], depth: int, now: float,
    blocks: Sequence[tuple[float, float, set[int]]], completing: set[int], order: Order,
) -> list[Chosen]:  # fmt: skip
    """What a main pass starts: one entry a job, empty for one that waits."""
    closed: set[int] = set()
    failed: set[int] = set()
    started: list[Chosen] = []
    tested, rejected, done = 0, 0, set[int]()
    for job in jobs:
        started.append({})
        if job["job"] in done:
            continue
        if job["array"] and job["array"] == rejected:
            continue
        rejected = job["array"] or rejected
        tested += 1
        if tested > depth + 1:
            break
        shut = set().union(*(nodes for begin, end, nodes in blocks if begin < now + job["limit_s"] and end > now))
        usable = job["pool"] - closed - shut
        if job["part"] in failed or not _within(room, job) or len(usable) < job["nodes"]:
            continue
        chosen = pick(free, usable - completing, job, order)
        if chosen is not None:
            _give(free, job, chosen, -1)
            _use(room, job)
            started[-1], rejected = chosen, 0
            done.add(job["job"])
        elif job["bound"]:
            closed |= job["pool"]
        else:
            failed.add(job["part"])
            closed |= members[job["part"]]
    return started + [{}] * (len(jobs) - len(started))


class Backfill:
    """One backfill pass.

    runs: (end, {node: [GPUs, CPUs, MiB]}) of running jobs; blocks as above. completing: nodes that start nothing.
    """

    def __init__(
        self, now: float, window_end: float, step: float, free: Free,
        runs: Sequence[tuple[float, dict[int, list[int]]]], blocks: Sequence[tuple[float, float, set[int]]],
        completing: set[int], order: Order, last_of_all: bool,
    ) -> None:  # fmt: skip
        self.now, self.window_end, self.step, self.free = now, window_end, step, free
        self.runs = sorted(runs, key=lambda run: run[0])
        self.completing, self.order, self.last_of_all = completing, order, last_of_all
        self.slots = [Slot(now, window_end, set(range(len(free))))]
        for begin, end, nodes in blocks:
            self._reserve(begin, end, nodes)
        self.records = 1  # of the table of reservations, ever made
        self.tries = 0  # jobs for which enough nodes were found unreserved at some time

    def starts(
        self, jobs: Sequence[Job], room: dict[str, float], most: int, most_of_array: int, most_records: int,
        most_tested: int, most_of_group: Sequence[int],
    ) -> list[Chosen]:  # fmt: skip
        started: list[Chosen] = [{} for _ in jobs]
        reserved: dict[int, int] = {0: 0}
        of_group: Counter[tuple[int, int]] = Counter()
        rejected, before, start_of = 0, 0, dict[int, float]()
        for place, job in enumerate(jobs):
            array = job["array"]
            if self.tries >= most_tested and not (array and array == before):
                break
            if start_of.get(job["job"], math.inf) <= self.now:
                continue
            if array != before:
                reserved[before := array] = 0
            if (array and array == rejected) or not _within(room, job):
                rejected = array or rejected
                continue
            rejected = array or rejected
            groups = list(enumerate(job["group"]))
            if any(most_of_group[g] and of_group[g, of] >= most_of_group[g] for g, of in groups):
                continue
            of_group.update(groups)
            start, chosen = self._place(job)
            if start == self.now:
                started[place], rejected, start_of[job["job"]] = chosen, 0, start
                _use(room, job)
                if sum(map(bool, started)) >= most or self.tries >= most_tested:
                    break
            elif start <= min(self.window_end, start_of.get(job["job"], math.inf)):
                start_of[job["job"]] = start
                if self.records >= most_records:
                    break
                slot, end = self._rounded(start, start + job["limit_s"])
                self.records += self._reserve(slot, end, set(chosen))
                self._merge(slot, end)
                reserved[array] += 1
                left = room[job["throttle"]] if job["throttle"] else most_of_array
                rejected = array if reserved[array] >= min(most_of_array, left) else 0
        return started

    def _place(self, job: Job) -> tuple[float, Chosen]:
        """Start and nodes of a job that starts or gets a reservation; infinite where it gets neither."""
        later, tried = self.now, False
        while later <= self.window_end:
            begin = later
            usable, following = self._unreserved(begin, begin + job["limit_s"], job["pool"])
            fits = self._future(job, usable, begin, math.inf if following is None else following)
            start, chosen = fits if len(usable) >= job["nodes"] else (math.inf, {})
            if len(usable) >= job["nodes"] and not tried:
                tried, self.tries = True, self.tries + 1
            if start == math.inf:
                if following is None or not job["reserves"]:
                    break
                later = following
                continue
            start = max(start, begin)
            held_up = False
            if start == self.now and not self.completing.isdisjoint(chosen):
                chosen = pick(self.free, usable, job, self.order, self.completing) or chosen
                held_up = not self.completing.isdisjoint(chosen)
            if held_up:
                start, following = self.now + 1.0, None
            if start > self.now and not job["reserves"]:
                break
            slot, end = self._rounded(start, start + job["limit_s"])
            if start > self.now and not held_up and self._overlaps(slot, end, set(chosen)):
                later = start + (self.step or 1.0) if start == begin else start
            elif start == self.now:
                _give(self.free, job, chosen, -1)
                shares = {n: list(job["need" if kind == 1 else "last"]) for n, kind in chosen.items()}
                self.runs = sorted([*self.runs, (start + job["limit_s"], shares)], key=lambda run: run[0])
                return start, chosen
            elif following is not None and start > following:
                later = following
            else:
                return start, chosen
        return math.inf, {}

    def _rounded(self, start: float, end: float) -> tuple[float, float]:
        if not self.step:
            return start, end
        whole = math.ceil(end / self.step) * self.step if end < math.inf else end
        return math.floor(start / self.step) * self.step, whole

    def _reserve(self, begin: float, end: float, nodes: set[int]) -> int:
        """Closes the nodes from begin to end; how many slots that makes more."""
        slots: list[Slot] = []
        for slot in self.slots:
            edges = sorted({edge for edge in (begin, end) if slot.begin < edge < slot.end})
            slots += [Slot(a, b, slot.nodes) for a, b in pairwise([slot.begin, *edges, slot.end])]
        more = len(slots) - len(self.slots)
        self.slots = [s._replace(nodes=s.nodes - nodes) if begin <= s.begin and s.end <= end else s for s in slots]
        return more

    def _merge(self, begin: float, end: float) -> None:
        """Makes one slot of the first two neighbours with the same nodes, from the last one before begin to end."""
        first = max((k for k, slot in enumerate(self.slots) if slot.end < begin), default=0)
        for k, (slot, after) in enumerate(pairwise(self.slots)):
            if k >= first and slot.end <= end and slot.nodes == after.nodes:
                self.slots[k : k + 2] = [slot._replace(end=after.end)]
                return

    def _unreserved(self, begin: float, until: float, pool: set[int]) -> tuple[set[int], float | None]:
        usable, following, slots = set(pool), None, self.slots
        for k, (slot_begin, slot_end, nodes) in enumerate(slots):
            after = slots[k + 1][2] & pool if k + 1 < len(slots) else set()
            if slot_end > begin and following is None and not after <= usable & nodes:
                following = slot_end
            if slot_end <= begin:
                continue
            if slot_begin > until:
                if following is None and k + 2 < len(slots):
                    following = slots[k + 1][1]
                break
            usable &= nodes
        return usable, following

    def _overlaps(self, slot: float, end: float, nodes: set[int]) -> bool:
        return any(b < end and e > slot and not nodes <= open_ for b, e, open_ in self.slots)

    def _future(self, job: Job, usable: set[int], begin: float, bound: float) -> tuple[float, Chosen]:
        work, i = [list(row) for row in self.free], 0
        while begin > self.now and i < len(self.runs) and self.runs[i][0] <= begin:
            for n, share in self.runs[i][1].items():
                work[n] = [have + part for have, part in zip(work[n], share, strict=True)]
            i += 1
        chosen = pick(work, usable, job, self.order)
        if chosen is not None:
            return begin, chosen
        window, edge, latest, removed = 30.0, None, None, []
        while i < len(self.runs) and self.runs[i][0] <= bound:
            latest = None
            while i < len(self.runs) and self.runs[i][0] <= bound:
                end, shares = self.runs[i]
                i += 1
                if usable.isdisjoint(shares):
                    continue
                if edge is None:
                    edge = end + (window - end % window) if end < math.inf else math.inf
                latest = end
                removed.append((end, shares))
                for n, share in shares.items():
                    work[n] = [have + part for have, part in zip(work[n], share, strict=True)]
                if i == len(self.runs) or self.runs[i][0] > edge + window:
                    break
            if latest is None:
                break
            chosen = pick(work, usable, job, self.order)
            if chosen is not None:
                ends = [end for end, shares in removed if not shares.keys().isdisjoint(chosen)]
                latest = latest if self.last_of_all or not ends else ends[-1]
                return max(latest, self.now + 1.0), chosen
            window *= 2.0
            while i < len(self.runs) and edge is not None and edge + window < self.runs[i][0] and window < math.inf:
                window *= 2.0
        return math.inf, {}
