"""On how many nodes there is room for a job now, and what the others lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind, Obstacle, free_gpus
from slurmsched.explain.text import shown
from slurmsched.model.reasons import Blocker
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.eligibility import Bar
from slurmsched.words import some

MATTERS = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES)
_LACK = {
    Kind.CLOSED: "closed", Kind.RESERVED: "reserved for others", Kind.WHOLE: "not empty", Kind.GPUS: "short of GPUs",
    Kind.CPUS: "short of CPUs", Kind.MEMORY: "short of memory",
}  # fmt: skip


def room(snapshot: Snapshot, row: int, facts: Facts) -> str:
    """In words, by counts of GPUs, CPUs and memory; where no node could ever serve it, what keeps it off most."""
    asks = Asks.of(snapshot, row, facts)
    found = [asks.obstacle(at) for at in range(len(snapshot.nodes))]
    may = [at for at, one in enumerate(found) if one is None or one.kind is not Kind.NEVER]
    if not may:
        own = Counter(one.text for at, one in enumerate(found) if one and asks.found.bar[at] != Bar.PARTITION)
        return f" No node can serve it: {own.most_common(1)[0][0]}." if own else ""
    return _counted(asks, found, may) + _unseen(asks)


def _unseen(asks: Asks) -> str:
    return f" Not looked at: {shown('; '.join(asks.unseen))}." if asks.unseen else ""


def _counted(asks: Asks, found: Sequence[Obstacle | None], may: Sequence[int]) -> str:
    """What there is room on. may: nodes that could ever serve it."""
    snapshot, row = asks.snapshot, asks.row
    lack = Counter(one.kind for at in may if (one := found[at]) is not None)
    fit = [at for at in may if found[at] is None]
    needs = max(1, int(snapshot.jobs.nodes[row]))
    least = "at least " if asks.request.spread else ""
    told = ", ".join(f"{lack[kind]} {words}" for kind, words in _LACK.items() if lack[kind])
    of = f"{len(fit)} of {some(len(may), 'node')} it may use" + (f" ({told})" if told else "")
    boots = int(snapshot.nodes.after_boot[fit].sum())
    of += f", on {boots} of these after a boot" if boots else ""
    if len(fit) < needs:
        return f" There is room for it on {of}; it needs {least}{needs}."
    free, gpus = int(free_gpus(snapshot)[fit].sum()), int(snapshot.jobs.gpus[row])
    if free < gpus:
        return f" There {'is' if free == 1 else 'are'} {some(free, 'GPU')} free on {of}; it needs {gpus}."
    return f" By counts there is room for it on {of}."
