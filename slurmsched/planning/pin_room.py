"""What is left of the cluster while waiting jobs take their shares, one after another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurmsched.model import NodeState, Ranking, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.planning.picks import Picks
from slurmsched.protocols import Placement
from slurmsched.resources.held import holding

Share = tuple[int, int, int]  # node row, mask of its GPUs, number of GPUs; the mask is 0 where Slurm shows counts only

_DRAIN = int(NodeState.DRAIN)


@dataclass(slots=True, eq=False)
class Left:
    """snapshot: what jobs took is in use there. placement: puts jobs on nodes. picks: what Slurm would pick on them."""

    snapshot: Snapshot
    placement: Placement
    picks: Picks

    def shares(self, row: int, nodes: Bools) -> list[Share]:
        """What the placement gives the job on these nodes; none if it does not fit."""
        table = self.snapshot.nodes
        closed = np.where(nodes, table.state, table.state | _DRAIN)
        view = replace(self.snapshot, nodes=table.with_columns(state=closed))
        found = self.placement.place(view, Ranking(np.append(np.flatnonzero(holding(view.jobs)), row)))
        at = np.flatnonzero(found.rows == row)
        if not len(at):
            return []
        entries = slice(int(found.first[at[0]]), int(found.first[at[0]] + found.count[at[0]]))
        gpus = found.gpus[entries]
        masks = found.gpu_mask[entries] if len(found.gpu_mask) else np.zeros_like(gpus)
        return list(zip(found.node[entries].tolist(), masks.tolist(), gpus.tolist(), strict=True))

    def take(self, row: int, node: int, taken: int, gpus: int, of: int = 1) -> None:
        """The job's share, one of so many, is gone. taken: mask, 0 = not known."""
        jobs, nodes = self.snapshot.jobs, self.snapshot.nodes
        mask = nodes.gpu_mask_used.copy()
        mask[node] |= taken
        more = {"gpus_used": gpus, "cpus_used": -(-int(jobs.cpus[row]) // of),
                "memory_used_mib": float(jobs.memory_mib[row]) / of}  # fmt: skip
        made = {name: getattr(nodes, name).copy() for name in more}
        for name, amount in more.items():
            made[name][node] += amount
        self.snapshot = replace(self.snapshot, nodes=nodes.with_columns(gpu_mask_used=mask, **made))

    def close(self, node: int) -> None:
        """Nobody else comes to this node."""
        nodes = self.snapshot.nodes
        used = {name: getattr(nodes, name).copy() for name in ("cpus_used", "memory_used_mib")}
        for name, of in (("cpus_used", nodes.cpus), ("memory_used_mib", nodes.memory_mib)):
            used[name][node] = of[node]
        state = nodes.state.copy()
        state[node] |= _DRAIN
        self.snapshot = replace(self.snapshot, nodes=nodes.with_columns(state=state, **used))
        self.picks.shut(node)
