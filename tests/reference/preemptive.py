"""SRTF, SRSF, smallest first and queues of 2D-LAS on a pile of GPUs, written apart from the engine in plain Python.

At each event all GPUs are given out anew in the order of the discipline; who does not fit is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.reference.schedules import Job


@dataclass(eq=False)
class Task:
    """A job with what it has done so far."""

    submit_s: float
    number: int
    gpus: int
    run_s: float
    done_s: float = 0.0
    running: bool = False
    queue: int = 0
    preempted: int = 0

    @property
    def remaining_s(self) -> float:
        return self.run_s - self.done_s


Order = Callable[[list[Task]], list[Task]]
ORDERS: dict[str, Order] = {
    "srtf": lambda there: sorted(there, key=lambda task: task.remaining_s),
    "srsf": lambda there: sorted(there, key=lambda task: task.remaining_s * task.gpus),
    "smallest": lambda there: sorted(there, key=lambda task: task.gpus),
}


class Queues:
    """Tiresias's queues: a job drops at a threshold of service; in each those that run come before those that wait."""

    def __init__(self, thresholds: Sequence[float], *, two_d: bool) -> None:
        self.thresholds, self.two_d = thresholds, two_d
        self.lists: list[list[Task]] = [[] for _ in (*thresholds, None)]

    def pace(self, task: Task) -> int:
        return task.gpus if self.two_d else 1

    def drop_s(self, task: Task) -> float:
        """Whole seconds until a running job reaches its threshold."""
        if task.queue == len(self.thresholds):
            return math.inf
        return math.ceil((self.thresholds[task.queue] - task.done_s * self.pace(task)) / self.pace(task))

    def __call__(self, there: list[Task]) -> list[Task]:
        """All jobs, the most urgent first."""
        known = {id(task) for tasks in self.lists for task in tasks}
        self.lists[0] += [task for task in there if id(task) not in known]
        for tasks in self.lists:
            tasks[:] = [task for task in tasks if task in there]
            tasks.sort(key=lambda task: not task.running)
        for task in [task for task in there if task.running]:
            while self.drop_s(task) <= 0:
                self.lists[task.queue].remove(task)
                task.queue += 1
                self.lists[task.queue].append(task)
        return [task for tasks in self.lists for task in tasks]


def preemptive_ends(jobs: Sequence[Job], capacity: int, order: Order) -> dict[int, tuple[float, int]]:
    """End [s] and preemptions of every job by id."""
    todo, there, now_s = [Task(*job) for job in sorted(jobs, reverse=True)], list[Task](), 0.0
    ends: dict[int, tuple[float, int]] = {}
    while todo or there:
        now_s += _go_on(todo, there, now_s, order)
        for task in [task for task in there if task.running and task.remaining_s <= 0]:
            there.remove(task)
            ends[task.number] = now_s, task.preempted
        while todo and todo[-1].submit_s <= now_s:
            there.append(todo.pop())
        free = capacity
        for task in order(there):
            fits = task.gpus <= free
            free -= task.gpus if fits else 0
            task.preempted += task.running and not fits
            task.running = fits
    return ends


def _go_on(todo: list[Task], there: list[Task], now_s: float, order: Order) -> float:
    """Let all run until the next event, and say how long that took [s]."""
    running = [task for task in there if task.running]
    waits = [todo[-1].submit_s - now_s] if todo else []
    waits += [task.remaining_s for task in running]
    waits += [order.drop_s(task) for task in running] if isinstance(order, Queues) else []
    step_s = min(waits)
    for task in running:
        task.done_s += step_s
    return step_s
