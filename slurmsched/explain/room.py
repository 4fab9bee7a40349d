"""On how many nodes there is room for a job now, and what the others lack."""

from __future__ import annotations

from collections import Counter

from slurmsched.explain.facts import Facts
from slurmsched.explain.obstacles import Asks, Kind, free_gpus, spreads
from slurmsched.model.reasons import Blocker
from slurmsched.model.snapshot import Snapshot
from slurmsched.words import some

MATTERS = (Blocker.PRIORITY, Blocker.RESOURCES, Blocker.NODES)
_LACK = {
    Kind.CLOSED: "closed", Kind.RESERVED: "reserved for others", Kind.WHOLE: "not empty", Kind.GPUS: "short of GPUs",
    Kind.CPUS: "short of CPUs", Kind.MEMORY: "short of memory",
}  # fmt: skip


def room(snapshot: Snapshot, row: int, facts: Facts) -> str:
    """In words, by counts of GPUs, CPUs and memory; "" where no node of its partitions could ever serve it."""
    asks = Asks.of(snapshot, row, facts)
    found = [asks.obstacle(at) for at in range(len(snapshot.nodes))]
    may = [at for at, one in enumerate(found) if one is None or one.kind is not Kind.NEVER]
    if not may:
        return ""
    lack = Counter(one.kind for at in may if (one := found[at]) is not None)
    fit = [at for at in may if found[at] is None]
    needs = max(1, int(snapshot.jobs.nodes[row]))
    least = "at least " if spreads(snapshot, row, facts) else ""
    told = ", ".join(f"{lack[kind]} {words}" for kind, words in _LACK.items() if lack[kind])
    of = f"{len(fit)} of {some(len(may), 'node')} it may use" + (f" ({told})" if told else "")
    if len(fit) < needs:
        return f" There is room for it on {of}; it needs {least}{needs}."
    free, gpus = int(free_gpus(snapshot)[fit].sum()), int(snapshot.jobs.gpus[row])
    if free < gpus:
        return f" There {'is' if free == 1 else 'are'} {some(free, 'GPU')} free on {of}; it needs {gpus}."
    return f" By counts there is room for it on {of}."
