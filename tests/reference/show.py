"""Plain twins of kernels/job_scan.py, and of service_queues.sort_rows."""

from __future__ import annotations

import math
from operator import ge


def job_columns(rows, times, counts, now_s, flags):
    """Per job: eight times, id and state, and nodes, GPUs, restarts."""
    shown = []
    for start_s, ran_s, stopped_s, submit_s, limit_s, job_id, gpus, nodes, restarts in (
        (*times[row], *counts[row]) for row in rows
    ):
        runs = not math.isnan(start_s)
        executed_s = ran_s + (now_s - start_s if runs else 0)
        floats = [submit_s, start_s, start_s + limit_s, limit_s, now_s - start_s if runs else 0, executed_s]
        floats += [executed_s * gpus, 0 if runs else now_s - stopped_s]
        shown.append((floats, [job_id, flags[runs]], [nodes, gpus, restarts]))
    return shown


def changes(running, target):
    """Places that stop, places that start."""
    stops = [place for place, runs in enumerate(running) if runs and place not in target]
    return stops, [place for place, runs in enumerate(running) if not runs and place in target]


def who_waits(order, stands, served, gpus):
    """Fewest GPUs asked for; who waits; what each needs beside what those after it hold."""
    waits = [row for row in order if stands[row] > 0 and row not in served]
    places = {row: place for place, row in enumerate(order)}
    needs = [gpus[row] - sum(gpus[other] for other in served if places[other] > places[row]) for row in waits]
    return min((gpus[row] for row in waits), default=-1), waits, needs


def count_in_order(order, gpus, capacity):
    """Who gets GPUs, in order; who waits; what each needs beside what those after it get."""
    runs = []
    for row in order:
        if 0 < gpus[row] <= capacity - sum(gpus[other] for other in runs):
            runs.append(row)
    waits = [row for row in order if gpus[row] > 0 and row not in runs]
    later = {row: order[place:] for place, row in enumerate(order)}
    return runs, waits, [gpus[row] - sum(gpus[other] for other in runs if other in later[row]) for row in waits]


def sort_rows(keys):
    return sorted(range(len(keys)), key=lambda row: (*keys[row], row))


def room_needed(order, waits, gpus, nodes, held, capacity):
    """By adding one GPU after another to a node, until it holds more parts of a gang; None if that never is.

    held: GPUs of each node by row.
    """
    free, size, seen = list(capacity), max(capacity), []
    for row in order:
        free = [have - held.get(row, {}).get(n, 0) for n, have in enumerate(free)]
        if not waits[row] or gpus[row] <= 0:
            continue
        least = -(-gpus[row] // size)
        even = nodes[row] > least or (nodes[row] == least and gpus[row] % nodes[row] == 0)
        part = min(-(-gpus[row] // nodes[row]) if even else size, gpus[row])
        takes = [part] * (gpus[row] // part) + [gpus[row] % part] * (gpus[row] % part > 0)
        if len(takes) <= len(free) and all(map(ge, sorted(free, reverse=True), takes)):
            return [0] * len(capacity)
        for n, have in enumerate(free):
            seen += [(n, more) for more in range(1, size + 99) if any(have < take <= have + more for take in takes)]
    return [min((more for at, more in seen if at == n), default=None) for n in range(len(capacity))]
