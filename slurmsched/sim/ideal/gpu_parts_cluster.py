"""Which jobs of a simulated cluster hold which parts of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmsched.errors import ConfigError, InputError
from slurmsched.kernels.gpu_share_fit import WHOLE
from slurmsched.model import Snapshot
from slurmsched.model.columns import made_read_only
from slurmsched.model.gpu_masks import bit_counts
from slurmsched.model.job_outcomes import JobOutcomes, UsageHistory
from slurmsched.model.plan import Assignments
from slurmsched.model.trace import Trace
from slurmsched.plain_text import pluralize
from slurmsched.sim.cluster_layout import NodeSpec
from slurmsched.sim.ideal.ideal_cluster import IdealCluster, by_number
from slurmsched.sim.ideal.ideal_plan import IdealPlan
from slurmsched.sim.ideal.ideal_settings import IdealSettings
from slurmsched.sim.ideal.ideal_snapshot import HeldGpus
from slurmsched.sim.ideal.physics_cluster import GpuHolders


class GpuPartsCluster(IdealCluster):
    """The ideal cluster in which a job of one GPU may hold a part of it, and others the rest.

    A job is on one node, and runs as long as recorded, whoever is beside it. Free GPUs are counted in thousandths.
    nodes: those with GPUs.
    cpus_known: whether their CPUs count. Memory counts if all of them tell it.
    gpu_milli: (J,) part of each of its GPUs that a job holds [1/1000]. cpus, memory_mib: (J,) of the job, 0 = not told.
    Raises InputError for a job that no empty node holds.
    """

    def __init__(
        self, trace: Trace, nodes: Sequence[NodeSpec], model: IdealSettings | None = None, *,
        cpus_known: bool = False, seed: int = 0,
    ) -> None:  # fmt: skip
        order = np.argsort(trace.job_id, kind="stable")  # rows of JobArrays
        part = np.where(trace.gpus[order] == 1, np.rint(trace.gpu_share[order] * WHOLE), WHOLE)
        self.gpu_milli = np.maximum(part, 1).astype(np.int64)
        memory_known = all(node.memory_mib for node in nodes)
        self.cpus, self.memory_mib = trace.cpus[order] * cpus_known, trace.memory_mib[order] * memory_known
        self._has = np.array([(each.gpus, each.cpus, each.memory_mib) for each in nodes], np.float64)
        self._has *= (1, cpus_known, memory_known)
        super().__init__(trace, [node.gpus for node in nodes], model, seed=seed)
        beside = {"cpus": self._has[:, 1], "memory_mib": self._has[:, 2]}
        self.stage = replace(self.stage, nodes=self.stage.nodes.with_columns(**beside))
        self._pile, self._mask = False, np.zeros(0, np.int64)  # of the entries of _shares
        self._history = UsageHistory(self.free, WHOLE)
        self.free, self._takes = self.free * WHOLE, by_number(self.gpus * self.gpu_milli)

    def read(self) -> Snapshot:
        """The cluster now."""
        plain, rows, held, nodes = super().read(), self._seen, self._holding(), len(self.capacity)
        milli = self.gpu_milli[rows]
        attained_gpu_s = plain.jobs.attained_gpu_s * milli / WHOLE
        jobs = plain.jobs.with_columns(
            gpu_milli=milli, attained_gpu_s=attained_gpu_s, cpus=self.cpus[rows], memory_mib=self.memory_mib[rows]
        )
        beside = {
            "cpus_used": np.bincount(held.node, self.cpus[held.row], nodes),
            "memory_used_mib": np.bincount(held.node, self.memory_mib[held.row], nodes),
        }
        used = plain.nodes.with_columns(gpu_mask_used=made_read_only(held.used(nodes)), **beside)
        shown = plain.allocations.with_columns(gpu_mask=made_read_only(held.mask))
        return replace(plain, jobs=jobs, nodes=used, allocations=shown)

    def outcomes(self) -> JobOutcomes:
        """What became of the jobs that ended so far, in the trace's order."""
        done = super().outcomes()
        return replace(done, gpu_share=self.gpu_milli[np.searchsorted(self.job_id, done.job_id)] / WHOLE)

    def _holding(self) -> GpuHolders:
        """What jobs hold now."""
        row, node, gpus = self._shares
        return GpuHolders(row, node, gpus, self._mask).take(~np.isnan(self.start_s[row]))

    def _holders(self) -> tuple[Sequence[int], HeldGpus | None]:
        """As the ideal cluster; a GPU in use counts once, whoever shares it."""
        return bit_counts(self._holding().used(len(self.capacity))).tolist(), super()._holders()[1]

    def _hold(self, target: Assignments) -> None:
        """As the ideal cluster, with the GPUs. Raises ConfigError for a target that gives a GPU away twice."""
        super()._hold(target)
        if len(target.gpu_mask) != len(target.rows) or (target.count != 1).any():
            raise ConfigError("has to name the GPUs of each job, on one node", key="placement")
        self._mask = target.gpu_mask[np.argsort(self._seen[target.rows], kind="stable")]
        held, index = self._holding(), np.arange(int(self.capacity.max()))
        given = np.zeros((len(self.capacity), len(index)), np.int64)
        parts = self.gpu_milli[held.row][:, np.newaxis] * (held.mask[:, np.newaxis] >> index & 1)
        np.add.at(given, held.node, parts)
        if (given > WHOLE).any() or (held.mask >> self.capacity[held.node]).any():
            raise ConfigError("gives more of a GPU than there is", key="placement")
        wrong = held.row[bit_counts(held.mask) != self.gpus[held.row]]
        if len(wrong):
            raise ConfigError(f"gives job {self.job_id[wrong[0]]} other than its number of GPUs", key="placement")

    def _stand_by(self, plan: IdealPlan) -> None:
        """As the ideal cluster. What must be free for the next plan to differ is not known in parts."""
        super()._stand_by(plan)
        self._enough = 0

    def _refuse_impossible(self) -> None:
        asked = np.column_stack([self.gpus, self.cpus, self.memory_mib])
        kinds, first = np.unique(asked, axis=0, return_index=True)
        fits = np.any(np.all(kinds[:, np.newaxis] <= self._has, axis=2), axis=1)
        if not fits.all():
            row = int(first[~fits].min())
            gpus, cpus, memory_mib = asked[row].tolist()
            beside = f", {pluralize(int(cpus), 'CPU')}" * (cpus > 0) + f", {memory_mib:,.0f} MiB" * (memory_mib > 0)
            raise InputError(
                f"job {self.job_id[row]} asks for {pluralize(int(gpus), 'GPU')}{beside}, and no node holds that: "
                "placements of parts of GPUs put each job on one node; take another --placement, larger nodes, or "
                "leave the job out"
            )
