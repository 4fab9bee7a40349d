"""A trained network chooses the node of each worker, by what jobs there do to each other's speed: Harmony."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from slurmsched.estimators.group_speeds import MURI, NODE_LOSS, GroupSpeeds, check_group_speeds, kept_beside
from slurmsched.estimators.policy_network import policy_network
from slurmsched.estimators.throughput_table import kind_of_job
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.gpu_masks import lowest_bits
from slurmsched.model.parameters import Part, check_ranges
from slurmsched.placements.gang_walk import Gang, GangRequest, OfferedGpus, place_gangs
from slurmsched.resources.placeable_gpus import PlaceableGpus
from slurmsched.resources.startable_jobs import startable

FEATURES = ("kept", "lost", "neighbours", "left", "gpus", "workers", "free", "waiting")
AT_ONCE = 1_000  # nodes that the network scores; beyond the cache of a CPU it takes 20 times as long for each
LEFT = FEATURES.index("left")
UNKNOWN = ""  # kind of all jobs that no table has
NodeChooser = Callable[[str, Floats], int]  # kind of the job, features of the nodes (C, F) -> the one taken
UNTRAINED = (
    "placement harmony has no weights: a job goes where the least speed is lost; `slurmsched policy train harmony "
    "TRACE --out FILE` makes some, and placement.weights names them",
)


@dataclass(frozen=True, slots=True)
class Harmony:
    """A network chooses one node after the other for the workers of a job, among those with room.

    The part of a gang on one node is a worker. The network sees what the job would keep of its speed on a node, and
    what the jobs there would lose by it. It also sees their number, the GPUs that are left there, the size of the job
    and how full the cluster is. It is trained by replays, see `slurmsched policy train`.
    weights: file of its weights. Without one a worker goes where the least speed is lost, then to the fullest node.
    node_loss: part of the loss on the same GPU, in logarithms, that jobs on other GPUs of a node cause.
    stages, pairs, type: tables that predict speeds, see estimators.group_speeds.
    measured: file of profiles with measured pairs, which come before those tables; "" = that of the configuration.
    Raises ConfigError for a parameter out of range, InputError for weights or a table that cannot be read.
    Source: Bao et al. (Harmony), INFOCOM 2019: a network trained by policy gradient with a critic, rewards predicted
    by a model of speeds, exploration by job. The full paper was not at hand. Features, first lesson, reward and
    exploration are ours, as is one small network that looks at each node.
    """

    weights: str = ""
    node_loss: Part = NODE_LOSS
    stages: str = MURI
    pairs: str = "gavel"
    type: str = "v100"
    measured: str = ""

    def __post_init__(self) -> None:
        check_ranges(self, "placement")
        check_group_speeds(self.speeds)
        self.chooser_of_nodes()

    @property
    def speeds(self) -> GroupSpeeds:
        """Where predicted speeds come from."""
        return GroupSpeeds(self.stages, self.pairs, self.type, self.measured)

    @property
    def notes(self) -> tuple[str, ...]:
        """What it lacks, as text."""
        return () if self.weights else UNTRAINED

    def chooser_of_nodes(self) -> NodeChooser:
        """What the network takes; without weights the first lesson's choice."""
        if not self.weights:
            return lambda _, features: least_lost(features)
        network = policy_network(self.weights, FEATURES)
        return lambda _, features: int(np.argmax(np.concatenate(
            [network.scores(features[first : first + AT_ONCE]) for first in range(0, len(features), AT_ONCE)]
        )))  # fmt: skip

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """Which jobs of the ranking should hold which GPUs now; every gang whole."""
        return self.placed(snapshot, ranking, self.chooser_of_nodes())

    def placed(self, snapshot: Snapshot, ranking: Ranking, choose: NodeChooser) -> Assignments:
        """As place. choose: who decides."""
        placeable = PlaceableGpus.of(snapshot)
        neighbours = _Neighbours(snapshot, placeable, self)

        def chosen(ask: GangRequest, offer: OfferedGpus) -> Gang | None:
            return neighbours.gang(ask, offer, choose)

        return place_gangs(snapshot, ranking, chosen, placeable, neighbours.joined)

    def predicted_speeds(self, snapshot: Snapshot, target: Assignments) -> Floats:
        """Share of its speed alone that each job of target.rows keeps beside its neighbours. (R,)."""
        held = np.zeros(len(snapshot.jobs), np.bool_)
        held[target.rows] = True
        kinds = _Kinds.of(snapshot, held, self)
        kind = np.repeat(kinds.of_row[target.rows], target.count)
        kept = kinds.together(target.node, kind, len(snapshot.nodes))[1][target.node, kind]
        return np.minimum.reduceat(kept, target.first) if len(target.rows) else np.zeros(0)


