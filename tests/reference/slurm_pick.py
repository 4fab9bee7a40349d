"""Naive twins of the kernels that pick GPUs as slurmctld does: lists and sets, one rule a line."""

from __future__ import annotations


def taken(near, need, free, links, order, score, given):
    """24.05 and later: the next free GPU of `near` in the order; after each the least linked come first but for one."""
    skipped = 0
    for _ in range(need):
        found = [g for g in order[skipped:] if g in near and g in free and g not in given]
        if not found:
            return
        given.add(found[0])
        if links:
            for other in free - {found[0]}:
                score[other] += links[found[0]][other]
            order.sort(key=lambda g: score[g])
            skipped = 1


class Node:
    """GPUs by socket; GPUs of socket -1 are near all."""

    def __init__(self, free, socket, links, linked):
        self.size = len(free)
        self.free = {g for g in range(self.size) if free[g]}
        self.socket, self.links = list(socket), links.tolist() if linked else None
        self.given, self.order, self.score = set(), list(range(self.size)), [0] * self.size

    def take(self, s, need, sort=True):
        near = {g for g in range(self.size) if self.socket[g] == s}
        taken(near, max(0, need), self.free, self.links if sort else None, self.order, self.score, self.given)

    def bools(self):
        return [g in self.given for g in range(self.size)]


def pick_per_node(free, socket, links, linked, cores, need, bound):
    node, used = Node(free, socket, links, linked), [s for s, count in enumerate(cores) if count]
    shares = [(s, int(cores[s] * need / sum(cores) + 1e-9)) for s in used]
    rest = [s for s in range(len(cores)) if s not in used and not bound]
    for s, share in [*shares, (-1, need), *((s, need) for s in [*used, *rest])]:
        node.take(s, min(share, need - len(node.given)))
    return node.bools()


def pick_per_job(free, socket, links, linked, cores, need, bound):
    node, used = Node(free, socket, links, linked), [s for s, count in enumerate(cores) if count]
    most = node.size if linked and need > 1 else need
    shares = [] if linked and need > 1 else [(s, int(cores[s] * need / sum(cores) + 1e-9)) for s in used]
    for s, share in [*shares, *((s, most) for s in used if not shares), (-1, most), *((s, most) for s in used)]:
        node.take(s, min(share, most - len(node.given)), sort=False)
    for s in [s for s in range(len(cores)) if s not in used and not bound]:
        node.take(s, 1 if not node.given else 0, sort=False)
    while len(node.given) > need:
        if len(node.given) > need:
            pairs = [(-links[a][b], a, b) for a in node.given for b in node.given if a < b]
            best = min(pairs)[1] if not hasattr(node, "best") else node.best
            node.best = best
            node.given.remove(min(node.given - {best}, key=lambda g: (links[best][g], g)))
    if len(node.given) < need:
        if linked:
            for g in node.given:
                for other in node.free - {g}:
                    node.score[other] += int(links[g][other])
            node.order.sort(key=lambda g: node.score[g])
        for s in [*range(len(cores)), -1]:
            node.take(s, need - len(node.given))
    return node.bools()


def old_pick_per_node(free, socket, links, linked, cores, need, bound):
    """Before 24.05: one near each socket, then all whose scaled links to those reach a level, the highest first."""
    node, used = Node(free, socket, links, linked), [s for s, count in enumerate(cores) if count]
    for s in [-1, *used]:
        seeds = [g for g in sorted(node.free - node.given) if socket[g] == s][: need - len(node.given)]
        node.given |= set(seeds[:1])
    seeds = set(node.given)
    score = [sum(int(links[a][g]) for a in seeds - {g}) if linked and g in node.free else 0 for g in range(node.size)]
    if max(score) > 4:
        step = (max(score) + 3) // 4
        score = [value // step for value in score]
    for group in ([-1, *used], [s for s in range(len(cores)) if s not in used]):
        for level in range(max(0, *score), -1, -1):
            for s in group:
                more = [g for g in sorted(node.free - node.given) if socket[g] == s and score[g] >= level]
                node.given |= set(more[: need - len(node.given)])
    return node.bools()
