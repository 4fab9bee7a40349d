"""Where no Links make Slurm's pick the best: a GRES Type for each island of GPUs, and one form of request for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.plain import joined
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.slurm_node import SlurmNode
from slurmsched.topology.slurm_site import conf_lines

# Works on slurmctld 24.11.5 and 26.05.5, tried: "" takes the job's own request away.
JOB_SUBMIT = """\
function slurm_job_submit(job, partitions, uid)
   local gpus = job.tres_per_job
   if gpus and string.match(gpus, "^gres[:/]gpu[^,]*$") and not job.tres_per_node
         and job.min_nodes == 1 and job.max_nodes == 1 then
      job.tres_per_node = gpus
      job.tres_per_job = ""
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end
"""


def islands(wiring: GpuTopology) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that are better linked among themselves, ascending; () where there is but one group.

    GPUs joined by NVLink or XGMI, over any chain; where that is all of them, those of one NUMA node.
    """
    direct = np.argwhere(wiring.kind >= LinkKind.XGMI).tolist()
    of = joined(wiring.gpus, direct)
    if len(set(of)) == 1:
        of = [int(node) for node in wiring.numa]
    groups = [tuple(g for g in range(wiring.gpus) if of[g] == one) for one in dict.fromkeys(of)]
    apart = -1 not in of and len(groups) > 1 and any(len(group) > 1 for group in groups)
    return tuple(groups) if apart else ()


def typed_lines(one: NodeClass, node: SlurmNode, groups: Sequence[Sequence[int]]) -> list[str]:
    """Lines of gres.conf with a Type for each group, and those of slurm.conf that go with them, as comments."""
    kind = one.devices[0].type or "gpu"
    name = {gpu: f"{kind}_i{at}" for at, group in enumerate(groups) for gpu in group}
    devices = tuple(replace(device, type=name[gpu]) for gpu, device in enumerate(one.devices))
    told = ",".join(f"gpu:{kind}_i{at}:{len(group)}" for at, group in enumerate(groups))
    plain = replace(node, linked=False)  # within an island all are alike, and Links would be heeded again
    return [
        *conf_lines(replace(one, devices=devices), plain),
        f"# slurm.conf, NodeName line: Gres={told}",
        f"# a pending job of 2 GPUs on island 0: scontrol update JobId=ID Gres=gpu:{kind}_i0:2",
    ]
