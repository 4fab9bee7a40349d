"""Spread: the farther the GPUs of a job are from each other, the slower it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.model import Assignments, Snapshot
from slurmsched.model.columns import Floats
from slurmsched.policies.checks import check_words
from slurmsched.replay.physics.costs import Costs, caring, check_speed
from slurmsched.replay.physics.levels import levels, nearest_levels


@dataclass(frozen=True, slots=True)
class Spread(Costs):
    """Speed by level: an island of direct links is 1, then within one node, under one leaf switch, across switches.

    The recorded run time is taken as that on the nearest level the job's size allows on an empty cluster.
    node: mean of AlexNet and GoogLeNet at four batch sizes on 2 P100 of two sockets against one (profile published with
    Amaral et al., SC '17). leaf: mean of Pollux's six models on 2 T4 of two nodes against one (profiles published with
    Qiao et al., OSDI '21). across: mean of Gavel's 38 rows for 2 and 4 V100, unconsolidated against consolidated
    (throughputs published with Narayanan et al., OSDI '20). No source tells of switches: that the milder figure of
    the last two is the leaf's is ours. insensitive: words in names of models whose jobs are as fast anywhere.
    Raises ConfigError unless 1 >= node >= leaf >= across > 0.
    """

    node: float = 0.94
    leaf: float = 0.70
    across: float = 0.58
    insensitive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("node", "leaf", "across"):
            check_speed(name, getattr(self, name))
        if not self.node >= self.leaf >= self.across:
            raise ConfigError("node, leaf and across must not ascend: farther is not faster", key="physics.spread")
        check_words("insensitive", self.insensitive, "physics")

    def speed(self, snapshot: Snapshot, held: Assignments) -> Floats:
        """See protocols.Physics."""
        of_level = np.array([1.0, self.node, self.leaf, self.across])
        relative = of_level[levels(snapshot, held)] / of_level[nearest_levels(snapshot, held.rows)]
        return np.where(caring(snapshot, held.rows, self.insensitive), np.minimum(relative, 1.0), 1.0)
