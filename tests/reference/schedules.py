"""FIFO, EASY and conservative backfill on a pile of GPUs, written apart from the engine: one loop, plain Python."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Job = tuple[float, int, int, float]  # submit [s], id, GPUs, run time [s]


def job_ends(jobs: Sequence[Job], capacity: int, *, easy: bool = False) -> dict[int, float]:
    """End [s] of every job by id. easy: jobs may pass the first that must wait if they do not delay it."""
    todo, queue, running = sorted(jobs, reverse=True), [], []
    ends: dict[int, float] = {}
    free = capacity
    while todo or queue or running:
        now = min([running[0][0]] if running else [todo[-1][0]])
        if todo:
            now = min(now, todo[-1][0])
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while todo and todo[-1][0] <= now:
            queue.append(todo.pop())
        while queue and queue[0][2] <= free:
            free -= start(queue.pop(0), now, running, ends)
        for job in passing(queue, running, free, now) if easy and queue else ():
            queue.remove(job)
            free -= start(job, now, running, ends)
    return ends


def start(job: Job, now: float, running: list[tuple[float, int]], ends: dict[int, float]) -> int:
    """Put the job among the running ones; returns its GPUs."""
    _, number, gpus, run = job
    ends[number] = now + run
    heapq.heappush(running, (now + run, gpus))
    return gpus


def passing(queue: list[Job], running: list[tuple[float, int]], free: int, now: float) -> list[Job]:
    """Jobs behind the head that end before it can start, or leave it enough GPUs then."""
    shadow, spare = now, free
    for end, gpus in sorted(running):
        if spare >= queue[0][2] and end > shadow:
            break
        shadow, spare = (end if spare < queue[0][2] else shadow), spare + gpus
    spare, chosen = spare - queue[0][2], []
    for job in queue[1:]:
        _, _, gpus, run = job
        if gpus > free or (now + run > shadow and gpus > spare):
            continue
        spare -= gpus if now + run > shadow else 0
        free -= gpus
        chosen.append(job)
    return chosen


def conservative_ends(jobs: Sequence[Job], capacity: int) -> dict[int, float]:
    """End [s] of every job by id if each, in order of submission, gets the earliest span that delays none before it."""
    runs: list[tuple[float, float, int]] = []  # start, end, GPUs
    ends: dict[int, float] = {}
    for submit, number, gpus, run in sorted(jobs):
        starts = sorted({submit, *(end for _, end, _ in runs if end > submit)})
        begin = next(at for at in starts if most_held(runs, at, at + run) + gpus <= capacity)
        ends[number] = begin + run
        runs.append((begin, begin + run, gpus))
    return ends


def most_held(runs: Sequence[tuple[float, float, int]], begin: float, end: float) -> int:
    """Most GPUs held at any time of a span."""
    times = [begin, *(start for start, _, _ in runs if begin < start < end)]
    return max(sum(gpus for start, stop, gpus in runs if start <= at < stop) for at in times)
