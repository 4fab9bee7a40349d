"""Naive twin of gpu_share_fit.place_shares: every node is scored anew for every request."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def fragments(free: list[int], cpus: float, kind: int, asks: Any, weight: np.ndarray) -> float:
    """As section 3.2 of FGD defines them, request by request."""
    lost = 0.0
    for q in range(len(weight)):
        good = [f for f in free if f >= asks.gpu_milli[q]]
        fits = 0 < asks.gpus[q] <= len(good) and bool(asks.fits[q, kind]) and cpus >= asks.cpus[q]
        lost += weight[q] * (sum(free) - (sum(good) if fits else 0))
    return lost


def choices(free: list[int], gpus: int, milli: int) -> list[int]:
    """The masks that a request may have on a node."""
    if gpus == 1 and milli < 1000:
        return [1 << g for g, f in enumerate(free) if f >= milli]
    idle = [g for g, f in enumerate(free) if f == 1000]
    return [sum(1 << g for g in idle[:gpus])] if len(idle) >= gpus else []


def after(free: list[int], mask: int, milli: int) -> list[int]:
    return [f - milli * (mask >> g & 1) for g, f in enumerate(free)]


def place_shares(wanted: Any, asks: Any, nodes: Any, weight: np.ndarray, rule: int, draws: np.ndarray) -> list[Any]:
    """Node, mask, what is free and what is a fragment after each request."""
    size = nodes.gpus.tolist()
    free = [nodes.free[n, : size[n]].tolist() for n in range(len(size))]
    cpus, mib, held = nodes.cpus.tolist(), nodes.memory_mib.tolist(), nodes.held.copy()
    made = []
    for i, k in enumerate(wanted.tolist()):
        gpus, milli, cpu = int(asks.gpus[k]), int(asks.gpu_milli[k]), float(asks.cpus[k])
        row = gpus if milli == 1000 else 0
        found = []
        for n in range(len(size)):
            masks = choices(free[n], gpus, milli)
            fits = (
                cpus[n] >= cpu
                and mib[n] >= asks.memory_mib[k]
                and masks
                and (gpus == 0 or asks.fits[k, nodes.gpu_type[n]])
            )
            if fits:
                found.append((n, masks))
        node, mask = -1, 0
        if found and rule == 5:
            node, masks = found[int(draws[i, 0] * len(found))]
            mask = masks[int(draws[i, 1] * len(masks))]
        elif found:
            scored = []
            for n, masks in found:
                tight = min(masks, key=lambda m: (free[n][m.bit_length() - 1] if m else 0, m))
                for m in masks if rule == 0 else [tight]:
                    scored.append(
                        (score(rule, n, m, milli, gpus, cpu, row, free, cpus, held, nodes, asks, weight), -n, m)
                    )
            best = max(one[:2] for one in scored)
            node, mask = -best[1], min(m for *key, m in scored if tuple(key) == best)
        if node >= 0:
            free[node] = after(free[node], mask, milli)
            cpus[node] -= cpu
            mib[node] -= float(asks.memory_mib[k])
            held[node, row] += gpus > 0
        lost = sum(fragments(free[n], cpus[n], nodes.gpu_type[n], asks, weight) for n in range(len(size)))
        made.append((node, mask, sum(map(sum, free)), lost))
    return made


def score(rule, n, mask, milli, gpus, cpu, row, free, cpus, held, nodes, asks, weight) -> int:
    """0 to 100, rounded down."""
    here, kind, most_cpus, most = free[n], nodes.gpu_type[n], *nodes.most.tolist()
    if rule == 0:
        then = fragments(after(here, mask, milli), cpus[n] - cpu, kind, asks, weight)
        return int(100 / (1 + math.exp((then - fragments(here, cpus[n], kind, asks, weight)) / 1000)))
    if rule == 1:
        stays = min((cpus[n] - cpu) / most_cpus, 1.0) * 0.5
        return int((1.0 - (stays + (sum(here) - gpus * milli) / most * 0.5)) * 100)
    if rule == 2:
        product = min(cpus[n] / most_cpus, 1.0) * min(cpu / most_cpus, 1.0)
        return int(100 * (1 - (product + sum(here) / most * (gpus * milli / most)) / 2))
    if gpus == 0:
        return 0
    if rule == 3:
        idle = here.count(1000)
        if idle == len(here):
            return max(33 - idle, idle)
        used = [here[g] for g in range(len(here)) if mask >> g & 1]
        fresh = used.count(1000)
        return max(50 - fresh, 33) if fresh else max(100 - used[0] * 100 // 1000 // 10, 50)
    sizes = int((held[n] > 0).sum())
    band = (3 if sizes == 1 else 2) if held[n, row] > 0 else int(sizes == 0)
    return 25 * (int(most) - sum(here)) // int(most) + 25 * band
