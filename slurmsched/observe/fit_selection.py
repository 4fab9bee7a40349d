"""The GPUs that Slurm would pick for a request that fits."""

from __future__ import annotations

from slurmsched.config import Config
from slurmsched.model import Snapshot
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.observe.survey.fit import Fit, Picker, fit, with_partition
from slurmsched.observe.survey.sbatch_request import SbatchRequest, node_needs
from slurmsched.slurm.cons_tres import read_known_selection
from slurmsched.topology.slurm_selection import GpuOption, NodeGpuRequest


def fit_with_selection(config: Config, snapshot: Snapshot, request: SbatchRequest, answer: Fit) -> tuple[Fit, str]:
    """The answer with the GPUs that Slurm picks, and why they are unknown: "" if they are known or the request waits.

    Asks Slurm for the hardware of the nodes. Raises SlurmError.
    """
    if answer.starts and answer.needs == 1:
        pick, unknown = _picker(config, snapshot, request, answer)
        return fit(snapshot, request, pick), unknown
    if answer.starts:
        return answer, "shown only for jobs of one node" + ("" if answer.needs else ", such as by --nodes=1")
    return answer, ""


def _picker(config: Config, snapshot: Snapshot, request: SbatchRequest, answer: Fit) -> tuple[Picker | None, str]:
    """Slurm's rule of choice on the nodes that can take the request, and why it is unknown."""
    if request.exclusive or node_needs(snapshot, with_partition(snapshot, request)).cpus_per_gpu:
        return None, "not known with --exclusive, and with CPUs by GPU (--cpus-per-gpu, DefCpuPerGPU)"
    names = [name for place in answer.places for name in expand_hostlist(place.nodes)]
    picks = read_known_selection(config, snapshot, names)
    form = GpuOption.PER_NODE if request.gpus_per_node else GpuOption.PER_JOB
    return picks(NodeGpuRequest(form, 1, cpus_per_task=request.cpus_per_task)), picks.why
