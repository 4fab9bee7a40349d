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

    def take_lowest(self, s, goal, among=None):
        """The lowest of this socket until so many are given."""
        able = [g for g in sorted(self.free - self.given) if self.socket[g] == s and (among is None or g in among)]
        self.given |= set(able[: max(0, goal - len(self.given))])

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
    drop_least_linked(node, links, need)
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
        node.take_lowest(s, min(need, len(node.given) + 1))
    near = [-1, *used]
    take_by_level(node, scaled_links(node), [near, [s for s in range(len(cores)) if s not in near]], need)
    return node.bools()


def pick_per_task(free, socket, links, linked, tasks, each, bound):
    node, goal = Node(free, socket, links, linked), sum(tasks) * each
    beside = [(s, count * each) for s, count in enumerate(tasks) if count]
    for s, share in [*beside, (-1, goal), *((s, goal) for s in range(len(tasks)) if not bound)]:
        node.take(s, min(share, goal - len(node.given)))
    return node.bools()


def pick_per_socket(free, socket, links, linked, cores, each, bound):
    node, used = Node(free, socket, links, linked), [s for s, count in enumerate(cores) if count]
    goal, rest = len(used) * each, [s for s in range(len(cores)) if s not in used and not bound]
    for s, share in [*((s, each) for s in used), (-1, goal), *((s, goal) for s in [*used, *rest])]:
        node.take(s, min(share, goal - len(node.given)))
    return node.bools()


def old_pick_per_task(free, socket, links, linked, tasks, each, bound):
    """Before 24.05: what one socket lacks is looked for at the next, then by links to those given."""
    node = Node(free, socket, links, linked)
    for s in range(len(tasks)):
        node.take_lowest(s, sum(tasks[: s + 1]) * each)
    take_by_level(node, scaled_links(node), [[-1, *range(len(tasks))]], sum(tasks) * each)
    return node.bools()


def old_pick_per_socket(free, socket, links, linked, cores, each, bound):
    node = Node(free, socket, None, False)
    for s in [s for s, count in enumerate(cores) if count]:
        goal = len(node.given) + each
        node.take_lowest(s, goal)
        node.take_lowest(-1, goal)
    return node.bools()


def old_pick_per_job(free, socket, links, linked, cores, need, bound):
    node, used = Node(free, socket, links, linked), [s for s, count in enumerate(cores) if count]
    for s in [-1, *used]:
        node.take_lowest(s, node.size if linked and need > 1 else need)
    for s in [s for s in range(len(cores)) if s not in used]:
        node.take_lowest(s, min(1, need))
    drop_least_linked(node, links, need)
    if node.given:
        first = min(node.given)
        score = [max(0, int(links[first][g])) if linked else 0 for g in range(node.size)]
        take_by_level(node, score, [[-1, *range(len(cores))]], need)
    return node.bools()


def drop_least_linked(node, links, need):
    """Keep the first GPU of the best linked pair; the others go, those with the fewest links to it first."""
    if len(node.given) > need:
        best = min((-links[a][b], a, b) for a in node.given for b in node.given if a < b)[1]
        others = sorted(node.given - {best}, key=lambda g: (links[best][g], g))
        node.given -= set(others[: len(node.given) - need])


def scaled_links(node):
    """The links of each free GPU to those given, in four steps at most."""
    links = node.links or [[0] * node.size] * node.size
    score = [sum(links[a][g] for a in node.given - {g}) if g in node.free else 0 for g in range(node.size)]
    step = (max(score) + 3) // 4 if max(score) > 4 else 1
    return [value // step for value in score]


def take_by_level(node, score, groups, goal):
    """From each group of sockets those whose score reaches a level, the highest level first."""
    for group in groups:
        for level in range(max(0, *score), -1, -1):
            for s in group:
                node.take_lowest(s, goal, [g for g in range(node.size) if score[g] >= level])