def least_lost(features: Floats) -> int:
    """The first lesson: where the job keeps most less what others lose; of equals the fewest GPUs left, the first."""
    gain = np.round(features[:, 0] - features[:, 1], 9)
    return int(np.lexsort((np.arange(len(features)), features[:, LEFT], -gain))[0])


class _Held(NamedTuple):
    """Workers on nodes: node row, mask of GPUs, and kind of job by number. (E,) each."""

    node: Int64s
    mask: Int64s
    kind: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Kinds:
    """Kinds of jobs, and what they keep beside each other.

    names: ascending; UNKNOWN stands for all that no table has.
    of_row: (J,) number of each job's kind, 0 for jobs that neither hold GPUs nor wait.
    logs: (K, K) logarithm of what a kind keeps beside another on its node.
    """

    names: tuple[str, ...]
    of_row: Int64s
    logs: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, held: Bools, rule: Harmony) -> _Kinds:
        """held: (J,) jobs that hold GPUs."""
        rows, speeds = np.flatnonzero(startable(snapshot) | held).tolist(), rule.speeds
        named = {row: kind_of_job(snapshot.jobs, row) for row in rows}
        known = {kind: kind if speeds.knows(kind, 1) else UNKNOWN for kind in set(named.values())}
        names, of_row = sorted(set(known.values())), np.zeros(len(snapshot.jobs), np.int64)
        of_row[rows] = [names.index(known[named[row]]) for row in rows]
        kept = [kept_beside(speeds, one, other, rule.node_loss) for one in names for other in names]
        return cls(tuple(names), of_row, np.log(np.array(kept, np.float64)).reshape(len(names), len(names)))

    def together(self, node: Int64s, kind: Int64s, nodes: int) -> tuple[Floats, Floats]:
        """Workers of each kind on each node, and what one of each kind keeps beside the others there. (N, K) each."""
        count = np.zeros((nodes, len(self.names)))
        np.add.at(count, (node, kind), 1.0)
        return count, np.exp(count @ self.logs.T - np.diag(self.logs))


class _Neighbours:
    """Who is on which node while jobs are placed one after another."""

    def __init__(self, snapshot: Snapshot, placeable: PlaceableGpus, rule: Harmony) -> None:
        held = placeable.allocated
        self._kinds = _Kinds.of(snapshot, held.count > 0, rule)
        self._gpus = np.maximum(snapshot.nodes.gpus.astype(np.int64), 1)
        self._waiting = float(np.log1p(startable(snapshot).sum())) / 8
        self._held = _Held(held.node, held.mask, self._kinds.of_row[held.row])

    def joined(self, row: int, gang: Gang) -> None:
        """A job got GPUs."""
        node, mask = gang
        added = (node, mask, np.full(len(node), self._kinds.of_row[row]))
        self._held = _Held(*(np.concatenate(pair) for pair in zip(self._held, added, strict=True)))

    def gang(self, ask: GangRequest, offer: OfferedGpus, choose: NodeChooser) -> Gang | None:
        """One node after the other for the workers; None if they do not all fit."""
        room, taken, made = offer.room.copy(), list[tuple[int, int]](), self._features(ask, offer)
        kind = self._kinds.names[self._kinds.of_row[ask.row]]
        for gpus in ask.takes:
            fits = np.flatnonzero(room >= gpus)
            if not len(fits):
                return None
            made[:, LEFT], made[:, LEFT + 1] = (room - gpus) / self._gpus, np.log2(gpus) / 6
            node = int(fits[choose(kind, made[fits])])
            taken.append((node, lowest_bits(int(offer.free[node]), gpus)))
            room[node] = 0
        taken.sort()
        return np.array([node for node, _ in taken], np.int64), np.array([mask for _, mask in taken], np.int64)

    def _features(self, ask: GangRequest, offer: OfferedGpus) -> Floats:
        """Of each node, as FEATURES names them; those of the worker's GPUs are still 0. (N, F)."""
        # Who holds GPUs that are offered goes for the job.
        made, logs = np.zeros((len(offer.free), len(FEATURES))), self._kinds.logs
        mine, stays = int(self._kinds.of_row[ask.row]), (self._held.mask & offer.free[self._held.node]) == 0
        others, now = self._kinds.together(self._held.node[stays], self._held.kind[stays], len(made))
        made[:, 0] = np.exp(others @ logs[mine])
        made[:, 1] = (others * now) @ (1.0 - np.exp(logs[:, mine]))
        made[:, 2] = np.log1p(others.sum(axis=1))
        free = float(offer.room.sum()) / float(self._gpus.sum())
        made[:, LEFT + 2 :] = np.log2(len(ask.takes)) / 6, free, self._waiting
        return made
