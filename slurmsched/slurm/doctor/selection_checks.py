"""How good Slurm's own choice of GPUs is on the nodes of a site, as `topology check` rates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurmsched.config import Config
from slurmsched.errors import SlurmschedError
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.model.snapshot import Snapshot
from slurmsched.resources.gpu_sets import set_ranks
from slurmsched.slurm.cons_tres import known_version, read_shapes
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.topology_sources import read_gres
from slurmsched.topology.gres_nodes import NodeShape, slurm_node
from slurmsched.topology.selection_quality import CHECKED, SelectionQuality, rate_selection, states_of
from slurmsched.topology.slurm_selection import SlurmVersion
from slurmsched.topology.topology_files import NodeClass


def rate_gpu_picks(config: Config, snapshot: Snapshot) -> Mapping[str, tuple[SelectionQuality, ...]]:
    """Class of node -> quality of Slurm's choice, by form of request. Classes that cannot be rated are left out."""
    version, why = known_version(snapshot.site)
    found: dict[str, tuple[SelectionQuality, ...]] = {}
    rows = snapshot.nodes.name.rows()
    try:
        classes = () if why else read_gres(config.topology, snapshot.site).classes
        for one in classes:
            names = [name for name in one.nodes or rows if name in rows]
            number = int(snapshot.topology.node_class[rows[names[0]]]) if names else -1
            if number < 0 or (wiring := snapshot.topology.classes[number]).name in found:
                continue
            shape = read_shapes(open_commands(config.slurm), names[:1])[names[0]]
            found.update(_rated(wiring, replace(one, nodes=tuple(names)), shape, version))
    except SlurmschedError:
        pass  # the classes before it are rated
    return found


def _rated(
    wiring: GpuTopology, one: NodeClass, shape: NodeShape, version: SlurmVersion
) -> dict[str, tuple[SelectionQuality, ...]]:
    """The name of the class and its ratings; empty if they cannot be made."""
    try:
        node, ranks = slurm_node(one, shape), set_ranks(wiring)
    except SlurmschedError:
        return {}
    return {
        wiring.name: tuple(
            rate_selection(node, ranks, form, version, states_of(node, ranks, form, 1)) for form in CHECKED
        )
    }


def check_gpu_picks(checks: Mapping[str, tuple[SelectionQuality, ...]]) -> tuple[CheckResult, ...]:
    """One result for each class whose picks are not always the best."""
    why = "Slurm picks GPUs by its own rule and may pass over free GPUs that are linked better."
    return tuple(
        CheckResult("GPU picks", "warn", f"{name}: " + ", ".join(map(_quality_text, forms)), why,
                "slurmsched topology compile > gres.conf.new")
        for name, forms in checks.items() if any(one.best_states < one.states for one in forms)
    )  # fmt: skip


def _quality_text(one: SelectionQuality) -> str:
    states = f"{one.best_share:.0%} of states{' that were drawn' if one.drawn else ''}"
    return f"--{one.form} gets the best set in {states} and loses {one.lost_share:.0%} of the bandwidth"
