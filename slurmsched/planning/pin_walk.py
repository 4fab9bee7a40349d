"""The walk over waiting jobs that finds each the node whose GPUs Slurm would pick best, or one of its GPU type; gangs
the nodes that lie together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from slurmsched.model import Pin, Ranking, Refusal, Snapshot, Wish
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.hostlist import expand, fold
from slurmsched.placements.candidates import eligible
from slurmsched.placements.gang_walk import lowest
from slurmsched.planning.bounds import UnknownForm, allowed_nodes, blocked_from_s, free_of_reservations
from slurmsched.planning.groups import competing
from slurmsched.planning.picks import Pick
from slurmsched.planning.pin_gangs import together, unfit, where
from slurmsched.planning.pin_room import Left
from slurmsched.planning.reach import of_partitions, reachable, unknown
from slurmsched.planning.type_nodes import nodes_of_types, unfit_for_types
from slurmsched.topology.picker import members


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Whose nodes are to be chosen. picked: (N,) bool, by what Slurm would pick there. types: by row, how many nodes of
    each GPU type the policy wants. waits: (N,) bool, who begins only once it has a place."""

    picked: Bools
    types: dict[int, dict[str, int]]
    waits: Bools


@dataclass(slots=True, eq=False)
class Walk:
    """Waiting jobs in their order, each taking what it would start with, so that none is promised what another takes.

    mine: lists of ours that jobs have now, by row. chosen, why: the nodes of each job that gets some, and the reason.
    request: by GPU Type, of those chosen that get one. picked: those that got them by what they ask for. blocked_s:
    (N,) from when on reservations hold each node [Unix s].
    """

    left: Left
    mine: dict[int, Pin]
    chosen: dict[int, str] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)
    request: dict[int, str] = field(default_factory=dict)
    picked: set[int] = field(default_factory=set)
    refused: list[Refusal] = field(default_factory=list)
    blocked_s: Floats | None = None

    def go(self, ranking: Ranking, asked: Asked, candidates: int) -> None:
        """Look at so many waiting jobs, most urgent first, and at as many of those that are to have a type. These go on
        after the first that does not fit."""
        group, blocked = competing(self.left.snapshot), set[int]()
        for row in self._rows(ranking, asked, candidates):
            if row in asked.types and self._of_types(row, asked.types[row]):
                continue
            if asked.waits[row] and not asked.picked[row]:
                continue  # it begins no earlier than it says, and takes nothing now
            if int(group[row]) not in blocked and not self._served(row, bool(asked.picked[row])):
                blocked.add(int(group[row]))

    def _rows(self, ranking: Ranking, asked: Asked, candidates: int) -> list[int]:
        """Rows to look at in their order; none after the last whose node is to be chosen."""
        rows = ranking.order[eligible(self.left.snapshot)[ranking.order]]
        typed = np.isin(rows, list(asked.types))
        looked = (np.arange(len(rows)) < candidates) | (typed & (np.cumsum(typed) <= candidates))
        ends = np.flatnonzero(looked & (typed | asked.picked[rows]))
        last = int(ends[-1]) + 1 if len(ends) else 0
        found: list[int] = rows[:last][looked[:last]].tolist()
        return found

    def _of_types(self, row: int, want: dict[str, int]) -> bool:
        """Take so many nodes of each of these types, if there is room. Which GPUs the job gets there is not known."""
        wish, count = self._wish(row), sum(want.values())
        if why := unfit_for_types(wish, count):
            self._refuse(row, "pin-asks", why)
            return False
        snapshot = self.left.snapshot
        if why := unknown(of_partitions(snapshot, snapshot.jobs.partition[row]), count):
            self._refuse(row, "pin-gang", why)
            return False
        found = nodes_of_types(snapshot, row, want, self.mine.get(row), self._unreserved(row))
        if not found or not reachable(snapshot.topology, np.array(found)):
            return False
        share = int(snapshot.jobs.gpus[row]) // count
        for node in found:
            used = int(snapshot.nodes.gpu_mask_used[node])
            shown = used.bit_count() == int(snapshot.nodes.gpus_used[node])
            self.left.take(row, node, lowest(~used, share) if shown else 0, share, count)
            self.left.picks.shut(node)
            if wish is not None and wish.whole:
                self.left.close(node)
        if count > 1:
            self.picked.add(row)  # what it asks for is looked at again before it gets a list
        self.chosen[row] = fold(snapshot.nodes.name[node] for node in found)
        there = "these nodes" if count > 1 else "this node"
        self.why[row] = f"the policy wants it on {' and '.join(want)}, of which there is room on {there}"
        return True

    def _served(self, row: int, wanted: bool) -> bool:
        """Whether the job fits into what is left; its share is taken."""
        try:
            allowed = allowed_nodes(self.left.snapshot, row)
        except UnknownForm as error:
            if wanted:
                self._refuse(row, "pin-form", str(error))
            return self._plain(row, np.ones(len(self.left.snapshot.nodes), np.bool_))
        wish = self._wish(row) if wanted else None
        if wish is not None and not wish.bars:
            several = int(self.left.snapshot.jobs.nodes[row]) > 1
            return self._gang(row, wish, allowed) if several else self._best(row, wish, allowed)
        if wanted:
            barred = f"it asks for {' and '.join(wish.bars)}" if wish else "what it asks for was not read"
            self._refuse(row, "pin-asks", f"{barred}: which GPUs Slurm gives it is not known, or it has a say in it")
        return self._plain(row, allowed)

    def _wish(self, row: int) -> Wish | None:
        jobs, picking = self.left.snapshot.jobs, self.left.snapshot.picking or self.left.picks.picking
        key = (int(jobs.job_id[row]), float(jobs.submit_s[row]))
        wish = next((wish for wish in picking.wishes if (wish.job_id, wish.submit_s) == key), None)
        return wish and _own(wish, self.mine.get(row))

    def _unreserved(self, row: int) -> Bools:
        """Nodes that are up and that no reservation keeps from the job; none if that cannot be read. (N,) bool.

        A job is never pinned to a node that has to boot first: where it needs one, Slurm chooses it.
        """
        if self.blocked_s is None:
            self.blocked_s = _blocked_s(self.left.snapshot)
        unreserved = free_of_reservations(self.left.snapshot, row, self.blocked_s)
        return unreserved & ~self.left.snapshot.nodes.after_boot

    def _best(self, row: int, wish: Wish, allowed: Bools) -> bool:
        """Take the node with the best pick. Where none can be told, the job is Slurm's."""
        gpus = int(self.left.snapshot.jobs.gpus[row])
        among = np.flatnonzero(allowed & self._unreserved(row)).tolist()
        offers = {n: self.left.picks.pick(n, wish, gpus) for n in among}
        top = max((pick.rank for pick in offers.values()), default=-1)
        good = {n: pick for n, pick in offers.items() if pick.mask and pick.rank == top}
        node = self._placed(row, np.isin(np.arange(len(allowed)), list(good))) if good else -1
        if node < 0:
            return self._plain(row, allowed)
        best = max(pick.best_rank for pick in offers.values())
        self.left.picks.take(node, good[node])
        self.left.take(row, node, good[node].mask, gpus)
        self.picked.add(row)
        self.chosen[row] = self.left.snapshot.nodes.name[node]
        self.why[row] = _reason(good[node], best)
        if good[node].request:
            self.request[row] = good[node].request
        return True

    def _gang(self, row: int, wish: Wish, allowed: Bools) -> bool:
        """Take the nodes of a gang that lie together best. Where they cannot all be had now, the job is Slurm's."""
        if why := unfit(self.left.snapshot, row, wish, allowed):
            self._refuse(row, "pin-gang", why)
            return self._plain(row, allowed)
        found = together(self.left, row, wish, allowed & self._unreserved(row), self.mine.get(row))
        if not found:
            return self._plain(row, allowed)
        self.picked.add(row)
        self.chosen[row] = fold(self.left.snapshot.nodes.name[node] for node in found)
        self.why[row] = where(self.left.snapshot.topology, found)
        return True

    def _placed(self, row: int, nodes: Bools) -> int:
        """The node that the placement gives the job among these, -1 if it does not fit. A list of ours that is as good
        stays."""
        kept = self.mine.get(row)
        own = nodes & self.left.snapshot.nodes.name.isin(expand(kept.nodes)) if kept else nodes
        for among in (own, nodes) if kept else (nodes,):
            if len(shares := self.left.shares(row, among)) == 1:
                return shares[0][0]
        return -1

    def _plain(self, row: int, allowed: Bools) -> bool:
        """A job whose nodes are Slurm's to choose: where the placement puts it stands for that, and nothing more is
        known of the GPUs there."""
        boots = self.left.snapshot.nodes.after_boot  # Slurm takes these last
        shares = (self.left.shares(row, allowed & ~boots) if boots.any() else []) or self.left.shares(row, allowed)
        for node, mask, gpus in shares:
            self.left.take(row, node, mask, gpus, len(shares))
            self.left.picks.shut(node)
        return bool(shares) or not self.left.snapshot.jobs.gpus[row]

    def _refuse(self, row: int, rule: str, reason: str) -> None:
        self.refused.append(Refusal(int(self.left.snapshot.jobs.job_id[row]), rule, reason))


def _blocked_s(snapshot: Snapshot) -> Floats:
    """As blocked_from_s; every node is, where a reservation's nodes cannot be read. (N,)."""
    try:
        return blocked_from_s(snapshot)
    except UnknownForm:
        return np.full(len(snapshot.nodes), -np.inf)


def _own(wish: Wish, pin: Pin | None) -> Wish:
    """The wish by the job's own request, which says what may be done with it."""
    wish = replace(wish, asks=pin.own_gpus) if pin and pin.rewritten else wish
    several = ("GPUs of several types",) if "," in wish.asks else ()
    return replace(wish, bars=(*wish.bars, *several))


def _reason(pick: Pick, best_rank: int) -> str:
    gpus = ",".join(map(str, members(pick.mask)))
    good = "the best set of all it may have" if pick.rank >= best_rank else "the best of Slurm's picks on its nodes"
    return f"Slurm gives it GPUs {gpus} there, {good}"
