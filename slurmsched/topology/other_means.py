"""Where no Links make Slurm's pick the best: a GRES Type for each island of GPUs, and one form of request for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmsched.model.columns import Int64s
from slurmsched.model.topology import GpuTopology, LinkKind
from slurmsched.topology.gpu_types import best_share
from slurmsched.topology.plain import joined
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.slurm_check import EVERY
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


def type_groups(wiring: GpuTopology, rank: Int64s) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that should have a Type each, so that a request by Type can ask for the best set in every state.

    Islands where those do, and where each is a run of indices: Slurm numbers GPUs Type by Type. Else every GPU alone.
    Of more than nine GPUs every one alone: whether islands do is not looked at. rank: (2**G,) int64 of set_ranks.
    """
    groups = islands(wiring)
    runs = [gpu for group in groups for gpu in group] == list(range(wiring.gpus))
    names = tuple(str(at) for at, group in enumerate(groups) for _ in group)
    alone = tuple((gpu,) for gpu in range(wiring.gpus))
    looked = wiring.gpus <= EVERY and bool(groups) and runs
    return groups if looked and best_share(names, rank) == 1.0 else alone


def typed_lines(one: NodeClass, node: SlurmNode, groups: Sequence[Sequence[int]]) -> list[str]:
    """Lines of gres.conf with a Type for each group, and those of slurm.conf that go with them, as comments."""
    kind = one.devices[0].type or "gpu"
    names = [f"{kind}_{'i' if len(groups) < node.gpus else 'g'}{at}" for at in range(len(groups))]
    name = {gpu: names[at] for at, group in enumerate(groups) for gpu in group}
    devices = tuple(replace(device, type=name[gpu]) for gpu, device in enumerate(one.devices))
    told = ",".join(f"gpu:{name}:{len(group)}" for name, group in zip(names, groups, strict=True))
    pair = f"gpu:{names[0]}:2" if len(groups[0]) > 1 else ",".join(f"gpu:{name}:1" for name in names[:2])
    plain = replace(node, linked=False)  # what is asked by Type is certain, and Links would be heeded again
    return [
        *conf_lines(replace(one, devices=devices), plain),
        f"# slurm.conf, NodeName line: Gres={told}",
        "# slurmsched's configuration: placement.pin, placement.retype = true",
        f"# by hand, a pending job of 2 GPUs on the first two: scontrol update JobId=ID Gres={pair}",
    ]
